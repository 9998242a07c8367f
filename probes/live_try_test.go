//go:build linux && amd64

package probes

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/omnitap/omnitap/probes/event"
)

type fileSink struct {
	f *os.File
	t *testing.T
	n int
}

func (s *fileSink) Events(b []event.Event, _ int64) {
	var out []byte
	for i := range b {
		out = append(b[i].AppendJSON(out), '\n')
	}
	s.n += len(b)
	s.f.Write(out)
}
func (s *fileSink) Processes(p event.Processes) {
	for _, x := range p.Processes {
		s.t.Logf("%d %s %s %s %q", x.PID, x.Server, x.Role, x.Stage, x.Why)
	}
}

func TestTry(t *testing.T) {
	if os.Getenv("TRY") == "" {
		t.Skip()
	}
	f, _ := os.Create(os.Getenv("TRY"))
	fin, err := NewFinder(Config{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	sink := &fileSink{f: f, t: t}
	s, err := Open(t.Context(), Config{}, fin, sink, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
	defer cancel()
	go func() {
		for range 10 {
			time.Sleep(4500 * time.Millisecond)
			st := s.Status()
			t.Log(st.Words())
			for _, f := range st.Families {
				if f.CostNS != nil {
					c := 0.0
					if f.Cores != nil {
						c = *f.Cores
					}
					t.Logf("  %s hits %d cost %.0f cores %.5f %s", f.Name, f.Hits, *f.CostNS, c, f.State)
				}
			}
		}
	}()
	if err := s.Run(ctx); err != nil {
		t.Fatal(err)
	}
	t.Log(sink.n)
}
