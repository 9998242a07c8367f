package verify

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"github.com/omnitap/omnitap/exporter/rundir"
)

// session is a line of sessions.jsonl, and what the records of its turns add up to.
type session struct {
	Schema     int64            `json:"schema"`
	RunID      string           `json:"run_id"`
	ID         string           `json:"session_id"`
	Connection uint64           `json:"connection_id"`
	Turns      int64            `json:"turns"`
	States     map[string]int64 `json:"states"`
	BytesUp    int64            `json:"bytes_up"`
	BytesDown  int64            `json:"bytes_down"`
	DurationMS float64          `json:"duration_ms"`

	line     int // 0: no line is there
	turns    int64
	states   map[string]int64
	up, down int64
	first    int // the line of the first record
}

// sessionKey names a session: a client may give the same id to two of them.
type sessionKey struct {
	id         string
	connection uint64
}

func (s *session) key() sessionKey { return sessionKey{s.ID, s.Connection} }

func (v *verifier) readSessions() {
	l := v.open(rundir.SessionsFile, false)
	if l == nil {
		return
	}
	defer l.close()
	for line := v.next(l); line != nil; line = v.next(l) {
		if !v.fits(v.sessionLines, l, line) {
			continue
		}
		s := &session{line: l.n, states: map[string]int64{}}
		if err := json.Unmarshal(line, s); err != nil {
			v.say(Error, KindSchema, l.name, l.n, "%v", err)
			continue
		}
		v.res.Counts.Sessions++
		v.run(l.name, l.n, s.RunID)
		if s.DurationMS < 0 {
			v.say(Error, KindConservation, l.name, l.n, "session %s: duration_ms: %v, a session does not end before it begins", clip(s.ID), s.DurationMS)
		}
		if before := v.opened[s.ID]; before > 0 {
			v.say(Error, KindConservation, l.name, l.n, "session %s: its id is that of line %d: it is not unique", clip(s.ID), before)
		}
		if before := v.sessions[s.key()]; before != nil {
			continue // its turns could be of either
		}
		v.sessions[s.key()], v.opened[s.ID] = s, l.n
	}
}

// turn adds a record to its session.
func (v *verifier) turn(r *record, line int) {
	if r.SessionID == nil {
		return
	}
	s := v.sessions[sessionKey{*r.SessionID, r.ConnectionID}]
	if s == nil {
		s = &session{ID: *r.SessionID, Connection: r.ConnectionID, states: map[string]int64{}}
		v.sessions[s.key()] = s
	}
	if s.first == 0 {
		s.first = line
	}
	s.turns++
	s.states[r.Terminal.seen()]++
	s.up += r.BytesUp
	s.down += r.BytesDown
}

// addUp holds sessions to the sums of their turns.
func (v *verifier) addUp() {
	all := slices.Collect(maps.Values(v.sessions))
	slices.SortFunc(all, func(a, b *session) int { return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.first, b.first)) })
	for _, s := range all {
		say := func(format string, a ...any) {
			v.say(Error, KindConservation, rundir.SessionsFile, s.line, "session %s: "+format, append([]any{clip(s.ID)}, a...)...)
		}
		switch {
		case s.line == 0:
			if v.meta.End != nil { // else the session was still open
				v.say(Error, KindOrphan, rundir.RequestsFile, s.first, "session %s has turns and no line in %s", clip(s.ID), rundir.SessionsFile)
			}
			continue
		case s.turns != s.Turns:
			say("turns: %d, the records have %d", s.Turns, s.turns)
		case !maps.Equal(s.states, s.States):
			say("states: %v, the records have %v", s.States, s.states)
		}
		if s.up > s.BytesUp || s.down > s.BytesDown {
			say("%d bytes up and %d down, its turns have %d and %d", s.BytesUp, s.BytesDown, s.up, s.down)
		}
		v.res.Compared["sessions.turns"]++
	}
}
