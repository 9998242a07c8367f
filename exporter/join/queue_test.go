package join

import (
	"slices"
	"testing"

	"github.com/omnitap/omnitap/probes/event"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// queues makes the queue items of vLLM-Omni's first generation, as CPython pickles them.
type queues struct{ *synth }

func word(v string) string { return "\x8c" + string(rune(len(v))) + v + "\x94" }

func (q queues) item(at int64, pid int32, send bool, pairs string) {
	b := []byte("\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00}\x94(" + pairs + "u.")
	e := event.Event{Probe: event.Recv, Call: "read", PID: pid, TID: pid, MonoNS: at, EnterNS: at, FD: 5, Ret: int64(len(b)), Size: int64(len(b)), Head: b}
	if send {
		e.Probe, e.Call = event.Send, "write"
	}
	q.add(e)
}

// pass is an item that one process sends and another one has 10 us later.
func (q queues) pass(at int64, from, to int32, pairs string) {
	q.item(at, from, true, pairs)
	q.item(at+10_000, to, false, pairs)
}

func taskOf(id string) string {
	return word("request_id") + word(id) + word("engine_inputs") + word("hello")
}

func forwardOf(id, from, to string) string {
	return word("type") + word("generate") + word("request_id") + word(id) + word("sampling_params") + "N" + word("from_stage") + word(from) + word("to_stage") + word(to)
}

func resultOf(id string, stage int) string {
	return word("request_id") + word(id) + word("stage_id") + "K" + string(rune(stage)) + word("engine_outputs") + word("x")
}

// queuedAsk is a request that came to the relay 1 ms before sec, and whose audio it had at a
// time.
func queuedAsk(id string, audio int64) Ask {
	in, up := sec-int64(1_000_000), sec-int64(500_000)
	return Ask{RequestID: id, Flow: "chat", Points: timeline.Points{TIn: &in, TBody: &in, TUp: &up, TAudio: &audio, TTerm: &audio}}
}

// madeQueues is a request of three stages. The thinker answers step by step, and the API
// process takes two of its results only when both lie there.
func madeQueues() queues {
	q := queues{newSynth(1)}
	const ms = 1_000_000
	q.pass(sec, apiPID, thinkerPID, taskOf("r1"))
	q.item(sec+10*ms, thinkerPID, true, resultOf("r1", 0))
	q.item(sec+20*ms, thinkerPID, true, resultOf("r1", 0))
	q.item(sec+21*ms, apiPID, false, resultOf("r1", 0))
	q.item(sec+22*ms, apiPID, false, resultOf("r1", 0))
	q.pass(sec+25*ms, apiPID, talkerPID, forwardOf("r1", "0", "1"))
	q.pass(sec+45*ms, talkerPID, apiPID, resultOf("r1", 1))
	q.pass(sec+46*ms, apiPID, codePID, forwardOf("r1", "1", "2"))
	q.pass(sec+50*ms, codePID, apiPID, resultOf("r1", 2))
	q.pass(sec+60*ms, codePID, apiPID, resultOf("r1", 2)) // behind the first audio
	return q
}

// TestQueuePath: the way to the first audio goes through the API process, which forwards
// what each stage made; results of one stage pair in their order.
func TestQueuePath(t *testing.T) {
	q := madeQueues()
	q.sort(0)
	x := q.join().Request(queuedAsk("r1", sec+51_000_000))
	want := []Gap{
		{"relay", 500_000},
		{"api_in", 499_000},
		{"submit", 10_000 + 1000},
		{"thinker.compute", 19_990_000 - 1000},
		{"thinker->api.in_flight", 2_000_000 + 1000},
		{"api.forward", 3_000_000 - 1000},
		{"thinker->talker.in_flight", 10_000 + 1000},
		{"talker.compute", 19_990_000 - 1000},
		{"talker->api.in_flight", 10_000 + 1000},
		{"api.forward", 990_000 - 1000},
		{"talker->code2wav.in_flight", 10_000 + 1000},
		{"code2wav.compute", 3_990_000 - 1000},
		{"code2wav->api.in_flight", 10_000 + 1000},
		{"api_out", 990_000},
	}
	if !slices.EqualFunc(x.Path, want, func(a, b Gap) bool { return a.Name == b.Name && max(a.NS-b.NS, b.NS-a.NS) <= 1000 }) {
		t.Errorf("got  %v (%s)\nwant %v", x.Path, x.PathWhy, want)
	}
	if got, want := sumOf(x.Path), int64(52_000_000); got != want {
		t.Errorf("the gaps sum to %d, want %d", got, want)
	}
	if n := len(x.Transfers); n != 8 {
		t.Errorf("%d transfers, want 8: %+v", n, x.Transfers)
	}
	for i := range x.Transfers {
		if g := &x.Transfers[i]; g.Unread || g.Announced == 0 || g.Heard < g.Announced {
			t.Errorf("%s->%s sent %d, heard %d", g.From, g.To, g.Announced, g.Heard)
		}
	}
	for _, s := range x.Stages {
		if s.FanOut > 1 {
			t.Errorf("%s handed on to %d stages", s.Stage, s.FanOut)
		}
	}
}

// TestQueuePathLosesItems: whichever item is not seen, the gaps sum to TTFA or the reason
// is told, and none is below zero.
func TestQueuePathLosesItems(t *testing.T) {
	whole := madeQueues()
	whole.sort(0)
	for i := range whole.events {
		q := queues{newSynth(1)}
		q.events = slices.Delete(slices.Clone(whole.events), i, i+1)
		x := q.join().Request(queuedAsk("r1", sec+51_000_000))
		if len(x.Path) == 0 {
			if x.PathWhy == "" {
				t.Errorf("without event %d: no way and no reason", i)
			}
			continue
		}
		if got := sumOf(x.Path); got != 52_000_000 {
			t.Errorf("without event %d the gaps sum to %d: %v", i, got, x.Path)
		}
		for _, g := range x.Path {
			if g.NS < 0 {
				t.Errorf("without event %d: %v", i, g)
			}
		}
	}
}

// TestQueueAbort: an abort is one, and what the API process sends to stop its stages is no
// work of theirs.
func TestQueueAbort(t *testing.T) {
	q := queues{newSynth(1)}
	q.pass(sec, apiPID, thinkerPID, taskOf("r1"))
	q.pass(sec+30_000_000, thinkerPID, apiPID, resultOf("r1", 0))
	for i, pid := range []int32{thinkerPID, talkerPID, codePID} {
		q.pass(sec+40_000_000+int64(i)*1000, apiPID, pid, word("type")+word("abort")+word("request_id")+word("r1"))
	}
	q.sort(0)
	a := queuedAsk("r1", 0)
	a.Points.TAudio, a.CancelNS = nil, sec+20_000_000
	x := q.join().Request(a)
	if x.AbortedNS != sec+40_000_000 && x.AbortedNS != sec+40_000_000-1000 {
		t.Errorf("aborted at %d", x.AbortedNS)
	}
	if got := x.QuiesceNS; got < 9_990_000 || got > 10_000_000 {
		t.Errorf("quiet after %d ns (%s), want 10 ms", got, x.QuiesceWhy)
	}
	if n := len(x.Transfers); n != 2 {
		t.Errorf("%d transfers, want 2: %+v", n, x.Transfers)
	}
}
