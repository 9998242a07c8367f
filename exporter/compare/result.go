package compare

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/omnitap/omnitap/exporter/compare/gate"
)

// resultSchema is the version of the JSON form.
const resultSchema = 1

// Result is a comparison.
type Result struct {
	Schema int `json:"schema"`
	// Unusable says why nothing can be told, empty where something can.
	Unusable string `json:"unusable"`
	// PercentileMethod names how percentiles were reckoned, Level is that of intervals.
	PercentileMethod string  `json:"percentile_method"`
	Level            float64 `json:"level"`
	Order            Order   `json:"order"`
	// Runs are in the order of their start.
	Runs []RunInfo `json:"runs"`
	// Settings are the lines of metadata.json that differ.
	Settings []Setting `json:"settings"`
	// SLO is what requests were held to for goodput; NoSLO says why there is none.
	SLO   string `json:"slo"`
	NoSLO string `json:"no_slo,omitempty"`
	// Primary is the primary metric that the experiments of all runs name, empty where
	// they do not.
	Primary string `json:"primary_metric"`
	Flows   []Flow `json:"flows"`
	// Gates are what Judge made of them.
	Gates []gate.Outcome `json:"gates,omitempty"`
	// Notes are about the runs and their order.
	Notes []string `json:"notes"`
}

// RunInfo is a run in the first table.
type RunInfo struct {
	Side     string   `json:"side"`
	Dir      string   `json:"dir"`
	RunID    string   `json:"run_id"`
	StartNS  int64    `json:"start_wall_ns"`
	Seconds  *float64 `json:"seconds"`
	Sealed   bool     `json:"sealed"`
	State    string   `json:"state"`
	Requests int      `json:"requests"`
	Success  int      `json:"success"`
	// QualityFailed and QualityUnmeasured count attempts with sound, of Sound.
	Sound             int `json:"sound"`
	QualityFailed     int `json:"quality_failed"`
	QualityUnmeasured int `json:"quality_not_measured"`
	// Unfit says why the run says nothing of the server.
	Unfit string `json:"unfit"`
}

// Flow is one flow compared. Turns that count from different kinds of events are flows of
// their own, as in a report.
type Flow struct {
	Name string `json:"flow"`
	TIn  string `json:"t_in_source"`
	// Headline says in a sentence what became of the flow.
	Headline string    `json:"headline"`
	Pairing  Pairing   `json:"pairing"`
	Counts   [2]Counts `json:"counts"`
	Checks   []Check   `json:"checks"`
	Alike    []Alike   `json:"alike"`
	Figures  []Figure  `json:"figures"`
	// Path is null where no success has a way to first audio.
	Path   *Path    `json:"critical_path"`
	Stages []Row    `json:"stages"`
	Edges  []Row    `json:"edges"`
	Notes  []string `json:"notes"`

	flow *flow
}

// Counts are a side's attempts in a flow.
type Counts struct {
	Attempts int `json:"attempts"`
	Requests int `json:"requests"`
	Success  int `json:"success"`
}

// Check is how often a check on the sound failed.
type Check struct {
	Name string `json:"check"`
	A    int    `json:"a"`
	B    int    `json:"b"`
}

// Figure is a line of the table of performance. N is how many values of A and B it is
// from.
type Figure struct {
	Name  string `json:"figure"`
	Label string `json:"label"`
	N     [2]int `json:"n"`
	Delta
}

// WriteJSON writes the result for a program. A number that is not known is null.
func (r *Result) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("writing the comparison: %w", err)
	}
	return nil
}

// runs describes the runs in the order of their start.
func (c *comparison) runs() []RunInfo {
	all := slices.Concat(c.a, c.b)
	slices.SortStableFunc(all, func(x, y placed) int { return int(x.place - y.place) })
	out := []RunInfo{}
	for _, p := range all {
		i := RunInfo{
			Side: string(p.side), Dir: clean(p.Dir), RunID: clean(p.meta.RunID), StartNS: p.meta.Start.WallNS, Sealed: p.sealed, Unfit: p.unfit,
		}
		if p.meta.End != nil {
			i.Seconds = finite(float64(p.meta.End.WallNS-p.meta.Start.WallNS) / 1e9)
		}
		if p.meta.Run != nil {
			i.State = clean(p.meta.Run.State)
		}
		for g, d := range p.groups {
			if c.opts.Flow == "" || g.flow == c.opts.Flow {
				i.count(d)
			}
		}
		out = append(out, i)
	}
	return out
}

func (i *RunInfo) count(d *digest) {
	i.Requests += d.requests
	i.Success += d.success
	for verdict, n := range d.quality {
		i.Sound += n
		switch verdict {
		case "failed":
			i.QualityFailed += n
		case "passed":
		default:
			i.QualityUnmeasured += n
		}
	}
}

// primary is the metric that the experiments of all runs name.
func primary(runs []*Run) string {
	name := ""
	for i, r := range runs {
		own := ""
		if r.meta.Run != nil && r.meta.Run.Experiment != nil {
			own = clean(r.meta.Run.Experiment.Primary)
		}
		if i > 0 && own != name {
			return ""
		}
		name = own
	}
	return name
}

func counts(side []*digest) (c Counts) {
	for _, d := range side {
		c.Attempts += d.attempts
		c.Requests += d.requests
		c.Success += d.success
	}
	return c
}

// checks lists the checks on the sound that failed on either side.
func checks(a, b []*digest) []Check {
	n := map[string]*Check{}
	for side, runs := range [2][]*digest{a, b} {
		for _, d := range runs {
			for name, k := range d.checks {
				if n[name] == nil {
					n[name] = &Check{Name: name}
				}
				if side == 0 {
					n[name].A += k
				} else {
					n[name].B += k
				}
			}
		}
	}
	out := []Check{}
	for _, name := range slices.Sorted(maps.Keys(n)) {
		out = append(out, *n[name])
	}
	return out
}

func (f *flow) note(format string, a ...any) {
	f.out.Notes = append(f.out.Notes, fmt.Sprintf(format, a...))
}

// oddities notes what bears on the figures and is no doubt.
func (f *flow) oddities() {
	p := &f.paired
	switch {
	case p.By == ByNone:
		f.note("requests are not paired: %s.", p.Why)
	case p.Succeeded < p.Of:
		f.note("latencies are over the %d requests that succeeded in every run, of up to %d a run (paired by %s).", p.Succeeded, p.Of, p.By)
	}
	for side, runs := range [2][]*digest{f.a, f.b} {
		paced, success := 0, 0
		for _, d := range runs {
			paced += d.traits[traitPaced]
			success += d.success
		}
		if paced > 0 {
			f.note("the server paced %d of %d successes of %c to real time: their JCT and RTF are left out.", paced, success, 'A'+side)
		}
	}
	if path := f.out.Path; path != nil && path.With != path.Of {
		f.note("%d of %d successes of A and %d of %d of B have a way to first audio; the residual is of the others.", path.With[0], path.Of[0], path.With[1], path.Of[1])
	}
}
