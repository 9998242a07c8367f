package compare

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
)

func (p *printer) runs() string {
	t := newTable(5, 5, "side", "run", "started (UTC)", "sealed", "state", "requests", "success %", "sound", "quality failed", "not measured")
	for i := range p.r.Runs {
		r := &p.r.Runs[i]
		started, sealed, state := notMeasured, "no", r.State
		if r.StartNS > 0 {
			started = time.Unix(0, r.StartNS).UTC().Format("2006-01-02 15:04:05")
		}
		if r.Sealed {
			sealed = "yes"
		}
		if r.Unfit != "" {
			state = "unfit"
		}
		t.AppendRow(table.Row{
			r.Side, r.Dir, started, sealed, state, r.Requests, number(100*float64(r.Success)/float64(r.Requests), 1), r.Sound, r.QualityFailed, r.QualityUnmeasured,
		})
	}
	return t.Render()
}

func (p *printer) settings() string {
	if len(p.r.Settings) == 0 {
		return "No setting in metadata.json differs."
	}
	t := newTable(4, 0, "setting", "A", "B", "")
	for _, s := range p.r.Settings[:min(maxSettings, len(p.r.Settings))] {
		within := ""
		if s.Within {
			within = "varies within a side"
		}
		t.AppendRow(table.Row{s.Name, values3(s.A), values3(s.B), within})
	}
	out := t.Render()
	if more := len(p.r.Settings) - maxSettings; more > 0 {
		out += fmt.Sprintf("\nand %d more, in the JSON", more)
	}
	return out
}

// values3 shows the beginnings of the first few of a setting's values.
func values3(v []string) string {
	const most, wide = 3, 40
	var shown []string
	for _, s := range v[:min(most, len(v))] {
		shown = append(shown, clip(s, wide))
	}
	out := strings.Join(shown, ", ")
	if more := len(v) - most; more > 0 {
		out += fmt.Sprintf(" and %d more", more)
	}
	return out
}

func (p *printer) checks() string {
	t := newTable(2, 2, "flow", "check on the sound failed", "A", "B")
	some := false
	for i := range p.r.Flows {
		f := &p.r.Flows[i]
		for _, c := range f.Checks {
			t.AppendRow(table.Row{f.label(), c.Name, c.A, c.B})
			some = true
		}
	}
	if !some {
		return ""
	}
	return t.Render()
}

func (p *printer) alikes() string {
	t := newTable(2, 5, "flow", "alike?", "A", "B", "change", "from", "to", "")
	for i := range p.r.Flows {
		f := &p.r.Flows[i]
		others := 0
		for j := range f.Alike {
			if a := &f.Alike[j]; a.share() && (a.Verdict == alike || orNaN(a.Change) == 0) && !strings.HasPrefix(a.Name, failedAs) {
				others++
				continue
			}
			t.AppendRow(alikeRow(f.label(), &f.Alike[j]))
		}
		if others > 0 {
			t.AppendRow(table.Row{f.label(), plural(others, "other share") + " without a difference"})
		}
	}
	return t.Render()
}

// alikeRow shows shares in per cent and their change in points, lengths in their unit
// and their change in per cent.
func alikeRow(flow string, a *Alike) table.Row {
	name, scale, decimals, unit := a.Name, 1.0, 2, " %"
	if a.Unit != "" {
		name += " " + a.Unit
	}
	if a.share() {
		name, scale, decimals, unit = name+" %", 100, 1, " pp"
	}
	cell := func(v float64) string {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return notMeasured
		}
		return percent(v) + unit
	}
	return table.Row{
		flow, name, number(scale*orNaN(a.A), decimals), number(scale*orNaN(a.B), decimals), cell(orNaN(a.Change)), cell(a.Interval.Lo), cell(a.Interval.Hi), a.Verdict,
	}
}
