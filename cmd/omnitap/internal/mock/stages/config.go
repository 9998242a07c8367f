package stages

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/child"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/voice"
)

// Mode is a generation of vLLM-Omni.
type Mode int

// The modes.
const (
	// ZMQ is vLLM-Omni 0.26.0 (VO-2).
	ZMQ Mode = iota
	// Queues is the generation of multiprocessing queues (VO-1): no chunks, so text and
	// audio come when a stage has finished.
	Queues
)

// Fault makes a stage go wrong, see child.Fault.
type Fault = child.Fault

// The kinds of faults.
const (
	FaultSlow   = child.FaultSlow
	FaultExit   = child.FaultExit
	FaultOrphan = child.FaultOrphan
	FaultStale  = child.FaultStale
)

// Names are the stages by number: thinker, talker, code2wav.
var Names = child.Names

// Rate is the sample rate of the audio in Hz; it has one channel.
const Rate = voice.Rate

// Config is what a server is made with.
type Config struct {
	Mode Mode
	// Seed makes the engine ids' tails; equal seeds give equal tails.
	Seed uint64
	// Steps is how long a step of each stage takes; default 4, 3 and 6 ms.
	Steps [3]time.Duration
	// Busy is the share of a step that burns CPU; default 0.25, negative none.
	Busy float64
	// Batch is how many requests share a step; default 16.
	Batch int
	// HiddenBytes is the size of the hidden states of a token; default 4096, negative
	// none.
	HiddenBytes int
	// ShmThreshold is the size from which Queues uses a segment; default 65536, negative
	// always.
	ShmThreshold int
	// Faults go wrong on purpose. Orphan and stale are for mode ZMQ.
	Faults []Fault
	// Truth is a folder for the ground truth, truth-{api,thinker,talker,code2wav}.jsonl;
	// empty writes none.
	Truth string
	// Stderr takes what a stage has to say when it fails; default os.Stderr.
	Stderr *os.File
}

const (
	defaultBusy      = 0.25
	defaultBatch     = 16
	defaultHidden    = 4096
	defaultThreshold = 65536
	maxStep          = time.Minute
)

var defaultSteps = [3]time.Duration{4 * time.Millisecond, 3 * time.Millisecond, 6 * time.Millisecond}

func (c Config) withDefaults() Config {
	for i := range c.Steps {
		if c.Steps[i] == 0 {
			c.Steps[i] = defaultSteps[i]
		}
	}
	c.Busy = max(0, orDefault(c.Busy, defaultBusy))
	c.Batch = orDefault(c.Batch, defaultBatch)
	c.HiddenBytes = max(0, orDefault(c.HiddenBytes, defaultHidden))
	c.ShmThreshold = max(-1, orDefault(c.ShmThreshold, defaultThreshold))
	c.Stderr = orDefault(c.Stderr, os.Stderr)
	return c
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// Validate says everything that is wrong with a Config.
func (c Config) Validate() error {
	var errs []error
	if c.Mode != ZMQ && c.Mode != Queues {
		errs = append(errs, fmt.Errorf("mode %d: want ZMQ or Queues", c.Mode))
	}
	for i, s := range c.Steps {
		errs = append(errs, checkStep(Names[i], s))
	}
	if c.Busy > 1 {
		errs = append(errs, fmt.Errorf("busy %v: want a share up to 1", c.Busy))
	}
	if c.Batch < 0 {
		errs = append(errs, fmt.Errorf("batch %d: want at least 1", c.Batch))
	}
	if c.HiddenBytes > 1<<20 {
		errs = append(errs, fmt.Errorf("hidden bytes %d: want at most %d", c.HiddenBytes, 1<<20))
	}
	for _, f := range c.Faults {
		errs = append(errs, c.checkFault(f))
	}
	return errors.Join(errs...)
}

func checkStep(name string, d time.Duration) error {
	if d < 0 || d > maxStep {
		return fmt.Errorf("step of the %s %v: want up to %v", name, d, maxStep)
	}
	return nil
}

func (c Config) checkFault(f Fault) error {
	switch {
	case f.Stage < 0 || f.Stage >= len(Names):
		return fmt.Errorf("fault %s: no stage %d", f.Kind, f.Stage)
	case f.Chunk < 0 || f.Bytes < 0 || f.Bytes > 1<<24 || f.Extra < 0:
		return fmt.Errorf("fault %s: a chunk, size or time below 0, or more than 16 MiB", f.Kind)
	}
	switch f.Kind {
	case FaultSlow, FaultExit:
		return nil
	case FaultOrphan:
		if f.Stage != 0 {
			return errors.New("fault orphan: only stage 0 leaves one")
		}
	case FaultStale:
		if f.Stage > 1 || f.Bytes == 0 {
			return errors.New("fault stale: want stage 0 or 1 and a size")
		}
	default:
		return fmt.Errorf("fault %q: unknown kind", f.Kind)
	}
	if c.Mode != ZMQ {
		return fmt.Errorf("fault %s: mode Queues names no segment after a chunk", f.Kind)
	}
	return nil
}

// Request is one answer to make.
type Request struct {
	// ID is the HTTP id, chatcmpl-… or speech-…; it becomes part of file names.
	ID string
	// Words are the text's deltas, one a token; at least one.
	Words []string
	// Prompt is the number of prompt tokens, default 11.
	Prompt int
	// Audio asks for speech: Frames codec frames of 80 ms in the voice of Seed. Without
	// it the request goes to the thinker alone.
	Audio  bool
	Frames int
	Seed   uint64
	// Steps is how long a step takes for this request, 0 as the Config says. A batch takes
	// as long as its longest.
	Steps [3]time.Duration
}

const (
	// maxID leaves room for what the server puts around an id in a name of 255 bytes.
	maxID    = 200
	maxWords = 1 << 16
	// maxPrompt is a model's context.
	maxPrompt     = 1 << 16
	defaultPrompt = 11
)

// Validate says everything that is wrong with a Request.
func (r Request) Validate() error {
	var errs []error
	if r.ID == "" || len(r.ID) > maxID || strings.ContainsAny(r.ID, "/\x00") {
		errs = append(errs, fmt.Errorf("request id %.60q: want 1 to %d bytes without a slash", r.ID, maxID))
	}
	if len(r.Words) == 0 || len(r.Words) > maxWords {
		errs = append(errs, fmt.Errorf("%d words: want 1 to %d", len(r.Words), maxWords))
	}
	if r.Prompt < 0 || r.Prompt > maxPrompt {
		errs = append(errs, fmt.Errorf("prompt of %d tokens: want up to %d", r.Prompt, maxPrompt))
	}
	if r.Audio {
		errs = append(errs, voice.CheckFrames(r.Frames))
	}
	for i, s := range r.Steps {
		errs = append(errs, checkStep(Names[i], s))
	}
	return errors.Join(errs...)
}

// Planned is the text and the s16le samples that a request's answer consists of.
func (r Request) Planned() (text string, pcm []byte) {
	if r.Audio {
		pcm = voice.Planned(r.Seed, r.Frames)
	}
	return strings.Join(r.Words, ""), pcm
}

// Samples is how many samples Planned has, at no cost.
func (r Request) Samples() int {
	if !r.Audio {
		return 0
	}
	return voice.Samples(r.Frames)
}

// Output is one piece of an answer. After one with Done or Err the channel is closed.
type Output struct {
	// Stage made it: 0 text, 2 audio.
	Stage int
	// Index counts the request's outputs of that stage from 0.
	Index int
	// Text is a word, PCM the samples of a chunk.
	Text string
	PCM  []byte
	// MonoNS is when it was received from the stage, CLOCK_MONOTONIC nanoseconds.
	MonoNS int64
	// Done says that the answer is whole. It comes alone.
	Done bool
	// Err says why the answer ends here: a *StageError, the context's error, ErrClosed.
	Err error
}

// ErrClosed says that the Engine was closed.
var ErrClosed = errors.New("the stages are closed")

// StageError says that a stage's process has ended. Like the real server, the Engine
// does no more work then.
type StageError struct {
	Stage int
	PID   int
	// Status is what the process ended with, Exit the same as Python counts: an exit
	// code, or a signal below 0.
	Status string
	Exit   int
}

// Error implements error.
func (e *StageError) Error() string {
	return fmt.Sprintf("stage %d (%s, pid %d) has ended: %s", e.Stage, Names[e.Stage], e.PID, e.Status)
}
