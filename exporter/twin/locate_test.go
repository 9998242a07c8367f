package twin

import (
	"fmt"
	"slices"
	"testing"
)

// TestFaultsAreFoundToTheSample injects a fault at a random place of a random
// stream: frame and amount are told to the sample, but for samples that are equal on
// both sides of it.
func TestFaultsAreFoundToTheSample(t *testing.T) {
	const rate = 8000
	for _, kind := range []string{"cut", "repeat", "zeros", "noise", "replaced"} {
		for seed := range uint64(12) {
			t.Run(fmt.Sprint(kind, seed), func(t *testing.T) {
				rnd := seeded(seed)
				twin := speech(rnd, rate*2+rnd.IntN(rate*2), rate)
				n := 1 + rnd.IntN(2000)
				if kind == "replaced" || kind == "zeros" || kind == "noise" {
					n += 64
				}
				at := n + rate/5 + rnd.IntN(len(twin)-2*n-2*rate/5)
				came, want := inject(seed, kind, twin, at, n)
				c := Compare(s16(came, rate), s16(twin, rate))
				if !c.OneTake || c.BreakCount != 1 {
					t.Fatalf("%s of %d at %d: one take %v, breaks %v, aligned %.4f, matched %d of %d", kind, n, at, c.OneTake, c.Breaks, c.Aligned, c.Matched, c.Came)
				}
				got := c.Breaks[0]
				if got.Missing != want.Missing {
					t.Errorf("%s of %d at %d: got %+v, want %+v", kind, n, at, got, want)
				}
				if c.MaxError > same*2 {
					t.Errorf("pieces that agree differ by %v", c.MaxError)
				}
				if s := slack(came, twin, want, got); s != "" {
					t.Errorf("%s of %d at %d: got %+v, want %+v: %s", kind, n, at, got, want, s)
				}
			})
		}
	}
}

// slack says why a place that differs from where the fault was put is wrong, empty
// where samples on both sides of it are equal within what counts as equal.
func slack(came, twin []int16, want, got Break) string {
	if got.Frame < want.Frame {
		return "too early"
	}
	if got.Frame-want.Frame > 8 {
		return "too late"
	}
	for i := want.Frame; i < got.Frame; i++ {
		if d := int(came[i]) - int(twin[i]); max(d, -d) > 4 {
			return fmt.Sprintf("sample %d differs by %d", i, d)
		}
	}
	if d := want.Changed - got.Changed; d < 0 || d > 16 {
		return "another number of changed samples"
	}
	return ""
}

func inject(seed uint64, kind string, twin []int16, at, n int) ([]int16, Break) {
	rnd := seeded(seed + 1000)
	b := Break{Frame: int64(at)}
	garbage := make([]int16, n)
	if kind != "zeros" {
		for i := range garbage {
			garbage[i] = int16(rnd.IntN(40000) - 20000)
		}
	}
	switch kind {
	case "cut":
		b.Missing = int64(n)
		return slices.Concat(twin[:at], twin[at+n:]), b
	case "repeat":
		b.Missing = -int64(n)
		return slices.Concat(twin[:at], twin[at-n:]), b
	case "replaced":
		b.Changed = int64(n)
		return slices.Concat(twin[:at], garbage, twin[at+n:]), b
	}
	b.Missing = -int64(n)
	return slices.Concat(twin[:at], garbage, twin[at:]), b
}
