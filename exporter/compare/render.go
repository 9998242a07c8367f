package compare

import (
	"fmt"
	"io"
	"strings"

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
