package session

import (
	"net/http"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/ordered"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/truth"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/wire"
)

// turn is one answer.
type turn struct {
	script script.Script
	f      script.Set
	gen    plan.Generation
	rec    *truth.Record
	seed   uint64

	id, item string // of the response and its item on the wire
	text     strings.Builder
	hasAudio bool // audio was planned
	sounded  bool // audio was sent
	over     bool // nothing of it may be sent any more
	settled  bool
	failing  bool // the failure follows as soon as the handler is done

	stops                []*stop
	events, chunks       int // sent so far
	bytes, audioN, extra int
	sent                 []sent
}

// stop is a fault that waits for its point.
type stop struct {
	at   script.Point
	do   func()
	done bool
}

// adopt lays a script over that of the session, for all turns to come.
func (s *session) adopt(object []byte) bool {
	own, err := s.Base.Overlay(object)
	if err == nil {
		err = own.WithDefaults(s.Dialect).Validate()
	}
	if err == nil {
		_, err = script.Compile(own.Faults)
	}
	if err != nil {
		s.flow.reject("mock", "mock: "+err.Error())
		return false
	}
	s.Base, s.Script = own, own.WithDefaults(s.Dialect)
	return true
}

// begin opens a turn that a message asked for, with a script of its own if
// the message brings one. It is nil if that is no good.
func (s *session) begin(object []byte, ns int64, wish plan.Wish) *turn {
	own, err := s.Base.Overlay(object)
	complete := own.WithDefaults(s.Dialect)
	t := &turn{script: complete}
	if err == nil {
		err = complete.Validate()
	}
	if err == nil {
		t.f, err = script.Compile(complete.Faults)
	}
	if err != nil {
		s.flow.reject("mock", "mock: "+err.Error())
		return nil
	}
	t.seed = s.Seed + uint64(s.count)
	t.gen = plan.Generate(t.script, t.f, wish, t.seed)
	t.hasAudio = t.gen.Count(plan.Audio)+t.gen.Count(plan.Empty) > 0
	entry := s.Entry
	entry.Session, entry.Turn, entry.Form, entry.Flow, entry.Status = s.name, s.count, "turn", s.path, http.StatusSwitchingProtocols
	entry.Script, entry.Dialect, entry.Rate, entry.Channels, entry.CleanSamples = t.script, t.script.Dialect, t.script.Rate, t.script.Channels, t.gen.Clean
	entry.Stamps = truth.Stamps{RequestNS: ns}
	t.rec = s.Log.Register(entry)
	s.count++
	s.turns = append(s.turns, t)
	t.stops = s.stops(t)
	s.replay(t)
	s.reach(t, script.AtHead, 0)
	s.counted(t)
	return t
}

// stops are the faults of a turn that have a point.
func (s *session) stops(t *turn) []*stop {
	f := &t.f
	all := []*stop{
		{at: f.BadFrameAt, do: func() { s.check(s.sock.Add(wire.BadFrames[f.BadFrame], nil)) }},
		{at: f.DeafAt, do: func() { s.deafen(t) }},
		{at: f.Stall, do: func() { s.pause(min(f.StallFor, century)) }},
		{at: f.ErrorAt, do: func() { s.fault(t) }},
		{at: f.Cut, do: func() { s.stop(truth.Cut) }},
		{at: f.Reset, do: func() { s.stop(truth.Reset) }},
		{at: f.HalfCloseAt, do: func() { s.halfClose(t) }},
		{at: f.CloseAt, do: func() {
			s.closed = wire.CloseText(f.ClosePayload)
			s.control(wire.OpClose, f.ClosePayload)
			s.stop(truth.Closed)
		}},
	}
	return slices.DeleteFunc(all, func(st *stop) bool { return !st.at.IsSet() })
}

// dead reports that no more of the turn may be sent.
func (t *turn) dead() bool { return t.over || t.failing }

// fault makes a turn fail once the handler that sends is done: it may be in
// the middle of a group of events.
func (s *session) fault(t *turn) {
	t.failing = true
	s.play(nil, step{do: func() {
		if t.failing = false; !t.over {
			s.drop(t)
			s.flow.fail(t)
		}
	}})
}

// stop ends the session in the middle.
func (s *session) stop(how plan.Ending) {
	for _, t := range s.turns {
		t.rec.Closing()
	}
	s.Record.Closing()
	s.check(s.sock.Flush())
	if s.err == nil {
		s.err, s.how = errStopped, how
	}
	if how == truth.Reset {
		s.sock.Reset()
	}
}

// halfClose sends a FIN; the session goes on in silence until the client
// leaves.
func (s *session) halfClose(t *turn) {
	t.rec.Closing()
	s.check(s.sock.Flush())
	s.finish(t, truth.Cut)
	s.sock.CloseWrite()
	s.mute = true
}

// deafen stops the reading of the client.
func (s *session) deafen(t *turn) {
	s.deaf = true
	s.sock.Hold(true)
	if t.f.DeafFor != script.Forever {
		s.play(nil, step{wait: t.f.DeafFor, do: func() {
			s.deaf = false
			s.sock.Hold(false)
		}})
	}
}

// event is one message to the client.
type event struct {
	kind plan.Kind   // as the truth books it
	name string      // its type; "" is a binary message
	body ordered.Obj // of a JSON event, the type included
	raw  string      // the JSON, ready; in place of body
	data []byte      // of a binary message
	text string      // of a text delta
	pcm  []byte      // the samples that it carries
	// style is that of the JSON where it is not the session's.
	style *ordered.Style
}

// send writes an event of a turn, or of the session if t is nil, with the
// faults that apply to it.
func (s *session) send(t *turn, e event) {
	if s.err != nil || s.mute {
		return
	}
	if t == nil {
		if !s.f.Skips(e.name) {
			s.check(s.sock.Add(s.encode(&e, nil), nil))
		}
		return
	}
	if t.dead() {
		return
	}
	switch {
	case e.kind == plan.Audio:
		s.beforeAudio(t, e.pcm)
		t.sounded = true
	case e.kind == plan.End && t.f.LateDone > 0:
		s.pause(t.f.LateDone)
	}
	if t.f.Skips(e.name) || e.kind == plan.End && t.f.NoDone {
		return
	}
	s.write(t, e)
	if e.kind == plan.End && t.f.DoubleDone {
		s.write(t, e)
	}
}

// beforeAudio is for the faults in front of an audio event.
func (s *session) beforeAudio(t *turn, pcm []byte) {
	t.audioN++
	if t.f.Gate && t.audioN > 1 {
		s.check(s.sock.Flush())
		select {
		case <-s.Steps:
		case <-s.sock.Gone():
		case <-s.sock.Context().Done():
		}
	}
	if t.audioN <= t.f.Unknown {
		const name = "mock.unknown.delta"
		s.write(t, event{name: name, body: ordered.Obj{"type", name, "response_id", t.id, "blob", ordered.Raw(plan.Encode(&t.f, pcm, -1))}})
	}
}

// write encodes and writes one event and looks for the points that it
// reaches.
func (s *session) write(t *turn, e event) {
	if s.err != nil || t.dead() {
		return
	}
	t.events++
	frames := s.encode(&e, t)
	t.sent = append(t.sent, sent{frames, len(e.pcm) / 2 / max(1, t.script.Channels)})
	if e.kind == plan.End {
		t.rec.Closing()
	}
	p := &plan.Piece{Kind: e.kind, PCM: e.pcm}
	if e.kind == plan.Text {
		p.Texts = []string{e.text}
		t.text.WriteString(e.text)
	}
	name := e.name
	if name == "" {
		name = "binary"
	}
	s.add(t, frames, func(st truth.Stamp) {
		t.rec.Wrote(p, st)
		t.rec.Update(func(tr *truth.Truth) { tr.Events = append(tr.Events, name) })
	})
	if e.kind == plan.Audio || e.kind == plan.Text && !t.hasAudio || e.kind == plan.Body {
		t.chunks++
	}
	s.counted(t)
}

// counted looks for the points that count chunks and events.
func (s *session) counted(t *turn) {
	s.reach(t, script.AfterAudio, t.chunks)
	s.reach(t, script.AfterEvent, t.events)
}

// reach does the faults of a point.
func (s *session) reach(t *turn, unit script.Unit, n int) {
	for _, st := range t.stops {
		if !st.done && st.at.Unit == unit && (st.at.N <= n || unit == script.AtHead) && s.err == nil && !s.mute {
			st.done = true
			st.do()
		}
	}
}

// add writes frames; a point in bytes cuts them.
func (s *session) add(t *turn, frames []byte, done func(truth.Stamp)) {
	for len(frames) > 0 && s.err == nil && !s.mute {
		n := len(frames)
		var hit *stop
		for _, st := range t.stops {
			if at := st.at.N - t.bytes; !st.done && st.at.Unit == script.AfterByte && at >= 0 && at < n {
				n, hit = at, st
			}
		}
		book := done
		if n < len(frames) {
			book = nil
		}
		s.check(s.sock.Add(frames[:n], book))
		frames = frames[n:]
		t.bytes += n
		if hit != nil {
			hit.done = true
			s.check(s.sock.Flush())
			hit.do()
		}
	}
}

// encode renders an event as frames.
func (s *session) encode(e *event, t *turn) []byte {
	if e.name == "" {
		return s.sock.Encode(wire.OpBinary, e.data, s.Script.DeflateMin)
	}
	style := s.style
	if e.style != nil {
		style = *e.style
	}
	text := e.raw
	if text == "" {
		text = style.Render(e.body)
	}
	if t != nil {
		if t.events == 1 && t.f.Huge > len(text) {
			text = `{"pad":"` + strings.Repeat("x", t.f.Huge-len(text)) + `",` + text[1:]
		}
		if t.events == t.f.BadJSON {
			text = text[:len(text)/2]
		}
	}
	return s.sock.Encode(wire.OpText, []byte(text), s.Script.DeflateMin)
}

// replay sends the last events of the turn before again.
func (s *session) replay(t *turn) {
	from := max(0, len(s.recent)-t.f.Replay)
	for _, old := range s.recent[from:] {
		s.check(s.sock.Add(old.frames, nil))
		t.extra += old.samples
	}
}

// output tells that only what ends the turn follows.
func (s *session) output(t *turn) {
	if !t.dead() {
		s.reach(t, script.AtOutput, 0)
	}
}

// finish ends a turn and books it.
func (s *session) finish(t *turn, how plan.Ending) {
	if t.dead() || s.err != nil || s.mute {
		return
	}
	s.drop(t)
	if how != truth.Cut {
		s.reach(t, script.AtEnd, 0)
		if s.err == nil && t.f.AfterDone {
			s.lateAudio(t, false)
		}
	}
	t.over = true
	s.check(s.sock.Flush())
	s.turns = slices.DeleteFunc(s.turns, func(o *turn) bool { return o == t })
	t.settle(how)
	s.recent = t.sent
}

// cancelled ends a turn that was cancelled, with the audio that a fault lets
// follow.
func (s *session) cancelled(t *turn) {
	s.finish(t, truth.Cancelled)
	var steps []step
	for range t.f.LateAudio {
		steps = append(steps, step{wait: t.f.LateAudioGap, do: func() { s.lateAudio(t, t.f.LateAudioID == "none") }})
	}
	s.play(nil, steps...)
}

const lateFrames = 10 // of an audio event behind the end

// lateAudio sends an audio event of a turn that is over: samples of value 1.
func (s *session) lateAudio(t *turn, nameless bool) {
	was := t.over
	t.over = false
	n := len(t.sent)
	s.flow.late(t, plan.Late(t.script.Channels, lateFrames), nameless)
	t.over = was
	t.sent = t.sent[:n]
}

// extraAudio writes an event that counts in no number of the turn.
func (s *session) extraAudio(t *turn, e event) {
	if s.err != nil || s.mute {
		return
	}
	frames := s.encode(&e, nil)
	s.check(s.sock.Add(frames, nil))
	s.check(s.sock.Flush())
	t.extra += len(e.pcm) / 2 / max(1, t.script.Channels)
	t.rec.Update(func(tr *truth.Truth) { tr.ExtraSamples = t.extra })
}

func (t *turn) settle(how plan.Ending) {
	if t.settled {
		return
	}
	t.settled = true
	t.rec.Settle(func(tr *truth.Truth) {
		tr.ID, tr.End, tr.BytesOut, tr.ExtraSamples = t.id, how, int64(t.bytes), t.extra
	})
}
