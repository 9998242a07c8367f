package record

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Every event is one whole line with who, when and what, also of many goroutines.
func TestLog(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(dir, "talker")
	if err != nil {
		t.Fatal(err)
	}
	l.Of("write_start", "chatcmpl-a", 3, 4096, "chatcmpl-a_1_3")
	l.Step("compute_start", "chatcmpl-a", 7)
	l.Write(Event{Event: "given", MonoNS: 42})
	const each = 200
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range each {
				l.Request("submit", strings.Repeat("x", 200))
			}
		})
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	list := lines(t, filepath.Join(dir, "truth-talker.jsonl"))
	if len(list) != 3+4*each {
		t.Fatalf("%d lines", len(list))
	}
	for i, e := range list {
		if e.PID != os.Getpid() || e.TID == 0 || e.Stage != "talker" || e.MonoNS == 0 {
			t.Errorf("line %d: %+v", i+1, e)
		}
	}
	a, b := list[0], list[1]
	if a.Event != "write_start" || *a.RequestID != "chatcmpl-a" || *a.Chunk != 3 || *a.Bytes != 4096 || *a.Key != "chatcmpl-a_1_3" {
		t.Errorf("%+v", a)
	}
	if *b.Chunk != 7 || b.Bytes != nil || b.Key != nil || list[2].RequestID != nil || list[2].MonoNS != 42 {
		t.Errorf("what was not given is not null: %+v, %+v", b, list[2])
	}
}

func lines(t *testing.T, name string) (out []Event) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var e Event
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			t.Fatalf("%q: %v", s.Text(), err)
		}
		out = append(out, e)
	}
	return out
}

// Without a folder nothing is written, and nothing fails.
func TestNoLog(t *testing.T) {
	l, err := Open("", "talker")
	if l != nil || err != nil {
		t.Fatal(l, err)
	}
	l.Request("submit", "x")
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// A log that cannot be opened is an error that names it; one that cannot be written to
// stops nobody.
func TestLogInTrouble(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "none"), "talker"); err == nil || !strings.Contains(err.Error(), "truth-talker.jsonl") {
		t.Errorf("%v", err)
	}
	fd, err := unix.Open("/dev/full", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	l := &Log{fd: fd, stage: "talker", pid: os.Getpid()}
	l.Request("submit", "x")
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
