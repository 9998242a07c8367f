package study

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Hourly is the failures an hour of whole sound of the alarms chosen, and how
// many hours were judged.
func (r *Result) Hourly(choose func(Alarm) bool) (failures, hours float64) {
	for _, a := range r.Alarms {
		if choose(a) {
			failures += float64(a.Failed)
			hours += a.Seconds / 3600
		}
	}
	return failures / max(hours, 1e-9), hours
}

// Rate is how many of the streams chosen had their fault found.
func (r *Result) Rate(choose func(Detection) bool) (found, streams int) {
	for _, d := range r.Detections {
		if choose(d) {
			found += d.Found
			streams += d.Streams
		}
	}
	return found, streams
}

// Checks lists the checks that said anything.
func (r *Result) Checks() []string {
	var out []string
	for _, a := range r.Alarms {
		out = append(out, a.Check)
	}
	return slices.Compact(out)
}

// Speech reports whether a kind of sound is speech.
func Speech(kind string) bool { return strings.HasPrefix(kind, "speech") }

// alarmTable has a row for each value that by tells, a column for each check.
func (r *Result) alarmTable(b *strings.Builder, head string, by func(Alarm) string, values []string) {
	var rows [][]string
	for _, v := range append(slices.Clone(values), "all") {
		row := []string{v}
		for _, check := range r.Checks() {
			n, hours := r.Hourly(func(a Alarm) bool { return a.Check == check && (v == "all" || by(a) == v) })
			cell := strconv.FormatFloat(n, 'f', 2, 64)
			switch {
			case hours == 0:
				cell = "-"
			case n == 0:
				cell = "0"
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	table(b, append([]string{head}, r.Checks()...), rows)
}

// worstRows is how many rows the table of the most frequent failures has.
const worstRows = 20

func (r *Result) worst(b *strings.Builder) {
	list := slices.Clone(r.Alarms)
	slices.SortStableFunc(list, func(a, b Alarm) int { return cmp.Compare(b.Failed, a.Failed) })
	var rows [][]string
	for _, a := range list[:min(worstRows, len(list))] {
		if a.Failed > 0 {
			rows = append(rows, []string{a.Check, a.Kind, a.Cut, strconv.Itoa(a.Failed), strconv.Itoa(a.Judged)})
		}
	}
	if len(rows) == 0 {
		b.WriteString("None failed.\n\n")
		return
	}
	table(b, []string{"check", "kind", "cut", "failed", "judged"}, rows)
}

func (r *Result) amounts(f fault) []int {
	var out []int
	for _, d := range r.Detections {
		if d.Fault == f.name {
			out = append(out, d.Amount)
		}
	}
	return slices.Compact(out)
}

// faultTable has a row for each amount, a column for each kind of sound.
func (r *Result) faultTable(b *strings.Builder, f fault) {
	fmt.Fprintf(b, "`%s`: %s.\n\n", f.name, f.what)
	head := append([]string{"k"}, r.kinds()...)
	if f.single {
		head = append(head, "in silence")
	}
	var rows [][]string
	for _, k := range r.amounts(f) {
		row := []string{amount(f, k)}
		for _, kind := range r.kinds() {
			row = append(row, r.cell(func(d Detection) bool { return d.Fault == f.name && d.Amount == k && d.Kind == kind && d.Heard }))
		}
		if f.single {
			row = append(row, r.cell(func(d Detection) bool { return d.Fault == f.name && d.Amount == k && !d.Heard }))
		}
		rows = append(rows, row)
	}
	table(b, head, rows)
}

func amount(f fault, k int) string {
	if f.whole {
		return "chunk"
	}
	return strconv.Itoa(k)
}

// cell is the rate without and with the model's hop known.
func (r *Result) cell(choose func(Detection) bool) string {
	without := share(r.Rate(func(d Detection) bool { return choose(d) && !d.Hop }))
	with := share(r.Rate(func(d Detection) bool { return choose(d) && d.Hop }))
	if with == without || with == "-" {
		return without
	}
	return without + "/" + with
}

// byCheck has a row for each fault and some amounts, a column for each check that
// found anything.
func (r *Result) byCheck(b *strings.Builder, hop bool) {
	of := func(d Detection) bool { return Speech(d.Kind) && d.Heard && d.Hop == hop }
	var checks []string
	for _, d := range r.Detections {
		for name := range d.By {
			if of(d) && !slices.Contains(checks, name) {
				checks = append(checks, name)
			}
		}
	}
	slices.Sort(checks)
	var rows [][]string
	for _, f := range faults() {
		for _, k := range r.amounts(f) {
			if !f.whole && !slices.Contains(telling, k) {
				continue
			}
			this := func(d Detection) bool { return of(d) && d.Fault == f.name && d.Amount == k }
			found, streams := r.Rate(this)
			row := []string{f.name, amount(f, k), strconv.Itoa(streams), share(found, streams)}
			for _, name := range checks {
				row = append(row, share(r.by(name, this), streams))
			}
			rows = append(rows, row)
		}
	}
	b.WriteString(map[bool]string{true: "With the model's hop known:\n\n", false: "Hop not known:\n\n"}[hop])
	table(b, append([]string{"fault", "k", "streams", "found"}, checks...), rows)
}

// telling are the amounts of the tables that do not have all.
var telling = []int{1, 10, 100, 555, 2000}

// by is how many of the faults chosen a check found.
func (r *Result) by(check string, choose func(Detection) bool) int {
	n := 0
	for _, d := range r.Detections {
		if choose(d) {
			n += d.By[check]
		}
	}
	return n
}

// byCut has a row for each cut, a column for each fault at 10 and 555 samples.
func (r *Result) byCut(b *strings.Builder) {
	head := []string{"cut"}
	var rows [][]string
	for _, name := range cutNames() {
		row := []string{name}
		for _, f := range faults() {
			for _, k := range r.amounts(f) {
				if !f.whole && k != 10 && k != 555 {
					continue
				}
				if len(rows) == 0 {
					head = append(head, f.name+" "+amount(f, k))
				}
				row = append(row, share(r.Rate(func(d Detection) bool {
					return d.Fault == f.name && d.Amount == k && d.Cut == name && Speech(d.Kind) && d.Heard && !d.Hop
				})))
			}
		}
		rows = append(rows, row)
	}
	table(b, head, rows)
}

// thresholds is the table of what whole sound reached.
func (r *Result) thresholds(b *strings.Builder) {
	groups := []struct {
		name string
		of   func(kind string) bool
	}{
		{"speech", Speech},
		{"music", func(kind string) bool { return strings.HasPrefix(kind, "music") }},
		{"noise", func(kind string) bool { return strings.HasPrefix(kind, "noise") }},
	}
	var rows [][]string
	for _, check := range r.Checks() {
		row := []string{check, "-"}
		for _, g := range groups {
			most, there := 0.0, false
			for _, a := range r.Alarms {
				if a.Check == check && a.Judged > 0 && g.of(a.Kind) {
					most, there = max(most, a.Most), true
					row[1] = strconv.FormatFloat(a.Threshold, 'g', 3, 64)
				}
			}
			if !there {
				row = append(row, "-")
				continue
			}
			row = append(row, strconv.FormatFloat(most, 'g', 3, 64))
		}
		rows = append(rows, row)
	}
	table(b, []string{"check", "threshold", "speech", "music", "noise"}, rows)
}
