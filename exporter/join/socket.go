package join

import (
	"github.com/omnitap/omnitap/exporter/join/control"
	"github.com/omnitap/omnitap/probes/event"
)

// pipes is what is known of sockets of processes whose libzmq shows no messages.
type pipes struct {
	streams table[streamKey, *control.Zmtp]
}

type streamKey struct {
	pid, fd int32
	send    bool
}

func newPipes() pipes {
	return pipes{newTable[streamKey, *control.Zmtp](1024)}
}

// socket takes a system call on a socket or a pipe.
func (j *Joiner) socket(e *event.Event) {
	p := j.procs[e.PID]
	if p == nil || e.Ret <= 0 || len(e.Head) == 0 {
		return
	}
	switch e.Call {
	case "write", "read", "writev", "readv":
		if e.Ret > 8 { // an eventfd's is 8
			j.queued(e, p)
		}
	default:
		if !j.wire(e, p) && !p.uprobes {
			j.zmtp(e, p)
		}
	}
}

// opened takes a new connection: its bytes begin anew.
func (j *Joiner) opened(e *event.Event) {
	fd := e.FD
	if e.Probe == event.Accept && e.Ret > 0 {
		fd = int32(e.Ret)
	}
	for _, send := range [...]bool{false, true} {
		j.pipes.streams.del(streamKey{e.PID, fd, send})
	}
	j.cook.open.del(fdKey{e.PID, fd})
}

// zmtp puts messages together from socket calls. They are sent by a thread of
// libzmq's own, some time after they were handed to it.
func (j *Joiner) zmtp(e *event.Event, p *process) {
	k := streamKey{e.PID, e.FD, e.Probe == event.Send}
	z, ok := j.pipes.streams.get(k)
	if !ok {
		z = new(control.Zmtp)
		j.pipes.streams.put(k, z)
	}
	z.Feed(e.Head, e.Tail, e.Ret, func(frames []control.Frame) {
		j.whole(e, p, frames, z.Cut())
	})
}

// unknownBytes is the size of a message that was not seen whole: no receipt is told by it.
const unknownBytes = -1

// queued takes a call on a pipe that may be a queue item.
func (j *Joiner) queued(e *event.Event, p *process) {
	j.frames = append(j.frames[:0], control.Frame{Size: e.Ret, Head: e.Head, Tail: e.Tail})
	msg, ok := control.Decode(j.frames)
	if !ok {
		return
	}
	switch msg.Kind {
	case control.Task, control.Result, control.Abort:
	default:
		return // what else looks like a message here is none
	}
	j.stats.Messages++
	j.hand(e, p, &msg, 1)
}

// whole takes a message that socket calls carried. One that is cut has frames, of a
// length that is not known, behind those that were seen.
func (j *Joiner) whole(e *event.Event, p *process, frames []control.Frame, cut bool) {
	j.stats.Messages++
	msg, ok := control.Decode(frames)
	if !ok {
		j.stats.Unknown++
		return
	}
	n := len(frames)
	if cut {
		n, msg.WireBytes = n+1, unknownBytes
	}
	j.hand(e, p, &msg, n)
}

func (j *Joiner) hand(e *event.Event, p *process, msg *control.Message, frames int) {
	m := message{Message: *msg, p: p, send: e.Probe == event.Send, at: stampOf(e), sock: uint64(e.FD) + 1, frames: frames}
	if !m.send {
		m.at = e.MonoNS
	}
	j.message(&m)
}
