package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/load"
	"github.com/omnitap/omnitap/exporter/calibration"
	"github.com/omnitap/omnitap/probes/event"
)

// loopServer answers chats with a fixed amount of work, and with a known share more of it
// while its loop is on: what a probe of known cost does to a server.
type loopServer struct {
	share float64
	steps int
	looks atomic.Bool
	sink  atomic.Uint64
}

// workTime is how long the work of one half of an answer takes about.
const workTime = 4 * time.Millisecond

// newLoopServer finds out how many steps fill workTime.
func newLoopServer(share float64) *loopServer {
	s := &loopServer{share: share}
	const some = 1 << 20
	best := time.Hour
	for range 5 {
		began := time.Now()
		s.work(some)
		best = min(best, time.Since(began))
	}
	s.steps = int(some * float64(workTime) / float64(best))
	return s
}

func (s *loopServer) work(steps int) {
	x := uint64(steps)
	for range steps {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	s.sink.Store(x)
}

func (s *loopServer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	steps := s.steps
	if s.looks.Load() {
		steps += int(float64(steps) * s.share)
	}
	say := func(text string) {
		s.work(steps)
		_, _ = fmt.Fprintf(w, "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", text)
		_ = http.NewResponseController(w).Flush()
	}
	say("a")
	say("b")
	_, _ = fmt.Fprint(w, "data: [DONE]\n\n")
}

// The loop is the toggle.
func (s *loopServer) isOn() bool               { return s.looks.Load() }
func (s *loopServer) on(context.Context) error { s.looks.Store(true); return nil }
func (s *loopServer) off(context.Context) (string, error) {
	s.looks.Store(false)
	return calibration.Verified, nil
}
func (s *loopServer) waiting() int                     { return 0 }
func (s *loopServer) describe(b *calibration.Block)    { b.Probes = []string{"loop"} }
func (s *loopServer) without(string)                   {}
func (s *loopServer) finder() ([]event.Process, error) { return nil, nil }

// loopRequest asks for text alone.
var loopRequest = load.Request{
	Name: "loop", Method: http.MethodPost, Path: "/v1/chat/completions", Header: http.Header{"Content-Type": {"application/json"}},
	Body: []byte(`{"model":"loop","stream":true,"messages":[{"role":"user","content":"hi"}]}`),
}

// calibrateLoop calibrates a loop of a known share through the real relay.
func calibrateLoop(t testing.TB, share float64, cfg calibration.Config, block int) calibration.Result {
	t.Helper()
	loop := newLoopServer(share)
	server := httptest.NewServer(loop)
	defer server.Close()
	kept := &keeper{}
	a := &app{out: os.Stdout, errOut: os.Stderr}
	f := &serveFlags{}
	f.Upstream, f.DeadlineAction, f.Correlation, f.Log = server.URL, "mark", "passive", "off"
	relay, err := a.calibrationRelay(t.Context(), f, kept)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- relay.run(ctx) }()
	c := &calibrator{
		cfg: cfg, base: relay.base(f), probes: loop, finder: loop.finder, relay: relay, kept: kept, say: func(string) {},
		driver: &loadDriver{set: load.Set{loopRequest}, what: "a loop", plan: load.Plan{Requests: block, Concurrency: 1}},
	}
	got, err := c.run(t.Context())
	end()
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return got.Result
}

// TestCalibratesAKnownLoop: a loop that costs a server a fifth of its work is over a budget
// of 2 %, and the estimate is right, whatever this machine does in the meantime.
func TestCalibratesAKnownLoop(t *testing.T) {
	r := calibrateLoop(t, 0.2, calibration.Config{Budget: 0.02, MinPairs: 4, MaxPairs: 16}, 12)
	if r.Verdict != calibration.Over {
		t.Errorf("%+v", r)
	}
	for i := range r.Metrics {
		m := &r.Metrics[i]
		if m.Name != "jct" || m.Statistic != "p50" {
			continue
		}
		// The relay's own part of the time does not grow.
		if e := m.Change.Estimate; e < 0.1 || e > 0.3 {
			t.Errorf("the loop costs 20 %% of the work, JCT grows by %.1f %%", 100*e)
		}
	}
}

// TestLoopStudy calibrates loops of known cost again and again, into the file that
// OMNITAP_LOOP_STUDY names: make calibration-study.
func TestLoopStudy(t *testing.T) {
	file := os.Getenv("OMNITAP_LOOP_STUDY")
	if file == "" {
		t.Skip("run by make calibration-study")
	}
	const trials = 20
	cfg := calibration.Config{Budget: 0.01, MinPairs: 4, MaxPairs: 16}
	var out strings.Builder
	fmt.Fprintf(&out, "\nA real server through the real relay, which works %v twice a request, and a known share more while its loop is on; 12 requests a block, one at a time; %d trials each:\n\n", workTime, trials)
	out.WriteString("| overhead | within budget | inconclusive | over budget | wrong |\n| --- | --- | --- | --- | --- |\n")
	for _, share := range []float64{0, 0.005, 0.01, 0.02, 0.05} {
		n := map[calibration.Verdict]int{}
		for range trials {
			r := calibrateLoop(t, share, cfg, 12)
			n[r.Verdict]++
		}
		wrong := 0
		switch {
		case share > cfg.Budget:
			wrong = n[calibration.Within]
		case share < cfg.Budget:
			wrong = n[calibration.Over]
		}
		fmt.Fprintf(&out, "| %.1f %% | %d | %d | %d | %d |\n", 100*share, n[calibration.Within], n[calibration.Inconclusive], n[calibration.Over], wrong)
		t.Log(share, n)
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(out.String()); err != nil {
		t.Fatal(err)
	}
}
