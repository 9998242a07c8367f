package session

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/omnitap/omnitap/proxy/timeline"
	"github.com/omnitap/omnitap/proxy/wire/dialect"
)

// counts is what a session's line counts.
type counts struct {
	up, down                  int64
	framesUp, framesDown      int64
	bytesUp, bytesDown        int64
	lastAt, idle              int64
	unknown, replayed, errors int64
	looseChunks, looseSamples int64
	listens                   int
	oldNames, newNames        bool
	serverID, resumed         string
	states                    map[timeline.State]int
}

// message counts one data message.
func (c *counts) message(n *int64, mono int64) {
	*n++
	if c.lastAt != 0 {
		c.idle = max(c.idle, mono-c.lastAt)
	}
	c.lastAt = mono
}

// Fragments counts frames of data messages, by side.
func (s *Session) Fragments(server bool, n int) {
	if server {
		s.count.framesDown += int64(n)
	} else {
		s.count.framesUp += int64(n)
	}
}

// Bytes notes how many bytes of each side the connection carried, the heads
// included.
func (s *Session) Bytes(up, down int64) { s.count.bytesUp, s.count.bytesDown = up, down }

// input is sound of the client.
type input struct {
	bytes, messages, wire int64
	from                  int64 // number of the first message in the session
	tail                  int64 // bytes of the last message
	first, last           int64
}

// said takes n bytes of sound in a message of the client, wire of whose own bytes are
// counted with it.
func (s *Session) said(n, wire int64, at Span) {
	if n < 0 {
		return
	}
	in := &s.input
	if in.messages == 0 {
		in.first, in.from = at.First, s.inputs
	}
	s.tell(timeline.EventInput, at, timeline.Event{
		ChunkID: timeline.N(s.inputs), Bytes: timeline.N(n), Samples: timeline.N(n / 2), Rate: timeline.Positive(int64(s.inRate)), WireBytes: timeline.N(wire),
	})
	s.inputs++
	in.bytes += n
	in.tail = n
	in.wire += wire
	in.messages++
	in.last = at.Last
}

// tell sends an event of the session out: it bears the session's id, no turn's.
func (s *Session) tell(word string, at Span, e timeline.Event) {
	if s.sink == nil || s.cfg.NoEvents {
		return
	}
	if s.event == nil {
		s.event = new(timeline.Event)
	}
	*s.event = e // one a session: a sink does not keep it
	o := s.event
	o.RunID, o.Node, o.RequestID, o.SessionID = timeline.Text(s.id.RunID), timeline.Text(s.id.Node), s.info.RequestID, timeline.Text(s.info.RequestID)
	o.Attempt, o.Flow, o.Event, o.MonoNS, o.Offset = 1, s.flow, word, at.Last, timeline.Positive(at.End)
	if s.id.WallOffset != nil {
		o.WallNS = timeline.N(at.Last + *s.id.WallOffset)
	}
	s.sink.Event(o)
}

// takeInput returns the sound since the last call.
func (s *Session) takeInput() input {
	in := s.input
	s.input = input{}
	return in
}

// heard gives a turn the sound that the client sent for it: mono PCM of 16 bits.
func (s *Session) heard(t *turn, in input) {
	if in.messages == 0 || s.inRate == 0 {
		return
	}
	r := timeline.Input{
		Bytes: in.bytes, Messages: in.messages, SampleRate: int64(s.inRate), SampleRateSource: s.inFrom,
		AudioS: float64(in.bytes/2) / float64(s.inRate), SpanMS: float64(in.last-in.first) / 1e6,
	}
	if in.messages > 1 && r.SpanMS > 0 {
		// the last message's own sound comes after the span
		r.Pace = new(float64((in.bytes-in.tail)/2) / float64(s.inRate) / (r.SpanMS / 1e3))
	}
	t.b.Heard(r, in.from, in.wire, in.first)
}

// pings pairs pings with their pongs. They are no activity.
type pings struct {
	open  [2][]ping // by who sent them: client, server
	n     [2]int
	pongs int
	rtts  []float64
}

type ping struct {
	mono    int64
	payload []byte
}

// maxPings bounds the pings that wait for an answer, and what is remembered.
const maxPings = 64

// Ping notes a ping of a side.
func (s *Session) Ping(server bool, payload []byte, mono int64) {
	p := &s.pings
	d := side(server)
	p.n[d]++
	if len(p.open[d]) >= maxPings {
		p.open[d] = p.open[d][1:]
	}
	p.open[d] = append(p.open[d], ping{mono, bytes.Clone(payload)})
}

// Pong notes a pong of a side: it answers the other side's ping, and all before
// it (RFC 6455 section 5.5.3).
func (s *Session) Pong(server bool, payload []byte, mono int64) {
	p := &s.pings
	p.pongs++
	d := 1 - side(server)
	same := func(q ping) bool { return bytes.Equal(q.payload, payload) }
	i := slices.IndexFunc(p.open[d], same)
	if i < 0 {
		return
	}
	q, rest := p.open[d][i], p.open[d][i+1:]
	p.open[d] = rest
	if !slices.ContainsFunc(rest, same) && len(p.rtts) < 1<<14 { // else nobody knows which it answers
		p.rtts = append(p.rtts, float64(mono-q.mono)/1e6)
	}
}

// waiting reports whether a side's ping has no answer yet.
func (p *pings) waiting(server bool) bool { return len(p.open[side(server)]) > 0 }

// median returns the median round trip, nil where no ping was answered.
func (p *pings) median() *float64 {
	if len(p.rtts) == 0 {
		return nil
	}
	slices.Sort(p.rtts)
	return new(p.rtts[(len(p.rtts)-1)/2])
}

func side(server bool) int {
	if server {
		return 1
	}
	return 0
}

// Memory is what sessions of one server share: how far the numbered events of a
// session had come, so that what is sent again after a resume counts once. It is
// safe for concurrent use and bounded.
type Memory struct {
	mu    sync.Mutex // protects what follows
	known map[string]*cursor
	order []string
}

// cursor is the highest number of an event that was seen, from 1: 0 for none.
type cursor struct{ last atomic.Int64 }

// maxKnown bounds the sessions that are remembered.
const maxKnown = 1024

// cursor returns the place of a session. A nil Memory remembers nothing.
func (m *Memory) cursor(id string) *cursor {
	if m == nil {
		return &cursor{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, ok := m.known[id]; ok {
		i := slices.Index(m.order, id)
		m.order = append(slices.Delete(m.order, i, i+1), id)
		return c
	}
	if m.known == nil {
		m.known = map[string]*cursor{}
	}
	if len(m.order) >= maxKnown {
		delete(m.known, m.order[0])
		m.order = slices.Delete(m.order, 0, 1)
	}
	c := &cursor{}
	m.known[id], m.order = c, append(m.order, id)
	return c
}

// fresh returns a new place for a session that begins.
func (m *Memory) fresh(id string) *cursor {
	c := m.cursor(id)
	c.last.Store(0)
	return c
}

// resume takes up what is known of an old session.
func (s *Session) resume(id string) {
	if id == "" {
		return
	}
	s.count.resumed = id
	s.flag("resumed")
	s.seq = s.mem.cursor(id)
	s.count.serverID = id
}

// replayed reports whether an event came before, and counts it.
func (s *Session) replayed(m *dialect.Message) bool {
	if m.Seq < 0 || s.form != dialect.Duplex {
		return false
	}
	if s.seq == nil {
		s.seq = &cursor{}
	}
	if n := m.Seq + 1; n > s.seq.last.Load() {
		s.seq.last.Store(n)
		return false
	}
	s.count.replayed++
	s.flag("replayed_events")
	return true
}
