package join

import (
	"strconv"

	"github.com/omnitap/omnitap/exporter/join/control"
	"github.com/omnitap/omnitap/probes/event"
)

// part is a message whose frames have not all come.
type part struct {
	first  int64
	frames []control.Frame
}

type partKey struct {
	pid, tid int32
	sock     uint64
	send     bool
}

// maxFrames bounds the frames of a message; tensors travel as frames of their own.
const maxFrames = 256

// message is a whole message as one process sent or received it.
type message struct {
	control.Message
	p    *process
	send bool
	// at is when it was handed to the socket, or taken from it.
	at     int64
	sock   uint64
	frames int
}

// frame takes one frame of a ZMQ message.
func (j *Joiner) frame(e *event.Event) {
	p := j.procs[e.PID]
	if p == nil || e.Ret < 0 { // EAGAIN: the call is made again
		return
	}
	p.uprobes = true
	k := partKey{e.PID, e.TID, e.Sock, e.Probe == event.ZMQSend}
	f := control.Frame{Size: e.Size, Head: e.Head, Tail: e.Tail}
	held, ok := j.parts.get(k)
	if !e.More && !ok { // the most common: one frame
		j.frames = append(j.frames[:0], f)
		j.decode(e, p, stampOf(e), j.frames)
		return
	}
	if !ok {
		held = &part{first: stampOf(e)}
		j.parts.put(k, held)
	}
	if len(held.frames) < maxFrames {
		held.frames = append(held.frames, f)
	}
	if !e.More {
		j.parts.del(k)
		j.decode(e, p, held.first, held.frames)
	}
}

// decode reads a message and hands it on. A message is sent when its first frame is
// handed over, and received when its last one is there.
func (j *Joiner) decode(e *event.Event, p *process, first int64, frames []control.Frame) {
	j.stats.Messages++
	m := message{p: p, send: e.Probe == event.ZMQSend, at: first, sock: e.Sock, frames: len(frames)}
	if !m.send {
		m.at = e.MonoNS
	}
	var ok bool
	if m.Message, ok = control.Decode(frames); !ok {
		j.stats.Unknown++
		return
	}
	j.message(&m)
}

func (j *Joiner) message(m *message) {
	switch m.Kind {
	case control.Add:
		for _, id := range m.Requests {
			j.added(m, id)
		}
	case control.Abort:
		for _, id := range m.Requests {
			j.aborted(m, id)
		}
	case control.Outputs:
		j.outputs(m)
	case control.Submit:
		for _, id := range m.Requests {
			j.added(m, id)
		}
	case control.DataReady:
		j.ready(m)
	case control.DataAck:
		j.acked(m)
	case control.Stream:
		j.streamed(m)
	case control.Complete:
		j.complete(m)
	case control.Cancel:
		for _, id := range m.Requests {
			j.aborted(m, id)
		}
	case control.Query, control.QueryFound, control.Pull, control.PullDone, control.PullMissing, control.PullFailed:
		j.pull(m)
	case control.Task, control.Result:
		j.item(m)
	default:
		// Statistics and administration are of no request.
	}
}

// added takes the message that tells a stage of a request.
func (j *Joiner) added(m *message, id string) {
	if m.send {
		if m.p.role != roleAPI {
			return
		}
		sock := m.sock ^ uint64(m.p.pid)<<32
		r := j.requests.find(j, id, m.at, max(sock, 1))
		r.socks = append(r.socks, max(sock, 1))
		if r.added == 0 || m.at < r.added {
			r.added = m.at
		}
		return
	}
	r := j.requests.find(j, id, m.at, 0)
	if s := r.stage(m.p.stage, m.p); s.got == 0 {
		s.got = m.at
	}
}

func (j *Joiner) aborted(m *message, id string) {
	for _, r := range j.requests.named(id) {
		if m.send && (r.aborted == 0 || m.at < r.aborted) {
			r.aborted = m.at
		} else if !m.send && m.p.role != roleAPI {
			if s := r.stage(m.p.stage, m.p); s.aborted == 0 {
				s.aborted = m.at
			}
		}
		r.touch(j, m.at)
	}
}

// outputs takes vLLM's answer about the requests of one step. The same message at
// the API process does not say which stage it is from.
func (j *Joiner) outputs(m *message) {
	for i := range m.Outputs {
		o := &m.Outputs[i]
		r := j.requests.find(j, o.Request, m.at, 0)
		switch {
		case m.send && m.p.role != roleAPI:
			j.output(r, m, o)
		case !m.send && m.p.role == roleAPI:
			if len(r.got) >= 2*j.cfg.Each {
				j.stats.OutputsDropped++
				continue
			}
			r.got = append(r.got, receipt{m.sock, m.at, m.WireBytes})
			j.requests.hold(j, r)
		}
	}
}

func (j *Joiner) output(r *request, m *message, o *control.Output) {
	s := r.stage(m.p.stage, m.p)
	if o.QueuedNS > 0 { // as its own clock had it
		o.QueuedNS += m.p.clock
	}
	if o.ScheduledNS > 0 {
		o.ScheduledNS += m.p.clock
	}
	if o.QueuedNS > 0 && (s.queued == 0 || o.QueuedNS < s.queued) {
		s.queued = o.QueuedNS
	}
	if o.ScheduledNS > 0 && (s.scheduled == 0 || o.ScheduledNS < s.scheduled) {
		s.scheduled = o.ScheduledNS
	}
	if o.Finished != nil && s.finished == 0 {
		s.finished = m.at
	}
	s.answer(j, r, &output{
		sent: m.at, bytes: m.WireBytes, chunk: -1, batch: int32(len(m.Outputs) + m.Unseen), tokens: int32(o.Tokens),
		payload: m.frames > 1, scheduled: o.ScheduledNS,
	})
}

func (s *stage) answer(j *Joiner, r *request, o *output) {
	if len(s.outputs) >= j.cfg.Each {
		j.stats.OutputsDropped++
		s.more++
		r.dropped = true
		return
	}
	s.outputs = append(s.outputs, *o)
	j.requests.hold(j, r)
}

// streamed takes SGLang-Omni's output chunk on its way to the client.
func (j *Joiner) streamed(m *message) {
	for _, id := range m.Requests {
		r := j.requests.find(j, id, m.at, 0)
		name, p := j.sender(m)
		s := r.stage(name, p)
		chunk := int64(-1)
		if m.Chunk != nil {
			chunk = *m.Chunk
		}
		o := s.half(chunk, m.Modality == "audio", m.send)
		if o == nil {
			s.answer(j, r, &output{chunk: chunk, bytes: m.WireBytes, payload: m.Modality == "audio", tokens: -1})
			if len(s.outputs) == 0 {
				continue
			}
			o = &s.outputs[len(s.outputs)-1]
		}
		if m.send {
			o.sent = m.at
		} else {
			o.got = m.at
		}
	}
}

// half is the output of which the other end was seen: messages may be told by their
// receiver first.
func (s *stage) half(chunk int64, payload, send bool) *output {
	for i := range s.outputs {
		o := &s.outputs[i]
		if o.chunk == chunk && o.payload == payload && (send && o.sent == 0 || !send && o.got == 0) {
			return o
		}
	}
	return nil
}

// sender is the stage that a message says it is from, else the one that sent it.
func (j *Joiner) sender(m *message) (string, *process) {
	p := j.byName[m.From]
	switch {
	case m.send && (p == nil || p.stage == m.p.stage):
		p = m.p
	case p == nil:
		return m.From, nil
	}
	if m.From != "" {
		return m.From, p
	}
	return p.stage, p
}

func (j *Joiner) complete(m *message) {
	for _, id := range m.Requests {
		r := j.requests.find(j, id, m.at, 0)
		name, p := j.sender(m)
		s := r.stage(name, p)
		if m.send || s.finished == 0 {
			s.finished = m.at
		}
		if !m.send {
			r.completed = max(r.completed, m.at)
		}
	}
}

// stageName is the name of a stage that a message tells by number or by name.
func (j *Joiner) stageName(p *process, word string) string {
	n, err := strconv.Atoi(word)
	if err != nil || n < 0 {
		return word
	}
	if s := j.numbered(p, n); s != nil {
		return s.stage
	}
	return "stage " + word
}
