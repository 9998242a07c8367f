package stages

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/monitor"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/child"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/message"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/record"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/shm"
)

// patience is how long a child may take to end before it is killed.
const patience = 5 * time.Second

// Main runs a stage if the environment says that this process is one, and then never
// returns; else it returns false. A program that calls Start calls it first of all.
func Main() bool { return child.Main() }

// plane is the API process's way to the stages.
type plane interface {
	// files are the descriptors that a stage inherits behind the tracker's.
	files(stage int) []*os.File
	// spec adds what a stage must know of the plane.
	spec(s *child.Spec)
	// run starts to receive; the children have been started.
	run()
	// submit sends a request to the stages that get it at once. abort takes it back.
	submit(a message.Add) error
	abort(a message.Add) error
	// close ends everything; the children are gone.
	close() error
}

// Engine is the API process's end: what submits requests and gets the outputs.
type Engine struct {
	cfg     Config
	dir     string
	truth   *record.Log
	spawn   *spawner
	tracker *proc
	pipe    *os.File // the tracker's
	regist  *shm.Tracker
	plane   plane
	stages  []*proc
	ready   chan int // stage numbers
	watch   sync.WaitGroup
	monitor func() // ends monitor.Keep

	// life is held for reading while the plane is used, so that Close waits for it.
	life   sync.RWMutex
	closed bool // protected by life

	mu      sync.Mutex
	flights map[string]*flight  // protects this and all below
	issued  map[uint64]struct{} // hashes of all engine ids
	err     error               // why there is no more work
}

// Start starts the processes and returns when all stages are ready. ctx is for the start
// alone; Close ends them.
func Start(ctx context.Context, cfg Config) (*Engine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	e := &Engine{
		cfg: cfg, spawn: newSpawner(), ready: make(chan int, 2*len(Names)),
		flights: map[string]*flight{}, issued: map[uint64]struct{}{}, monitor: monitor.Keep(),
	}
	err := e.start(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting the stages: %w", err), e.Close())
	}
	return e, nil
}

func (e *Engine) start(ctx context.Context) (err error) {
	if e.cfg.Truth != "" {
		if err = os.MkdirAll(e.cfg.Truth, 0o755); err != nil {
			return err
		}
	}
	if e.truth, err = record.Open(e.cfg.Truth, "api"); err != nil {
		return err
	}
	if e.dir, err = socketDir(); err != nil {
		return err
	}
	if err = e.startTracker(); err != nil {
		return err
	}
	if e.cfg.Mode == Queues {
		e.plane, err = newQueuePlane(e)
	} else {
		e.plane, err = newZMQPlane(e)
	}
	if err != nil {
		return err
	}
	for i := range Names {
		if err = e.startStage(i); err != nil {
			return err
		}
	}
	e.plane.run()
	return e.waitReady(ctx)
}

// maxSocket is the longest path of a Unix socket.
const maxSocket = 107

// socketDir makes a folder for the sockets that only this user can enter. Where the
// temporary folder's name is too long for a socket it lies in /tmp.
func socketDir() (string, error) {
	dir, err := os.MkdirTemp("", "omni-") // 0700
	if err != nil || len(filepath.Join(dir, uuid4())) <= maxSocket {
		return dir, err
	}
	if err := os.Remove(dir); err != nil {
		return "", err
	}
	return os.MkdirTemp("/tmp", "omni-")
}

func (e *Engine) startTracker() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close() // the child has its own
	e.pipe, e.regist = w, shm.NewTracker(int(w.Fd()))
	cmd, err := trackerCommand(e.dir, e.cfg.Stderr, r)
	if err != nil {
		return err
	}
	e.tracker, err = e.spawn.start(-1, cmd)
	return err
}

func (e *Engine) startStage(i int) error {
	s := child.Spec{
		Dir: e.dir, Stage: i, Queues: e.cfg.Mode == Queues, StepNS: int64(e.cfg.Steps[i]), Busy: e.cfg.Busy,
		Batch: e.cfg.Batch, HiddenBytes: e.cfg.HiddenBytes, ShmThreshold: e.cfg.ShmThreshold,
		Faults: e.cfg.Faults, Truth: e.cfg.Truth,
	}
	e.plane.spec(&s)
	cmd, err := stageCommand(s, e.cfg.Stderr, append([]*os.File{e.pipe}, e.plane.files(i)...)...)
	if err != nil {
		return err
	}
	p, err := e.spawn.start(i, cmd)
	if err != nil {
		return fmt.Errorf("stage %d: %w", i, err)
	}
	e.stages = append(e.stages, p)
	e.truth.Write(record.Event{Event: "stage_started", Key: &Names[i], Child: p.cmd.Process.Pid})
	e.watch.Go(func() { e.watchStage(p) })
	return nil
}

// watchStage turns the end of a stage into an error for everybody who waits.
func (e *Engine) watchStage(p *proc) {
	<-p.done
	status := p.cmd.ProcessState.ExitCode()
	e.truth.Write(record.Event{Event: "stage_exited", Key: &Names[p.stage], Child: p.cmd.Process.Pid, Status: &status})
	e.fail(&StageError{Stage: p.stage, PID: p.cmd.Process.Pid, Status: p.cmd.ProcessState.String(), Exit: exitOf(p.cmd.ProcessState)})
}

// exitOf is Python's exitcode of a process.
func exitOf(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return -int(w.Signal())
	}
	return s.ExitCode()
}

// waitReady waits until each stage has said that it is there.
func (e *Engine) waitReady(ctx context.Context) error {
	seen := map[int]bool{}
	for len(seen) < len(Names) {
		select {
		case i := <-e.ready:
			if i < 0 {
				return e.Err()
			}
			seen[i] = true
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// PIDs returns the stages' processes in the order of Names.
func (e *Engine) PIDs() []int {
	pids := make([]int, len(e.stages))
	for i, p := range e.stages {
		pids[i] = p.cmd.Process.Pid
	}
	return pids
}

// TrackerPID returns the resource tracker's process.
func (e *Engine) TrackerPID() int { return e.tracker.cmd.Process.Pid }

// Err says why no more requests are taken, nil while they are.
func (e *Engine) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// fail ends all requests; the first error stays.
func (e *Engine) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		e.err = err
	}
	for _, f := range e.flights {
		e.end(f, Output{Err: e.err})
	}
	select {
	case e.ready <- -1: // a start that waits learns of it
	default:
	}
}

// Close ends the requests and the processes and removes all that is left of them in
// /dev/shm and in the folder of sockets. It may be called again.
func (e *Engine) Close() error {
	e.fail(ErrClosed)
	e.life.Lock()
	again := e.closed
	e.closed = true
	e.life.Unlock()
	if again {
		return nil
	}
	var errs []error
	for _, p := range e.stages {
		_ = p.life.Close() // all at once
	}
	for _, p := range e.stages {
		errs = append(errs, p.stop(patience))
	}
	e.watch.Wait()
	if e.plane != nil {
		errs = append(errs, e.plane.close())
	}
	if e.pipe != nil {
		errs = append(errs, e.pipe.Close())
	}
	if e.tracker != nil {
		errs = append(errs, e.tracker.stop(patience), e.tracker.err)
	}
	errs = append(errs, shm.Sweep(e.wasIssued))
	if e.dir != "" {
		errs = append(errs, os.RemoveAll(e.dir))
	}
	e.spawn.stop()
	e.monitor()
	return errors.Join(append(errs, e.truth.Close())...)
}

// use lets f use the plane unless it is closed.
func (e *Engine) use(f func() error) error {
	e.life.RLock()
	defer e.life.RUnlock()
	if e.closed {
		return ErrClosed
	}
	return f()
}

// newID makes the engine id of a request: its HTTP id and 8 hex digits. The caller
// holds mu.
func (e *Engine) newID(httpID string) string {
	for {
		// Not of the seed: names in /dev/shm are the whole machine's, and another server
		// may answer the same requests.
		id := fmt.Sprintf("%s-%08x", httpID, rand.Uint32())
		if _, taken := e.issued[hash(id)]; !taken {
			e.issued[hash(id)] = struct{}{}
			return id
		}
	}
}

func (e *Engine) wasIssued(id string) bool {
	_, ok := e.issued[hash(id)]
	return ok
}

func hash(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s)) // never fails
	return h.Sum64()
}
