package reconcile

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// notes say what a view lacks.
func (w *world) notes() {
	note := func(format string, a ...any) { w.result.Notes = append(w.result.Notes, fmt.Sprintf(format, a...)) }
	if g := w.in.Generator; g == nil {
		note("no generator's file: the client's view is missing")
	} else {
		for _, p := range g.Problems {
			note("generator: %s", p)
		}
		if g.Warmup > 0 {
			note("generator: %d of its requests are its own warm-up and left out", g.Warmup)
		}
		if w.pairs.close > 0 {
			note("%d pairs started so close together that they could be exchanged; sums are not touched by it", w.pairs.close)
		}
	}
	if s := w.in.Server; s == nil {
		note("no metrics of the server: its view is missing")
	} else {
		if s.Incomplete != "" {
			note("server: %s", s.Incomplete)
		}
		for _, p := range s.Problems {
			note("server: %s", p)
		}
		if s.Incomplete == "" && len(w.server) == 0 {
			note("server: none of its %d series has a known meaning", len(s.Deltas))
		}
	}
}

// WriteJSON writes the table as indented JSON; what a view does not say is null.
func (r Result) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("writing the reconciliation: %w", err)
	}
	return nil
}

// Render writes the table, the differences and the notes as text.
func (r Result) Render(w io.Writer) error {
	var b strings.Builder
	head := "Three views of one run"
	if r.Generator != "" {
		head += fmt.Sprintf(" (client: %s, paired by %s)", r.Generator, r.Pairing)
		if r.Pairing == Summed {
			head = fmt.Sprintf("Three views of one run (client: %s, not paired: %s)", r.Generator, r.PairingNote)
		}
	}
	b.WriteString(head + "\n" + r.table() + "\n\nDifferences\n" + r.findings() + "\n")
	for _, n := range r.Notes {
		b.WriteString("note: " + n + "\n")
	}
	b.WriteString("Percentiles by " + r.PercentileMethod + "; of the server only the bucket is known. The wire's columns hold failed requests as well.\n")
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing the reconciliation: %w", err)
	}
	return nil
}

func (r Result) table() string {
	t := newTable(table.Row{"", "figure", "client", "wire, the client's", "wire, all", "server"}, 3, 4, 5, 6)
	for _, row := range r.Rows {
		for i, f := range figures(row) {
			name := ""
			if i == 0 {
				name = string(row.Quantity)
			}
			t.AppendRow(table.Row{name, f[0], f[1], f[2], f[3], f[4]})
		}
	}
	return t.Render()
}

// figures are the lines of a row: its name and the four cells.
func figures(row Row) [][5]string {
	cells := []Cell{row.Client, row.Paired, row.All, row.Server}
	line := func(name string, of func(Cell) string) [5]string {
		out := [5]string{name}
		for i, c := range cells {
			out[i+1] = of(c)
		}
		return out
	}
	out := [][5]string{line("n", func(c Cell) string {
		if c.N == nil {
			return "-"
		}
		return strconv.Itoa(*c.N)
	})}
	switch row.Unit {
	case "requests":
	case "ms":
		out = append(out, line("mean ms", func(c Cell) string { return show(c.Mean) }),
			line("p50 ms", func(c Cell) string { return percentile(c.P50, c.P50In) }),
			line("p99 ms", func(c Cell) string { return percentile(c.P99, c.P99In) }))
	default:
		out = append(out, line("total "+row.Unit, func(c Cell) string { return show(c.Total) }))
	}
	return out
}

func show(v *float64) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatFloat(*v, 'f', 2, 64)
}

func percentile(v *float64, in []float64) string {
	switch {
	case v != nil:
		return show(v)
	case len(in) == 2:
		return fmt.Sprintf("%g to %g", in[0], in[1])
	case len(in) == 1:
		return fmt.Sprintf("over %g", in[0])
	}
	return "-"
}

func (r Result) findings() string {
	if len(r.Findings) == 0 {
		return "none"
	}
	t := newTable(table.Row{"quantity", "between", "amount", "n", "cause", "shown by"}, 3, 4)
	for _, f := range r.Findings {
		amount := "-"
		if f.Amount != nil {
			amount = fmt.Sprintf("%+.2f %s", *f.Amount, f.Unit)
			if f.Unit == "requests" || f.Unit == "bytes" {
				amount = fmt.Sprintf("%+.0f %s", *f.Amount, f.Unit)
			}
		}
		t.AppendRow(table.Row{f.Quantity, fmt.Sprintf("%s - %s", f.A, f.B), amount, f.N, f.Cause.Text(), f.Evidence})
	}
	return t.Render()
}

// newTable makes a table in the looks of package report.
func newTable(header table.Row, numbers ...int) table.Writer {
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
	for _, n := range numbers {
		columns = append(columns, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	return t
}
