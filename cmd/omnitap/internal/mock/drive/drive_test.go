package drive

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock"
)

// Every session works against the mock and leaves the truth that it should.
func TestSessions(t *testing.T) {
	for _, s := range Sessions() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			m, err := mock.New(mock.Config{})
			if err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- m.Serve(ctx, l) }()
			begin := time.Now()
			if err := s.Run(ctx, "http://"+l.Addr().String()); err != nil {
				t.Error(err)
			}
			t.Logf("took %v", time.Since(begin))
			turns := 0
			for _, r := range m.Requests() {
				if r.Flow != s.Flow {
					t.Errorf("flow %q, want %q", r.Flow, s.Flow)
				}
				if r.Form == "turn" {
					turns++
					t.Logf("turn %d of %s: %d samples, %q, %s", r.Turn, r.Session, r.Samples, r.Text, r.End)
				}
			}
			if turns != s.Turns {
				t.Errorf("%d turns, want %d", turns, s.Turns)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// Whatever goes wrong, a session ends when its client has gone, and its turns
// are booked.
func TestSessionsWithFaults(t *testing.T) {
	faults := []string{
		"error=head", "error=event:1", "error=event:2", "error=event:3", "error=event:5", "error=after:1", "error=output", "error=end",
		"cut=event:2", "cut=output", "cut=end", "reset=after:1", "close=1001+at:event:3", "server-half-close", "skip=*",
		"no-done", "double-done", "after-done", "late-audio=2+gap:1ms", "late-audio=2+gap:1ms+id:none", "replay=3", "unknown=2",
		"fragments=3+ping:x", "burst", "empty-audio", "cut=byte:100", "bad-json=2", "huge=2000", "no-audio", "no-text", "bad-frame=rsv2",
	}
	for _, fault := range faults {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			zero := 0.0
			m, err := mock.New(mock.Config{Script: mock.Script{Faults: []string{fault}, FirstDelayMS: &zero, AudioDelayMS: &zero, GapMS: mock.Floats{0}, TextGapMS: mock.Floats{0}}})
			if err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- m.Serve(ctx, l) }()
			limited, stop := context.WithTimeout(ctx, 300*time.Millisecond)
			defer stop()
			var all sync.WaitGroup
			for _, s := range Sessions() {
				all.Go(func() { _ = s.Run(limited, "http://"+l.Addr().String()) }) // may well fail
			}
			all.Wait()
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			for _, r := range m.Requests() {
				if r.End == "running" || r.End == "" {
					t.Errorf("%s %s, turn %d, is %q", r.Flow, r.Form, r.Turn, r.End)
				}
			}
		})
	}
}
