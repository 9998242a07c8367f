package verify_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/omnitap/omnitap/exporter/resources"
	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/exporter/verify"
)

// sampledRun is the demo's run with what an H200 was sampled to take, and the energy that
// exporter/energy made of it.
func sampledRun(t *testing.T) string {
	t.Helper()
	dir, from := demo(t), unpack(t, "h200")
	text, err := os.ReadFile(filepath.Join(from, "energy.json"))
	if err != nil {
		t.Fatal(err)
	}
	edit(t, dir, rundir.MetadataFile, once(`"sealed": false`, `"sealed": false, "run": {"energy": `+string(text)+`}`))
	if err := os.Rename(filepath.Join(from, resources.File), filepath.Join(dir, resources.File)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestResources: what a card says of itself passes, and all of its energy is reckoned
// again; whatever is changed of either is found.
func TestResources(t *testing.T) {
	dir := sampledRun(t)
	res := mustVerify(t, dir, verify.Options{AllowUnsealed: true})
	if !res.OK() || res.Compared["resources.parquet rows"] != 713 || res.Compared["run.energy"] != 16 {
		t.Fatalf("%v, findings:%s", res.Compared, list(res))
	}
	for text, change := range map[string]func(string) string{
		"run.energy.counter.total_j is":           once(`"total_j": ?13820.`, `"total_j": 13821.`),
		"run.energy.power.idle_w is":              once(`"idle_w": ?123.40`, `"idle_w": 123.41`),
		"run.energy.counter.net_j is":             once(`"net_j": ?11350`, `"net_j": 11351`),
		"run.energy.counter.per_success_j is":     once(`"per_success_j": ?0.7806`, `"per_success_j": 0.7816`),
		"run.energy.devices[0].load.power_j is":   once(`"power_j": ?13860`, `"power_j": 13870`),
		"run.energy.devices[0].idle.counter_s is": once(`"counter_s": ?20.0001`, `"counter_s": 20.0101`),
	} {
		t.Run(text, func(t *testing.T) {
			dir := sampledRun(t)
			edit(t, dir, rundir.MetadataFile, change)
			wantFinding(t, dir, verify.KindValue, text)
		})
	}
	t.Run("missing", func(t *testing.T) {
		dir := sampledRun(t)
		if err := os.Remove(filepath.Join(dir, resources.File)); err != nil {
			t.Fatal(err)
		}
		wantFinding(t, dir, verify.KindFile, "it is missing")
	})
	t.Run("cut", func(t *testing.T) {
		dir := sampledRun(t)
		edit(t, dir, resources.File, func(s string) string { return s[:len(s)/2] })
		wantFinding(t, dir, verify.KindFile, resources.File)
	})
}

func wantFinding(t *testing.T, dir string, kind verify.Kind, text string) {
	t.Helper()
	res := mustVerify(t, dir, verify.Options{AllowUnsealed: true})
	if res.OK() || find(res, func(f *verify.Finding) bool { return f.Kind == kind && strings.Contains(f.String(), text) }) == nil {
		t.Errorf("no %s %q, findings:%s", kind, text, list(res))
	}
}

// TestResourceRows: rows that cannot be are found, each by what is wrong with it.
func TestResourceRows(t *testing.T) {
	type edit struct {
		kind   verify.Kind
		says   string
		change func(gpu []*resources.Row) // those of the card
	}
	loaded := func(gpu []*resources.Row) *resources.Row { return gpu[400] } // amid the load
	for name, e := range map[string]edit{
		"time":      {verify.KindOrder, "stands behind one of", func(g []*resources.Row) { g[100].MonoNS -= 2e9 }},
		"counter":   {verify.KindValue, "run.energy.devices[0].load.counter_j is", func(g []*resources.Row) { raise(g[400:], 1e5) }},
		"reloaded":  {verify.KindValue, "run.energy.devices[0].load.counter_j is", func(g []*resources.Row) { raise(g[400:], -9e9) }},
		"null":      {verify.KindSchema, "power_w is null without a reason", func(g []*resources.Row) { loaded(g).PowerW = nil }},
		"reason":    {verify.KindSchema, "power_w has a value and a reason", func(g []*resources.Row) { loaded(g).Unmeasured = new(`{"power_w":"no"}`) }},
		"no object": {verify.KindSchema, "unmeasured: ", func(g []*resources.Row) { loaded(g).Unmeasured = new(`no`) }},
		"percent":   {verify.KindConservation, "gpu_percent is 200", func(g []*resources.Row) { loaded(g).GPUPercent = new(int32(200)) }},
		"power":     {verify.KindConservation, "power_w is -1", func(g []*resources.Row) { loaded(g).PowerW = new(-1.0) }},
		"altered":   {verify.KindValue, "run.energy.devices[0].load.power_j is", func(g []*resources.Row) { *loaded(g).PowerW++ }},
		"another":   {verify.KindValue, "gpu7 was sampled", func(g []*resources.Row) { loaded(g).Device = new("gpu7") }},
	} {
		t.Run(name, func(t *testing.T) {
			dir := sampledRun(t)
			rewrite(t, dir, e.change)
			wantFinding(t, dir, e.kind, e.says)
		})
	}
	t.Run("nothing", func(t *testing.T) {
		dir := sampledRun(t)
		rewrite(t, dir, func([]*resources.Row) {})
		if res := mustVerify(t, dir, verify.Options{AllowUnsealed: true}); !res.OK() {
			t.Errorf("findings:%s", list(res))
		}
	})
}

// raise adds to a card's counter.
func raise(g []*resources.Row, mj int64) {
	for _, r := range g {
		if r.EnergyMJ != nil {
			*r.EnergyMJ += mj
		}
	}
}

// rewrite changes rows of a run's card.
func rewrite(t *testing.T, dir string, change func(gpu []*resources.Row)) {
	t.Helper()
	path := filepath.Join(dir, resources.File)
	rows, err := parquet.ReadFile[resources.Row](path)
	if err != nil {
		t.Fatal(err)
	}
	var gpu []*resources.Row
	for i := range rows {
		if rows[i].Kind == resources.KindGPU {
			gpu = append(gpu, &rows[i])
		}
	}
	change(gpu)
	if err := parquet.WriteFile(path, rows); err != nil {
		t.Fatal(err)
	}
}

// TestEnergyOfRecords: the successes that energy is shared among are those of the records.
func TestEnergyOfRecords(t *testing.T) {
	build := func(successes int) string {
		dir := sampledRun(t)
		first := ingress.FindSubmatch(one(t, dir, events, `"event":"ingress"`))[1]
		edit(t, dir, rundir.MetadataFile, once(`"run": \{`, `"run": {"phases": [{"name": "measured", "start_ns": `+string(first)+`}], `))
		edit(t, dir, rundir.MetadataFile, once(`"successes": ?14540`, fmt.Sprintf(`"successes": %d`, successes)))
		edit(t, dir, requests, func(s string) string {
			return strings.ReplaceAll(s, `"bytes_up":`, `"run_phase":"measured","bytes_up":`)
		})
		recount(t, dir)
		return dir
	}
	states := mustVerify(t, demo(t), verify.Options{AllowUnsealed: true}).Counts.States
	n := int(states["success"])
	if n == 0 {
		t.Fatalf("states %v", slices.Sorted(maps.Keys(states)))
	}
	wantFinding(t, build(n+1), verify.KindValue, "run.energy.successes is "+fmt.Sprint(n+1)+", the records give "+fmt.Sprint(n))
	res := mustVerify(t, build(n), verify.Options{AllowUnsealed: true})
	if find(res, func(f *verify.Finding) bool { return strings.Contains(f.String(), "run.energy.successes") }) != nil {
		t.Errorf("findings:%s", list(res))
	}
}
