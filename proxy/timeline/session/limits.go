package session

import (
	"bytes"
	"iter"

	"github.com/omnitap/omnitap/proxy/wire/dialect"
)

// unbegun yields when each of what was asked for and is not begun was asked for:
// its turn's t_in; and whether its deadline was told of.
func (s *Session) unbegun() iter.Seq2[int64, *bool] {
	return func(yield func(int64, *bool) bool) {
		for i := range s.early {
			if e := &s.early[i]; e.m.Kind == dialect.Ask && !yield(e.at.First, &e.late) {
				return
			}
		}
		for _, a := range s.asks {
			if !yield(a.mono(), &a.late) {
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
	if s.cfg.Deadline > 0 {
		for at, late := range s.unbegun() {
			*late = *late || at+int64(s.cfg.Deadline) < mono
			over = over || *late
		}
	}
	return over
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
		in, _ := t.b.Opened()
		sooner(in)
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
