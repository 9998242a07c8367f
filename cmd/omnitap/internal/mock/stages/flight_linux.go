package stages

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/message"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/record"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/shm"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/thread"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/voice"
)

// flight is one request on its way. The Engine's mu protects it.
type flight struct {
	req   Request
	add   message.Add
	out   chan Output
	stop  func() bool // of the context's watch
	count [3]int      // outputs by stage
	left  int         // stages that have not finished, of those that answer
}

// Submit sends a request to the stages. The channel holds all that can come, so a slow
// reader delays nobody; it is closed after an Output with Done or Err. When ctx ends the
// stages are told to abort.
func (e *Engine) Submit(ctx context.Context, req Request) (<-chan Output, error) {
	if err := req.Validate(); err != nil {
		return nil, err
	}
	f, err := e.board(req)
	if err != nil {
		return nil, err
	}
	e.truth.Write(record.Event{Event: "submit", RequestID: &req.ID, InternalID: f.add.ID})
	err = e.leaveStale(f)
	if err == nil {
		err = e.use(func() error { return e.plane.submit(f.add) })
	}
	if err != nil {
		e.mu.Lock()
		e.end(f, Output{Err: err})
		e.mu.Unlock()
		return f.out, nil
	}
	stop := context.AfterFunc(ctx, func() { e.cancel(f, context.Cause(ctx)) })
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.flights[f.add.ID] == nil {
		stop()
	}
	f.stop = stop
	return f.out, nil
}

// board makes the flight of a request.
func (e *Engine) board(req Request) (*flight, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return nil, e.err
	}
	f := &flight{
		req: req, left: 1,
		// Every word, every chunk of frames and the end have a place.
		out: make(chan Output, len(req.Words)+req.Frames/4+4),
		add: message.Add{
			ID: e.newID(req.ID), HTTPID: req.ID, Prompt: prompt(orDefault(req.Prompt, defaultPrompt)),
			ArrivalNS: time.Now().UnixNano(), Script: tokens(req.Words), StepNS: int64(req.Steps[0]),
		},
	}
	if req.Audio {
		f.left = 2
		f.add.FinalStage, f.add.Frames, f.add.Seed = 2, req.Frames, req.Seed
	}
	e.flights[f.add.ID] = f
	return f, nil
}

// forStage is the ADD of a stage: each has a step time of its own.
func (e *Engine) forStage(a message.Add, stage int) message.Add {
	e.mu.Lock()
	defer e.mu.Unlock()
	if f := e.flights[a.ID]; f != nil {
		a.StepNS = int64(f.req.Steps[stage])
	}
	return a
}

// addOf returns the ADD of a request that is not over.
func (e *Engine) addOf(id string) (message.Add, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if f := e.flights[id]; f != nil {
		return f.add, true
	}
	return message.Add{}, false
}

const vocabulary = 150000

// tokens gives each word an id, as a tokenizer would.
func tokens(words []string) []int {
	ids := make([]int, len(words))
	for i, w := range words {
		h := fnv.New32a()
		_, _ = h.Write([]byte(w)) // never fails
		ids[i] = int(h.Sum32() % vocabulary)
	}
	return ids
}

// prompt is a chat template's frame around nothing in particular.
func prompt(n int) []int {
	p := make([]int, n)
	for i := range p {
		p[i] = []int{151644, 872, 198, 39, 72, 13}[i%6]
	}
	return p
}

// leaveStale puts foreign segments where the faults want them.
func (e *Engine) leaveStale(f *flight) error {
	for _, v := range e.cfg.Faults {
		if v.Kind != FaultStale || v.Request != "" && v.Request != f.req.ID {
			continue
		}
		key := shm.Key(f.add.ID, v.Stage, v.Chunk)
		e.truth.Of("fault_stale", f.req.ID, v.Chunk, v.Bytes, key)
		if err := shm.Leave(e.regist, key, v.Bytes); err != nil {
			return err
		}
	}
	return nil
}

// cancel is for a request that nobody wants any more.
func (e *Engine) cancel(f *flight, why error) {
	e.mu.Lock()
	there := e.flights[f.add.ID] == f
	if there {
		e.end(f, Output{Err: why})
	}
	e.mu.Unlock()
	if !there {
		return
	}
	e.truth.Request("cancel", f.req.ID)
	if err := e.use(func() error { return e.plane.abort(f.add) }); err != nil {
		e.fail(fmt.Errorf("aborting %s: %w", f.add.ID, err))
	}
}

// end closes a flight with its last output; the caller holds mu.
func (e *Engine) end(f *flight, last Output) {
	if e.flights[f.add.ID] != f {
		return
	}
	delete(e.flights, f.add.ID)
	last.MonoNS = thread.MonoNS()
	f.out <- last // has a place of its own
	close(f.out)
	if f.stop != nil {
		f.stop()
	}
	if last.Done {
		e.truth.Request("done", f.req.ID)
	}
}

// deliver takes outputs of a stage to their requests. Those of requests that are over
// are dropped.
func (e *Engine) deliver(stage int, outs []message.Output) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := thread.MonoNS() // under the lock, so that a request's outputs are in order
	for _, o := range outs {
		f := e.flights[o.ID]
		if f == nil {
			continue
		}
		done, n := o.Finish != nil, f.count[stage]
		e.truth.Write(record.Event{
			MonoNS: now, Event: "output_received", RequestID: &f.req.ID, Chunk: &n, FromStage: Names[stage], Done: &done,
		})
		if err := f.take(stage, o, now); err != nil {
			e.end(f, Output{Err: fmt.Errorf("stage %d (%s): %w", stage, Names[stage], err)})
			continue
		}
		if done && stage != 1 {
			f.left--
		}
		if f.left == 0 {
			e.end(f, Output{Done: true})
		}
	}
}

// take turns an output into text or audio.
func (f *flight) take(stage int, o message.Output, now int64) error {
	switch stage {
	case 0:
		return f.text(o.Tokens, now)
	case 2:
		for _, t := range o.Tensors {
			if t.Name == message.TensorAudio {
				return f.put(Output{Stage: 2, PCM: voice.PCM(t.Data), MonoNS: now})
			}
		}
		return errors.New("an output without samples")
	default:
		f.count[stage]++
		return nil
	}
}

// text is the detokenizer: it knows the words by their place, and checks the ids.
func (f *flight) text(ids []int, now int64) error {
	for _, id := range ids {
		n := f.count[0]
		if n >= len(f.add.Script) || f.add.Script[n] != id {
			return fmt.Errorf("token %d is %d, which was not planned", n, id)
		}
		if err := f.put(Output{Text: f.req.Words[n], MonoNS: now}); err != nil {
			return err
		}
	}
	return nil
}

// put hands an output on. The last place of the channel is the end's.
func (f *flight) put(o Output) error {
	if len(f.out) >= cap(f.out)-1 {
		return errors.New("more outputs than were planned")
	}
	o.Index = f.count[o.Stage]
	f.count[o.Stage]++
	f.out <- o
	return nil
}
