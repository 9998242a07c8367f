package session

import (
	"slices"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// ends is how a session ended.
type ends struct {
	frames   [2]*closeFrame // the close frames of client and server
	first    int            // whose frame, or whose end, came first: 1 client, 2 server
	client   timeline.End
	server   timeline.End
	clientAt int64
	serverAt int64
	over     bool  // the server said that the session is over
	left     int64 // when the client said that it leaves
	shutdown bool
	aborted  int64 // when the relay cut it because of a deadline
	// propagated is when the client's end had been passed on to the server.
	propagated int64
	capture    bool
	unread     string
	deaf       string // why the client's messages are not read
	broken     string // why the server's are not
}

type closeFrame struct {
	code   int
	reason string
	mono   int64
}

// CloseFrame notes a close frame: code 0 is a frame without one.
func (s *Session) CloseFrame(server bool, code int, reason string, valid bool, mono int64) {
	d := side(server)
	if s.ends.frames[d] != nil {
		return
	}
	s.ends.frames[d] = &closeFrame{code, reason, mono}
	if !valid {
		s.flag("invalid_close_code")
	}
	if s.ends.first != 0 {
		return
	}
	s.ends.first = d + 1
	for _, t := range s.open {
		t.b.CloseFrame(d+1, code, reason, mono)
		if code == 1011 && s.pings.waiting(server) {
			t.b.PingTimeout()
		}
	}
	s.ends.at(server, mono)
}

// at notes when a side ended.
func (e *ends) at(server bool, mono int64) {
	switch {
	case server && e.serverAt == 0:
		e.serverAt = mono
	case !server && e.clientAt == 0:
		e.clientAt = mono
	}
}

// ClientEnd notes that the client's side ended.
func (s *Session) ClientEnd(e timeline.End, mono int64) {
	if s.ends.client == timeline.Open || e == timeline.RST {
		s.ends.client = e
	}
	s.ends.at(false, mono)
	if s.ends.first == 0 {
		s.ends.first = 1
	}
	for _, t := range s.open {
		t.b.ClientEnd(e, mono)
	}
}

// ServerEnd notes that the server's side ended.
func (s *Session) ServerEnd(e timeline.End, mono int64) {
	if s.ends.server == timeline.Open || e == timeline.RST {
		s.ends.server = e
	}
	s.ends.at(true, mono)
	if s.ends.first == 0 {
		s.ends.first = 2
	}
	for _, t := range s.open {
		t.b.ServerEnd(e, mono)
	}
}

// overNow notes that the server ends the session: what it leaves open had no end.
func (s *Session) overNow() {
	s.ends.over = true
	for _, t := range s.open {
		t.b.Over()
	}
}

// leave notes that the client said that it leaves: what is under way then and
// does not come to its end was cut off by it.
func (s *Session) leave(mono int64) {
	if s.ends.left != 0 {
		return
	}
	s.ends.left = mono
	for _, t := range s.open {
		t.b.Left(mono)
	}
}

// Shutdown notes that the relay stopped with the session open.
func (s *Session) Shutdown(mono int64) {
	s.ends.shutdown = true
	s.ends.at(true, mono)
	for _, t := range s.open {
		t.b.Shutdown(mono)
	}
}

// CaptureEnds notes that what is known of the connection stops here.
func (s *Session) CaptureEnds(mono int64) {
	s.ends.capture = true
	s.ends.at(true, mono)
	for _, t := range s.open {
		t.b.CaptureEnds(mono)
	}
}

// MidFrame notes that a side's bytes stop inside a frame.
func (s *Session) MidFrame() { s.flag("cut_in_frame") }

// tellEnds tells a turn that begins what has ended already.
func (s *Session) tellEnds(t *turn) {
	e := &s.ends
	if e.first == 0 && e.left == 0 && !e.over && !e.shutdown && e.aborted == 0 && !e.capture && e.broken == "" {
		return
	}
	for d, f := range e.frames {
		if f != nil && e.first == d+1 {
			t.b.CloseFrame(d+1, f.code, f.reason, f.mono)
			if f.code == 1011 && s.pings.waiting(d == 1) {
				t.b.PingTimeout()
			}
		}
	}
	tell := func(client bool) {
		switch {
		case client && e.client != timeline.Open:
			t.b.ClientEnd(e.client, e.clientAt)
		case !client && e.server != timeline.Open:
			t.b.ServerEnd(e.server, e.serverAt)
		}
	}
	tell(e.first == 1)
	tell(e.first != 1)
	if e.shutdown {
		t.b.Shutdown(e.serverAt)
	}
	if e.aborted != 0 {
		t.b.Aborted(e.aborted)
	}
	if e.propagated != 0 {
		t.b.Propagated(e.propagated)
	}
	if e.capture {
		t.b.CaptureEnds(e.serverAt)
	}
	if e.left != 0 {
		t.b.Left(e.left)
	}
	if e.over {
		t.b.Over()
	}
	if e.broken != "" {
		t.b.Analysis("lost", "server: "+e.broken)
		t.b.BadFrames("malformed_frames", e.broken)
	}
}

// Finish sends out the records of all turns and the session's line. Later calls
// do nothing.
func (s *Session) Finish(mono int64) {
	if s.done {
		return
	}
	s.done = true
	for _, t := range s.waiting {
		s.record(t)
	}
	s.waiting = nil
	if s.tracker == nil && s.Known() && s.askedEarly() {
		s.guessed = true
		s.become(formOfFlow(s.flow))
	}
	if s.tracker != nil {
		before := slices.Clone(s.open)
		s.tracker.end()
		for _, t := range s.open {
			if s.lastError != nil && !slices.Contains(before, t) && t.ask != nil && s.lastError.at > t.ask.at.First {
				t.fail(s.lastError) // what the server said last may be why nothing came
			}
		}
	}
	for len(s.open) > 0 {
		s.finish(s.open[0])
	}
	if s.sink != nil {
		s.sink.Session(s.line(mono))
	}
}
