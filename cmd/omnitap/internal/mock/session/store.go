package session

import "sync"

const (
	maxStored = 64        // sessions that can be resumed
	maxEvents = 10000     // of a session
	maxReplay = 256 << 20 // bytes of a session's events
)

// Store keeps the events of duplex sessions for clients that come back. The
// zero value is ready to use.
type Store struct {
	mu     sync.Mutex // protects all below
	byKey  map[string]*stored
	tokens []string // oldest first
}

// stored is one session: what can be told again.
type stored struct {
	name   string
	seq    int
	bytes  int
	events []storedEvent
}

type storedEvent struct {
	seq     int
	body    string
	samples int
}

// open files a session under its token.
func (st *Store) open(token, name string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.byKey == nil {
		st.byKey = map[string]*stored{}
	}
	if len(st.tokens) == maxStored {
		delete(st.byKey, st.tokens[0])
		st.tokens = st.tokens[1:]
	}
	st.tokens = append(st.tokens, token)
	st.byKey[token] = &stored{name: name}
}

// add files an event.
func (st *Store) add(token string, e storedEvent) {
	st.mu.Lock()
	defer st.mu.Unlock()
	s := st.byKey[token]
	if s == nil {
		return
	}
	s.seq = e.seq
	if len(s.events) < maxEvents && s.bytes+len(e.body) <= maxReplay {
		s.events = append(s.events, e)
		s.bytes += len(e.body)
	}
}

// take returns the events of a session behind a number; ok is false for a
// token that nobody has.
func (st *Store) take(token string, after int) (s stored, ok bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	found := st.byKey[token]
	if found == nil {
		return stored{}, false
	}
	s = stored{name: found.name, seq: found.seq}
	for _, e := range found.events {
		if e.seq > after {
			s.events = append(s.events, e)
		}
	}
	return s, true
}
