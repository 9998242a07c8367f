package script

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOverlayKeepsTheBase(t *testing.T) {
	zero := 0.0
	base := Script{Text: []string{"a", "b"}, GapMS: Floats{1, 2}, FirstDelayMS: &zero, Faults: []string{"burst"}}
	got, err := base.Overlay([]byte(`{"text":["x"],"gap_ms":7,"first_delay_ms":9,"samples":3}`))
	if err != nil {
		t.Fatal(err)
	}
	nine := 9.0
	want := Script{Text: []string{"x"}, GapMS: Floats{7}, FirstDelayMS: &nine, Samples: Ints{3}, Faults: []string{"burst"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("overlay (-want +got):\n%s", diff)
	}
	if base.Text[0] != "a" || zero != 0 {
		t.Errorf("the base was changed: %+v", base)
	}
}

func TestParse(t *testing.T) {
	good := []string{"role-only", "role-only=off", "reset=after:3", "stall=event:2+for:5s", "cut=end", "segments=4063/1697/1/1+pause:2ms", "segments=1-64", "interim=102/103+gap:100ms", "placeholder=7fffffff", "error=start+form:json", "status=429+retry-after:3", "merge=0"}
	for _, f := range good {
		s, err := Parse([]string{f})
		if err != nil || !slices.Equal(s.Faults, []string{f}) {
			t.Errorf("Parse(%q) = %v, %v", f, s.Faults, err)
		}
	}
	bad := [][]string{{""}, {"rolle"}, {"role-only=maybe"}, {"reset=after"}, {"reset=after:x"}, {"reset=after:1+byte:2"}, {"reset=for:1s"}, {"stall=for:soon"}, {"segments"}, {"segments=0"}, {"segments=9-1"}, {"merge"}, {"burst=1"}, {"status=200"}, {"burst", "burst"}, {"rate-change=2"}, {"rate-change=2:16k"}, {"placeholder=big"}, {"content-type="}, {"lost=-1"}, {"error=form:polite"}, {"idle=0s"}}
	for _, f := range bad {
		if _, err := Parse(f); err == nil {
			t.Errorf("Parse(%q) = nil error", f)
		}
	}
}
