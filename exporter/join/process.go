package join

import (
	"strconv"

	"github.com/omnitap/omnitap/probes/event"
)

// The roles of processes (event.Process).
const (
	roleAPI    = "api"
	roleStage  = "stage"
	roleWorker = "worker"
)

// process is one process of the table.
type process struct {
	pid, root int32
	ticks     uint64
	stage     string
	id        int // -1 for none
	role      string
	server    string
	replica   int
	rank      int
	clock     int64 // added to the times that its messages tell
	// uprobes says that ZMQ messages of it come from uprobes: its socket calls would
	// show them again.
	uprobes bool
	gone    bool

	curve curve
	calls ring[call]
	tally ring[tally]
}

// stageID finds a stage of one server by its number.
type stageID struct {
	root int32
	id   int
}

// Processes says which processes there are. Those of an earlier call that are not
// among them stay known as gone, so that their last events still have a stage.
func (j *Joiner) Processes(list []event.Process) {
	for _, p := range j.procs {
		p.gone = true
	}
	for i := range list {
		p := &list[i]
		n := j.procs[int32(p.PID)]
		// Another start is another process, whatever its number.
		if n == nil || p.StartTicks != 0 && n.ticks != 0 && p.StartTicks != n.ticks {
			n = &process{calls: ring[call]{limit: 2 * j.cfg.Samples}, tally: ring[tally]{limit: j.cfg.Samples}}
			n.curve.limit = j.cfg.Samples
		}
		n.fill(p)
		j.procs[n.pid] = n
	}
	j.indexProcesses()
}

func (n *process) fill(p *event.Process) {
	n.pid, n.root, n.ticks, n.gone = int32(p.PID), int32(p.Root), p.StartTicks, false
	n.stage, n.role, n.server, n.replica, n.rank = p.Stage, p.Role, p.Server, p.Replica, p.Rank
	n.clock = p.ClockNS
	n.id = -1
	if p.StageID != nil {
		n.id = *p.StageID
	}
	if n.role == "" {
		if n.role = roleStage; n.stage == roleAPI {
			n.role = roleAPI
		}
	}
	if n.stage == "" && n.id >= 0 {
		n.stage = "stage " + strconv.Itoa(n.id)
	}
}

// indexProcesses finds stages by name and number. The stage's own process counts
// before its workers, the lowest replica and rank before others.
func (j *Joiner) indexProcesses() {
	clear(j.byName)
	clear(j.byID)
	for _, p := range j.procs {
		if p.role == roleAPI {
			continue
		}
		if old := j.byName[p.stage]; old == nil || p.before(old) {
			j.byName[p.stage] = p
		}
		if p.id < 0 {
			continue
		}
		for _, k := range [...]stageID{{p.root, p.id}, {0, p.id}} {
			if old := j.byID[k]; old == nil || p.before(old) {
				j.byID[k] = p
			}
		}
	}
	if len(j.procs) > maxProcesses {
		for pid, p := range j.procs {
			if p.gone {
				delete(j.procs, pid)
			}
		}
	}
}

// maxProcesses is how many processes are held before those that are gone are let go.
const maxProcesses = 4096

func (n *process) before(o *process) bool {
	if n.gone != o.gone {
		return o.gone
	}
	if (n.role == roleStage) != (o.role == roleStage) {
		return n.role == roleStage
	}
	if n.replica != o.replica {
		return n.replica < o.replica
	}
	if n.rank != o.rank {
		return n.rank < o.rank
	}
	return n.pid < o.pid
}

// sameStage says whether two processes are one stage: a worker and its engine.
func (n *process) sameStage(o *process) bool {
	return n.pid == o.pid || n.stage == o.stage && n.root == o.root && n.replica == o.replica
}

// numbered is the stage of a number, of the same server as p.
func (j *Joiner) numbered(p *process, id int) *process {
	if s := j.byID[stageID{p.root, id}]; s != nil {
		return s
	}
	return j.byID[stageID{0, id}]
}
