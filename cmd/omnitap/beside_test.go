package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/exporter/resources"
	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/exporter/upstream"
)

// wantBeside: a run without a card has the machine's samples, and says why there is no
// energy; what the server says of itself was asked for around the load.
func wantBeside(t testing.TB, dir string, info *rundir.RunInfo) {
	t.Helper()
	if info.Energy != nil || !strings.Contains(info.NoEnergy, "no card") {
		t.Errorf("energy %+v (%s)", info.Energy, info.NoEnergy)
	}
	var b besideInfo
	if err := json.Unmarshal(info.Resources, &b); err != nil || b.File == nil || b.GPU == nil || b.Host == nil || b.Host.Samples < 2 || b.GPU.State == "sampling" {
		t.Errorf("resources %s: %v", info.Resources, err)
	}
	machine := 0
	err := resources.Each(dir, func(r *resources.Row) error {
		if r.Kind == resources.KindMachine {
			machine++
		}
		return nil
	})
	if err != nil || machine < 2 {
		t.Errorf("%d samples of the machine: %v", machine, err)
	}
	f, err := os.Open(filepath.Join(dir, upstream.File))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	scrapes, problems, err := upstream.Read(f)
	if err != nil || len(problems) > 0 || len(scrapes) < 1 {
		t.Errorf("%d scrapes, %v, %v", len(scrapes), problems, err)
	}
}
