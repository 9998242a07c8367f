package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// errTimeout is the cause of a request's own timeout, errGone of a run that has no server.
var (
	errTimeout = errors.New("timeout")
	errGone    = errors.New("the server takes no connections any more")
	errTunnel  = errors.New("the answer is an upgrade that was not asked for")
)

// buffers hold what is read of an answer.
var buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// send sends one request and reads its answer to the end. It writes to sent[i] alone. One
// that comes to be sent only when the run is over is not sent.
func (r *runner) send(ctx context.Context, stop context.CancelCauseFunc, i int) {
	if ctx.Err() != nil {
		return
	}
	r.label(i)
	s := &r.sent[i]
	ctx, cancel := context.WithTimeoutCause(ctx, r.plan.timeout(), errTimeout)
	defer cancel()
	q := r.set[i%len(r.set)].request(ctx, s.RequestID)
	s.SentNS = r.now()
	resp, err := r.transport.RoundTrip(q)
	if err == nil {
		s.Status = resp.StatusCode
		err = r.take(resp, s)
		_ = resp.Body.Close()
	}
	s.DoneNS = r.now()
	r.judge(err, stop)
	if err != nil {
		s.Err = r.words(ctx, err)
	}
}

// take reads an answer as it comes. It leaves the body open.
func (r *runner) take(resp *http.Response, s *Sent) error {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return errTunnel // its body would not end
	}
	buf := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buf)
	for {
		n, err := resp.Body.Read(buf[:])
		if n > 0 && s.FirstByteNS == 0 {
			s.FirstByteNS = r.now()
		}
		s.Bytes += int64(n)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// scarce are the errors of a generator that has run out of something.
var scarce = []error{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.ENOMEM}

// judge keeps account of connections that do not come about, and ends the run where none
// does any more.
func (r *runner) judge(err error, stop context.CancelCauseFunc) {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "dial" {
		if err == nil {
			r.connected.Store(true)
			r.refused.Store(0)
		}
		return
	}
	for _, e := range scarce {
		if errors.Is(err, e) {
			r.own.Add(1)
			r.lastOwn.Store(&err)
			return
		}
	}
	r.lastRefuse.Store(&err)
	if r.refused.Add(1) >= maxRefused {
		stop(fmt.Errorf("%w: %w", errGone, err))
	}
}

// words says what went wrong without what may hold a key or a prompt: net/http quotes
// what it cannot read.
func (r *runner) words(ctx context.Context, err error) string {
	_, network := errors.AsType[*net.OpError](err)
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errTimeout):
		return "no whole answer within " + r.plan.timeout().Round(time.Millisecond).String()
	case cause != nil:
		return "cut off at the end of the run"
	case network, errors.Is(err, errTunnel):
		return err.Error()
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the answer broke off"
	case errors.Is(err, io.EOF):
		return "the connection was closed before the answer"
	default:
		return "request or answer is no valid HTTP"
	}
}
