package child

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/message"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/pickle"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/queue"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/record"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/segment"
)

// queuePlane is the first generation: a queue to each stage and one back, with all of a
// request's data in one item or in the segment that it names.
type queuePlane struct {
	c       *core
	results chan pickle.Dict
}

func (c *core) runQueues() error {
	p := &queuePlane{c: c, results: make(chan pickle.Dict, 256)}
	c.plane = p
	go p.feed()
	p.results <- pickle.Dict{{Key: "type", Value: "stage_ready"}, {Key: "stage_id", Value: c.spec.Stage}}
	c.truth.Write(record.Event{Event: "ready", Title: os.Args[0]})
	go p.read()
	c.loop()
	return nil
}

// feed is a multiprocessing queue's feeder thread.
func (p *queuePlane) feed() {
	for d := range p.results {
		if err := pickle.Write(FDOut, pickle.Encode(d)); err != nil {
			fail(fmt.Errorf("sending a result: %w", err))
		}
	}
}

func (p *queuePlane) read() {
	for {
		b, err := pickle.Read(FDIn)
		if errors.Is(err, io.EOF) {
			exit(0)
		}
		if err != nil {
			fail(fmt.Errorf("receiving tasks: %w", err))
		}
		if err := p.task(b); err != nil {
			fail(err)
		}
	}
}

// task takes a request, and with it everything that the stage before has made.
func (p *queuePlane) task(b []byte) error {
	d, err := pickle.Decode(b)
	if err != nil {
		return err
	}
	id := d.Str("request_id")
	if kind, ok := d.Get("type").(pickle.Enum); ok && kind.Value == "abort" {
		p.c.inbox <- []string{id}
		return nil
	}
	raw, ok := d.Get("engine_inputs").([]byte)
	if p.c.spec.Stage > 0 {
		raw, ok = d.Get("sampling_params").([]byte)
	}
	if !ok {
		return fmt.Errorf("a task for %q without inputs", id)
	}
	a, err := message.DecodeAdd(raw)
	if err != nil {
		return err
	}
	if p.c.spec.Stage == 0 {
		p.c.inbox <- task{add: a}
		return nil
	}
	meta, _ := d.Get("connector_metadata").(pickle.Dict)
	data, err := queue.Open(p.c.tracker, meta, "inline_bytes", "shm")
	if err != nil {
		return fmt.Errorf("the inputs of %q: %w", id, err)
	}
	in, err := segment.Decode(data)
	if err != nil {
		return fmt.Errorf("the inputs of %q: %w", id, err)
	}
	p.c.truth.Of("get_end", a.HTTPID, 0, len(data), id)
	p.c.inbox <- task{a, &in}
	return nil
}

// ask has nothing to do: the inputs come with the task.
func (p *queuePlane) ask(*request) {}

// drop has nothing to do: nobody polls.
func (p *queuePlane) drop(*request) {}

// emit gathers a request's steps and answers with all of them at its end.
func (p *queuePlane) emit(rs []*request, results []result, _ *message.Stats) {
	for i, res := range results {
		r := rs[i]
		p.c.truth.Write(record.Event{Event: "output", RequestID: &r.add.HTTPID, Chunk: &r.step, Done: &res.done})
		gather(r, res)
		if !res.done {
			continue
		}
		d := pickle.Dict{{Key: "request_id", Value: r.add.ID}, {Key: "stage_id", Value: p.c.spec.Stage}}
		data := segment.Encode(r.all)
		item, err := queue.Close(p.c.tracker, data, p.c.spec.ShmThreshold, "engine_outputs", "engine_outputs_shm")
		if err != nil {
			fail(err)
		}
		d = append(d, item, pickle.Item{Key: "metrics", Value: pickle.Dict{{Key: "num_steps", Value: r.step + 1}}})
		p.results <- d
	}
}

// gather adds a step to what a request has made so far.
func gather(r *request, res result) {
	a := &r.all
	a.ID, a.Finished, a.Prompt = r.add.ID, true, r.add.Prompt
	a.Seed, a.Frames = r.add.Seed, r.add.Frames
	a.Tokens = append(a.Tokens, res.out.Tokens...)
	if s := res.send; s != nil {
		a.Codes = append(a.Codes, s.Codes...)
		a.Raw = append(a.Raw, s.Raw...)
	}
	for _, t := range res.out.Tensors {
		if t.Name == message.TensorAudio {
			a.Raw = append(a.Raw, t.Data...)
		}
	}
}

var (
	_ plane = (*queuePlane)(nil)
	_ plane = (*zmqPlane)(nil)
)
