package session

import (
	"testing"
	"time"
)

// TestWhatIsDue: the deadline is that of what is sure to be answered and is not, from
// what asked for it on; never that of an ask which may well stay without an answer,
// or of a session whose answers cannot be seen.
func TestWhatIsDue(t *testing.T) {
	const opened = `3 s {"type":"session.created","session":{"id":"sess_1","model":"m"}}` + "\n"
	for _, c := range []struct {
		name, path, script string
		due                int64 // what asked, in ms; 0 for nothing due
	}{
		{"asked", "/v1/realtime", opened + "10 c " + create, 10},
		{"asked ahead of the server's first message", "/v1/realtime", "2 c " + create, 2},
		{"committed, and not asked", "/v1/realtime", opened + "10 c " + commit, 0},
		{"committed ahead of all", "/v1/realtime", "2 c " + commit, 0},
		{"spoken, and not answered", "/v1/realtime", opened + "10 s " + started + "\n20 s " + stopped, 0},
		{"committed, then asked", "/v1/realtime", opened + "10 c " + commit + "\n30 c " + create, 30},
		{"begun", "/v1/realtime", opened + "10 c " + create + "\n20 s " + created("a"), 10},
		{"begun unasked", "/v1/realtime", opened + "10 s " + stopped + "\n20 s " + created("a"), 10},
		{"answered", "/v1/realtime", opened + "10 c " + create + "\n" + answer("a", 20), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := live(t, c.path)
			g.s.cfg.Deadline = time.Second
			g.play(c.script)
			want := int64(0)
			if c.due > 0 {
				want = ms(c.due) + int64(time.Second)
			}
			if got := g.s.Due(); got != want {
				t.Errorf("due at %d ms, want %d", got/1e6, want/1e6)
			}
			if over := g.s.Check(ms(5000)); over != (c.due > 0) {
				t.Errorf("over = %v, want %v", over, c.due > 0)
			}
			if got, asked := g.s.Oldest(), c.due > 0; (got != 0) != asked || asked && got != ms(c.due) {
				t.Errorf("the oldest is of %d ms, want %d", got/1e6, c.due)
			}
			g.s.Quiet("bytes dropped")
			if g.s.Due() != 0 || g.s.Oldest() != 0 {
				t.Errorf("due at %d of a session that cannot be seen", g.s.Due())
			}
		})
	}
}

// TestAbortedByRelay: whose cut it was stands in the session's line.
func TestAbortedByRelay(t *testing.T) {
	g := live(t, "/v1/realtime")
	g.play(`3 s {"type":"session.created","session":{"id":"sess_1","model":"m"}}` + "\n10 c " + create)
	g.s.Aborted(ms(1500))
	g.s.Finish(ms(1501))
	if len(g.lines) != 1 || g.lines[0].Close.By != "relay" {
		t.Errorf("lines = %+v, want one closed by the relay", g.lines)
	}
}
