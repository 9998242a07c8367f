package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// notMeasured stands in a cell without a value.
const notMeasured = "-"

// WriteJSON writes the report as indented JSON. A figure that was not measured
// is null.
func (r Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// Render writes the tables as aligned text for a terminal.
//
// The tables are go-pretty's: text/tabwriter aligns a whole table to one side,
// and figures are only comparable to the right, names only readable to the left.
func (r Report) Render(w io.Writer) error {
	var parts []string
	if len(r.Checks) > 0 {
		parts = append(parts, r.gate())
	}
	parts = append(parts, r.outcomes())
	if r.Total.Success > 0 {
		parts = append(parts, r.latencies("ms", 2), r.latencies("s/s", 3))
	}
	if len(r.Stages) > 0 {
		parts = append(parts, r.stageTable())
	}
	if len(r.Edges) > 0 {
		parts = append(parts, r.edgeTable())
	}
	if slices.ContainsFunc(r.Paths, func(p CriticalPath) bool { return p.N > 0 }) {
		parts = append(parts, r.pathTable())
	}
	if len(r.Alike) > 0 {
		parts = append(parts, r.alikes())
	}
	if len(r.Sessions) > 0 {
		parts = append(parts, r.sessions())
	}
	parts = append(parts, strings.Join(r.notes(), "\n"))
	if _, err := io.WriteString(w, strings.Join(parts, "\n\n")+"\n"); err != nil {
		return fmt.Errorf("writing the tables: %w", err)
	}
	return nil
}

// newTable makes a table whose first columns hold names and the rest figures.
func newTable(names int, header ...any) table.Writer {
	t := table.NewWriter()
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Options.SeparateHeader = true
	style.Options.SeparateFooter = true
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format = table.FormatOptions{Header: text.FormatDefault, Footer: text.FormatDefault, Row: text.FormatDefault}
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	t.AppendHeader(header)
	var columns []table.ColumnConfig
	for i := names; i < len(header); i++ {
		columns = append(columns, table.ColumnConfig{
			Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight, AlignFooter: text.AlignRight,
		})
	}
	t.SetColumnConfigs(columns)
	return t
}

// label names a flow in the tables, with what t_in is of its turns.
func (f Flow) label() string {
	if f.TIn == "" {
		return f.Name
	}
	return f.Name + " (" + f.TIn + ")"
}

// outcomes is the table of how attempts ended: a row a flow, a column a state that occurred.
func (r Report) outcomes() string {
	states := r.occurring()
	header := table.Row{"flow", "requests", "attempts", "success", "success %"}
	if r.Total.RetrySuccess > 0 {
		header = append(header, "retry success")
	}
	for _, s := range states {
		header = append(header, string(s)+" (%)")
	}
	t := newTable(1, header...)
	for _, f := range r.Flows {
		t.AppendRow(r.outcomeRow(f.label(), f.Outcome, states))
	}
	if len(r.Flows) != 1 {
		t.AppendFooter(r.outcomeRow("all", r.Total, states))
	}
	return t.Render()
}

func (r Report) outcomeRow(name string, o Outcome, states []timeline.State) table.Row {
	row := table.Row{name, o.Requests, o.Attempts, o.Success, percent(o.SuccessRate)}
	if r.Total.RetrySuccess > 0 {
		row = append(row, o.RetrySuccess)
	}
	for _, s := range states {
		c := o.state(s)
		row = append(row, fmt.Sprintf("%d (%s)", c.N, percent(c.Rate)))
	}
	return row
}

// occurring lists the states that at least one attempt ended in.
func (r Report) occurring() []timeline.State {
	var out []timeline.State
	for _, c := range r.Total.States {
		if c.N > 0 {
			out = append(out, c.State)
		}
	}
	return out
}

func (o Outcome) state(s timeline.State) StateCount {
	for _, c := range o.States {
		if c.State == s {
			return c
		}
	}
	return StateCount{State: s, Rate: ratio(0, o.Attempts)}
}

// latencies is the table of the metrics of one unit.
func (r Report) latencies(unit string, decimals int) string {
	t := newTable(2, "flow", "metric", "n", "of", "p50 "+unit, "p90 "+unit, "p95 "+unit, "p99 "+unit, "max "+unit)
	for _, f := range r.Flows {
		for i, m := range f.Metrics {
			if m.Unit != unit || m.Over.N == 0 {
				continue
			}
			row := table.Row{f.label(), metrics[i].label, m.Over.N, m.Of}
			for _, v := range []float64{m.Over.P50, m.Over.P90, m.Over.P95, m.Over.P99, m.Over.Max} {
				row = append(row, number(v, decimals))
			}
			t.AppendRow(row)
		}
	}
	return t.Render()
}

// sessions is the table of the WebSocket sessions.
func (r Report) sessions() string {
	t := newTable(1, "sessions", "n", "turns", "closed by client", "by server", "no close frame", "duration p50 s", "idle max s", "ping p50 ms", "input audio s", "unattributed")
	for _, s := range r.Sessions {
		t.AppendRow(table.Row{
			s.Flow, s.N, s.Turns, s.ClosedByClient, s.ClosedByServer, s.NoCloseFrame, number(s.DurationS.P50, 2), number(s.IdleS.Max, 2),
			number(s.PingMS.P50, 2), optional(s.InputAudioS, 2), s.Unattributed,
		})
	}
	return t.Render()
}

func optional(v *float64, decimals int) string {
	if v == nil {
		return notMeasured
	}
	return number(*v, decimals)
}

func (r Report) notes() []string {
	var notes []string
	if r.Invalid != "" {
		notes = append(notes, "THIS RUN IS INVALID: "+r.Invalid+".")
	}
	notes = append(notes,
		"success % is of requests, the other states' % of attempts.",
		"Latencies are over successes only: n had the value measured, of so many; a metric that none had is left out.",
		"Percentiles: "+r.PercentileMethod+".",
	)
	if slices.ContainsFunc(r.Flows, func(f Flow) bool { return f.TIn != "" }) {
		notes = append(notes, "Turns count from the message in brackets; `commit` of a turn-based realtime session comes before the user has spoken.")
	}
	notes = append(notes, r.failures()...)
	notes = append(notes, r.outlierNotes()...)
	notes = append(notes, r.incidentNotes()...)
	notes = append(notes, r.stageNotes()...)
	for _, f := range r.Flows {
		if f.Success == 0 {
			notes = append(notes, fmt.Sprintf("%s: no success, hence no latencies.", f.label()))
		}
		if f.Paced > 0 {
			notes = append(notes, fmt.Sprintf("%s: the server paced %d of %d successes; their JCT, RTF and gaps measure the pacer.", f.label(), f.Paced, f.Success))
		}
		if f.RateAssumed > 0 {
			notes = append(notes, fmt.Sprintf("%s: the sample rate of %d of %d successes is assumed; so is their RTF.", f.label(), f.RateAssumed, f.Success))
		}
	}
	if r.Unreadable > 0 {
		notes = append(notes, fmt.Sprintf("Lines that could not be used and are counted nowhere above: %d.", r.Unreadable))
		for _, p := range r.Problems {
			notes = append(notes, "  "+p)
		}
	}
	return notes
}

func percent(rate *float64) string {
	if rate == nil {
		return notMeasured
	}
	return number(100**rate, 1)
}

func number(v float64, decimals int) string {
	if math.IsNaN(v) {
		return notMeasured
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}
