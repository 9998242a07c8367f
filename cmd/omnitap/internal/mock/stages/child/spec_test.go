package child

import (
	"strings"
	"testing"
)

func TestSpecTravels(t *testing.T) {
	want := Spec{Stage: 2, Input: "/tmp/a b/c", StepNS: 4, Faults: []Fault{{Kind: FaultSlow, Stage: 2, Chunk: 3}}}
	line, err := want.Setting()
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseSpec(strings.TrimPrefix(line, Env+"="))
	if err != nil || got.Input != want.Input || got.Stage != 2 || len(got.Faults) != 1 {
		t.Errorf("parseSpec(%q) = %+v, %v", line, got, err)
	}
	for _, text := range []string{"", "{", `{"Stage":3}`, `{"Stage":-1}`} {
		if _, err := parseSpec(text); err == nil || !strings.Contains(err.Error(), Env) {
			t.Errorf("parseSpec(%q): %v", text, err)
		}
	}
}

func TestFaultsMeetTheirStep(t *testing.T) {
	s := Spec{Stage: 1, Faults: []Fault{
		{Kind: FaultSlow, Stage: 0, Chunk: 1},
		{Kind: FaultSlow, Stage: 1, Request: "a", Chunk: 1},
		{Kind: FaultExit, Stage: 1, Chunk: 5},
	}}
	for _, tt := range []struct {
		kind, request string
		step          int
		want          bool
	}{
		{FaultSlow, "a", 1, true},
		{FaultSlow, "b", 1, false},
		{FaultSlow, "a", 2, false},
		{FaultExit, "b", 5, true},
	} {
		if got := s.fault(tt.kind, tt.request, tt.step) != nil; got != tt.want {
			t.Errorf("fault(%s, %s, %d) = %v, want %v", tt.kind, tt.request, tt.step, got, tt.want)
		}
	}
}
