package timeline

import (
	"fmt"
	"slices"

	"github.com/omnitap/omnitap/proxy/wire/audio"
)

// checkNames are the invariants looked at, as records name them.
var checkNames = []string{
	"border_jumps", "declared_total", "embedded_header", "format_constant", "rate_agrees", "repeated_audio", "silence",
}

// checkOf maps a problem to the check that it fails.
var checkOf = map[string]string{
	"format_change": "format_constant", "container_change": "format_constant", "rate_conflict": "rate_agrees",
	"repeated_audio": "repeated_audio", string(audio.EmbeddedHeader): "embedded_header",
}

// trouble lists what of the sound could not be decoded as declared. whole says
// that the stream came to its end.
func (s *sound) trouble(whole bool) []trouble {
	var out []trouble
	for _, p := range s.problems {
		switch audio.Problem(p.kind) {
		case audio.HeaderInconsistent, audio.FormatMismatch:
			out = append(out, trouble{p.kind, p.detail})
		default: // faults of quality, or notes
		}
	}
	fb := int64(s.format.FrameBytes())
	if whole && fb > 0 && ((s.bytes-s.fileStart)%fb != 0 || s.badFrames > 0) {
		out = append(out, trouble{"partial_frame", fmt.Sprintf("%d bytes beyond whole frames", (s.bytes-s.fileStart)%fb)})
	}
	return out
}

// failed lists the checks that the sound fails, in the order of checkNames.
func (s *sound) failed(whole bool) []string {
	bad := map[string]bool{}
	for _, p := range s.problems {
		if name, ok := checkOf[p.kind]; ok {
			bad[name] = true
		}
	}
	if s.border.periodic() {
		bad["border_jumps"] = true
	}
	if whole {
		if d, ok := s.declaredBytes(); ok && d != s.bytes {
			bad["declared_total"] = true
		}
		if frames, ok := s.frames(); ok && frames > 0 && s.ear != nil && !s.ear.found {
			bad["silence"] = true
		}
	}
	var out []string
	for _, name := range checkNames {
		if bad[name] {
			out = append(out, name)
		}
	}
	return out
}

// declaredBytes returns the sample bytes that headers declare, if all of them
// do, or those that done events declare.
func (s *sound) declaredBytes() (int64, bool) {
	if s.doneUnits > 0 && s.files == 0 {
		return s.doneBytes, !s.doneBad && s.opaque == 0
	}
	return s.declared, s.files > 0 && s.declaredAll
}

// declaredFrom names what declares the total.
func (s *sound) declaredFrom() string {
	if s.files == 0 {
		return "done_event"
	}
	return "wav_header"
}

// unmeasured lists the checks that this stream gave no occasion for.
func (s *sound) unmeasured(whole bool) []string {
	var out []string
	_, declared := s.declaredBytes()
	if s.border.judged < 3 {
		out = append(out, "border_jumps")
	}
	if !declared || !whole {
		out = append(out, "declared_total")
	}
	if s.cfg.Hash == "off" {
		out = append(out, "repeated_audio")
	}
	if !whole && (s.ear == nil || !s.ear.found) {
		out = append(out, "silence")
	}
	return out
}

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
	put("confidence", "low", c.pingTimeout)
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
	if s := b.snd; s != nil {
		if frames, ok := s.frames(); ok {
			e["samples"] = frames
		}
		if n := countProblem(s, string(audio.EmbeddedHeader)); n > 0 {
			e["embedded_headers"] = n
		}
		if d, ok := s.declaredBytes(); ok && d != s.bytes {
			e["declared_bytes"], e["sample_bytes"] = d, s.bytes
		}
		if s.formatChange != "" {
			e["format_change"] = s.formatChange
		}
		put("borders_jumping", s.border.flagged, s.border.periodic())
	}
	return e
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

// CheckNames lists the invariants of the sound that are looked at, sorted.
func CheckNames() []string { return slices.Clone(checkNames) }
