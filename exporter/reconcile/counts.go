package reconcile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/exporter/upstream"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// counts tells how many requests there were, and how many failed.
func (w *world) counts() {
	all := Row{Quantity: Requests, All: count(len(w.records))}
	bad := Row{Quantity: Failures, All: count(len(failed(w.records)))}
	if w.pairs.how != Summed {
		all.Paired, bad.Paired = count(len(w.pairs.pairs)), count(len(failed(w.paired())))
	}
	if g := w.in.Generator; g != nil {
		if g.Completed != nil && g.Failed != nil {
			all.Client = count(*g.Completed + *g.Failed)
		} else if len(g.Requests) > 0 {
			all.Client = count(len(g.Requests))
		}
		if g.Failed != nil {
			bad.Client = count(*g.Failed)
		}
	}
	if f := w.server[upstream.Requests]; f != nil && sane(f.n) && sane(f.failing) {
		all.Server = Cell{N: new(int(f.n)), Source: f.meaning.Name}
		bad.Server = w.serverFailures(f)
	}
	w.row(all)
	w.row(bad)
	if all.Client.N != nil {
		w.clientCounts(*all.Client.N)
	}
	if all.Server.N != nil {
		w.serverCounts(*all.Server.N)
	}
	if bad.Client.N != nil {
		w.clientFailures(*bad.Client.N)
	}
	if bad.Server.N != nil {
		w.serverFailed(*bad.Server.N)
	}
}

func (w *world) serverFailures(f *figure) Cell {
	if x := w.server[upstream.Failures]; x != nil && sane(x.n) {
		return Cell{N: new(int(x.n)), Source: x.meaning.Name}
	}
	if f.meaning.Label == "" {
		return Cell{}
	}
	return Cell{N: new(int(f.failing)), Source: fmt.Sprintf("%s{%s=%s}", f.meaning.Name, f.meaning.Label, strings.Join(f.meaning.Failing, "|"))}
}

// clientCounts explains what the generator counts less than the wire, or more.
func (w *world) clientCounts(client int) {
	left := client - len(w.records) // what is to be explained
	if w.pairs.how == Summed {
		if warm := phase(w.records, "warmup"); left != 0 && -left == warm {
			w.find(Finding{Quantity: Requests, A: Client, B: Wire, Cause: WarmupIncluded, Amount: num(left), N: warm, Evidence: fmt.Sprintf("%d records began in the warm-up, which the generator does not count", warm)})
			left = 0
		}
		w.unexplained(Requests, Client, left, "the requests cannot be told one by one")
		return
	}
	ahead, retried := w.ahead(), w.retried()
	if ahead > 0 {
		w.find(Finding{Quantity: Requests, A: Client, B: Wire, Cause: WarmupIncluded, Amount: num(-ahead), N: ahead, Evidence: fmt.Sprintf("%d records lie ahead of the first request that the generator counts", ahead)})
	}
	if retried > 0 {
		w.find(Finding{Quantity: Requests, A: Client, B: Wire, Cause: Retried, Amount: num(-retried), N: retried, Evidence: fmt.Sprintf("%d records failed and have the body of a later one that the generator counts", retried)})
	}
	never := 0
	for _, c := range w.pairs.alone {
		if c.Failed {
			never++
		}
	}
	if never > 0 {
		w.find(Finding{Quantity: Requests, A: Client, B: Wire, Cause: NeverSent, Amount: num(never), N: never, Evidence: fmt.Sprintf("%d requests failed in the generator, and no record is theirs", never)})
	}
	w.unexplained(Requests, Client, left+ahead+retried-never, fmt.Sprintf("%d records and %d requests of the generator have no counterpart", len(w.pairs.rest), len(w.pairs.alone)))
}

// ahead counts the records before the first one of the generator's.
func (w *world) ahead() int {
	first := int64(0)
	for _, p := range w.pairs.pairs {
		if t := p.wire.Points.TIn; t != nil && (first == 0 || *t < first) {
			first = *t
		}
	}
	n := 0
	for _, r := range w.pairs.rest {
		if r.Points.TIn != nil && *r.Points.TIn < first {
			n++
		}
	}
	return n
}

// retried counts failed records among the generator's whose body one of its requests had
// later.
func (w *world) retried() int {
	last := map[string]int64{}
	first := int64(0)
	for _, p := range w.pairs.pairs {
		t := p.wire.Points.TIn
		if t == nil {
			continue
		}
		if p.wire.RequestSHA256 != nil {
			last[*p.wire.RequestSHA256] = max(last[*p.wire.RequestSHA256], *t)
		}
		if first == 0 || *t < first {
			first = *t
		}
	}
	n := 0
	for _, r := range w.pairs.rest {
		if r.Points.TIn != nil && *r.Points.TIn >= first && r.RequestSHA256 != nil && !good(r) && last[*r.RequestSHA256] > *r.Points.TIn {
			n++
		}
	}
	return n
}

// serverCounts explains what the server counts less than the wire, or more.
func (w *world) serverCounts(server int) {
	left := server - len(w.records)
	if w.restarted(Requests) && left < 0 {
		return // how much it lost is not known
	}
	refused := refusals(w.records)
	if left < 0 && refused > 0 && -left >= refused {
		w.find(Finding{Quantity: Requests, A: Server, B: Wire, Cause: RefusedAhead, Amount: num(-refused), N: refused, Evidence: fmt.Sprintf("%d requests were answered 4xx", refused)})
		left += refused
	}
	why := "requests that did not pass here, or that were under way at a scrape"
	if w.in.Server.Incomplete != "" {
		why = w.in.Server.Incomplete
	}
	w.unexplained(Requests, Server, left, why)
}

// restarted says so where the server was, once a quantity.
func (w *world) restarted(q Quantity) bool {
	if w.in.Server.Restarts == 0 {
		return false
	}
	w.find(Finding{Quantity: q, A: Server, B: Wire, Cause: Restarted, N: w.in.Server.Restarts, Evidence: fmt.Sprintf("its counters began anew %d time(s): its figures are lower bounds", w.in.Server.Restarts)})
	return true
}

// clientFailures explains the failures that the generator has less than the wire, or more.
func (w *world) clientFailures(client int) {
	if w.pairs.how == Summed {
		w.unexplained(Failures, Client, client-len(failed(w.records)), "the requests cannot be told one by one")
		return
	}
	var hidden []*timeline.Record
	others := 0
	for _, p := range w.pairs.pairs {
		switch {
		case !p.client.Failed && !good(p.wire):
			hidden = append(hidden, p.wire)
		case p.client.Failed && good(p.wire):
			others++
		}
	}
	never := 0
	for _, c := range w.pairs.alone {
		if c.Failed {
			never++
		}
	}
	if len(hidden) > 0 {
		w.find(Finding{Quantity: Failures, A: Client, B: Wire, Cause: FailureAsSuccess, Amount: num(-len(hidden)), N: len(hidden), Evidence: "on the wire they are " + states(hidden)})
	}
	if never > 0 {
		w.find(Finding{Quantity: Failures, A: Client, B: Wire, Cause: NeverSent, Amount: num(never), N: never, Evidence: fmt.Sprintf("%d of its failures have no record", never)})
	}
	w.unexplained(Failures, Client, client-len(failed(w.paired()))+len(hidden)-never, fmt.Sprintf("%d requests failed in the generator that were whole on the wire", others))
}

// serverFailed explains the failures that the server has less than the wire, or more.
func (w *world) serverFailed(server int) {
	bad := failed(w.records)
	left := server - len(bad)
	refused := refusals(w.records)
	if left < 0 && refused > 0 && -left >= refused {
		w.find(Finding{Quantity: Failures, A: Server, B: Wire, Cause: RefusedAhead, Amount: num(-refused), N: refused, Evidence: fmt.Sprintf("%d requests were answered 4xx", refused)})
		left += refused
	}
	rest := slices.DeleteFunc(slices.Clone(bad), refusal)
	counted := w.server[upstream.Requests]
	// The server saw every one of them end: then what it does not call a failure it calls a success.
	if left < 0 && -left <= len(rest) && w.in.Server.Restarts == 0 && int(counted.n) == len(w.records)-refused {
		w.find(Finding{Quantity: Failures, A: Server, B: Wire, Cause: FailureAsSuccess, Amount: num(left), N: -left, Evidence: fmt.Sprintf("it counts all %d requests, and on the wire there are %s", int(counted.n), states(rest))})
		left = 0
	}
	w.unexplained(Failures, Server, left, "which requests the server means cannot be told from sums")
}

// unexplained says what is left of a difference between a view and the wire, if anything is.
func (w *world) unexplained(q Quantity, a View, left int, why string) {
	if left != 0 {
		w.find(Finding{Quantity: q, A: a, B: Wire, Cause: NotExplained, Amount: num(left), N: max(left, -left), Evidence: why})
	}
}

// good says that the server's answer was whole: the sound of a quality-failed one is another
// matter.
func good(r *timeline.Record) bool {
	return r.Terminal.State == timeline.Success || r.Terminal.State == timeline.QualityFailed
}

func failed(records []*timeline.Record) []*timeline.Record {
	return slices.DeleteFunc(slices.Clone(records), good)
}

func refusal(r *timeline.Record) bool { return r.Status != nil && *r.Status >= 400 && *r.Status < 500 }

func refusals(records []*timeline.Record) int {
	n := 0
	for _, r := range records {
		if refusal(r) {
			n++
		}
	}
	return n
}

func phase(records []*timeline.Record, name string) int {
	n := 0
	for _, r := range records {
		if r.RunPhase == name {
			n++
		}
	}
	return n
}

// states counts terminal states for a text.
func states(records []*timeline.Record) string {
	n := map[string]int{}
	for _, r := range records {
		n[string(r.Terminal.State)]++
	}
	var parts []string
	for _, s := range slices.Sorted(maps.Keys(n)) {
		parts = append(parts, fmt.Sprintf("%d %s", n[s], s))
	}
	return strings.Join(parts, ", ")
}

func num(n int) *float64 { return new(float64(n)) }
