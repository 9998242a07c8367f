package compare

import (
	"fmt"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// one makes a digest of requests: an id and a body each (empty for none), failed where
// the id ends in "!".
func one(t *testing.T, requests ...[2]string) *digest {
	t.Helper()
	d := newDigest()
	for i, q := range requests {
		id, failed := strings.CutSuffix(q[0], "!")
		r := &timeline.Record{RequestID: id, RequestIDSource: "client", TTFTMS: new(float64(i + 1)), Terminal: timeline.Terminal{State: timeline.Success}}
		if failed {
			r.Terminal.State = timeline.OOM
		}
		if q[1] != "" {
			r.RequestSHA256 = &q[1]
		}
		r.Points.TIn = new(int64(i + 1))
		d.add(r, slo{})
	}
	d.finish()
	return d
}

func TestPair(t *testing.T) {
	t.Parallel()
	ids := func(names ...string) (out [][2]string) {
		for _, n := range names {
			out = append(out, [2]string{n, ""})
		}
		return out
	}
	bodies := func(names ...string) (out [][2]string) {
		for i, n := range names {
			out = append(out, [2]string{map[bool]string{true: "!"}[strings.HasSuffix(n, "!")], strings.TrimSuffix(n, "!")})
			_ = i
		}
		return out
	}
	for name, test := range map[string]struct {
		runs              [][][2]string
		by, why           string
		common, succeeded int
		values            string
	}{
		"ids": {[][][2]string{ids("a", "b", "c"), ids("c", "a", "b")}, ByID, "", 3, 3, "[[1 2 3] [1 2 3]]"},
		"one of them failed": {
			[][][2]string{ids("a", "b", "c!"), ids("c", "a", "b")}, ByID, "", 3, 2, "[[1 2] [2 3]]",
		},
		"half in common":   {[][][2]string{ids("a", "b"), ids("a", "c")}, ByID, "", 1, 1, "[[1] [1]]"},
		"little in common": {[][][2]string{ids("a", "b", "c"), ids("a", "d", "e")}, ByNone, "by request_id: 1 of 3 requests are in every run", 0, 0, "[[1 2 3] [1 2 3]]"},
		"most fail somewhere": {
			[][][2]string{ids("a", "b!", "c!"), ids("a!", "b", "c")}, ByNone, "by request_id: 0 of 3 requests succeeded in every run", 0, 0, "[[1] [2 3]]",
		},
		"ids that repeat, bodies": {
			[][][2]string{{{"x", "1"}, {"x", "2"}}, {{"x", "2"}, {"x", "1"}}}, ByBody, "", 2, 2, "[[1 2] [1 2]]",
		},
		"an id twice in one run, and in no other": {
			[][][2]string{ids("x", "x"), ids("y", "z")}, ByNone, "by request_id: it repeats within a run", 0, 0, "[[1 2] [1 2]]",
		},
		"the same body often": {[][][2]string{bodies("s", "s", "s"), bodies("s", "s!", "s", "s")}, ByBody, "", 3, 2, "[[1 3] [1 3]]"},
		"neither":             {[][][2]string{bodies("", "s"), bodies("s", "s")}, ByNone, "by request_sha256: 1 of a run's 2 requests have none", 0, 0, "[[1 2] [1 2]]"},
		"a run without":       {[][][2]string{ids("a"), nil}, ByNone, "0 of 1 requests", 0, 0, "[[1] []]"},
		"no requests at all":  {[][][2]string{nil, nil}, ByNone, "0 of 0 requests", 0, 0, "[[] []]"},
	} {
		var runs []*digest
		for _, r := range test.runs {
			runs = append(runs, one(t, r...))
		}
		p := pair(runs)
		if p.By != test.by || !strings.Contains(p.Why, test.why) || fmt.Sprint(p.values[atTTFT]) != test.values {
			t.Errorf("%s: %+v, %v", name, p.Pairing, p.values[atTTFT])
		}
		if test.by != ByNone && (p.Common != test.common || p.Succeeded != test.succeeded) {
			t.Errorf("%s: %+v", name, p.Pairing)
		}
	}
}

// Ids that the relay made are new in every run, also where they look the same.
func TestOwnIDsDoNotPair(t *testing.T) {
	t.Parallel()
	for _, source := range []string{"own", "injected", ""} {
		if k := idKey(&timeline.Record{RequestID: "own-1", RequestIDSource: source}); k != 0 {
			t.Errorf("%q: %d", source, k)
		}
	}
	a, b := &timeline.Record{RequestID: "s", RequestIDSource: "client", Turn: new(0)}, &timeline.Record{RequestID: "s", RequestIDSource: "client", Turn: new(1)}
	if idKey(a) == idKey(b) {
		t.Error("two turns of a session have one key")
	}
}

// A retry is no success, and no request of its own.
func TestRetriesAddCost(t *testing.T) {
	t.Parallel()
	d := newDigest()
	r := &timeline.Record{RequestID: "a", Attempt: 2, Terminal: timeline.Terminal{State: timeline.Success}, TTFTMS: new(1.0)}
	d.add(r, slo{})
	if d.attempts != 1 || d.requests != 0 || d.success != 0 || len(d.rows) != 0 {
		t.Errorf("%+v", d)
	}
}

// Latencies that a pacer settled are left out; others of the same request are not.
func TestPacedLatenciesAreLeftOut(t *testing.T) {
	t.Parallel()
	w := usual()
	w.change = func(_ int, r *timeline.Record) { r.Flags = []string{"paced"} }
	a, b := w.seeded(1).series("ABBA")
	r := compared(t, a, b, Options{})
	for _, f := range r.Flows[0].Figures {
		if strings.HasPrefix(f.Name, "jct") || strings.HasPrefix(f.Name, "rtf") {
			t.Errorf("%s of paced requests", f.Name)
		}
	}
	if r.figure(t, "ttfa_p50").N[0] != 240 || !strings.Contains(strings.Join(r.Flows[0].Notes, "\n"), "the server paced 240 of 240 successes of B") {
		t.Errorf("%q", r.Flows[0].Notes)
	}
}
