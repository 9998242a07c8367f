package report

import (
	"fmt"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/proxy/timeline"
)

func soundOf(id string, seconds float64, body string) *timeline.Record {
	return &timeline.Record{RequestID: id, Flow: "speech", AudioS: &seconds, RequestSHA256: &body, Terminal: timeline.Terminal{State: timeline.Success}}
}

// TestOutliersOfAlikeRequests: what differs from its group by more than the group
// does, and by over 5 %, is named; a group that is spread has none.
func TestOutliersOfAlikeRequests(t *testing.T) {
	for _, c := range []struct {
		name     string
		seconds  []float64
		groups   int
		outliers []string
	}{
		{"three are no group", []float64{2, 2, 1}, 0, nil},
		{"all the same", []float64{2, 2, 2, 2}, 1, nil},
		{"one is short", []float64{2, 2, 2, 2, 1.8}, 1, []string{"r4"}},
		{"4 % is nothing", []float64{2, 2, 2, 2, 1.92}, 1, nil},
		{"one is long", []float64{2, 2.02, 2, 4.1, 1.99}, 1, []string{"r3"}},
		{"takes that differ", []float64{1.6, 1.8, 2, 2.2, 2.4}, 1, nil},
		{"takes that differ, and a cut one", []float64{1.9, 1.95, 2, 2.05, 2.1, 1.2}, 1, []string{"r5"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var l lengths
			for i, s := range c.seconds {
				l.add(soundOf(fmt.Sprintf("r%d", i), s, "0123456789abcdef"))
			}
			failed := soundOf("failed", 0.1, "0123456789abcdef")
			failed.Terminal.State = timeline.QualityFailed
			l.add(failed) // no success, no member
			got := l.groups()
			if len(got) != c.groups {
				t.Fatalf("%d groups, want %d", len(got), c.groups)
			}
			if c.groups == 0 {
				return
			}
			var names []string
			for _, o := range got[0].Outliers {
				names = append(names, o.RequestID)
			}
			if fmt.Sprint(names) != fmt.Sprint(c.outliers) || got[0].Body != "0123456789ab" || got[0].N != len(c.seconds) {
				t.Errorf("group %+v, want outliers %v of %d", got[0], c.outliers, len(c.seconds))
			}
		})
	}
}

// TestIncidents: failures within a second of each other are one; a deadline counts
// from when the server fell silent.
func TestIncidents(t *testing.T) {
	at := func(state timeline.State, in, term int64, silent *float64) *timeline.Record {
		r := &timeline.Record{ConnectionID: uint64(in), Terminal: timeline.Terminal{State: state, Reason: "x", Evidence: map[string]any{}}}
		r.Points.TIn, r.Points.TTerm, r.TInWallNS = new(in*1e6), new(term*1e6), new(in*1e6+1e18)
		if silent != nil {
			r.Terminal.Evidence["last_output_ms"] = *silent
		}
		return r
	}
	for _, c := range []struct {
		name string
		recs []*timeline.Record
		want []int
	}{
		{"two are chance", []*timeline.Record{at(timeline.TransportError, 0, 10, nil), at(timeline.TransportError, 1, 11, nil)}, nil},
		{"three", []*timeline.Record{at(timeline.TransportError, 0, 10, nil), at(timeline.TransportError, 1, 900, nil), at(timeline.WorkerLost, 2, 1800, nil)}, []int{3}},
		{"a chain that breaks", []*timeline.Record{at(timeline.TransportError, 0, 10, nil), at(timeline.TransportError, 1, 900, nil), at(timeline.WorkerLost, 2, 1901, nil)}, nil},
		{"cancels are nobody's fault", []*timeline.Record{at(timeline.ClientCancelled, 0, 10, nil), at(timeline.ClientCancelled, 1, 11, nil), at(timeline.ClientCancelled, 2, 12, nil)}, nil},
		{"deadlines of different starts, silent at once", []*timeline.Record{
			at(timeline.DeadlineExceeded, 0, 60000, new(9000.)), at(timeline.DeadlineExceeded, 4000, 64000, new(5100.)), at(timeline.DeadlineExceeded, 8000, 68000, new(1050.)),
		}, []int{3}},
		{"two incidents", []*timeline.Record{
			at(timeline.OOM, 0, 10, nil), at(timeline.OOM, 1, 11, nil), at(timeline.OOM, 2, 12, nil),
			at(timeline.OOM, 0, 9010, nil), at(timeline.OOM, 1, 9011, nil), at(timeline.OOM, 2, 9012, nil), at(timeline.OOM, 3, 9013, nil),
		}, []int{3, 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var all []failure
			for _, r := range c.recs {
				if f, ok := failureOf(r); ok {
					all = append(all, f)
				}
			}
			var got []int
			for _, i := range incidents(all) {
				got = append(got, i.Failures)
			}
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("incidents of %v failures, want %v", got, c.want)
			}
		})
	}
}

// TestInvalidRun: over 1 % of attempts that failed by our own fault make a run say
// nothing of the server, and the tables say so first.
func TestInvalidRun(t *testing.T) {
	for _, c := range []struct {
		good, bad int
		want      bool
	}{{99, 1, false}, {98, 2, true}, {0, 1, true}, {10, 0, false}, {0, 0, false}} {
		var recs []*timeline.Record
		for i := range c.good + c.bad {
			r := soundOf(fmt.Sprint(i), 2, "b")
			if i < c.bad {
				r.Terminal.State = timeline.HarnessError
			}
			recs = append(recs, r)
		}
		r := Tables(func(yield func(*timeline.Record, error) bool) {
			for _, x := range recs {
				if !yield(x, nil) {
					return
				}
			}
		})
		var b strings.Builder
		if err := r.Render(&b); err != nil {
			t.Fatal(err)
		}
		if got := r.Invalid != ""; got != c.want || strings.Contains(b.String(), "THIS RUN IS INVALID") != c.want {
			t.Errorf("%d of %d: invalid %q, want %v", c.bad, c.good+c.bad, r.Invalid, c.want)
		}
	}
}
