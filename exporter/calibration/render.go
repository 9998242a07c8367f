package calibration

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/omnitap/omnitap/exporter/stats"
)

// Render writes the verdict and a table with a line a metric.
func (f *File) Render(w io.Writer) error {
	r := &f.Result
	if _, err := fmt.Fprintf(w, "probe overhead: %s (budget %.3g %%, %d pairs of blocks; %s)\n", r.Verdict, 100*f.Config.Budget, r.Pairs, f.Source); err != nil {
		return err
	}
	for _, t := range f.Trimmed {
		if _, err := fmt.Fprintf(w, "without %s: %s\n", t.Family, t.Why); err != nil {
			return err
		}
	}
	for _, why := range r.Why {
		if _, err := fmt.Fprintln(w, why); err != nil {
			return err
		}
	}
	if r.MoreBlocks != nil {
		if _, err := fmt.Fprintf(w, "some %d blocks more would settle it\n", *r.MoreBlocks); err != nil {
			return err
		}
	}
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.AppendHeader(table.Row{"metric", "", "without", "with", "change", fmt.Sprintf("%.3g %% interval", 100*r.Level), "A against A", "verdict"})
	for i := range r.Metrics {
		m := &r.Metrics[i]
		t.AppendRow(table.Row{m.Name, m.Statistic, value(m.Without, m.Unit), value(m.With, m.Unit), percent(m.Change.Estimate), interval(&m.Change), interval(&m.NoiseFloor), m.words()})
	}
	_, err := fmt.Fprintln(w, strings.Join(append([]string{t.Render(), "verdicts in brackets do not decide"}, r.reasons()...), "\n"))
	return err
}

// reasons says of which metrics nothing is known, and why, a line a reason.
func (r *Result) reasons() (lines []string) {
	var order []string
	of := map[string][]string{}
	for i := range r.Metrics {
		m := &r.Metrics[i]
		if why := m.Change.Why; why != "" && m.Verdict != NotMeasured {
			if of[why] == nil {
				order = append(order, why)
			}
			of[why] = append(of[why], m.Name+" "+m.Statistic)
		}
	}
	for _, why := range order {
		lines = append(lines, strings.Join(of[why], ", ")+": "+why)
	}
	return lines
}

// words is the verdict.
func (m *Metric) words() string {
	if !m.Decides {
		return "(" + string(m.Verdict) + ")"
	}
	return string(m.Verdict)
}

func value(v *float64, unit string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.4g %s", *v, unit)
}

func percent(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf("%+.2f %%", 100*v)
}

func interval(c *stats.Change) string {
	if c.Why != "" {
		return "-"
	}
	return strings.Join([]string{percent(c.Interval.Lo), percent(c.Interval.Hi)}, " to ")
}
