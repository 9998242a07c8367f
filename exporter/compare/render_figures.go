package compare

import (
	"github.com/jedib0t/go-pretty/v6/table"
)

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
