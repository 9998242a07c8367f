package join

import (
	"strings"

	"github.com/omnitap/omnitap/exporter/join/control"
)

// relayKey finds a transfer that messages tell of: by SGLang-Omni's object id, or,
// where there is none, by request, edge and chunk.
type relayKey struct {
	object, request, from, to string
	chunk                     int64
}

func keyOf(m *message, id string) relayKey {
	if m.Object != "" {
		return relayKey{object: m.Object}
	}
	k := relayKey{request: id, from: m.From, to: m.To, chunk: -1}
	if m.Chunk != nil {
		k.chunk = *m.Chunk
	}
	return k
}

// ready takes SGLang-Omni's announcement of a transfer, at either end. One without a
// reference is the end of a stream and moves nothing.
func (j *Joiner) ready(m *message) {
	if m.RefType == "" && m.Segment == "" && m.Object == "" && m.Bytes == nil || len(m.Requests) == 0 {
		return
	}
	id := m.Requests[0]
	t := j.announced(m, keyOf(m, id))
	if t.Request == "" {
		t.Request = id
		t.From, t.To = m.From, m.To
		if m.Chunk != nil {
			t.Chunk = *m.Chunk
		}
		t.Object, t.MessageBytes = m.Object, m.WireBytes
		t.Transport = transportOf(m)
		if m.Bytes != nil && t.Bytes < 0 && t.Transport != "inline" {
			t.Bytes, t.BytesBy = *m.Bytes, ControlPlane
		}
		if m.Segment != "" {
			t.Key = m.Segment
		}
	}
	j.ends(t, m)
	r := j.requests.find(j, id, m.at, 0)
	j.own(t, r)
	r.stage(t.From, j.byName[t.From])
	t.grade(false)
}

// ends notes the end that a message was seen at.
func (j *Joiner) ends(t *Transfer, m *message) {
	if m.send {
		t.Announced = m.at
		if t.FromPID == 0 {
			t.FromPID = m.p.pid
		}
		return
	}
	t.Heard, t.Unread = m.at, false
	if t.ToPID == 0 {
		t.ToPID = m.p.pid
	}
	if t.Transport != "shm" && t.RxStart == 0 {
		t.RxStart = m.at
	}
}

// announced is the transfer of a message. The same object or chunk told twice by one
// end is another one: an id was used again.
func (j *Joiner) announced(m *message, k relayKey) *Transfer {
	t, ok := j.relays.get(k)
	if ok && (m.send && t.Announced == 0 || !m.send && t.Heard == 0) {
		return t
	}
	if t = nil; m.Segment != "" {
		if t, _ = j.shm.random.get(m.Segment); t != nil && t.Request != "" {
			t = nil
		}
	}
	if t == nil {
		t = newTransfer("shm")
		t.Unread = true
		if m.Segment != "" {
			j.shm.random.put(m.Segment, t)
		}
	}
	j.relays.put(k, t)
	return t
}

func transportOf(m *message) string {
	switch {
	case m.Segment != "":
		return "shm"
	case strings.HasPrefix(m.RefType, "Inline"):
		return "inline"
	case strings.HasPrefix(m.RefType, "TorchCudaIpc"):
		return "cuda_ipc"
	case m.Transport != "":
		return m.Transport
	}
	return "unknown"
}

// acked takes the receiver's message that it is done with an object.
func (j *Joiner) acked(m *message) {
	if m.Object == "" {
		return
	}
	t, ok := j.relays.get(relayKey{object: m.Object})
	if !ok || m.Success != nil && !*m.Success {
		return
	}
	if !m.send {
		t.Acked = m.at
	} else if t.RxEnd == 0 && t.Transport != "shm" {
		t.RxEnd, t.EndBy = m.at, Ack
	}
	if t.owner != nil {
		t.owner.touch(j, m.at)
	}
}

// itemWay is one end of the way of a request's queue items. The sender of a task does
// not say whom it is for.
type itemWay struct {
	kind control.Kind
	from string
	send bool
}

// itemObject tells the keys of items from those of objects.
var itemObject = map[control.Kind]string{control.Task: "a task of", control.Result: "a result of"}

// nth numbers a request's items of a way: a stage answers step by step, and a pipe
// keeps the order of what goes through it.
func (r *request) nth(m *message, from string) int64 {
	if r.items == nil {
		r.items = make(map[itemWay]int64)
	}
	w := itemWay{m.Kind, from, m.send}
	n := r.items[w]
	r.items[w] = n + 1
	return n
}

// item takes a queue item of vLLM-Omni's first generation: the orchestrator forwards
// what one stage made to the next, in shared memory that the item names, or in the
// item itself.
func (j *Joiner) item(m *message) {
	if len(m.Requests) == 0 {
		return
	}
	id := m.Requests[0]
	if m.Kind == control.Task && m.send && m.p.role == roleAPI && m.From == "" && m.Segment == "" {
		j.added(m, id)
	}
	from, to := j.stageName(m.p, m.From), j.stageName(m.p, m.To)
	if from == "" && (m.Kind == control.Task || m.send) {
		if from = roleAPI; m.Kind == control.Result {
			from = m.p.stage
		}
	}
	if to == "" && (m.Kind == control.Result || !m.send) {
		if to = roleAPI; m.Kind == control.Task {
			to = m.p.stage
		}
	}
	r := j.requests.find(j, id, m.at, 0)
	k := relayKey{object: m.Segment}
	if m.Segment == "" {
		k = relayKey{object: itemObject[m.Kind], request: id, from: from, chunk: r.nth(m, from)}
	}
	if m.Kind == control.Task && !m.send && m.p.role != roleAPI {
		if s := r.stage(m.p.stage, m.p); s.got == 0 {
			s.got = m.at
		}
	}
	t := j.announced(m, k)
	if t.Request == "" {
		t.Request, t.From, t.To, t.MessageBytes = id, from, to, m.WireBytes
		t.forwarded = m.Kind == control.Task
		t.Transport = "queue"
		if m.Segment != "" {
			t.Transport, t.Key = "shm", m.Segment
		}
		if m.Bytes != nil && t.Bytes < 0 && m.Segment != "" {
			t.Bytes, t.BytesBy = *m.Bytes, ControlPlane
		}
	}
	if t.To == "" {
		t.To = to
	}
	j.ends(t, m)
	j.own(t, r)
	t.grade(false)
}
