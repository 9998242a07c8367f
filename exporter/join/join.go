package join

import (
	"cmp"
	"maps"
	"slices"

	"github.com/omnitap/omnitap/exporter/join/control"
	"github.com/omnitap/omnitap/probes/event"
)

// Config bounds what a Joiner holds. The zero value means the defaults.
type Config struct {
	// SlackNS is how far out of order events may come, in nanoseconds of their stamps:
	// default 25 ms. What comes later is taken as it comes, and counted.
	SlackNS int64
	// Pending bounds the events that are held to bring them into order: default 65536.
	Pending int
	// Requests bounds the requests that are held: default 4096. Beyond it the one that
	// was quiet for the longest is let go.
	Requests int
	// Segments bounds each of the tables of shared memory: segments that were created
	// and not yet read, files that are open, polls that missed. Default 16384.
	Segments int
	// Each bounds the transfers, and the outputs of a stage, of one request: default
	// 8192.
	Each int
	// Held bounds the transfers and outputs of all requests together: default 524288,
	// some 150 MB. Beyond it the request that was quiet for the longest is let go.
	Held int
	// Samples bounds the points that are kept of each process's scheduler times, and
	// twice as many of its driver calls: default 8192.
	Samples int
	// GraceNS is how long a request is kept after it was told to be over (Forget, or
	// its last output): default 10 s of the events' clock. IdleNS is how long one is
	// kept that nothing more is heard of: default 600 s.
	GraceNS, IdleNS int64
	// Done, if not nil, gets each transfer once, when it is let go. It is called from
	// Add, Flush, Forget and Close.
	Done func(Transfer)
}

func (c Config) withDefaults() Config {
	c.SlackNS = cmp.Or(max(c.SlackNS, 0), 25_000_000)
	c.Pending = cmp.Or(max(c.Pending, 0), 1<<16)
	c.Requests = cmp.Or(max(c.Requests, 0), 4096)
	c.Segments = cmp.Or(max(c.Segments, 0), 1<<14)
	c.Each = cmp.Or(max(c.Each, 0), 8192)
	c.Held = cmp.Or(max(c.Held, 0), 1<<19)
	c.Samples = cmp.Or(max(c.Samples, 0), 8192)
	c.GraceNS = cmp.Or(max(c.GraceNS, 0), 10_000_000_000)
	c.IdleNS = cmp.Or(max(c.IdleNS, 0), 600_000_000_000)
	return c
}

// Stats counts what a Joiner did, and what it had to let go unfinished.
type Stats struct {
	// Events is how many were taken; Late those that came later than the slack allows;
	// Early those that were taken before their time because too many were pending.
	Events, Late, Early int64
	// Requests and Transfers were seen; Unread of the transfers had no receiver;
	// Nameless could be tied to no request.
	Requests, Transfers, Unread, Nameless int64
	// RequestsDropped, SegmentsDropped and MissesDropped had to make room for others;
	// TransfersDropped and OutputsDropped are those of one request beyond Config.Each.
	RequestsDropped, SegmentsDropped, MissesDropped, TransfersDropped, OutputsDropped int64
	// Messages is how many were read, Unknown how many of them are none that we know.
	Messages, Unknown int64
	// Lost is what the probes' rings had no room for, by family.
	Lost map[string]int64
}

// Joiner puts kernel events together into transfers, and into timelines of requests.
// It is not safe for use by several goroutines at once.
type Joiner struct {
	cfg   Config
	order order
	now   int64 // the stamp of the last event that was taken
	stats Stats

	procs  map[int32]*process
	byName map[string]*process
	byID   map[stageID]*process

	requests requests
	shm      shared
	parts    table[partKey, *part]
	relays   table[relayKey, *Transfer]
	cook     cooks
	pipes    pipes
	fates    ring[Fate]
	losses   ring[loss]
	beats    map[string]int64 // when a family was last heard of
	cpus     cpus
	sent     ring[sent]
	loose    ring[*Transfer] // transfers of no request
	frames   []control.Frame // scratch
}

// New returns a Joiner that knows no process yet.
func New(cfg Config) *Joiner {
	cfg = cfg.withDefaults()
	j := &Joiner{
		cfg:    cfg,
		procs:  make(map[int32]*process),
		byName: make(map[string]*process),
		byID:   make(map[stageID]*process),
		beats:  make(map[string]int64),
	}
	j.order = order{slack: cfg.SlackNS, limit: cfg.Pending}
	j.requests = newRequests()
	j.shm = newShared(cfg.Segments)
	j.parts = newTable[partKey, *part](4096)
	j.relays = newTable[relayKey, *Transfer](cfg.Segments)
	j.cook = newCooks()
	j.pipes = newPipes()
	j.fates, j.losses = ring[Fate]{limit: 1024}, ring[loss]{limit: 1024}
	j.sent = ring[sent]{limit: 2 * cfg.Requests}
	j.loose = ring[*Transfer]{limit: cfg.Segments}
	j.cpus = newCPUs()
	return j
}

// Stats tells the counts so far. Lost is a copy.
func (j *Joiner) Stats() Stats {
	s := j.stats
	s.Lost = make(map[string]int64, len(j.stats.Lost))
	maps.Copy(s.Lost, j.stats.Lost)
	return s
}

// Add takes one event. Events come in rough order of time. Head and Tail stay the
// Joiner's; the Event itself may be used again.
func (j *Joiner) Add(e *event.Event) {
	j.stats.Events++
	switch j.order.push(e) {
	case late:
		// Counts of the kernel bear the stamp of the last that they count.
		if e.Probe != event.OpenMisses && e.Probe != event.CUDACount {
			j.stats.Late++
		}
		j.take(e)
		return
	case inOrder:
	}
	for {
		next, early := j.order.pop()
		if next == nil {
			return
		}
		if early {
			j.stats.Early++
		}
		j.take(next)
	}
}

// Everything is later than any stamp.
const Everything int64 = 1 << 62

// Flush takes all events up to a stamp (CLOCK_MONOTONIC nanoseconds) that are still
// held to bring them into order: an idle server sends none that would push them out.
// It also lets go of requests that are over by then.
func (j *Joiner) Flush(upTo int64) {
	for {
		e := j.order.popUpTo(upTo)
		if e == nil {
			break
		}
		j.take(e)
	}
	if j.now > 0 && upTo < Everything {
		j.requests.expire(j, max(upTo, j.now))
	}
}

// Close takes what is still held and lets go of all transfers. The Joiner is empty
// afterwards.
func (j *Joiner) Close() {
	j.Flush(Everything)
	for r := j.requests.oldest(); r != nil; r = j.requests.oldest() {
		j.requests.drop(j, r)
	}
	for _, t := range j.loose.all() {
		j.release(t)
	}
	j.loose.clear()
}

// Transfers returns a copy of all transfers that are held, in order of their start.
func (j *Joiner) Transfers() []Transfer {
	j.Flush(Everything)
	var out []Transfer
	for r := range j.requests.all() {
		for _, t := range r.transfers {
			out = append(out, *t)
		}
	}
	for _, t := range j.loose.all() {
		if t.told() {
			out = append(out, *t)
		}
	}
	slices.SortStableFunc(out, ByStart)
	return out
}

// take is the entry of an event whose turn has come.
func (j *Joiner) take(e *event.Event) {
	j.now = max(j.now, e.MonoNS)
	switch e.Probe {
	case event.OpenAt, event.OpenMisses, event.FTruncate, event.FlockEnter, event.FlockExit, event.Close, event.Unlink:
		j.segment(e)
	case event.ZMQSend, event.ZMQRecv:
		j.frame(e)
	case event.Send, event.Recv:
		j.socket(e)
	case event.ZMQBind, event.ZMQConnect:
		if p := j.procs[e.PID]; p != nil {
			p.uprobes = true
		}
	case event.Connect, event.Accept:
		j.opened(e)
	case event.SchedSwitch, event.SchedWakeup, event.SchedSample:
		j.sched(e)
	case event.CUDACall, event.CUDACount:
		j.cuda(e)
	case event.Exit, event.Signal, event.OOMKill:
		j.fate(e)
	case event.Loss, event.Heartbeat:
		j.family(e)
	default:
		// Sockets' states, forks and Mooncake's own calls say nothing that the rest does not.
	}
}
