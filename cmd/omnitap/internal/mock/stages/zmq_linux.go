package stages

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/go-zeromq/zmq4"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/child"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/ipc"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/message"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/record"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/thread"
)

// engineIndex is the identity of a stage's DEALER.
const engineIndex = "\x00\x00"

// zmqPlane is the second generation: for each stage a ROUTER that sends requests and a
// PULL that gets outputs.
type zmqPlane struct {
	e      *Engine
	ctx    context.Context // the sockets' life, ended by close
	cancel context.CancelFunc
	pumps  sync.WaitGroup
	ends   [3]zmqEnd
}

// zmqEnd is a stage's two sockets and their paths.
type zmqEnd struct {
	in, out         zmq4.Socket
	inPath, outPath string
}

func newZMQPlane(e *Engine) (*zmqPlane, error) {
	p := &zmqPlane{e: e}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	for i := range p.ends {
		z := zmqEnd{
			in: zmq4.NewRouter(p.ctx, ipc.Quiet), out: zmq4.NewPull(p.ctx, ipc.Quiet),
			inPath: filepath.Join(e.dir, uuid4()), outPath: filepath.Join(e.dir, uuid4()),
		}
		p.ends[i] = z
		err := errors.Join(z.in.Listen(ipc.Endpoint(z.inPath, 1)), z.out.Listen(ipc.Endpoint(z.outPath, 0)))
		if err != nil {
			return p, fmt.Errorf("binding the sockets of stage %d: %w", i, err)
		}
	}
	return p, nil
}

// uuid4 is a random UUID, which is what vLLM calls a socket.
func uuid4() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (p *zmqPlane) files(int) []*os.File { return nil }

func (p *zmqPlane) spec(s *child.Spec) {
	s.Input, s.Output = p.ends[s.Stage].inPath, p.ends[s.Stage].outPath
}

func (p *zmqPlane) run() {
	for i := range p.ends {
		p.pumps.Go(func() { p.greeted(i) })
		p.pumps.Go(func() { p.receive(i) })
		thread.Go("ZMQbg/Reaper", p.idle)
	}
}

func (p *zmqPlane) idle() { <-p.ctx.Done() }

// greeted waits for a stage's first message, which says that it can be sent to.
func (p *zmqPlane) greeted(stage int) {
	for p.ctx.Err() == nil {
		if _, err := p.ends[stage].in.Recv(); err == nil {
			p.e.ready <- stage
		}
	}
}

// receive takes a stage's outputs. The end of a connection is the watch's business.
func (p *zmqPlane) receive(stage int) {
	for p.ctx.Err() == nil {
		m, err := p.ends[stage].out.Recv()
		if err != nil {
			continue
		}
		outs, err := message.DecodeOutputs(m.Frames)
		if err != nil {
			p.e.fail(fmt.Errorf("stage %d (%s): %w", stage, Names[stage], err))
			continue
		}
		p.e.deliver(stage, outs)
	}
}

// submit sends the ADDs: to all stages at once if there is to be audio, so that the later
// ones are there when the first chunk comes.
func (p *zmqPlane) submit(a message.Add) error {
	for stage := 0; stage <= a.FinalStage; stage++ {
		p.e.truth.Write(record.Event{Event: "add_sent", RequestID: &a.HTTPID, ToStage: Names[stage]})
		if err := p.send(stage, message.TypeAdd, message.EncodeAdd(p.e.forStage(a, stage), stage)); err != nil {
			return err
		}
	}
	return nil
}

func (p *zmqPlane) abort(a message.Add) error {
	var errs []error
	for stage := 0; stage <= a.FinalStage; stage++ {
		errs = append(errs, p.send(stage, message.TypeAbort, message.EncodeAbort(a.ID)))
	}
	return errors.Join(errs...)
}

func (p *zmqPlane) send(stage int, kind byte, body []byte) error {
	err := p.ends[stage].in.Send(zmq4.NewMsgFrom([]byte(engineIndex), []byte{kind}, body))
	if err != nil {
		return fmt.Errorf("sending to stage %d (%s): %w", stage, Names[stage], err)
	}
	return nil
}

func (p *zmqPlane) close() error {
	p.cancel()
	for _, z := range p.ends {
		for _, s := range []zmq4.Socket{z.in, z.out} {
			if s != nil {
				_ = s.Close() // of connections whose other end is gone
			}
		}
	}
	p.pumps.Wait()
	return nil
}

var _ plane = (*zmqPlane)(nil)
