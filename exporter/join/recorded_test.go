package join

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/omnitap/omnitap/probes/event"
)

const recordings = "../../testdata/stages"

// The recorded sets, and how many transfers each of them holds.
var recorded = map[string]int{
	"vo-basic": 16, "vo-faults": 25, "vo-real": 6, "vo-real-speech": 9, "so-basic": 20, "mc-tcp": 9,
}

// set is a recorded set with what is expected of it.
type set struct {
	name      string
	events    []event.Event
	processes []event.Process
	expected  expected
}

type expected struct {
	Requests []struct {
		Request       string `json:"request"`
		AddNS         int64  `json:"add_ns"`
		SubmitNS      int64  `json:"submit_ns"`
		OutputsStage0 int    `json:"outputs_stage0"`
		OutputsStage1 int    `json:"outputs_stage1"`
		FirstStage1NS int64  `json:"first_stage1_output_ns"`
	} `json:"requests"`
	Transfers  []expectedTransfer `json:"transfers"`
	LeftBehind []string           `json:"left_behind"`
	Computes   []struct {
		Stage   string `json:"stage"`
		Request string `json:"request"`
		Chunk   int64  `json:"chunk"`
		StartNS int64  `json:"start_ns"`
		EndNS   int64  `json:"end_ns"`
	} `json:"computes"`
}

type expectedTransfer struct {
	Transport    string  `json:"transport"`
	Request      string  `json:"request"`
	Chunk        *int64  `json:"chunk"`
	From         string  `json:"frm"`
	To           string  `json:"to"`
	Bytes        *int64  `json:"bytes"`
	MessageBytes *int64  `json:"message_bytes"`
	Key          *string `json:"key"`
	Object       *string `json:"object_id"`
	TxStartNS    *int64  `json:"tx_start_ns"`
	TxEndNS      *int64  `json:"tx_end_ns"`
	AnnouncedNS  *int64  `json:"announced_ns"`
	RxStartNS    *int64  `json:"rx_start_ns"`
	RxEndNS      *int64  `json:"rx_end_ns"`
	AckedNS      *int64  `json:"acked_ns"`
	WaitStartNS  *int64  `json:"wait_start_ns"`
	Misses       *int64  `json:"misses"`
	Match        string  `json:"match"`
}

func readSet(t testing.TB, name string) *set {
	t.Helper()
	dir := filepath.Join(recordings, name)
	s := &set{name: name, events: readEvents(t, filepath.Join(dir, "raw.jsonl.gz"))}
	f, err := os.Open(filepath.Join(dir, "processes.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := event.ReadProcesses(f)
	if err != nil {
		t.Fatal(err)
	}
	s.processes = p.Processes
	b, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &s.expected); err != nil {
		t.Fatal(err)
	}
	return s
}

func readEvents(t testing.TB, path string) []event.Event {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := event.NewReader(f)
	var out []event.Event
	for {
		var e event.Event
		ok, err := r.Next(&e)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return out
		}
		out = append(out, e)
	}
}

func (s *set) join(cfg Config) *Joiner {
	j := New(cfg)
	j.Processes(s.processes)
	for i := range s.events {
		j.Add(&s.events[i])
	}
	j.Flush(Everything)
	return j
}

// within is the bound on the difference from expected times, in nanoseconds.
const within = 5_000_000

// TestRecorded holds the join to the README beside the recorded sets: every transfer
// once, with equal bytes, request, chunk and pair of stages, times within 5 ms, no
// other transfer.
func TestRecorded(t *testing.T) {
	for name, n := range recorded {
		t.Run(name, func(t *testing.T) {
			s := readSet(t, name)
			if len(s.expected.Transfers) != n {
				t.Fatalf("expected.json holds %d transfers, want %d", len(s.expected.Transfers), n)
			}
			compareTransfers(t, s, s.join(Config{}).Transfers())
		})
	}
}

func compareTransfers(t *testing.T, s *set, got []Transfer) {
	t.Helper()
	if len(got) != len(s.expected.Transfers) {
		t.Errorf("%d transfers, want %d", len(got), len(s.expected.Transfers))
	}
	left := slices.Clone(got)
	for i := range s.expected.Transfers {
		want := &s.expected.Transfers[i]
		at := slices.IndexFunc(left, func(g Transfer) bool { return sameTransfer(&g, want) })
		if at < 0 {
			t.Errorf("not found: %+v", describe(want))
			continue
		}
		compareTimes(t, s.name, &left[at], want)
		left = slices.Delete(left, at, at+1)
	}
	for _, g := range left {
		t.Errorf("is no transfer: %+v", g)
	}
}

func describe(w *expectedTransfer) string {
	b, _ := json.Marshal(w)
	return string(b)
}

func sameTransfer(g *Transfer, w *expectedTransfer) bool {
	text := func(got string, want *string) bool { return want == nil && got == "" || want != nil && got == *want }
	number := func(got int64, want *int64) bool { return want == nil && got == -1 || want != nil && got == *want }
	return g.Transport == w.Transport && g.Request == w.Request && g.From == w.From && g.To == w.To && g.Match == w.Match &&
		number(g.Chunk, w.Chunk) && number(g.Bytes, w.Bytes) && text(g.Key, w.Key) && text(g.Object, w.Object) &&
		(w.MessageBytes == nil || *w.MessageBytes == g.MessageBytes)
}

func compareTimes(t *testing.T, set string, g *Transfer, w *expectedTransfer) {
	t.Helper()
	near := func(what string, got int64, want *int64) {
		switch {
		case want == nil && got != 0:
			t.Errorf("%s %s %d: %s is %d, want none", w.Request, w.From, g.Chunk, what, got)
		case want != nil && got == 0:
			t.Errorf("%s %s %d: %s is missing", w.Request, w.From, g.Chunk, what)
		case want != nil && max(got-*want, *want-got) > within:
			t.Errorf("%s %s %d: %s is %.3f ms off", w.Request, w.From, g.Chunk, what, float64(got-*want)/1e6)
		}
	}
	// SGLang-Omni's start lies before the wait for a credit; the end is compared.
	if set != "so-basic" {
		near("tx_start", g.TxStart, w.TxStartNS)
	}
	near("tx_end", g.TxEnd, w.TxEndNS)
	near("rx_start", g.RxStart, w.RxStartNS)
	if set == "mc-tcp" {
		// The truth's end has the copying out of the pool and the decoding in it, which
		// no event tells (13 ms for 4 MiB); ours is the sender's word.
		if g.RxEnd < g.TxEnd || g.RxEnd > *w.RxEndNS+within {
			t.Errorf("%s: rx_end %d is not between %d and %d", g.Key, g.RxEnd, g.TxEnd, *w.RxEndNS)
		}
	} else {
		near("rx_end", g.RxEnd, w.RxEndNS)
	}
	near("wait_start", g.WaitStart, w.WaitStartNS)
	if set == "so-basic" {
		near("announced", g.Announced, w.AnnouncedNS)
		near("acked", g.Acked, w.AckedNS)
	}
	// One poll of the recordings alone opened a segment ahead of its content.
	if n := map[bool]int64{true: 1}[g.Key == "chatcmpl-trace-1-8a2fdadf_1_0"]; g.Transport == "shm" && g.Misses >= 0 && !g.Unread && g.Empty != n {
		t.Errorf("%s: %d polls met an empty segment, want %d", g.Key, g.Empty, n)
	}
	if w.Misses != nil && g.Misses != *w.Misses {
		t.Errorf("%s %s %d: %d misses, want %d", w.Request, w.From, g.Chunk, g.Misses, *w.Misses)
	}
	if unread := w.RxStartNS == nil && w.AnnouncedNS == nil; g.Unread != unread {
		t.Errorf("%s %s %d: unread is %v, want %v", w.Request, w.From, g.Chunk, g.Unread, unread)
	}
	want := Certain
	switch {
	case g.Unread:
		want = OneEnded
	case set == "mc-tcp":
		want = Readdressed
	}
	if g.Confidence != want {
		t.Errorf("%s %s %d: confidence %v, want %v", w.Request, w.From, g.Chunk, g.Confidence, want)
	}
}
