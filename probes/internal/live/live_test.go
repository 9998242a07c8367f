package live

import (
	"os"
	"testing"

	"github.com/omnitap/omnitap/probes/event"
)

func TestMain(m *testing.M) {
	Main(m, map[string]Act{"echo": func(args []string) (string, error) { return "heard " + args[0], nil }})
}

// A child does what it is told, answers, and ends when it is let go.
func TestStart(t *testing.T) {
	p := Start(t, "echo")
	for _, word := range []string{"a", "b"} {
		if got := p.Do(word); got != "heard "+word {
			t.Errorf("told %q it answers %q", word, got)
		}
	}
	if p.Pid == os.Getpid() {
		t.Error("it is no process of its own")
	}
	if s := p.End(); !s.Success() {
		t.Errorf("it ended with %v", s)
	}
}

// Of takes the events of one process and of the probes that are named, in their order.
func TestOf(t *testing.T) {
	all := []event.Event{{PID: 1, Probe: event.Unlink, MonoNS: 1}, {PID: 2, Probe: event.Unlink}, {PID: 1, Probe: event.Close}, {PID: 1, Probe: event.Unlink, MonoNS: 2}}
	got := Of(all, 1, event.Unlink)
	if len(got) != 2 || got[0].MonoNS != 1 || got[1].MonoNS != 2 {
		t.Errorf("got %+v", got)
	}
}

// Until asks until the answer is yes.
func TestUntil(t *testing.T) {
	asked := 0
	Until(t, "three questions", func() bool { asked++; return asked == 3 })
	if asked != 3 {
		t.Errorf("asked %d times", asked)
	}
}
