package convert

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/exporter/convert/internal/perfetto/reader"
	"github.com/omnitap/omnitap/exporter/rundir"
)

// readTrace reads strictly: tracks described once and first, slices that nest, arrows
// with two ends.
func readTrace(t *testing.T, path string) *reader.Trace {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tr, err := reader.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// tally counts a trace's events by what they are.
type tally struct {
	spans, points, waits, services, arrows, unread, delays, chunks, sessions, steps int
}

// The trace has every request, point, stage, hand-over, chunk and session of the run, as
// often as the run's own lines have them.
func TestTraceHoldsTheRun(t *testing.T) {
	dir := demo(t)
	res, _ := export(t, Perfetto, dir)
	var want, got tally
	for _, r := range objects(t, dir, rundir.RequestsFile) {
		want.spans++
		for name, at := range r["points"].(map[string]any) {
			if at != nil && name != "t_in" {
				want.points++
			}
		}
		if r["own_delay_us"] != nil {
			want.delays += 3
		}
		if path, _ := r["critical_path"].([]any); r["points"].(map[string]any)["t_in"] != nil {
			want.steps += len(path)
		}
		list, _ := r["stages"].([]any)
		for _, s := range list {
			m := s.(map[string]any)
			if m["ready_ns"] != nil && m["start_ns"] != nil {
				want.waits++
			}
			if m["start_ns"] != nil && m["finish_ns"] != nil {
				want.services++
			}
		}
		list, _ = r["transfers"].([]any)
		for _, x := range list {
			if x.(map[string]any)["end_ns"] != nil {
				want.arrows++
			} else {
				want.unread++
			}
		}
	}
	for _, e := range objects(t, dir, rundir.EventsFile) {
		if e["event"] == "text_chunk" || e["event"] == "output_chunk" {
			want.chunks++
		}
	}
	want.sessions = len(objects(t, dir, rundir.SessionsFile))
	for _, k := range readTrace(t, res.Out).Tracks {
		got.add(k)
		if strings.HasPrefix(k.Name, "unfinished") {
			t.Errorf("track %q of a run that was closed", k.Path())
		}
	}
	if got != want || want.arrows == 0 || want.steps == 0 {
		t.Errorf("the trace has %+v\nthe run has   %+v", got, want)
	}
}

func (c *tally) add(k *reader.Track) {
	for _, e := range k.Events {
		switch {
		case strings.HasSuffix(k.Name, " chunks"):
			c.chunks++
		case k.Name == "way to the first sound":
			c.steps++
		case strings.HasPrefix(k.Name, "session "):
			if e.Args["session_id"] != nil {
				c.sessions++
			}
		case e.Kind == "counter":
			c.delays++
		case e.Name == "wait":
			c.waits++
		case e.Name == "service":
			c.services++
		case e.FlowEnd:
			c.arrows++
		case strings.HasPrefix(e.Name, "to ") && e.Flow == 0:
			c.unread++
		case e.Args["state"] != nil:
			c.spans++
		case e.Kind == "mark" && e.Flow == 0 && e.Name != "run began":
			c.points++
		}
	}
}

// Two runs are two processes, and nothing of one lies on a track of the other, though
// ids and pids are the same.
func TestTraceTellsRunsApart(t *testing.T) {
	other := copyRun(t)
	edit(t, other, rundir.MetadataFile, func(s string) string { return strings.ReplaceAll(s, `"vm"`, `"other"`) })
	one, _ := export(t, Perfetto, made)
	two, _ := export(t, Perfetto, made, other)
	tracks := readTrace(t, two.Out).Tracks
	if n := len(readTrace(t, one.Out).Tracks); len(tracks) != 2*n {
		t.Errorf("%d tracks of two runs, one run has %d", len(tracks), n)
	}
	var processes []string
	for _, k := range tracks {
		if k.Parent == 0 {
			processes = append(processes, k.Name)
		}
	}
	want := []string{"run 20261130T130501-80b5dff4 on vm", "run 20261130T130501-80b5dff4 on other"}
	if !slices.Equal(processes, want) {
		t.Errorf("processes %q, want %q", processes, want)
	}
}

// The wall clock is told for the trace only where the clocks of all runs stand alike: it
// would be wrong for the others.
func TestTraceClocks(t *testing.T) {
	other := copyRun(t)
	res, _ := export(t, Perfetto, made, other)
	if c := readTrace(t, res.Out); c.Primary != 3 || c.Clocks[3] != 2307577755348 || c.Clocks[1] != 1796043901480696145 {
		t.Errorf("clocks %v, primary %d, want those of the run's start", c.Clocks, c.Primary)
	}
	edit(t, other, rundir.MetadataFile, func(s string) string {
		return strings.Replace(s, `"mono_ns": 2307577755348`, `"mono_ns": 9307577755348`, 1)
	})
	res, _ = export(t, Perfetto, made, other)
	if c := readTrace(t, res.Out); c.Clocks != nil {
		t.Errorf("clocks %v of two machines, want none", c.Clocks)
	}
}

// What a crash cut off has no record: its events are drawn, and its session.
func TestTraceOfACrash(t *testing.T) {
	dir := copyRun(t)
	for _, name := range []string{rundir.RequestsFile, rundir.SessionsFile} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	res, _ := export(t, Perfetto, dir)
	names := map[string]int{}
	for _, k := range readTrace(t, res.Out).Tracks {
		for _, e := range k.Events {
			names[e.Name]++
		}
	}
	want := map[string]int{}
	for _, e := range objects(t, dir, rundir.EventsFile) {
		if e["stage"] == nil {
			want[e["event"].(string)]++
		}
	}
	for word, name := range map[string]string{"ingress": "ingress", "first_audio": "first audio", "terminal": "end", "output_chunk": "audio"} {
		if names[name] != want[word] || want[word] == 0 {
			t.Errorf("%d of %q, the events have %d", names[name], name, want[word])
		}
	}
}

// Two requests by one id are two tracks: their slices would cut into each other.
func TestTraceOfOneIDTwice(t *testing.T) {
	dir := copyRun(t)
	edit(t, dir, rundir.RequestsFile, func(s string) string {
		first, _, _ := strings.Cut(s, "\n")
		return s + strings.Replace(first, `"t_term":2308156113975`, `"t_term":2309156113975`, 1) + "\n"
	})
	res, _ := export(t, Perfetto, dir)
	spans := map[string]int{}
	for _, k := range readTrace(t, res.Out).Tracks {
		for _, e := range k.Events {
			if e.Args["state"] != nil {
				spans[k.Name]++
			}
		}
	}
	if len(spans) != 8 || spans["chat ot7awb48exz1z"] != 1 || spans["chat ot7awb48exz1z record 7"] != 1 {
		t.Errorf("spans %v, want one a track and eight", spans)
	}
}
