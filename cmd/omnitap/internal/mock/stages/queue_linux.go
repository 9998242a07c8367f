package stages

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/child"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/message"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/pickle"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/queue"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/record"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/segment"
)

// queuePlane is the first generation: the orchestrator, which is the API process, has a
// queue to each stage and one back, and forwards all data itself.
type queuePlane struct {
	e       *Engine
	readers sync.WaitGroup
	feeders sync.WaitGroup
	ends    [3]queueEnd
}

// queueEnd is a stage's two pipes; ours are taskW and resultR.
type queueEnd struct {
	tasks                          chan pickle.Dict
	taskR, taskW, resultR, resultW *os.File
}

const backlog = 1024

func newQueuePlane(e *Engine) (*queuePlane, error) {
	p := &queuePlane{e: e}
	for i := range p.ends {
		q := &p.ends[i]
		q.tasks = make(chan pickle.Dict, backlog)
		var err error
		if q.taskR, q.taskW, err = os.Pipe(); err != nil {
			return p, err
		}
		if q.resultR, q.resultW, err = os.Pipe(); err != nil {
			return p, err
		}
	}
	return p, nil
}

func (p *queuePlane) files(stage int) []*os.File {
	return []*os.File{p.ends[stage].taskR, p.ends[stage].resultW}
}

func (p *queuePlane) spec(*child.Spec) {}

func (p *queuePlane) run() {
	for i := range p.ends {
		q := &p.ends[i]
		_, _ = q.taskR.Close(), q.resultW.Close() // so that a stage's end is felt
		p.feeders.Go(func() { p.feed(q) })
		p.readers.Go(func() { p.receive(i) })
	}
}

// feed is a queue's feeder thread. When the stage is gone it throws the tasks away.
func (p *queuePlane) feed(q *queueEnd) {
	fd := int(q.taskW.Fd()) // blocking from now on, as Python's
	for d := range q.tasks {
		_ = pickle.Write(fd, pickle.Encode(d)) // EPIPE is the watch's business
	}
}

// receive takes a stage's results until it is gone. A thread of the server's works a
// result off by itself, as this one does: calls on a descriptor are all its own.
func (p *queuePlane) receive(stage int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fd := int(p.ends[stage].resultR.Fd())
	for {
		b, err := pickle.Read(fd)
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil {
			err = p.result(stage, b)
		}
		if err != nil {
			p.e.fail(fmt.Errorf("stage %d (%s): %w", stage, Names[stage], err))
		}
	}
}

// result takes a stage's answer to a request and forwards what the next stage needs.
func (p *queuePlane) result(stage int, b []byte) error {
	d, err := pickle.Decode(b)
	if err != nil {
		return err
	}
	if d.Str("type") == "stage_ready" {
		p.e.ready <- stage
		return nil
	}
	id := d.Str("request_id")
	data, err := queue.Open(p.e.regist, d, "engine_outputs", "engine_outputs_shm")
	if err != nil {
		return fmt.Errorf("the result of %q: %w", id, err)
	}
	got, err := segment.Decode(data)
	if err != nil {
		return fmt.Errorf("the result of %q: %w", id, err)
	}
	a, ok := p.e.addOf(id)
	out := message.Output{ID: id, Finish: new(message.FinishStop)}
	switch stage {
	case 0:
		out.Tokens = got.Tokens
	case 2:
		out.Tensors = []message.Tensor{{Name: message.TensorAudio, DType: "bfloat16", Data: got.Raw}}
	}
	p.e.deliver(stage, []message.Output{out})
	if !ok || stage >= a.FinalStage {
		return nil
	}
	return p.forward(a, stage+1, data)
}

// forward gives a stage the outputs of the one before, as try_send_via_connector does
// (distributed/omni_connectors/adapter.py of vLLM-Omni 0.12). The engine's parameters
// stand where SamplingParams does there.
func (p *queuePlane) forward(a message.Add, stage int, data []byte) error {
	item, err := queue.Close(p.e.regist, data, p.e.cfg.ShmThreshold, "inline_bytes", "shm")
	if err != nil {
		return err
	}
	p.send(a, stage, pickle.Dict{
		{Key: "type", Value: taskType("generate")},
		{Key: "request_id", Value: a.ID},
		{Key: "sampling_params", Value: message.EncodeAdd(p.e.forStage(a, stage), stage)},
		{Key: "from_connector", Value: true},
		{Key: "from_stage", Value: strconv.Itoa(stage - 1)},
		{Key: "to_stage", Value: strconv.Itoa(stage)},
		{Key: "sent_ts", Value: float64(time.Now().UnixMicro()) / 1e6},
		{Key: "connector_metadata", Value: pickle.Dict{item, {Key: "size", Value: len(data)}}},
	})
	return nil
}

func (p *queuePlane) send(a message.Add, stage int, d pickle.Dict) {
	p.e.truth.Write(record.Event{Event: "add_sent", RequestID: &a.HTTPID, ToStage: Names[stage]})
	p.ends[stage].tasks <- d
}

// submit seeds the first stage, as AsyncOmni.generate does (entrypoints/async_omni.py of
// vLLM-Omni 0.12).
func (p *queuePlane) submit(a message.Add) error {
	p.send(a, 0, pickle.Dict{
		{Key: "request_id", Value: a.ID},
		{Key: "engine_inputs", Value: message.EncodeAdd(p.e.forStage(a, 0), 0)},
		{Key: "sampling_params", Value: nil},
	})
	return nil
}

func (p *queuePlane) abort(a message.Add) error {
	for stage := 0; stage <= a.FinalStage; stage++ {
		p.ends[stage].tasks <- pickle.Dict{{Key: "type", Value: taskType("abort")}, {Key: "request_id", Value: a.ID}}
	}
	return nil
}

func (p *queuePlane) close() error {
	p.readers.Wait() // they forward, so they go first
	for i := range p.ends {
		close(p.ends[i].tasks)
	}
	p.feeders.Wait()
	for i := range p.ends {
		q := &p.ends[i]
		for _, f := range []*os.File{q.taskR, q.taskW, q.resultR, q.resultW} {
			if f != nil {
				_ = f.Close() // two of them twice
			}
		}
	}
	return nil
}

func taskType(v string) pickle.Enum {
	return pickle.Enum{Module: "vllm_omni.entrypoints.stage_utils", Class: "OmniStageTaskType", Value: v}
}

var _ plane = (*queuePlane)(nil)
