package session

import (
	"fmt"
	"testing"
)

// TestStore: a session is told again from behind a number on, under its own token
// alone; the oldest gives way.
func TestStore(t *testing.T) {
	var st Store
	if _, ok := st.take("t", 0); ok {
		t.Error("an empty store has a session")
	}
	st.add("nobody", storedEvent{seq: 1})
	st.open("t", "a session")
	for i := range 5 {
		st.add("t", storedEvent{seq: i + 1, body: fmt.Sprint("event ", i+1), samples: 10 * i})
	}
	s, ok := st.take("t", 3)
	if !ok || s.name != "a session" || s.seq != 5 || len(s.events) != 2 || s.events[0].body != "event 4" || s.events[1].samples != 40 {
		t.Errorf("take = %+v, %v; want the last two of five", s, ok)
	}
	if s, ok := st.take("t", 5); !ok || len(s.events) != 0 {
		t.Errorf("take behind the last = %+v, %v", s, ok)
	}
	for i := range maxStored {
		st.open(fmt.Sprint("other ", i), "")
	}
	if _, ok := st.take("t", 0); ok {
		t.Error("the oldest of too many sessions is still there")
	}
	if len(st.byKey) != maxStored || len(st.tokens) != maxStored {
		t.Errorf("%d sessions, %d tokens; want %d", len(st.byKey), len(st.tokens), maxStored)
	}
}

// TestStoreIsBounded: events beyond the bound are not kept, their numbers go on.
func TestStoreIsBounded(t *testing.T) {
	var st Store
	st.open("t", "")
	for i := range maxEvents + 10 {
		st.add("t", storedEvent{seq: i + 1})
	}
	if s, _ := st.take("t", 0); len(s.events) != maxEvents || s.seq != maxEvents+10 {
		t.Errorf("%d events up to %d, want %d up to %d", len(s.events), s.seq, maxEvents, maxEvents+10)
	}
}
