package timeline

import (
	"github.com/omnitap/omnitap/proxy/timeline/waveform"
	"github.com/omnitap/omnitap/proxy/wire/audio"
)

// abortLinkNS is how soon after a client's abort a request's failure is shown
// beside it: a coincidence in time, no cause.
const abortLinkNS = 5e9

// evidence gathers what the terminal state rests on.
func (b *Builder) evidence(f *facts) map[string]any {
	e := map[string]any{}
	put := func(name string, v any, there bool) {
		if there {
			e[name] = v
		}
	}
	put("bytes_received", b.bodyBytes, b.turn == nil)
	put("complete", b.complete, b.turn == nil)
	c := &b.close
	put("status", b.status, b.status != 0)
	put("client_end", c.client.String(), c.client != Open)
	put("server_end", c.server.String(), c.server != Open)
	put("closed_first", [...]string{"", "client", "server"}[c.first], c.first != 0)
	put("errno", c.errno, c.errno != "")
	put("framing", c.lost, c.lost != "")
	put("unread", c.unread, c.unread != "")
	put("reused_conn", true, b.reused)
	put("via", b.answer.Via, b.answer.Via != "")
	put("server", b.answer.Server, b.answer.Server != "")
	put("end_marker", true, f.marker)
	put("framing", c.badFrames, c.badFrames != "")
	put("close_code", c.frameCode, c.frameBy != 0)
	put("close_by", [...]string{"", "client", "server"}[c.frameBy], c.frameBy != 0)
	put("confidence", "low", c.pingTimeout || b.said != nil && b.said.reason == byText)
	if b.interrupted != nil {
		put("interrupted_by", b.interrupted.detail, b.interrupted.detail != "")
	}
	since := b.at[pIn].mono - b.id.LastAbort
	put("after_client_abort_ms", float64(since)/1e6, b.id.LastAbort != 0 && b.at[pIn].mono != 0 && since >= 0 && since < abortLinkNS)
	if b.said != nil {
		put("code", b.said.code, b.said.code != 0)
		put("error_offset", b.said.at.off, b.said.event)
		put("in_stream", true, b.said.event)
	}
	if len(f.trouble) > 0 {
		e["detail"] = f.trouble[0].detail
	}
	b.timeEvidence(e)
	b.soundEvidence(f, e)
	return e
}

// timeEvidence adds what the limits in time and the client's leaving tell.
func (b *Builder) timeEvidence(e map[string]any) {
	c := &b.close
	if last, in := max(b.lastBody.mono, b.lastSeen), b.at[pIn].mono; last >= in && in != 0 && b.state != Success {
		e["last_output_ms"] = float64(last-in) / 1e6
	}
	if b.limits.late {
		e["deadline_ms"] = float64(b.cfg.Deadline) / 1e6
	}
	if c.aborted != 0 {
		e["aborted"] = true
	}
	if b.state != ClientCancelled || b.interrupted != nil {
		return
	}
	if b.at[pIn].mono != 0 && c.clientAt >= b.at[pIn].mono { // a round number is the client's own timeout
		e["age_ms"] = float64(c.clientAt-b.at[pIn].mono) / 1e6
	}
	if c.propagated != 0 {
		e["cancel_propagated_ms"] = float64(c.propagated-c.clientAt) / 1e6
	}
	e["server_stopped"] = "unknown" // the wire does not tell
}

// soundEvidence adds what the sound tells.
func (b *Builder) soundEvidence(f *facts, e map[string]any) {
	for _, c := range f.findings {
		if c.Verdict == waveform.Failed {
			e["check"] = c.Reason
			break
		}
	}
	if s := b.snd; s != nil {
		if frames, ok := s.frames(); ok {
			e["samples"] = frames
		}
		if n := countProblem(s, string(audio.EmbeddedHeader)); n > 0 {
			e["embedded_headers"] = n
		}
		if d, ok := s.declaredBytes(); ok && d != s.bytes && s.opaque == 0 {
			e["declared_bytes"], e["sample_bytes"] = d, s.bytes
		}
		if s.formatChange != "" {
			e["format_change"] = s.formatChange
		}
	}
}

func countProblem(s *sound, kind string) int {
	n := 0
	for _, p := range s.problems {
		if p.kind == kind {
			n++
		}
	}
	return n
}
