package child

import (
	"context"
	"fmt"
	"os"

	"github.com/go-zeromq/zmq4"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/ipc"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/message"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/record"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/segment"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/shm"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/thread"
)

// zmqPlane is the second generation: messages by ZMQ, chunks through shared memory by
// two threads of the engine's process.
type zmqPlane struct {
	c       *core
	recv    *receiver
	outputs chan [][]byte
	saves   chan save
}

type save struct {
	httpID string
	p      segment.Payload
	// bytes is the size of a chunk without content, for an orphan.
	bytes int
}

func (c *core) runZMQ() error {
	ctx := context.Background()
	// The identity is vLLM's engine index in two bytes.
	in := zmq4.NewDealer(ctx, zmq4.WithID(zmq4.SocketIdentity("\x00\x00")), ipc.Quiet)
	if err := in.Dial(ipc.Endpoint(c.spec.Input, 0)); err != nil {
		return fmt.Errorf("connecting the input: %w", err)
	}
	out := zmq4.NewPush(ctx, ipc.Quiet)
	if err := out.Dial(ipc.Endpoint(c.spec.Output, 0)); err != nil {
		return fmt.Errorf("connecting the output: %w", err)
	}
	p := &zmqPlane{c: c, recv: newReceiver(c), outputs: make(chan [][]byte, 256), saves: make(chan save, 256)}
	c.plane = p
	for range 2 { // one a ZMQ context, of which a stage has two; they idle
		thread.Go("ZMQbg/Reaper", idle)
	}
	thread.Go("", p.recv.run)
	thread.Go("", p.saveAll)
	go p.read(in)
	go p.write(out)
	// The router can only send to who has sent first, so vLLM sends an empty message.
	if err := in.Send(zmq4.NewMsg(nil)); err != nil {
		return fmt.Errorf("greeting the API process: %w", err)
	}
	c.truth.Write(record.Event{Event: "ready", Title: os.Args[0]})
	c.loop()
	return nil
}

func idle() { select {} }

// read takes the requests; what cannot be read is a fault of the parent, not the end.
func (p *zmqPlane) read(in zmq4.Socket) {
	for {
		m, err := in.Recv()
		if err != nil {
			fail(fmt.Errorf("receiving requests: %w", err))
		}
		if v, err := parse(m.Frames); err != nil {
			fmt.Fprintln(os.Stderr, "stage:", err)
		} else {
			p.c.inbox <- v
		}
	}
}

func parse(frames [][]byte) (any, error) {
	if len(frames) != 2 || len(frames[0]) != 1 {
		return nil, fmt.Errorf("a request of %d frames, want a type and a content", len(frames))
	}
	switch frames[0][0] {
	case message.TypeAdd:
		a, err := message.DecodeAdd(frames[1])
		return task{add: a}, err
	case message.TypeAbort:
		ids, err := message.DecodeAbort(frames[1])
		return ids, err
	}
	return nil, fmt.Errorf("a request of type %#02x", frames[0][0])
}

func (p *zmqPlane) write(out zmq4.Socket) {
	for frames := range p.outputs {
		if err := out.Send(zmq4.NewMsgFrom(frames...)); err != nil {
			fail(fmt.Errorf("sending outputs: %w", err))
		}
	}
}

func (p *zmqPlane) ask(r *request)  { p.recv.ask(r.add.ID, r.add.HTTPID, r.next) }
func (p *zmqPlane) drop(r *request) { p.recv.drop(r.add.ID) }

// emit sends the outputs of a step in one message and the chunks one by one.
func (p *zmqPlane) emit(rs []*request, results []result, stats *message.Stats) {
	c := p.c
	outs := make([]message.Output, len(results))
	for i, res := range results {
		id := rs[i].add.HTTPID
		n := 0
		for _, t := range res.out.Tensors {
			n += len(t.Data)
		}
		c.truth.Write(record.Event{Event: "output", RequestID: &id, Chunk: &rs[i].step, Bytes: &n, Done: &res.done})
		outs[i] = res.out
		if res.send != nil {
			p.saves <- save{id, *res.send, 0}
		}
		if f := c.spec.fault(FaultOrphan, id, 0); f != nil && c.spec.Stage == 0 && res.done {
			p.saves <- save{id, segment.Payload{ID: rs[i].add.ID, Chunk: f.Chunk}, f.Bytes}
		}
	}
	p.outputs <- message.EncodeOutputs(outs, stats, thread.MonoNS())
}

// saveAll is the thread that writes chunks.
func (p *zmqPlane) saveAll() {
	c := p.c
	for s := range p.saves {
		key := shm.Key(s.p.ID, c.spec.Stage, s.p.Chunk)
		s.p.Raw = append(s.p.Raw, make([]byte, s.bytes)...)
		b := segment.Encode(s.p)
		c.truth.Of("put_start", s.httpID, s.p.Chunk, len(b), key)
		err := shm.Put(c.tracker, key, b, shm.Hooks{
			Start: func(key string, n int) { c.truth.Of("write_start", s.httpID, s.p.Chunk, n, key) },
			End:   func(key string, n int) { c.truth.Of("write_end", s.httpID, s.p.Chunk, n, key) },
		})
		if err != nil {
			fail(err)
		}
		c.truth.Of("put_end", s.httpID, s.p.Chunk, len(b), key)
	}
}
