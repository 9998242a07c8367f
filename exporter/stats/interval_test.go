package stats

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBlocksNeeded(t *testing.T) {
	cases := []struct {
		n          int
		half, want float64
		more       int
	}{
		{4, 0.02, 0.01, 12},
		{4, 0.3, 0.1, 32},
		{4, 0.07, 0.01, 192}, // although 0.07/0.01 is a little over 7
		{8, 0.011, 0.01, 2},
		{8, 0.01, 0.01, 0},
		{8, 0.005, 0.01, 0},
		{1, 0, 0.01, 0},
		{8, 1e30, 1e-30, math.MaxInt32},
		{0, 0.02, 0.01, -1},
		{-3, 0.02, 0.01, -1},
		{4, 0.02, 0, -1},
		{4, 0.02, -0.01, -1},
		{4, nan, 0.01, -1},
		{4, 0.02, nan, -1},
		{4, math.Inf(1), 0.01, -1},
		{4, -0.02, 0.01, -1},
	}
	for _, c := range cases {
		if got := BlocksNeeded(c.n, c.half, c.want); got != c.more {
			t.Errorf("BlocksNeeded(%d, %v, %v) = %d, want %d", c.n, c.half, c.want, got, c.more)
		}
	}
}

// Blocks that are added as BlocksNeeded says are enough, on the average.
func TestBlocksNeededAreEnough(t *testing.T) {
	half := experiment(t, usual, 6, 200, []Statistic{Median}, Design{Paired: true})[0].half
	n := 6 + BlocksNeeded(6, half, 0.03)
	if got := experiment(t, usual, n, 50, []Statistic{Median}, Design{Paired: true})[0].half; got > 0.031 || n > 200 {
		t.Errorf("with %d pairs the half width is %.4f, want 0.03 with not too many", n, got)
	}
}

// Published values of Student's t (Fisher and Yates, Statistical Tables, table III).
func TestStudentPublished(t *testing.T) {
	for freedom, want := range map[float64]float64{1: 12.706, 2: 4.303, 3: 3.182, 5: 2.571, 7: 2.365, 11: 2.201, 30: 2.042} {
		if got := student(0.95, freedom); math.Abs(got-want) > 0.0005 {
			t.Errorf("t of %v degrees = %.4f, want %v", freedom, got, want)
		}
	}
}

func TestDesignDefaults(t *testing.T) {
	cases := []struct {
		values, resamples int
	}{{0, 2000}, {1000, 2000}, {100_000, 2000}, {200_000, 1000}, {10_000_000, 400}}
	for _, c := range cases {
		d, why := Design{}.withDefaults(c.values)
		if why != "" || d.Resamples != c.resamples || d.Level != 0.95 {
			t.Errorf("%d values: %+v, %q, want %d resamples", c.values, d, why, c.resamples)
		}
	}
	if d, _ := (Design{Resamples: 500, Level: 0.9}).withDefaults(10_000_000); d.Resamples != 500 || d.Level != 0.9 {
		t.Errorf("what was asked for became %+v", d)
	}
}

func TestIntervalJSON(t *testing.T) {
	for _, i := range []Interval{{Lo: -0.1, Hi: 0.2, Level: 0.95, Method: "student-t"}, unknown(0.9)} {
		text, err := json.Marshal(map[string]Interval{"x": i})
		if err != nil {
			t.Fatal(err)
		}
		var back map[string]Interval
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(i, back["x"], approx); diff != "" {
			t.Errorf("%s reads back differently (-want +got):\n%s", text, diff)
		}
	}
}
