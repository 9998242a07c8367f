package session

import (
	"bytes"
	"iter"

	"github.com/omnitap/omnitap/proxy/timeline"
	"github.com/omnitap/omnitap/proxy/wire/dialect"
)

// unbegun yields when each of what was asked for and is not begun was asked for:
// its turn's t_in; and whether its deadline was told of. What may well never be
// answered is none: a commit that a create has to follow, speech that the model need
// not answer.
func (s *Session) unbegun() iter.Seq2[int64, *bool] {
	return func(yield func(int64, *bool) bool) {
		if s.ends.unread != "" || s.ends.broken != "" { // an answer could pass unseen
			return
		}
		for i := range s.early {
			if e := &s.early[i]; e.m.Kind == dialect.Ask && string(e.m.Type) != typeCommit && !yield(e.at.First, &e.late) {
				return
			}
		}
		for _, a := range s.asks {
			if s.owes(a) && !yield(a.mono(), &a.late) {
				return
			}
		}
		if u, ok := s.tracker.(*sentences); ok {
			if a := u.next(); a != nil {
				yield(a.mono(), &a.late)
			}
		}
	}
}

// typeCommit is the message that ends an input, and asks for an answer in some forms
// alone.
const typeCommit = "input_audio_buffer.commit"

// owes reports whether an ask is sure to be answered.
func (s *Session) owes(a *ask) bool {
	return !a.server && !a.weak && s.form != dialect.Segments && (a.source != srcCommit || s.form != dialect.Responses)
}

// next returns what asked for the sentence that is spoken next, nil where none
// waits or one is spoken.
func (u *sentences) next() *ask {
	if u.current != nil || len(bytes.TrimSpace(u.text)) == 0 {
		return nil
	}
	end := u.spoken()
	for _, p := range u.pieces {
		if end > 0 && p.end >= end {
			return p.ask
		}
	}
	return nil
}

// Due returns when a limit of a turn is reached if nothing else happens, 0 for
// never. What was asked for and is not begun has the deadline, too.
func (s *Session) Due() int64 {
	var due int64
	sooner := func(at int64) {
		if at != 0 && (due == 0 || at < due) {
			due = at
		}
	}
	for _, t := range s.open {
		sooner(t.b.Due())
	}
	if s.cfg.Deadline > 0 {
		for at, late := range s.unbegun() {
			if !*late {
				sooner(at + int64(s.cfg.Deadline))
			}
		}
	}
	return due
}

// Check tells of limits that passed by mono without a byte, and reports whether a
// deadline is over with its turn still open.
func (s *Session) Check(mono int64) (over bool) {
	for _, t := range s.open {
		over = t.b.Check(mono) || over
	}
	return s.lateAsks(mono) || over
}

// Overdue reports whether the deadline of a turn has passed with its end still out.
func (s *Session) Overdue() bool {
	for _, t := range s.open {
		if t.b.Overdue() {
			return true
		}
	}
	for _, late := range s.unbegun() {
		if *late {
			return true
		}
	}
	return false
}

// lateAsks tells of deadlines of what is not begun that passed by mono, and reports
// whether there are any.
func (s *Session) lateAsks(mono int64) (over bool) {
	if s.cfg.Deadline <= 0 {
		return false
	}
	for at, late := range s.unbegun() {
		if due := at + int64(s.cfg.Deadline); !*late && due < mono {
			*late = true
			s.alarm(due)
		}
		over = over || *late
	}
	return over
}

// alarm tells that a deadline passed of a turn that has no name yet: the session's
// stands for it.
func (s *Session) alarm(mono int64) {
	if s.sink == nil {
		return
	}
	e := timeline.Event{
		RunID: timeline.Text(s.id.RunID), Node: timeline.Text(s.id.Node), RequestID: s.info.RequestID, SessionID: timeline.Text(s.info.RequestID),
		Attempt: 1, Event: timeline.EventDeadline, MonoNS: mono, Status: timeline.PhaseBeforeHeaders,
	}
	if s.id.WallOffset != nil {
		e.WallNS = timeline.N(mono + *s.id.WallOffset)
	}
	s.sink.Event(&e)
}

// mono is when an ask counts from: its turn's t_in.
func (a *ask) mono() int64 {
	if a.server {
		return a.at.Last
	}
	return a.at.First
}

// Oldest returns when what asked for the oldest turn that is not over came, 0 for
// none.
func (s *Session) Oldest() int64 {
	var oldest int64
	sooner := func(at int64) {
		if at != 0 && (oldest == 0 || at < oldest) {
			oldest = at
		}
	}
	for _, t := range s.open {
		if in, _ := t.b.Opened(); t.b.Waits() {
			sooner(in)
		}
	}
	for at := range s.unbegun() {
		sooner(at)
	}
	return oldest
}

// Aborted notes that the relay cut the connection at mono because of a deadline.
func (s *Session) Aborted(mono int64) {
	s.ends.aborted = mono
	s.ends.at(true, mono)
	s.now = mono
	for _, t := range s.open {
		t.b.Aborted(mono)
	}
}

// Propagated notes that the client's end had been passed on to the server at mono.
func (s *Session) Propagated(mono int64) {
	s.ends.propagated = mono
	for _, t := range s.open {
		t.b.Propagated(mono)
	}
}
