package join

import (
	"slices"

	"github.com/omnitap/omnitap/exporter/join/control"
	"github.com/omnitap/omnitap/probes/event"
)

// cooks is what is known of Mooncake's transfer engine: a side channel by ZMQ tells
// which data is asked for and where it shall go; the data's connection tells address
// and size, and no request.
type cooks struct {
	polls table[string, poll]    // by key, at the receiver
	asked table[sockKey, string] // the key that a receiver's socket asked for last
	pulls table[string, *pull]
	// wanted are the pulls that senders were told, the latest last.
	wanted ring[*pull]
	open   table[fdKey, *pull] // a header was sent and no answer came
}

type sockKey struct {
	pid  int32
	sock uint64
}

type poll struct{ first, last, misses int64 }

// pull is one transfer as it was asked for.
type pull struct {
	t              *Transfer
	sender         int32
	addrs, lengths []uint64
	// asked and told are the pull message at its sender and at its receiver, sent the
	// bytes of the headers so far.
	asked, told, sent int64
}

func newCooks() cooks {
	return cooks{
		polls:  newTable[string, poll](4096),
		asked:  newTable[sockKey, string](1024),
		pulls:  newTable[string, *pull](4096),
		wanted: ring[*pull]{limit: 1024},
		open:   newTable[fdKey, *pull](1024),
	}
}

// pull takes a message of the side channel.
func (j *Joiner) pull(m *message) {
	c := &j.cook
	at := sockKey{m.p.pid, m.sock}
	switch {
	case m.Kind == control.Query && m.send:
		c.asked.put(at, m.Key)
		q, _ := c.polls.get(m.Key)
		if q.first == 0 {
			q.first = m.at
		}
		q.last = m.at
		c.polls.put(m.Key, q)
	case m.Kind == control.PullMissing && !m.send:
		if key, ok := c.asked.get(at); ok {
			q, _ := c.polls.get(key)
			q.misses++
			c.polls.put(key, q)
		}
	case m.Kind == control.Pull:
		if m.send {
			c.asked.put(at, m.Key)
		}
		j.pulled(m)
	case m.Kind == control.PullDone && !m.send:
		if key, ok := c.asked.get(at); ok {
			if pl, _ := c.pulls.get(key); pl != nil && pl.asked > 0 && pl.t.RxEnd == 0 {
				j.served(pl, m)
			}
		}
	}
}

// served takes the sender's word that all is there.
func (j *Joiner) served(pl *pull, m *message) {
	t := pl.t
	t.RxEnd, t.EndBy, t.Unread = m.at, Ack, false
	if t.TxStart == 0 { // no header was seen: RDMA, or a lost event
		t.TxStart = pl.told
	}
	t.grade(false)
	if t.owner != nil {
		t.owner.touch(j, m.at)
	}
}

// pulled takes the message that asks for the data, at either end.
func (j *Joiner) pulled(m *message) {
	key, ok := control.Key(m.Key)
	if !ok || key.Request == "" {
		return
	}
	pl, _ := j.cook.pulls.get(m.Key)
	if pl == nil || m.send && pl.asked > 0 || !m.send && pl.told > 0 {
		pl = &pull{t: newTransfer("mooncake"), addrs: m.Addrs, lengths: m.Lengths}
		j.begin(pl, m, &key)
		j.cook.pulls.put(m.Key, pl)
	}
	t := pl.t
	if m.send {
		pl.asked, t.ToPID, t.To = m.at, m.p.pid, m.p.stage
		if q, ok := j.cook.polls.get(m.Key); ok {
			t.RxStart, t.Misses = q.last, q.misses
			if q.misses > 0 {
				t.WaitStart = q.first
			}
			j.cook.polls.del(m.Key)
		}
		return
	}
	pl.told, pl.sender = m.at, m.p.pid
	t.FromPID, t.From = m.p.pid, m.p.stage
	j.cook.wanted.add(pl)
}

func (j *Joiner) begin(pl *pull, m *message, key *control.KeyParts) {
	t := pl.t
	t.Key, t.Request, t.Chunk = key.Name, key.Request, key.Chunk
	var sum int64
	for _, n := range m.Lengths {
		sum += int64(min(n, 1<<48))
	}
	if len(m.Lengths) > 0 {
		t.Bytes, t.BytesBy = sum, ControlPlane
	}
	if s := j.numbered(m.p, int(min(key.From, 1<<20))); s != nil && key.From >= 0 {
		t.From = s.stage
	}
	if s := j.numbered(m.p, int(min(key.To, 1<<20))); s != nil && key.To >= 0 {
		t.To = s.stage
	}
	t.Unread = true
	t.grade(false)
	j.own(t, j.requests.find(j, t.Request, m.at, 0))
}

// wire takes a socket call that may be the header of a transfer or its answer. It
// says whether it was one.
func (j *Joiner) wire(e *event.Event, p *process) bool {
	k := fdKey{e.PID, e.FD}
	if e.Probe == event.Recv {
		pl, open := j.cook.open.get(k)
		if !open || e.Ret != 8 {
			return false
		}
		status, ok := control.MooncakeAck(e.Head)
		if !ok {
			return false
		}
		j.cook.open.del(k)
		if t := pl.t; status == 0 {
			t.TxEnd, t.Acked = e.MonoNS, e.MonoNS
		}
		return true
	}
	if e.Ret != 24 {
		return false
	}
	size, addr, _, ok := control.MooncakeHeader(e.Head)
	if !ok {
		return false
	}
	pl := j.wantedAt(p.pid, addr, size, e.MonoNS)
	if pl == nil {
		return false
	}
	t := pl.t
	if t.TxStart == 0 {
		t.TxStart = stampOf(e)
	}
	t.Transport = "tcp"
	if pl.sent += int64(size); pl.sent == t.Bytes {
		t.BytesBy = Exact
	}
	j.cook.open.put(k, pl)
	return true
}

// wantedAt is the latest pull of an address and a size: pools use addresses again.
func (j *Joiner) wantedAt(sender int32, addr, size uint64, at int64) *pull {
	w := &j.cook.wanted
	for i := w.len() - 1; i >= 0; i-- {
		pl := *w.at(i)
		if pl.sender != sender || pl.told > at {
			continue
		}
		for n, a := range pl.addrs {
			if a != addr || n >= len(pl.lengths) || pl.lengths[n] != size {
				continue
			}
			if pl.t.RxEnd > 0 || pl.sent+int64(size) > pl.t.Bytes {
				return nil // it has all: the message about these bytes was not seen
			}
			return pl
		}
		if slices.Contains(pl.addrs, addr) {
			return nil // the address is another transfer's now
		}
	}
	return nil
}
