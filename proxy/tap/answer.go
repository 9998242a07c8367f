package tap

import (
	"errors"

	"github.com/omnitap/omnitap/proxy/wire/http1"
)

// answerSide is the Conn as handler of the server's bytes.
type answerSide Conn

func (s *answerSide) MessageStart(off int64) {
	c := (*Conn)(s)
	if c.front() == nil {
		c.stopped = "an answer without a request"
		c.resp.Stop()
		return
	}
	mono := c.now
	if off == c.base+1 {
		mono = c.first
	}
	c.startMono, c.startOff = mono, off
	x := c.front()
	if x.startDown == 0 {
		x.startDown = off
	}
}

func (s *answerSide) Head(h *http1.Head, end int64) http1.Expect {
	c := (*Conn)(s)
	x := c.front()
	if x == nil {
		return http1.NoBody
	}
	c.info = h.Status < 200 && h.Status != 101
	if c.info {
		x.b.Informational(h.Status)
		return http1.NoBody
	}
	x.b.AnswerStart(c.startMono, c.startOff)
	x.b.HeadEnd(end)
	if x.wantsUpgrade && (h.Status == 101 || x.method == "CONNECT" && h.Status < 300) {
		c.tunnelled(x, h)
		return http1.Upgraded
	}
	if x.wantsUpgrade {
		c.req.Resume()
	}
	x.answer(h)
	if x.method == "HEAD" || h.Status == 204 || h.Status == 304 {
		x.b.NoBody()
		x.kind = bodyNone
		return http1.NoBody
	}
	return http1.ByHead
}

// tunnelled makes the connection a tunnel that belongs to x.
func (c *Conn) tunnelled(x *exchange, h *http1.Head) {
	c.tunnel = x
	x.answer(h)
	x.kind = bodyNone
	reason := x.upgrade
	if reason == "" {
		reason = "tunnel"
	}
	x.b.Tunnel()
	switch {
	case reason != "websocket" || c.cfg.Off:
		x.b.Analysis("lost", "opaque("+reason+")")
	default:
		t, err := newTunnel(c, x, h)
		if err != nil { // the frames mean what we do not know
			x.b.Analysis("unsupported_encoding", err.Error())
		}
		c.socket = t
	}
	c.req.Upgrade()
	if c.socket != nil {
		for _, h := range c.ahead { // what was written on before anybody knew what it was
			if h.wrote != 0 {
				c.socket.ses.Sent(h.wrote, h.end)
			}
		}
	}
}

func (s *answerSide) Body(p []byte, off int64) {
	if x := (*Conn)(s).front(); x != nil {
		x.body(p, off)
	}
}

func (s *answerSide) ChunkStart(int64) {
	if x := (*Conn)(s).front(); x != nil && x.kind == bodySound && x.inflate == nil {
		x.b.SoundChunkStart()
	}
}

func (s *answerSide) ChunkEnd(off int64) {
	if x := (*Conn)(s).front(); x != nil && x.kind == bodySound && x.inflate == nil {
		x.b.SoundChunkEnd(off)
	}
}

func (s *answerSide) MessageEnd(off int64) {
	c := (*Conn)(s)
	x := c.front()
	if x == nil || c.info {
		c.info = false
		return
	}
	x.bodyEnd()
	x.b.Complete()
	c.answerEnd = off
	x.account(c)
	c.open = c.open[1:]
	if len(c.open) == 0 {
		c.open = nil
	}
	if c.current == x && !c.req.Lost() { // answered before the request was over
		x.b.Flag("early_answer")
	}
	if x.requestLost {
		c.resp.Stop() // which request the next answer belongs to is not known
	}
	c.finishing = append(c.finishing, x)
}

func (s *answerSide) Tunnel(p []byte, off int64) { (*Conn)(s).tunnelBytes(Server, p, off) }

func (s *answerSide) Lost(err error, _ int64) {
	c := (*Conn)(s)
	x := c.front()
	if x == nil {
		return
	}
	switch {
	case errors.Is(err, http1.ErrGap):
		x.b.Unread("bytes were not analysed")
	case errors.Is(err, http1.ErrAmbiguous):
		x.b.Flag("ambiguous_framing")
		x.b.Analysis("lost", "answer: "+err.Error())
		x.b.Ambiguous()
	default:
		x.b.Analysis("lost", "answer: "+err.Error())
		x.b.Malformed("malformed_" + x.part())
	}
}
