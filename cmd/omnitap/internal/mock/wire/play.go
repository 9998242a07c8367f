// Package wire sends what package plan has planned: it owns the connection,
// paces the pieces, frames and segments them, stamps every write, and notices
// a client that leaves. Every byte goes through one Write call that it makes
// itself, so that HTTP chunks and TCP segments are independent of each other.
package wire

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/truth"
)

var (
	errGone     = errors.New("client gone")
	errShutdown = errors.New("shutting down")
	errStopped  = errors.New("stopped by a fault")
)

// Call is what an answer is sent with.
type Call struct {
	Conn   *Conn
	Script *script.Script // with its defaults
	Faults *script.Set
	// Record books the answer; nil means that nobody does.
	Record *truth.Record
	// Rand is for the fault of random segments.
	Rand *rand.Rand
	// Comment is the SSE comment of keep-alives, rendered.
	Comment []byte
	// Old is set for HTTP/1.0, Close when no request follows.
	Old, Close bool
	// Steps gives the permits for the fault gate.
	Steps <-chan struct{}
	// BeforeEnd runs when the body is out, before its end.
	BeforeEnd func()
}

// player writes one answer.
type player struct {
	Call
	a       *plan.Answer
	sink    sink
	due     time.Time   // of the last piece
	end     plan.Ending // of a stop
	fin     bool        // a FIN is due
	framing string      // chunked, length or close
}

func newPlayer(c Call, a *plan.Answer) *player {
	p := &player{Call: c, a: a, due: time.Now()}
	p.sink = sink{c: c.Conn, f: c.Faults, rng: c.Rand}
	p.sink.pause = func(d time.Duration) error { return p.sleep(time.Now().Add(d)) }
	p.framing = p.chooseFraming()
	return p
}

// Play writes an answer and books how it ended. It reports whether the
// connection can take another request.
func Play(c Call, a plan.Answer) bool {
	p := newPlayer(c, &a)
	return p.guarded(p.run)
}

// Raw writes the bytes of a script and nothing else.
func Raw(c Call, writes []script.RawWrite) bool {
	p := newPlayer(c, &plan.Answer{Form: "script", End: plan.Complete})
	return p.guarded(func() error { return p.raw(writes) })
}

// guarded runs a player whose writes end when the client leaves.
func (p *player) guarded(run func() error) bool {
	if !p.Faults.HalfClose {
		stop := p.Conn.abandonWrites()
		defer stop()
	}
	return p.conclude(run())
}

// conclude books the end of the answer, then ends the connection where that
// is due: the client's own FIN, which is awaited, must not delay the record.
func (p *player) conclude(err error) bool {
	p.settle(err)
	if p.fin {
		p.Conn.Finish()
	}
	return err == nil && !p.Conn.closed
}

// settle books how the answer ended.
func (p *player) settle(err error) {
	rec := p.Record
	if rec == nil {
		return
	}
	end := p.a.End
	switch {
	case err == nil:
	case errors.Is(err, errStopped):
		end = p.end
	case p.Conn.ctx.Err() != nil:
		end = truth.Shutdown
	default:
		end = truth.ClientGone
	}
	rec.Settle(func(t *truth.Truth) {
		t.End, t.Status, t.Form, t.BytesOut = end, p.a.Status, p.a.Form, p.sink.off
		if end == truth.ClientGone {
			t.Stamps.ClientClosedNS, _ = p.Conn.in.end()
			if t.Stamps.ClientClosedNS == 0 { // the write failed first
				t.Stamps.ClientClosedNS = truth.Mono()
			}
		}
	})
}

func (p *player) run() error {
	if p.a.Before != nil {
		if err := p.stop(p.a.Before); err != nil {
			return err
		}
	}
	if err := p.interim(); err != nil {
		return err
	}
	p.due = p.due.Add(script.Millis(p.Script.HeaderDelayMS))
	if p.a.Late {
		p.hastenFirst()
	}
	if err := p.sleep(p.due); err != nil {
		return err
	}
	p.sink.chunked = p.framing == "chunked"
	p.sink.raw(p.head(time.Now()), p.stamper(func(t *truth.Truth, s truth.Stamp) { truth.Once(&t.Stamps.Head, s) }))
	if !p.Faults.Burst {
		if err := p.sink.flush(); err != nil {
			return err
		}
	}
	if err := p.body(); err != nil {
		return err
	}
	if p.BeforeEnd != nil {
		p.BeforeEnd()
	}
	p.closing()
	if p.sink.chunked {
		if !p.Faults.Burst {
			if err := p.sink.flush(); err != nil {
				return err
			}
		}
		p.sink.raw([]byte("0\r\n\r\n"), p.stamper(func(t *truth.Truth, s truth.Stamp) { truth.Once(&t.Stamps.EndMarker, s) }))
	}
	if err := p.sink.flush(); err != nil {
		return err
	}
	if p.a.Short > 0 {
		return p.stop(&plan.Piece{Stop: plan.Cut})
	}
	p.fin = p.framing == "close"
	return nil
}

// hastenFirst moves the wait of the first piece before the head. A stall that
// stands before it stays behind the head.
func (p *player) hastenFirst() {
	for i := range p.a.Pieces {
		if pc := &p.a.Pieces[i]; pc.Kind != plan.Halt {
			p.advance(pc.Wait)
			pc.Wait = 0
			return
		}
	}
}

// closing tells readers of the truth that the record is about to be settled.
func (p *player) closing() {
	if p.Record != nil {
		p.Record.Closing()
	}
}

// chooseFraming says how the end of the body is told.
func (p *player) chooseFraming() string {
	switch {
	case p.a.Whole:
		return "length"
	case p.Old && p.Script.Framing == "chunked":
		return "close" // HTTP/1.0 knows no chunks
	}
	return p.Script.Framing
}

func (p *player) body() error {
	audio := 0
	for i := range p.a.Pieces {
		if err := p.piece(&p.a.Pieces[i], &audio, p.a.Live == nil && i == len(p.a.Pieces)-1); err != nil {
			return err
		}
	}
	for more := p.a.Live != nil; more; {
		b, ok := p.a.Live(p.Conn.in.gone)
		if !ok {
			return errGone
		}
		if b.Failed {
			p.a.End = plan.Failed
		}
		p.due = time.Now() // a live piece is never late
		for i := range b.Pieces {
			if err := p.piece(&b.Pieces[i], &audio, b.Last && i == len(b.Pieces)-1); err != nil {
				return err
			}
		}
		more = !b.Last
	}
	return nil
}

// piece sends one piece, the last of the body or not; audio counts those of sound.
func (p *player) piece(pc *plan.Piece, audio *int, last bool) error {
	if pc.Kind == plan.Halt {
		return p.stop(pc)
	}
	if pc.Kind == plan.Audio {
		if *audio++; *audio > 1 && p.Faults.Gate {
			if err := p.gate(); err != nil {
				return err
			}
		}
	}
	p.advance(pc.Wait)
	if err := p.sleep(p.due); err != nil {
		return err
	}
	if last {
		p.closing()
	}
	return p.sink.add(pc, p.booker(pc, last))
}

// booker returns what books a piece once it is written.
func (p *player) booker(pc *plan.Piece, last bool) func(truth.Stamp) {
	rec := p.Record
	if rec == nil {
		return nil
	}
	return func(s truth.Stamp) {
		rec.Wrote(pc, s)
		if last && !p.sink.chunked && p.a.Short == 0 {
			rec.Update(func(t *truth.Truth) { truth.Once(&t.Stamps.EndMarker, s) })
		}
	}
}

func (p *player) stamper(f func(*truth.Truth, truth.Stamp)) func(truth.Stamp) {
	rec := p.Record
	if rec == nil {
		return nil
	}
	return func(s truth.Stamp) { rec.Update(func(t *truth.Truth) { f(t, s) }) }
}

// interim writes the 1xx answers.
func (p *player) interim() error {
	at := p.due
	for _, code := range p.Faults.Interim {
		at = at.Add(p.Faults.InterimGap)
		if err := p.sleep(at); err != nil {
			return err
		}
		head := fmt.Sprintf("HTTP/1.1 %d %s\r\n", code, http.StatusText(code))
		if code == 103 {
			head += "Connection: X-Nom\r\nX-Nom: s\r\nLink: </voice.css>; rel=preload\r\n"
		}
		p.sink.raw([]byte(head+"\r\n"), nil)
		if err := p.sink.flush(); err != nil {
			return err
		}
	}
	return nil
}

// stop stalls or ends the answer.
func (p *player) stop(pc *plan.Piece) error {
	if err := p.sink.flush(); err != nil {
		return err
	}
	p.advance(pc.Wait)
	if err := p.sleep(p.due); err != nil {
		return err
	}
	if pc.Stop != plan.Pause {
		p.closing()
	}
	switch pc.Stop {
	case plan.Pause:
		return nil
	case plan.Reset:
		p.end = truth.Reset
		p.Conn.Reset()
	case plan.BadSize:
		p.end = truth.Cut
		p.sink.raw([]byte("zz\r\n"), nil)
		if err := p.sink.flush(); err != nil {
			return err
		}
		p.fin = true
	case plan.Cut:
		p.end, p.fin = truth.Cut, true
	}
	return errStopped
}

// advance moves the due time; forever does not overflow.
func (p *player) advance(d time.Duration) {
	if d == script.Forever {
		d = 100 * 365 * 24 * time.Hour
	}
	p.due = p.due.Add(d)
}

// sleep waits for a time, sending comments meanwhile, and ends early when the
// client leaves or the server stops.
func (p *player) sleep(until time.Time) error {
	every := script.Millis(p.Script.CommentEveryMS)
	gone := p.Conn.in.gone
	for {
		rest := time.Until(until)
		step := rest
		comment := every > 0 && p.a.SSE && p.sink.off > 0 && rest > every
		if comment {
			step = every
		}
		timer := time.NewTimer(step)
		select {
		case <-gone:
			timer.Stop()
			if _, err := p.Conn.in.end(); !errors.Is(err, io.EOF) || !p.Faults.HalfClose {
				return errGone
			}
			gone = nil // a half-close that is allowed
			continue
		case <-p.Conn.ctx.Done():
			timer.Stop()
			return errShutdown
		case <-timer.C:
		}
		if !comment {
			return p.left(gone)
		}
		if err := p.sink.add(&plan.Piece{Data: p.Comment, Raw: plan.NotRaw}, nil); err != nil {
			return err
		}
	}
}

// left reports a client that left while the timer was due too.
func (p *player) left(gone <-chan struct{}) error {
	select {
	case <-gone:
		if _, err := p.Conn.in.end(); !errors.Is(err, io.EOF) || !p.Faults.HalfClose {
			return errGone
		}
	default:
	}
	return nil
}

// gate waits for a POST /mock/step.
func (p *player) gate() error {
	if err := p.sink.flush(); err != nil {
		return err
	}
	select {
	case <-p.Steps:
		p.due = time.Now()
		return nil
	case <-p.Conn.in.gone:
		return errGone
	case <-p.Conn.ctx.Done():
		return errShutdown
	}
}

func (p *player) raw(writes []script.RawWrite) error {
	ends := map[string]plan.Piece{"fin": {Stop: plan.Cut}, "rst": {Stop: plan.Reset}, "hold": {Wait: script.Forever}}
	for _, w := range writes {
		p.advance(script.Millis(w.WaitMS))
		if err := p.sleep(p.due); err != nil {
			return err
		}
		b := w.Base64
		if b == nil {
			b = []byte(w.Text)
		}
		p.sink.raw(b, nil)
		if err := p.sink.flush(); err != nil {
			return err
		}
		if pc, ok := ends[w.End]; ok {
			if err := p.stop(&pc); err != nil {
				return err
			}
		}
	}
	return nil
}
