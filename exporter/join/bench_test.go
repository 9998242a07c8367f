package join

import (
	"bytes"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/omnitap/omnitap/probes/event"
)

// BenchmarkJoin joins events that are decoded already, in order: 10,000 requests of
// some 200 events.
func BenchmarkJoin(b *testing.B) {
	s := newSynth(1)
	s.load(10_000, 32, 5)
	b.ReportAllocs()
	runtime.GC()
	begin := processorTime(b)
	for b.Loop() {
		s.join()
	}
	perSecond(b, len(s.events), begin)
}

// BenchmarkJoinUnordered: the same, up to 20 ms out of order.
func BenchmarkJoinUnordered(b *testing.B) {
	s := newSynth(1)
	s.load(10_000, 32, 5)
	s.sort(20_000_000)
	b.ReportAllocs()
	runtime.GC()
	begin := processorTime(b)
	for b.Loop() {
		s.join()
	}
	perSecond(b, len(s.events), begin)
}

// BenchmarkDecodeJoin reads a recorded set's lines and joins them.
func BenchmarkDecodeJoin(b *testing.B) {
	s := readSet(b, "vo-real-speech")
	var text []byte
	for i := range s.events {
		text = append(s.events[i].AppendJSON(text), '\n')
	}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	begin := processorTime(b)
	for b.Loop() {
		j := New(Config{})
		j.Processes(s.processes)
		r := event.NewReader(bytes.NewReader(text))
		var e event.Event
		for {
			ok, err := r.Next(&e)
			if err != nil {
				b.Fatal(err)
			}
			if !ok {
				break
			}
			j.Add(&e)
		}
		j.Close()
	}
	perSecond(b, len(s.events), begin)
}

// BenchmarkRequest asks for one of a thousand requests.
func BenchmarkRequest(b *testing.B) {
	s := newSynth(1)
	s.load(1000, 32, 6)
	j := s.join()
	r := j.requests.oldest()
	a := Ask{ServerRequestID: r.external, Flow: "chat"}
	b.ReportAllocs()
	for b.Loop() {
		if x := j.Request(a); x.Request == "" {
			b.Fatal(x.Why)
		}
	}
}

// perSecond reports events a second of processor time, the collector's with it: a busy
// machine does not show in it. begin is what of it was used before.
func perSecond(b *testing.B, events int, begin time.Duration) {
	b.Helper()
	b.ReportMetric(float64(events)*float64(b.N)/(processorTime(b)-begin).Seconds(), "events/core-s")
	b.ReportMetric(float64(events), "events")
}

// TestSpeed holds the join to 2 s of one core for 10,000 requests of 200 events, by a
// part of them and processor time, which does not tell how busy the machine is.
func TestSpeed(t *testing.T) {
	const requests = 2000
	s := newSynth(1)
	s.load(requests, 32, 5)
	if n := len(s.events) / requests; n < 190 {
		t.Fatalf("only %d events a request", n)
	}
	runtime.GC()
	best := time.Hour
	for range 3 {
		begin := processorTime(t)
		j := s.join()
		best = min(best, processorTime(t)-begin)
		if got := j.Stats().Transfers; got != int64(len(s.want)) {
			t.Fatalf("%d transfers, want %d", got, len(s.want))
		}
	}
	t.Logf("%d events in %v of processor time", len(s.events), best)
	if limit := 2 * time.Second * requests / 10_000; best > limit && !raceDetector {
		t.Errorf("%d events took %v, more than %v", len(s.events), best, limit)
	}
}

func processorTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
