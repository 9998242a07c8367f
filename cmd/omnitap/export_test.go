package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/omnitap/omnitap/exporter/resources"
	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/exporter/stats"
	"github.com/omnitap/omnitap/proxy/timeline"
)

const (
	exportedRun = "../../exporter/convert/testdata/run"
	queriesFile = "../../exporter/convert/README.md"
)

func TestExport(t *testing.T) {
	for _, format := range []string{"perfetto", "parquet", "csv"} {
		out := filepath.Join(t.TempDir(), "out")
		text := mustRun(t, "export", "--format", format, "--out", out, exportedRun)
		lines := strings.Split(strings.TrimSpace(text), "\n")
		if last := lines[len(lines)-1]; last != out || !strings.HasPrefix(text, "runs 1, requests 7, sessions 3, events 186; ") {
			t.Errorf("%s: printed %q, want counts and the path last", format, text)
		}
		if _, err := os.Stat(out); err != nil {
			t.Error(err)
		}
		code, _, errOut := runApp(t, "export", "--format", format, "--out", out, exportedRun)
		if code != exitUsage || !strings.Contains(errOut, "it is there already") {
			t.Errorf("%s again: exit %d, %q, want it refused", format, code, errOut)
		}
		mustRun(t, "export", "--format", format, "--out", out, "--force", exportedRun)
	}
}

// Without --out the name is the run's, in the working directory.
func TestExportDefaultName(t *testing.T) {
	run, err := filepath.Abs(exportedRun)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for format, want := range map[string]string{"perfetto": "run.pftrace", "parquet": "run.parquet", "csv": "run.csv"} {
		if text := mustRun(t, "export", "--format", format, run); !strings.HasSuffix(text, "\n"+want+"\n") {
			t.Errorf("%s: %q, want %s last", format, text, want)
		}
	}
}

func TestExportExitCodes(t *testing.T) {
	damaged := filepath.Join(t.TempDir(), "damaged")
	if err := os.CopyFS(damaged, os.DirFS(exportedRun)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(damaged, rundir.RequestsFile)
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, text[:len(text)-9], 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"damaged":   {[]string{"--format", "csv", "--out", out, damaged}, exitUnusable, "requests.jsonl: line 7 (byte"},
		"no run":    {[]string{"--format", "csv", "--out", out + "2", t.TempDir()}, exitUsage, "requests.jsonl"},
		"no format": {[]string{exportedRun}, exitUsage, "format"},
		"format":    {[]string{"--format", "xml", exportedRun}, exitUsage, "none of perfetto, parquet, csv"},
		"nothing":   {[]string{"--format", "csv"}, exitUsage, "at least 1 arg"},
	} {
		code, _, errOut := runApp(t, append([]string{"export"}, c.args...)...)
		if code != c.code || !strings.Contains(errOut, c.says) {
			t.Errorf("%s: exit %d, %q; want %d and %q", name, code, errOut, c.code, c.says)
		}
	}
	if _, err := os.Stat(filepath.Join(out, "requests.csv")); err != nil {
		t.Errorf("what is whole of a damaged run: %v", err)
	}
}

// madeJoules is what two made cards took, by their counters.
const madeJoules = 3500.0

// writeResources has a card that took 2 kJ and one that took 1.5 kJ, a card without a
// counter, and a process, which has none.
func writeResources(t *testing.T, path string) {
	t.Helper()
	row := func(device string, at, mj int64) resources.Row {
		return resources.Row{Kind: resources.KindGPU, Node: "n", MonoNS: at, Device: &device, EnergyMJ: &mj}
	}
	none := "gpu2"
	rows := []resources.Row{
		row("gpu0", 1, 1_000_000),
		row("gpu1", 1, 500),
		row("gpu0", 2, 3_000_000),
		row("gpu1", 2, 1_500_500),
		{Kind: resources.KindGPU, Node: "n", MonoNS: 2, Device: &none},
		{Kind: resources.KindProcess, Node: "n", MonoNS: 2},
	}
	if err := parquet.WriteFile(path, rows); err != nil {
		t.Fatal(err)
	}
}

// The queries of the documentation are run as they stand there, by DuckDB, and held to
// figures that are derived here from the records.
func TestExportQueries(t *testing.T) {
	python := clientPython(t)
	dir := t.TempDir()
	run := filepath.Join(dir, "run1")
	mustRun(t, "demo", "--requests", "2", "--probes", "off", "--out", run, "--json")
	addStages(t, run)
	mustRun(t, "export", "--format", "parquet", "--out", filepath.Join(dir, "run1.parquet"), run)
	writeResources(t, filepath.Join(run, "resources.parquet"))
	queries := sqlOf(t, queriesFile)
	if len(queries) < 6 {
		t.Fatalf("%d queries in %s, want six", len(queries), queriesFile)
	}
	rows := duckdb(t, python, dir, queries)
	records := recordsOf(t, run)
	checkTTFA(t, records, rows[0], rows[1])
	checkHandOvers(t, records, rows[2])
	checkShares(t, rows[3])
	checkFailures(t, records, rows[4])
	successes := 0
	for _, r := range records {
		if r.Terminal.State == timeline.Success {
			successes++
		}
	}
	energy := rows[5]
	if len(energy) != 1 || !near(energy[0][0], madeJoules) || !near(energy[0][1], madeJoules/float64(successes)) {
		t.Errorf("energy %v, want %v J over %d", energy, madeJoules, successes)
	}
}

// addStages gives a run without probes the records that have stages: those of the made run.
func addStages(t *testing.T, run string) {
	t.Helper()
	if err := os.Chmod(run, 0o700); err != nil {
		t.Fatal(err)
	}
	more, err := os.ReadFile(filepath.Join(exportedRun, rundir.RequestsFile))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(run, rundir.RequestsFile)
	text, err := os.ReadFile(path)
	if err == nil {
		err = errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, append(text, more...), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func recordsOf(t *testing.T, dir string) (records []*timeline.Record) {
	t.Helper()
	run, err := rundir.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range run.Records() {
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	return records
}

// sqlOf takes the queries out of a page.
func sqlOf(t *testing.T, path string) (queries []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(text), "```sql\n")[1:] {
		query, _, _ := strings.Cut(part, "```")
		queries = append(queries, query)
	}
	return queries
}

const duckdbScript = `
import duckdb, json, os, sys
c = duckdb.connect()
print(json.dumps([c.sql(q).fetchall() for q in json.load(sys.stdin)], default=float))
`

// duckdb runs queries in a folder and returns their rows.
func duckdb(t *testing.T, python, dir string, queries []string) (rows [][][]any) {
	t.Helper()
	out := pythonIn(t, python, dir, duckdbScript, queries)
	if err := json.Unmarshal(out, &rows); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return rows
}

func pythonIn(t *testing.T, python, dir, script string, input any) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), clientLimit)
	defer cancel()
	text, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, python, "-c", script)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(string(text))
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	return out
}

func near(got any, want float64) bool {
	g, ok := got.(float64)
	return ok && math.Abs(g-want) <= 1e-9*math.Max(1, math.Abs(want))
}

func checkTTFA(t *testing.T, records []*timeline.Record, exported, direct [][]any) {
	t.Helper()
	by, runs := map[string][]float64{}, map[string][]float64{}
	for _, r := range records {
		if r.Terminal.State == timeline.Success && r.TTFAMS != nil && !strings.Contains(strings.Join(r.Flags, " "), "paced") {
			by[r.Flow] = append(by[r.Flow], *r.TTFAMS)
			runs[r.RunID+" "+r.Flow] = append(runs[r.RunID+" "+r.Flow], *r.TTFAMS)
		}
	}
	if len(exported) != len(by) || len(by) < 4 || len(direct) != len(runs) {
		t.Fatalf("flows %v and %v, want %d and %d", exported, direct, len(by), len(runs))
	}
	for _, row := range exported {
		s := stats.Summarize(by[row[0].(string)])
		if !near(row[1], float64(s.N)) || !near(row[2], s.P50) || !near(row[3], s.P95) || !near(row[4], s.P99) {
			t.Errorf("query of TTFA says %v, the records %+v", row, s)
		}
	}
	for _, row := range direct {
		s := stats.Summarize(runs[fmt.Sprint(row[0], " ", row[1])])
		if !near(row[2], float64(s.N)) || !near(row[3], s.P95) {
			t.Errorf("query of run directories says %v, the records %+v", row, s)
		}
	}
}

func checkHandOvers(t *testing.T, records []*timeline.Record, rows [][]any) {
	t.Helper()
	slowest := 0.0
	for _, r := range records {
		for _, x := range r.Transfers {
			if x.EndNS != nil {
				slowest = max(slowest, float64(*x.EndNS-x.StartNS)/1e6)
			}
		}
	}
	if slowest == 0 || len(rows) == 0 || !near(rows[0][6], slowest) {
		t.Errorf("the slowest hand-over is %v, want one of %v ms", rows, slowest)
	}
}

func checkShares(t *testing.T, rows [][]any) {
	t.Helper()
	sums := map[string]float64{}
	for _, row := range rows {
		share, _ := row[2].(float64)
		sums[row[0].(string)] += share
	}
	if len(sums) == 0 {
		t.Error("no share of any stage")
	}
	for flow, sum := range sums {
		if !near(sum, 1) {
			t.Errorf("shares of %s sum to %v: %v", flow, sum, rows)
		}
	}
}

func checkFailures(t *testing.T, records []*timeline.Record, rows [][]any) {
	t.Helper()
	want, got := map[string]float64{}, map[string]float64{}
	for _, r := range records {
		if e := r.Terminal; e.State != timeline.Success {
			want[fmt.Sprint(e.State, " ", e.Reason, " ", e.Phase, " ", e.By)]++
		}
	}
	for _, row := range rows {
		got[fmt.Sprint(row[0], " ", row[1], " ", row[2], " ", row[3])], _ = row[4].(float64)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || len(want) < 3 {
		t.Errorf("failures %v, the records have %v", got, want)
	}
}

// perfettoScript reads a trace by Perfetto's own messages, and refuses what they do not know.
const perfettoScript = `
import json, sys
from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb
path = json.load(sys.stdin)
trace = pb.Trace()
trace.ParseFromString(open(path, "rb").read())
def walk(m):
    assert len(UnknownFieldSet(m)) == 0, m
    assert m.IsInitialized(), m
    for field, value in m.ListFields():
        if field.message_type is not None:
            for each in value if field.is_repeated else [value]:
                walk(each)
walk(trace)
assert trace.packet[0].clock_snapshot.primary_trace_clock == pb.BUILTIN_CLOCK_MONOTONIC
kinds, tracks = {}, set()
for p in trace.packet:
    assert p.trusted_packet_sequence_id == 1, p
    which = p.WhichOneof("data")
    if which == "track_descriptor":
        assert not p.track_descriptor.parent_uuid or p.track_descriptor.parent_uuid in tracks, p
        tracks.add(p.track_descriptor.uuid)
        which = "counter" if p.track_descriptor.HasField("counter") else "process" if p.track_descriptor.HasField("process") else "track"
    if which == "track_event":
        e = p.track_event
        assert p.timestamp and e.track_uuid in tracks, p
        which = pb.TrackEvent.Type.Name(e.type)
        kinds["flow"] = kinds.get("flow", 0) + len(e.flow_ids)
        kinds["last flow"] = kinds.get("last flow", 0) + len(e.terminating_flow_ids)
    kinds[which] = kinds.get(which, 0) + 1
print(json.dumps(kinds))
`

// Perfetto's own messages read the trace, and know all that is in it.
func TestExportPerfetto(t *testing.T) {
	python := clientPython(t)
	dir := t.TempDir()
	mustRun(t, "export", "--format", "perfetto", "--out", filepath.Join(dir, "run.pftrace"), exportedRun)
	var kinds map[string]int
	out := pythonIn(t, python, dir, perfettoScript, "run.pftrace")
	if err := json.Unmarshal(out, &kinds); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	transfers := 0
	for _, r := range recordsOf(t, exportedRun) {
		transfers += len(r.Transfers)
	}
	if kinds["process"] != 1 || kinds["counter"] != 3 || kinds["TYPE_SLICE_BEGIN"] == 0 || kinds["TYPE_SLICE_BEGIN"] != kinds["TYPE_SLICE_END"] ||
		kinds["TYPE_COUNTER"] != 3*7 || kinds["flow"] != transfers || kinds["last flow"] != transfers || transfers == 0 {
		t.Errorf("the trace holds %v, the run has %d hand-overs", kinds, transfers)
	}
}
