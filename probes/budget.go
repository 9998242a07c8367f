//go:build linux && amd64

package probes

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/probes/event"
	"github.com/omnitap/omnitap/probes/kernel"
)

// budget measures what probing costs the watched processes, and takes away what is
// over the limit. A hit costs its way into the kernel (the trap, calibrated; the
// tracepoint, a constant) and its program (the kernel's own measurement).
type budget struct {
	limit float64 // cores a stage
	traps map[kernel.First]kernel.TrapCost
	why   string // why traps are not calibrated

	stats   interface{ Close() error } // while the kernel measures programs
	looks   int
	over    int // looks in a row that were over the limit
	at      time.Time
	hits    map[int][8]uint64
	runtime map[string]sum
}

// sum is what the kernel measured of a family's programs.
type sum struct {
	ns         time.Duration
	runs, hits uint64
}

// pointNS is what a tracepoint costs beside its program: the way in, measured at 58 ns
// where enter and exit together took 116 (docs of the kernel name no number).
const pointNS = 58

// Of every measureEvery looks the kernel measures programs during one: measuring costs
// some 30 ns a run itself.
const measureEvery = 10

func newBudget(limit float64) budget {
	return budget{limit: limit, hits: map[int][8]uint64{}, runtime: map[string]sum{}}
}

// calibrate measures traps on this host.
func (b *budget) calibrate(ctx context.Context, log *slog.Logger) {
	var err error
	if b.traps, err = kernel.Calibrate(ctx, true, kernel.Emulated, kernel.Stepped); err != nil {
		b.why = err.Error()
		log.Warn("the cost of probes could not be calibrated", "error", err)
	}
}

// sacrifice orders the families by what is given up first. proc is never given up: it
// tells of dead workers and costs nothing.
var sacrifice = []string{"sched", "cuda", "socket", "pipe", "zmq", "shm"}

// patience is how many looks in a row have to be over the limit.
const patience = 3

// look measures what the last second cost, and returns what was taken away for it.
func (b *budget) look(families []*family, w *kernel.Watch, procs map[int]event.Process) string {
	b.measure(families)
	now := time.Now()
	since := now.Sub(b.at).Seconds()
	first := b.at.IsZero()
	b.at = now
	fresh := map[int][8]uint64{}
	stages := map[string]map[string]float64{} // stage → family → cores
	for pid := range procs {
		p := procs[pid]
		s, ok := w.Hits(pid)
		if !ok {
			continue
		}
		fresh[pid] = s.Hits
		old, known := b.hits[pid]
		if !known {
			continue
		}
		if stages[p.Stage] == nil {
			stages[p.Stage] = map[string]float64{}
		}
		for i, name := range kernel.Families {
			if c := costOf(families, name); c != nil {
				stages[p.Stage][name] += float64(s.Hits[i]-old[i]) * *c / 1e9 / since
			}
		}
	}
	b.hits = fresh
	if first {
		return ""
	}
	return b.judge(families, stages)
}

func costOf(families []*family, name string) *float64 {
	for _, f := range families {
		if f.name == name && f.kernel != nil {
			return f.cost
		}
	}
	return nil
}

// judge compares the dearest stage with the limit.
func (b *budget) judge(families []*family, stages map[string]map[string]float64) string {
	worst, stage := 0.0, ""
	for name, by := range stages {
		total := 0.0
		for _, c := range by {
			total += c
		}
		if total >= worst {
			worst, stage = total, name
		}
	}
	for _, f := range families {
		f.cores = nil
		if c, ok := stages[stage][f.name]; ok && f.kernel != nil {
			f.cores = &c
		}
	}
	if worst <= b.limit {
		b.over = 0
		return ""
	}
	if b.over++; b.over < patience {
		return ""
	}
	b.over = 0
	return trim(families, stages[stage], worst, b.limit, stage)
}

// trim takes away the first family of the order that is a good part of the cost.
func trim(families []*family, by map[string]float64, worst, limit float64, stage string) string {
	for _, name := range sacrifice {
		if by[name] < worst/10 {
			continue
		}
		i := slices.IndexFunc(families, func(f *family) bool { return f.name == name })
		why := fmt.Sprintf("probing cost %q %.2f %% of a core, over the budget of %.2f %%: %s (%.2f %%) was taken away", stage, worst*100, limit*100, name, by[name]*100)
		if err := families[i].trim(why); err != nil {
			why += ": " + err.Error()
		}
		return why
	}
	return ""
}

// measure has the kernel measure programs during one look of several, and works out
// what a hit costs.
func (b *budget) measure(families []*family) {
	b.looks++
	if b.stats != nil {
		_ = b.stats.Close()
		b.stats = nil
		for _, f := range families {
			b.costs(f)
		}
	}
	if b.looks%measureEvery == 1 {
		for _, f := range families {
			b.runtime[f.name] = runtimeOf(f)
		}
		if c, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME)); err == nil {
			b.stats = c
		}
	}
}

// costs sets what a hit of a family costs, if it was hit while it was measured. The
// programs also ran, shortly, for processes that nobody watches: that share, at its
// own price, is taken out first.
func (b *budget) costs(f *family) {
	now, old := runtimeOf(f), b.runtime[f.name]
	if f.kernel == nil || now.hits < old.hits+enoughHits || now.runs < old.runs {
		return
	}
	hits, runs := float64(now.hits-old.hits), float64(now.runs-old.runs)
	own := float64(now.ns-old.ns) - max(runs-hits, 0)*f.idle
	way := float64(pointNS)
	if f.library != nil {
		t, ok := b.traps[f.worst()]
		if !ok {
			return // without a calibrated trap a cost would be a guess
		}
		way = t.Pair / 2 // half of the hits are returns
	}
	c := way + max(own, 0)/hits
	f.cost = &c
}

// enoughHits is how many hits a measurement needs to say something.
const enoughHits = 100

// idleRounds is how many of omnitap's own calls price a run for a process that nobody
// watches.
const idleRounds = 2000

// price measures what a program run costs that ends at once, by calls of omnitap's own
// while it is not watched itself.
func price(families []*family) {
	c, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		return // then nothing else is measured either
	}
	defer func() { _ = c.Close() }()
	before := map[*family]sum{}
	for _, f := range families {
		before[f] = runtimeOf(f)
	}
	for range idleRounds {
		beat()
	}
	for _, f := range families {
		now, old := runtimeOf(f), before[f]
		if now.runs > old.runs {
			f.idle = float64(now.ns-old.ns) / float64(now.runs-old.runs)
		}
	}
}

// worst is the dearest way into the family's functions.
func (f *family) worst() kernel.First {
	for _, l := range f.libs {
		for _, s := range l.symbols {
			if s.First == kernel.Stepped {
				return kernel.Stepped
			}
		}
	}
	return kernel.Emulated
}

func runtimeOf(f *family) (out sum) {
	if f.kernel == nil {
		return out
	}
	for _, p := range f.kernel.Programs() {
		if st, err := p.Stats(); err == nil {
			out.ns += st.Runtime
			out.runs += st.RunCount
		}
	}
	if c, err := f.kernel.Counts(); err == nil {
		out.hits = c.Hits
	}
	return out
}

func (b *budget) close() {
	if b.stats != nil {
		_ = b.stats.Close()
		b.stats = nil
	}
}
