package compare

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/omnitap/omnitap/exporter/compare/gate"
)

// maxSettings bounds the settings that are shown; the JSON has them all.
const maxSettings = 40

// Render writes the comparison for a person: a sentence a flow, then configuration and
// quality, then performance, then what the stages did, then gates and notes.
func (r *Result) Render(w io.Writer) error {
	p := printer{r: r, seen: map[string]int{}}
	p.headlines()
	p.add(p.runs(), p.settings(), p.checks(), p.alikes(), p.figures(), p.paths(), p.rows("stage", func(f *Flow) []Row { return f.Stages }),
		p.rows("hand-over", func(f *Flow) []Row { return f.Edges }), p.gates(), p.notes())
	if _, err := io.WriteString(w, strings.Join(p.parts, "\n\n")+"\n"); err != nil {
		return fmt.Errorf("writing the comparison: %w", err)
	}
	return nil
}

// printer collects the parts of the text. Reasons of verdicts become numbered notes.
type printer struct {
	r       *Result
	parts   []string
	reasons []string
	seen    map[string]int
}

func (p *printer) add(parts ...string) {
	for _, part := range parts {
		if part != "" {
			p.parts = append(p.parts, part)
		}
	}
}

// verdict is a verdict with the number of its reason.
func (p *printer) verdict(v Verdict, reason string) string {
	if reason == "" {
		return string(v)
	}
	n := p.seen[reason]
	if n == 0 {
		p.reasons = append(p.reasons, reason)
		n = len(p.reasons)
		p.seen[reason] = n
	}
	return fmt.Sprintf("%s (%d)", v, n)
}

// newTable makes a table as exporter/report's: names to the left, then so many columns of
// figures to the right, then words.
func newTable(names, figures int, header ...any) table.Writer {
	t := table.NewWriter()
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Options.SeparateHeader = true
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format = table.FormatOptions{Header: text.FormatDefault, Footer: text.FormatDefault, Row: text.FormatDefault}
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	t.AppendHeader(header)
	var columns []table.ColumnConfig
	for i := names; i < names+figures; i++ {
		columns = append(columns, table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	return t
}

func (p *printer) headlines() {
	var lines []string
	if p.r.Unusable != "" {
		lines = append(lines, "NOTHING CAN BE TOLD: "+p.r.Unusable+".")
	}
	for i := range p.r.Flows {
		f := &p.r.Flows[i]
		lines = append(lines, f.label()+": "+f.Headline)
	}
	p.add(strings.Join(lines, "\n"))
}

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

func (p *printer) figures() string {
	t := newTable(2, 8, "flow", "figure", "n A", "n B", "A", "B", "change %", "from", "to", "A/A %", "verdict")
	for i := range p.r.Flows {
		f := &p.r.Flows[i]
		for j := range f.Figures {
			t.AppendRow(p.figureRow(f.label(), &f.Figures[j]))
		}
	}
	return t.Render()
}

func (p *printer) figureRow(flow string, f *Figure) table.Row {
	name, scale, decimals := f.Label+" "+f.Unit, 1.0, 2
	switch f.Unit {
	case "":
		name, scale = f.Label+" %", 100
	case "s/s", "1/s":
		decimals = 3
	}
	if p.r.Primary == f.Name {
		name += " *"
	}
	lo, hi := percent(f.Change.Interval.Lo), percent(f.Change.Interval.Hi)
	if f.WithinRun != nil {
		lo, hi = "["+percent(f.WithinRun.Lo), percent(f.WithinRun.Hi)+"]"
	}
	noise := notMeasured
	if f.Noise != nil {
		noise = number(100**f.Noise, 1)
	}
	return table.Row{
		flow, name, f.N[0], f.N[1], number(scale*orNaN(f.A), decimals), number(scale*orNaN(f.B), decimals), percent(f.Change.Estimate), lo, hi, noise, p.verdict(f.Verdict, f.Reason),
	}
}

func (p *printer) paths() string {
	t := newTable(2, 7, "flow", "way to first audio", "A ms", "B ms", "change ms", "from", "to", "A/A ms", "share %", "verdict")
	some := false
	for i := range p.r.Flows {
		f := &p.r.Flows[i]
		if f.Path == nil {
			continue
		}
		some = true
		for j := range f.Path.Gaps {
			t.AppendRow(p.row(f.label(), &f.Path.Gaps[j], true))
		}
		t.AppendRow(table.Row{f.label(), "(residual)", "", "", signed(orNaN(f.Path.Residual), 2)})
		total := f.Path.TTFA
		total.Name = "= TTFA, mean"
		t.AppendRow(p.row(f.label(), &total, true))
	}
	if !some {
		return ""
	}
	return t.Render()
}

// rows is a table of stages or hand-overs.
func (p *printer) rows(what string, of func(*Flow) []Row) string {
	t := newTable(2, 6, "flow", what, "A ms", "B ms", "change ms", "from", "to", "A/A ms", "verdict")
	some := false
	for i := range p.r.Flows {
		f := &p.r.Flows[i]
		list := of(f)
		for j := range list {
			t.AppendRow(p.row(f.label(), &list[j], false))
			some = true
		}
	}
	if !some {
		return ""
	}
	return t.Render()
}

func (p *printer) row(flow string, r *Row, share bool) table.Row {
	out := table.Row{
		flow, r.Name, number(orNaN(r.A), 2), number(orNaN(r.B), 2), signed(orNaN(r.Difference), 2), signed(r.Interval.Lo, 2), signed(r.Interval.Hi, 2), number(orNaN(r.Noise), 2),
	}
	if share {
		out = append(out, number(100*orNaN(r.Share), 1))
	}
	return append(out, p.verdict(r.Verdict, r.Reason))
}

func (p *printer) gates() string {
	var lines []string
	for i := range p.r.Gates {
		lines = append(lines, p.r.Gates[i].Line())
	}
	if n := gate.Failures(p.r.Gates); n > 0 {
		lines = append(lines, fmt.Sprintf("%d of %s failed.", n, plural(len(p.r.Gates), "gate")))
	}
	return strings.Join(lines, "\n")
}

func (p *printer) notes() string {
	var lines []string
	for i, reason := range p.reasons {
		lines = append(lines, fmt.Sprintf("(%d) %s.", i+1, reason))
	}
	lines = append(lines, p.r.Notes...)
	for i := range p.r.Flows {
		f := &p.r.Flows[i]
		for _, n := range f.Notes {
			lines = append(lines, f.label()+": "+n)
		}
	}
	lines = append(lines,
		fmt.Sprintf("Runs are the unit: %s. Latencies are over successes; intervals are of 95 %%, each for itself, so of twenty verdicts one is wrong by chance; in the tables of the way to first audio, stages and hand-overs those of a flow hold together.", p.unit()),
		"Percentiles of a run: "+p.r.PercentileMethod+"; A and B are the geometric means of their runs' figures (of rates of success and of milliseconds of stages the mean).")
	switch {
	case p.r.Primary != "":
		lines = append(lines, "* is the primary metric of the experiment ("+p.r.Primary+"); all else is exploratory, gates apart.")
	default:
		lines = append(lines, "No experiment names a primary metric for all runs: all of this is exploratory, gates apart.")
	}
	if p.withinARun() {
		lines = append(lines, "[…] is from resampling stretches of one run a side: it is no evidence of a difference between builds, which only several runs a side can give.")
	}
	if p.r.NoSLO != "" {
		lines = append(lines, "No goodput: "+p.r.NoSLO+".")
	} else {
		lines = append(lines, "Goodput counts the successes within the experiments' SLO: "+p.r.SLO+".")
	}
	return strings.Join(lines, "\n")
}

// unit says how runs lie to each other.
func (p *printer) unit() string {
	how := "as two groups"
	if p.r.Order.Paired {
		how = "in pairs"
	}
	return fmt.Sprintf("compared %s, in the order %s (%s)", how, p.r.Order.Pattern, p.r.Order.Kind)
}

func (p *printer) withinARun() bool {
	for i := range p.r.Flows {
		for j := range p.r.Flows[i].Figures {
			if p.r.Flows[i].Figures[j].WithinRun != nil {
				return true
			}
		}
	}
	return false
}
