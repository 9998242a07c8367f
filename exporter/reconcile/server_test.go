package reconcile

import (
	"io"
	"math"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/exporter/upstream"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// serverOf is the difference that a server shows which counts from ahead milliseconds behind
// t_in, and has total requests, failing of them bad.
func serverOf(truths []truth, ahead float64, total, failing int) *upstream.Difference {
	hist := func(name string, of func(truth) float64, labels map[string]string) upstream.Delta {
		n, sum := 0.0, 0.0
		for _, x := range truths {
			if v := of(x); v > 0 {
				n++
				sum += (v - ahead) / 1e3
			}
		}
		return upstream.Delta{Name: name, Type: upstream.Histogram, Labels: labels, Count: new(upstream.Number(n)), Sum: new(upstream.Number(sum))}
	}
	c := func(reason string, n int) upstream.Delta {
		return upstream.Delta{Name: "vllm_omni:requests_success_total", Type: upstream.Counter, Labels: map[string]string{"finished_reason": reason}, Increase: new(upstream.Number(n))}
	}
	return &upstream.Difference{Scrapes: 2, Deltas: []upstream.Delta{
		c("stop", total-failing), c("abort", failing),
		hist("vllm:time_to_first_token_seconds", func(x truth) float64 { return x.text }, map[string]string{"stage": "0"}),
		hist("vllm:time_to_first_token_seconds", func(truth) float64 { return 9999 }, map[string]string{"stage": "1"}), // the talker's: codes
		hist("vllm_omni:audio_ttfp_s", func(x truth) float64 { return x.event }, map[string]string{"stage": "2"}),
		hist("vllm_omni:e2e_request_latency_s", func(x truth) float64 { return x.term }, nil),
		hist("vllm:e2e_request_latency_seconds", func(truth) float64 { return 7777 }, map[string]string{"stage": "0"}), // the whole pipeline's wins
	}}
}

func TestServerAgrees(t *testing.T) {
	truths := many(8, nil)
	expect(t, Table(Input{Records: wireOf(truths), Server: serverOf(truths, 0.5, 8, 0)}))
}

func TestServerQueue(t *testing.T) {
	// It waited 80 ms ahead of the handler, and the head was sent at once then.
	truths := many(8, func(_ int, x *truth) { x.hdr = 81 })
	expect(t, Table(Input{Records: wireOf(truths), Server: serverOf(truths, 80, 8, 0)}),
		want{TTFT, Server, QueueAhead, 8, -80}, want{TTFA, Server, QueueAhead, 8, -80}, want{JCT, Server, QueueAhead, 8, -80})
	// The head came at once: the difference is not in front of the zero point.
	truths = many(8, nil)
	r := Table(Input{Records: wireOf(truths), Server: serverOf(truths, 80, 8, 0)})
	expect(t, r, want{TTFT, Server, NotExplained, 8, -80}, want{TTFA, Server, NotExplained, 8, -80}, want{JCT, Server, NotExplained, 8, -80})
	for _, f := range r.Findings {
		if !strings.Contains(f.Evidence, "at most 5.0 ms") {
			t.Errorf("the bound is missing: %s", f.Evidence)
		}
	}
	// A mean that is longer than the wire's is no queue.
	expect(t, Table(Input{Records: wireOf(truths), Server: serverOf(truths, -60, 8, 0)}),
		want{TTFT, Server, NotExplained, 8, 60}, want{TTFA, Server, NotExplained, 8, 60}, want{JCT, Server, NotExplained, 8, 60})
	// Means over other requests say nothing of a queue.
	all := append(many(8, func(_ int, x *truth) { x.hdr = 81 }), truth{text: 100, event: 300, term: 1000})
	r = Table(Input{Records: wireOf(truths), Server: serverOf(all, 80, 9, 0)})
	if !has(r, Requests, Server, NotExplained) || !has(r, JCT, Server, NotExplained) || has(r, JCT, Server, QueueAhead) {
		t.Errorf("one more request there: %+v", r.Findings)
	}
}

func TestServerScheduler(t *testing.T) {
	truths := many(8, nil)
	records := wireOf(truths)
	for _, r := range records {
		r.Stages = []timeline.Stage{{Stage: "talker", ReadyNS: new(*r.Points.TIn + 99e6)}, {Stage: "thinker", ReadyNS: new(*r.Points.TIn + 60e6)}}
	}
	mean, n, _ := zeroBound(upstream.ZeroScheduler, records)
	if mean != 60 || n != 8 {
		t.Errorf("a scheduler's zero lies %v ms behind t_in (%d)", mean, n)
	}
	if mean, _, _ := zeroBound(upstream.ZeroHandler, records); mean != 5 {
		t.Errorf("a handler's zero lies at most %v ms behind t_in", mean)
	}
	if _, n, _ := zeroBound(upstream.ZeroScheduler, wireOf(truths)); n != 0 {
		t.Error("without probes a scheduler's zero is known")
	}
}

func TestServerEmptyAudio(t *testing.T) {
	truths := many(8, func(i int, x *truth) {
		x.event, x.audio = 200, 300
		if i >= 6 { // an audio event, and no sound ever
			x.audio, x.seconds = 0, 0
		}
	})
	r := Table(Input{Records: wireOf(truths), Server: serverOf(truths, 0.5, 8, 0)})
	sum := 0
	for _, f := range r.Findings {
		if f.Cause != EmptyAudioAsAudio || f.Quantity != TTFA {
			t.Errorf("nobody built in: %+v", f)
		}
		sum += f.N
	}
	if len(r.Findings) != 2 || sum != 8 {
		t.Errorf("two requests without sound, six whose first event is empty: %+v", r.Findings)
	}
}

func TestServerTokensWithoutText(t *testing.T) {
	truths := many(8, nil)
	wire := many(8, func(i int, x *truth) {
		if i < 3 {
			x.text = 0
		}
	})
	r := Table(Input{Records: wireOf(wire), Server: serverOf(truths, 0.5, 8, 0)})
	expect(t, r, want{TTFT, Server, EmptyEventAsToken, 3, nan})
}

func TestServerCounts(t *testing.T) {
	truths := many(10, func(i int, x *truth) {
		switch i {
		case 0, 1: // refused: never in the engine
			*x = truth{start: 1, hdr: 5, term: 5, status: 400, state: timeline.InvalidRequest}
		case 2: // whole for the server, cut on the wire
			x.state = timeline.InvalidOutput
		}
	})
	d := serverOf(truths[2:], 0.5, 8, 0)
	r := Table(Input{Records: wireOf(truths), Server: d})
	expect(t, r, want{Requests, Server, RefusedAhead, 2, -2}, want{Failures, Server, RefusedAhead, 2, -2}, want{Failures, Server, FailureAsSuccess, 1, -1},
		want{JCT, Server, NotExplained, 8, (8*999.5)/8 - (8*1000+2*5)/10.0})

	d.Restarts = 1
	d.Deltas[0].Increase = new(upstream.Number(3))
	if r := Table(Input{Records: wireOf(truths), Server: d}); !has(r, Requests, Server, Restarted) || has(r, Requests, Server, RefusedAhead) || has(r, Failures, Server, FailureAsSuccess) {
		t.Errorf("a restarted server: %+v", r.Findings)
	}
	d = serverOf(truths[2:], 0.5, 8, 0)
	d.Restarts = 1 // what it lost may be made up for by what is none of ours
	if r := Table(Input{Records: wireOf(truths), Server: d}); has(r, Failures, Server, FailureAsSuccess) || !has(r, Failures, Server, NotExplained) {
		t.Errorf("a restarted server that counts as many: %+v", r.Findings)
	}
	d = serverOf(truths, 0.5, 12, 0)
	d.Incomplete = "the scrape ahead of the load failed"
	if r := Table(Input{Records: wireOf(truths), Server: d}); !has(r, Requests, Server, NotExplained) || !strings.Contains(strings.Join(r.Notes, "\n"), d.Incomplete) {
		t.Errorf("an incomplete one: %+v, %q", r.Findings, r.Notes)
	}
}

func TestTransfers(t *testing.T) {
	truths := many(3, nil)
	d := serverOf(truths, 0.5, 3, 0)
	d.Deltas = append(d.Deltas, upstream.Delta{Name: "vllm_omni:transfer_size_bytes", Type: upstream.Histogram, Count: new(upstream.Number(6)), Sum: new(upstream.Number(0))})
	bytes := &d.Deltas[len(d.Deltas)-1]
	expect(t, Table(Input{Records: wireOf(truths), Server: d}), want{TransferBytes, Server, NotExplained, 6, nan})
	records := wireOf(truths)
	for _, r := range records {
		r.Transfers = []timeline.Transfer{{Bytes: new(int64(1000))}, {}}
	}
	expect(t, Table(Input{Records: records, Server: d}), want{TransferBytes, Server, BytesReadZero, 6, -3000})
	bytes.Sum = new(upstream.Number(3000))
	expect(t, Table(Input{Records: records, Server: d}))
	bytes.Sum = new(upstream.Number(4000))
	expect(t, Table(Input{Records: records, Server: d}), want{TransferBytes, Server, NotExplained, 6, 1000})
}

// TestNoFigures: a server's sums that are no numbers are none, and the table can be written.
func TestNoFigures(t *testing.T) {
	truths := many(2, nil)
	d := serverOf(truths, 0.5, 2, 0)
	d.Deltas = append(d.Deltas, upstream.Delta{Name: "vllm_omni:transfer_size_bytes", Type: upstream.Histogram, Count: new(upstream.Number(6)), Sum: new(upstream.Number(0))})
	for i := range d.Deltas {
		if d.Deltas[i].Sum != nil {
			d.Deltas[i].Sum = new(upstream.Number(math.NaN()))
		}
		if d.Deltas[i].Increase != nil {
			d.Deltas[i].Increase = new(upstream.Number(math.Inf(1)))
		}
	}
	r := Table(Input{Records: wireOf(truths), Server: d})
	if err := r.WriteJSON(io.Discard); err != nil {
		t.Error(err)
	}
	if has(r, TTFT, Server, NotExplained) || has(r, Requests, Server, NotExplained) {
		t.Errorf("findings of no figures: %+v", r.Findings)
	}
}
