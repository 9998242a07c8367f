package join

import (
	"fmt"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// asked makes a Joiner that saw the API process send requests to the first stage.
func asked(t *testing.T, adds map[string]int64) *Joiner {
	t.Helper()
	s := newSynth(1)
	for id, at := range adds {
		s.addMessage(at, 5, id, thinkerPID)
	}
	s.sort(0)
	return s.join()
}

const sec = int64(1_000_000_000)

func ask(flow string, up, term int64) Ask {
	return Ask{Flow: flow, Points: timeline.Points{TIn: new(up - 1000), TUp: new(up), TTerm: new(term)}}
}

func TestMatchByID(t *testing.T) {
	j := asked(t, map[string]int64{
		"chatcmpl-x1-0a1b2c3d": 10 * sec, "chatcmpl-0123abcd-89abcdef": 11 * sec, "0b1e5c0d-0001": 12 * sec,
		"cmpl-7-00000000": 13 * sec, "speech-77-0a1b2c3d": 14 * sec,
	})
	for _, tt := range []struct {
		client, server, want string
	}{
		{"x1", "", "chatcmpl-x1-0a1b2c3d"},
		{"", "chatcmpl-x1", "chatcmpl-x1-0a1b2c3d"},
		{"x1", "chatcmpl-x1", "chatcmpl-x1-0a1b2c3d"},
		{"0123abcd", "", "chatcmpl-0123abcd-89abcdef"},
		{"", "chatcmpl-0b1e5c0d-0001", "0b1e5c0d-0001"}, // SGLang-Omni's id without its prefix
		{"", "cmpl-7", "cmpl-7-00000000"},
		{"", "speech-77", "speech-77-0a1b2c3d"},
		{"nobody", "chatcmpl-nobody", ""},
		{"", "chatcmpl-", ""},
	} {
		a := ask("chat", 9*sec, 20*sec)
		a.RequestID, a.ServerRequestID = tt.client, tt.server
		x := j.Request(a)
		if x.Request != tt.want || tt.want != "" && (x.Match != ByID || x.Confidence != Certain) || tt.want == "" && x.Why == "" {
			t.Errorf("%+v: got %q by %s (%v), %q", tt, x.Request, x.Match, x.Confidence, x.Why)
		}
	}
	late := ask("chat", 30*sec, 40*sec)
	late.RequestID = "x1"
	if x := j.Request(late); x.Request != "" {
		t.Errorf("a request of 20 s earlier is taken: %q", x.Request)
	}
}

func TestMatchByWindow(t *testing.T) {
	type want struct {
		id         string
		confidence float64
		why        string
	}
	for name, tt := range map[string]struct {
		adds map[string]int64
		sent []int64
		asks []Ask
		want []want
	}{
		"one after the other": {
			map[string]int64{"speech-a": 11 * sec, "speech-b": 21 * sec},
			[]int64{10 * sec, 20 * sec},
			[]Ask{ask("speech", 10*sec, 15*sec), ask("speech", 20*sec, 25*sec)},
			[]want{{"speech-a", Alone, ""}, {"speech-b", Alone, ""}},
		},
		"overlapping, each asked before the next was sent": {
			map[string]int64{"speech-a": 11 * sec, "speech-b": 13 * sec},
			[]int64{10 * sec, 12 * sec},
			[]Ask{ask("speech", 10*sec, 30*sec), ask("speech", 12*sec, 30*sec)},
			[]want{{"speech-a", Alone, ""}, {"speech-b", Alone, ""}},
		},
		"both sent before the first was asked": {
			map[string]int64{"speech-a": 13 * sec, "speech-b": 14 * sec},
			[]int64{10 * sec, 12 * sec},
			[]Ask{ask("speech", 10*sec, 30*sec), ask("speech", 12*sec, 30*sec)},
			[]want{{"", 0, "two requests"}, {"", 0, "two requests"}},
		},
		"two sent, one asked": {
			map[string]int64{"speech-a": 13 * sec},
			[]int64{10 * sec, 12 * sec},
			[]Ask{ask("speech", 10*sec, 30*sec), ask("speech", 12*sec, 30*sec)},
			[]want{{"", 0, "two requests"}, {"", 0, "two requests"}},
		},
		"the earlier was over before": {
			map[string]int64{"speech-a": 13 * sec},
			[]int64{10 * sec, 12 * sec},
			[]Ask{ask("speech", 10*sec, 11*sec), ask("speech", 12*sec, 30*sec)},
			[]want{{"", 0, "asked for nothing"}, {"speech-a", Alone, ""}},
		},
		"another flow": {
			map[string]int64{"rt-ws-a": 13 * sec, "chatcmpl-a": 14 * sec},
			[]int64{12 * sec},
			[]Ask{ask("speech", 12*sec, 30*sec), ask("realtime", 12*sec, 30*sec)},
			[]want{{"", 0, "asked for nothing"}, {"rt-ws-a", Alone, ""}},
		},
		"a flow without ids of its own": {
			map[string]int64{"chatcmpl-a": 13 * sec},
			nil,
			[]Ask{ask("transcription", 12*sec, 30*sec)},
			[]want{{"", 0, "none can be told by time"}},
		},
		"no time": {
			map[string]int64{"speech-a": 13 * sec},
			nil,
			[]Ask{{Flow: "speech"}},
			[]want{{"", 0, "t_up is not known"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			j := asked(t, tt.adds)
			for _, up := range tt.sent {
				j.Sent("speech", up)
			}
			for i := range tt.asks {
				x := j.Request(tt.asks[i])
				w := tt.want[i]
				if x.Request != w.id || x.Confidence != w.confidence || !strings.Contains(x.Why, w.why) || (x.Match == ByWindow) != (w.id != "") {
					t.Errorf("ask %d: %q by %q (%v), %q", i, x.Request, x.Match, x.Confidence, x.Why)
				}
				if again := j.Request(tt.asks[i]); again.Request != x.Request && again.Request != "" {
					t.Errorf("ask %d: %q at the second time", i, again.Request)
				}
			}
		})
	}
}

// TestMatchNeverSwaps: whatever the order in which requests without ids come and are
// sent on, a match by time is the right one or there is none.
func TestMatchNeverSwaps(t *testing.T) {
	s := newSynth(5)
	matched, asks := 0, 0
	for range 300 {
		n := 2 + s.rng.IntN(5)
		adds := map[string]int64{}
		var list []Ask
		up := 10 * sec
		for i := range n {
			up += s.rng.Int64N(sec) + 1
			added := up + s.rng.Int64N(2*sec)
			adds[fmt.Sprintf("speech-%d", i)] = added
			list = append(list, ask("speech", up, added+s.rng.Int64N(3*sec)+1))
		}
		j := asked(t, adds)
		for i := range list {
			j.Sent("speech", *list[i].Points.TUp)
		}
		for _, i := range s.rng.Perm(n) {
			asks++
			x := j.Request(list[i])
			if x.Request == "" {
				continue
			}
			matched++
			if want := fmt.Sprintf("speech-%d", i); x.Request != want {
				t.Fatalf("%s for %s: sent %d, asks %+v", x.Request, want, *list[i].Points.TUp, adds)
			}
		}
	}
	t.Logf("%d of %d matched", matched, asks)
	if matched < asks/10 {
		t.Errorf("only %d of %d matched", matched, asks)
	}
}

// TestMatchSharedID: one id in use by two requests at once is nobody's.
func TestMatchSharedID(t *testing.T) {
	j := asked(t, map[string]int64{"chatcmpl-x-00000001": 10 * sec, "chatcmpl-x-00000002": 11 * sec})
	a := ask("chat", 9*sec, 20*sec)
	a.RequestID = "x"
	if x := j.Request(a); x.Request != "" || !strings.Contains(x.Why, "several requests") {
		t.Errorf("got %q, %q", x.Request, x.Why)
	}
	a = ask("chat", 10*sec+sec/2, 20*sec) // sent after the first was asked for
	a.RequestID = "x"
	if x := j.Request(a); x.Request != "chatcmpl-x-00000002" {
		t.Errorf("got %q, %q", x.Request, x.Why)
	}
}
