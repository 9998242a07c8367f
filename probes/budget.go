//go:build linux && amd64

package probes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
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
	ways  ways
	idle  float64 // what a run for a process that nobody watches costs, nanoseconds

	stats   interface{ Close() error } // while the kernel measures programs
	looks   int
	over    int // looks in a row that were over the limit
	at      time.Time
	hits    map[int][8]uint64
	runtime map[string]sum
}

// ways is what it costs to get to a program, by traps and by tracepoints, nanoseconds;
// nothing and 0 where that is not known.
type ways struct {
	traps map[kernel.First]kernel.TrapCost
	point float64
}

// sum is what the kernel measured of a family's programs.
type sum struct {
	ns         time.Duration
	runs, hits uint64
}

// btfNS is what a BTF tracepoint costs beside its program: a call, which is too little to
// be measured from outside.
const btfNS = 20

// Of every measureEvery looks the kernel measures programs during one: measuring costs
// some 30 ns a run itself. During the first ones it measures until each family is known.
const (
	measureEvery = 10
	firstLooks   = 60
)

func newBudget(limit float64) budget {
	return budget{limit: limit, hits: map[int][8]uint64{}, runtime: map[string]sum{}}
}

// host is what calibrate measured: it takes a second of a CPU, and stays true for as long
// as the process runs, however often probes come and go.
var host struct {
	mu    sync.Mutex // protects what follows
	ways  ways
	known bool
}

// calibrate measures the ways on this host, or returns what was measured before.
func calibrate(ctx context.Context, log *slog.Logger) (w ways) {
	host.mu.Lock()
	defer host.mu.Unlock()
	if host.known {
		return host.ways
	}
	var errs [2]error
	if w.traps, errs[0] = kernel.Calibrate(ctx, true, kernel.Emulated, kernel.Stepped); errs[0] != nil {
		w.traps, errs[0] = kernel.Calibrate(ctx, false, kernel.Emulated, kernel.Stepped)
	}
	w.point, errs[1] = kernel.CalibratePoint()
	err := errors.Join(errs[:]...)
	if err != nil && ctx.Err() == nil {
		log.Warn("the cost of probes could not be calibrated", "error", err)
	}
	host.ways, host.known = w, err == nil
	return w
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
			// fewer than before is a new entry under the same number
			if c := costOf(families, name); c != nil && s.Hits[i] >= old[i] {
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

// judge compares the dearest stage with the limit, and takes away what is too dear.
func (b *budget) judge(families []*family, stages map[string]map[string]float64) string {
	judgeCores(families, stages)
	name, why := b.decide(stages)
	if name == "" {
		return ""
	}
	i := slices.IndexFunc(families, func(f *family) bool { return f.name == name })
	if err := families[i].trim(why); err != nil {
		why += ": " + err.Error()
	}
	return why
}

// dearest returns the stage that costs the most.
func dearest(stages map[string]map[string]float64) (stage string, worst float64) {
	for _, name := range slices.Sorted(maps.Keys(stages)) {
		total := 0.0
		for _, c := range stages[name] {
			total += c
		}
		if total >= worst {
			worst, stage = total, name
		}
	}
	return stage, worst
}

// judgeCores notes what each family takes of the dearest stage.
func judgeCores(families []*family, stages map[string]map[string]float64) {
	stage, _ := dearest(stages)
	for _, f := range families {
		f.cores = nil
		if c, ok := stages[stage][f.name]; ok && f.kernel != nil {
			f.cores = &c
		}
	}
}

// decide names the family to be taken away, the first of the order that is a good part
// of the cost, and says why; "" where it is not over the limit, or not for long enough.
func (b *budget) decide(stages map[string]map[string]float64) (name, why string) {
	stage, worst := dearest(stages)
	if worst <= b.limit {
		b.over = 0
		return "", ""
	}
	if b.over++; b.over < patience {
		return "", ""
	}
	b.over = 0
	for _, name := range sacrifice {
		if c := stages[stage][name]; c >= worst/10 {
			return name, fmt.Sprintf("probing cost %q %.2f %% of a core, over the budget of %.2f %%: %s (%.2f %%) was taken away", stage, worst*100, b.limit*100, name, c*100)
		}
	}
	return "", ""
}

// measure has the kernel measure programs during one look of several, and works out
// what a hit costs.
func (b *budget) measure(families []*family) {
	if b.ways.point == 0 && b.ways.traps == nil {
		return // not calibrated yet
	}
	b.looks++
	if b.stats != nil {
		_ = b.stats.Close()
		b.stats = nil
		for _, f := range families {
			b.costs(f)
		}
	}
	if b.looks%measureEvery == 1 || b.looks < firstLooks && unknown(families) {
		for _, f := range families {
			b.runtime[f.name] = runtimeOf(f)
		}
		if c, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME)); err == nil {
			b.stats = c
		}
	}
}

// unknown says whether a family's cost is still to be measured; proc's is too seldom hit.
func unknown(families []*family) bool {
	return slices.ContainsFunc(families, func(f *family) bool { return f.kernel != nil && f.cost == nil && f.name != "proc" })
}

// costs sets what a hit of a family costs, if it was hit while it was measured.
func (b *budget) costs(f *family) {
	way, ok := b.way(f)
	if f.kernel == nil || !ok {
		return // without its way into the kernel a cost would be a guess
	}
	if c, ok := perHit(b.runtime[f.name], runtimeOf(f), b.idle); ok {
		c += way
		f.cost = &c
	}
}

// perHit is what programs cost a hit. They also ran, shortly, for processes that nobody
// watches: that share, at its own price, is taken out first.
func perHit(old, now sum, idle float64) (ns float64, ok bool) {
	if now.hits < old.hits+enoughHits || now.runs < old.runs || now.ns < old.ns {
		return 0, false
	}
	hits, runs := float64(now.hits-old.hits), float64(now.runs-old.runs)
	own := float64(now.ns-old.ns) - max(runs-hits, 0)*idle
	return max(own, 0) / hits, true
}

// way is what a hit of the family costs beside its program.
func (b *budget) way(f *family) (ns float64, ok bool) {
	switch {
	case f.library != nil:
		t, ok := b.ways.traps[f.worst()]
		return t.Pair / 2, ok // half of the hits are returns
	case f.btf:
		return btfNS, true
	}
	return b.ways.point, b.ways.point > 0
}

// enoughHits is how many hits a measurement needs to say something.
const enoughHits = 50

// idleRounds is how many of omnitap's own calls price a run for a process that nobody
// watches.
const idleRounds = 2000

// price measures what a program run costs that ends at once, by calls of omnitap's own
// while it is not watched itself. All families begin alike, so that it is the same for
// those which are attached later.
func (b *budget) price(families []*family) {
	c, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		return // then nothing else is measured either
	}
	defer func() { _ = c.Close() }()
	shm := families[slices.IndexFunc(families, func(f *family) bool { return f.name == "shm" })]
	old := runtimeOf(shm)
	for range idleRounds {
		beat()
	}
	if now := runtimeOf(shm); now.runs > old.runs {
		b.idle = float64(now.ns-old.ns) / float64(now.runs-old.runs)
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
