// Package record is the ground truth of the fake stages: what each process really
// did and when, one line of JSON an event, to compare with what probes saw. The
// lines have the form of vLLM-Omni's own test harness; a nil Log writes nothing.
package record

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/thread"
)

// Event is one line. MonoNS is CLOCK_MONOTONIC, zero for now; PID, TID and Stage are
// filled in.
type Event struct {
	MonoNS int64  `json:"mono_ns"`
	PID    int    `json:"pid"`
	TID    int    `json:"tid"`
	Stage  string `json:"stage"`
	// RequestID is the HTTP id, nil where the event is of no request.
	RequestID *string `json:"request_id"`
	// Chunk is the chunk of a transfer, the step of a computation or an output.
	Chunk *int   `json:"chunk"`
	Event string `json:"event"`
	Bytes *int   `json:"bytes"`
	// Key is the segment's name, or what the event is about.
	Key *string `json:"key"`

	// InternalID is the engine id (submit), FirstPollNS and Misses tell of the polls
	// before a get, Done of an output that it is the last.
	InternalID  string `json:"internal_id,omitempty"`
	ToStage     string `json:"to_stage,omitempty"`
	FromStage   string `json:"from_stage,omitempty"`
	Misses      *int   `json:"misses,omitempty"`
	FirstPollNS int64  `json:"first_poll_ns,omitempty"`
	Done        *bool  `json:"done,omitempty"`
	Child       int    `json:"child,omitempty"`
	Status      *int   `json:"status,omitempty"`
	Title       string `json:"title,omitempty"`
}

// Log is the file of one process. It may be used by several goroutines.
type Log struct {
	fd    int
	stage string
	pid   int
}

// Open makes truth-STAGE.jsonl in dir, or adds to it; an empty dir gives nil.
func Open(dir, stage string) (*Log, error) {
	if dir == "" {
		return nil, nil
	}
	name := filepath.Join(dir, "truth-"+stage+".jsonl")
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the ground truth %s: %w", name, err)
	}
	return &Log{fd: fd, stage: stage, pid: os.Getpid()}, nil
}

// Write adds a line in one write, so that a process that is killed keeps its log.
func (l *Log) Write(e Event) {
	if l == nil {
		return
	}
	if e.MonoNS == 0 {
		e.MonoNS = thread.MonoNS()
	}
	e.PID, e.TID, e.Stage = l.pid, unix.Gettid(), l.stage
	b, err := json.Marshal(e)
	if err != nil {
		return // no field of an Event can be the reason
	}
	_, _ = unix.Write(l.fd, append(b, '\n')) // a full disk must not stop a stage
}

// Of writes an event of a request and a chunk with a size and a name.
func (l *Log) Of(event, id string, chunk, bytes int, key string) {
	l.Write(Event{Event: event, RequestID: &id, Chunk: &chunk, Bytes: &bytes, Key: &key})
}

// Step writes an event of a request's step.
func (l *Log) Step(event, id string, step int) {
	l.Write(Event{Event: event, RequestID: &id, Chunk: &step})
}

// Request writes an event of a request.
func (l *Log) Request(event, id string) { l.Write(Event{Event: event, RequestID: &id}) }

// Close closes the file.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	return os.NewSyscallError("close", unix.Close(l.fd))
}
