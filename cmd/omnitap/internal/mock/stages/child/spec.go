// Package child is what runs inside a stage process of the fake omni server: the
// engine loop of a thinker, a talker or a code2wav, its way to the other processes,
// and the resource tracker that cleans up behind all of them. The parent is package
// stages.
package child

import (
	"encoding/json"
	"fmt"
	"time"
)

// Env is the variable that carries a Spec and makes a process a stage.
const Env = "OMNITAP_STAGE"

// Names are the stages by number.
var Names = [3]string{"thinker", "talker", "code2wav"}

// Fault makes a stage go wrong.
type Fault struct {
	// Kind is FaultSlow, FaultExit, FaultOrphan or FaultStale.
	Kind string
	// Stage is the stage by number. For stale it is the one that sends the chunk; orphan
	// is always the thinker's.
	Stage int
	// Request is an HTTP id; empty is every one.
	Request string
	// Chunk is the step for slow and exit (the thinker's tokens, the talker's frames,
	// code2wav's chunks, from 0); for orphan and stale the chunk's number.
	Chunk int
	// Extra is how much longer a slow step takes.
	Extra time.Duration
	// Status is the exit status of exit, Bytes the size of orphan and stale.
	Status, Bytes int
}

// The kinds of faults. Slow: a step takes longer. Exit: the process ends at a step,
// before its result goes out. Orphan: the thinker puts one more chunk that nobody asks
// for. Stale: a foreign segment lies under the name of a chunk to come.
const (
	FaultSlow   = "slow"
	FaultExit   = "exit"
	FaultOrphan = "orphan"
	FaultStale  = "stale"
)

// Spec is all that a child is told; it travels in Env.
type Spec struct {
	// Tracker makes the process the resource tracker of what is in Dir; the rest is of
	// no meaning then.
	Tracker bool
	// Dir is the folder of the sockets.
	Dir   string
	Stage int
	// Queues is the first generation: queue items over pipes in place of ZMQ and chunks.
	Queues bool
	// Input and Output are the paths of the sockets that the stage connects to.
	Input, Output string
	StepNS        int64
	Busy          float64
	Batch         int
	HiddenBytes   int
	ShmThreshold  int
	Faults        []Fault
	Truth         string
}

// The descriptors of a child beside stdin, whose end tells it to stop.
const (
	// FDTracker is the resource tracker's pipe: the writing end, in the tracker itself
	// the reading one.
	FDTracker = 3
	// FDIn and FDOut are a stage's queues.
	FDIn  = 4
	FDOut = 5
)

// Setting returns the environment's line for a Spec.
func (s Spec) Setting() (string, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("writing a stage's settings: %w", err)
	}
	return Env + "=" + string(b), nil
}

func parseSpec(text string) (s Spec, err error) {
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return s, fmt.Errorf("reading %s: %w", Env, err)
	}
	if !s.Tracker && (s.Stage < 0 || s.Stage >= len(Names)) {
		return s, fmt.Errorf("reading %s: no stage %d", Env, s.Stage)
	}
	return s, nil
}

// fault returns the fault of a kind that meets a step, nil without one.
func (s Spec) fault(kind, request string, step int) *Fault {
	for i, f := range s.Faults {
		if f.Kind == kind && f.Stage == s.Stage && (f.Request == "" || f.Request == request) && (f.Chunk == step || kind == FaultOrphan) {
			return &s.Faults[i]
		}
	}
	return nil
}

// Title is the process title of a stage, as vLLM sets it.
func Title(stage int) string {
	return fmt.Sprintf("VLLM::StageEngineCoreProc_stage%d_replica0_DP0", stage)
}
