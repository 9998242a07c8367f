//go:build linux && amd64

package kernel

import (
	"encoding/binary"
	"net/netip"

	"github.com/omnitap/omnitap/probes/event"
)

// headBytes is the size of struct event of bpf/common.h.
const headBytes = 96

// calls names the system calls of Send and Recv (bpf/file.h).
var calls = [...]string{"", "write", "sendto", "sendmsg", "writev", "read", "recvfrom", "recvmsg", "readv"}

// Batch collects the events of several rings. The events are valid until the next
// Reset, what they point to belongs to whoever takes it.
type Batch struct {
	Events []event.Event
	bytes  []byte
	names  map[[16]byte]string
}

// maxKept bounds the events whose memory is kept for the next batch.
const maxKept = 1 << 14

// Reset empties the batch.
func (b *Batch) Reset() {
	clear(b.Events)
	b.Events = b.Events[:0]
	if cap(b.Events) > maxKept {
		b.Events = nil // one burst is no reason to keep its memory
	}
	if len(b.names) > 4096 {
		b.names = nil
	}
}

// Drain adds what lies in the family's ring to the batch, without waiting, and says
// whether that was all: false where a program is still filling in an event.
func (f *Family) Drain(b *Batch) (all bool) { return f.ring.drain(b.add) }

// add decodes one record.
func (b *Batch) add(r []byte) {
	if len(r) < headBytes {
		return
	}
	u16, u32, u64 := binary.NativeEndian.Uint16, binary.NativeEndian.Uint32, binary.NativeEndian.Uint64
	b.Events = append(b.Events, event.Event{
		MonoNS: int64(u64(r)), EnterNS: int64(u64(r[8:])),
		PID: int32(u32(r[16:])), TID: int32(u32(r[20:])),
		Probe: event.Probe(r[24]), More: r[25] != 0, MsgType: r[26],
		FD: int32(u32(r[28:])), Ret: int64(u64(r[32:])), Flags: int64(u64(r[40:])), Size: int64(u64(r[48:])),
		Count: int64(u64(r[56:])), Sock: u64(r[64:]),
	})
	e := &b.Events[len(b.Events)-1]
	if c := int(r[27]); c < len(calls) {
		e.Call = calls[c]
	}
	path, head, tail := int(u16(r[72:])), int(u16(r[74:])), int(u16(r[76:]))
	e.Comm = b.name([16]byte(r[80:96]))
	b.payload(e, r[headBytes:], path, head, tail)
}

const (
	messageHead = 1024 // of struct with_message
	bulkHead    = 8192 // of struct with_bulk
	tailBytes   = 64
)

// payload takes what follows the fixed part: a path, arguments, an address or bytes.
func (b *Batch) payload(e *event.Event, data []byte, path, head, tail int) {
	switch e.Probe {
	case event.SchedSample, event.Fork, event.Exit, event.Signal, event.OOMKill, event.CUDACall:
		for i := range e.Args {
			if len(data) >= 8*i+8 {
				e.Args[i] = int64(binary.NativeEndian.Uint64(data[8*i:]))
			}
		}
		return
	case event.Bind, event.Connect, event.Accept:
		e.Path = address(data[:min(head, len(data))])
		return
	case event.SockState:
		e.Path, e.Args = state(data, e.Flags)
		return
	default: // a path, or bytes
	}
	if path > 1 && path <= len(data) {
		e.Path = string(data[:path-1]) // without its zero
		return
	}
	if head > 0 && head <= len(data) {
		e.Head = b.copy(data[:head])
	}
	at := messageHead
	if len(data) >= bulkHead+tailBytes {
		at = bulkHead
	}
	if tail > 0 && head <= at && at+tail <= len(data) {
		e.Tail = b.copy(data[at : at+tail])
	}
}

// copy puts bytes into a block that is never used again: an allocation for many small
// frames.
func (b *Batch) copy(p []byte) []byte {
	if cap(b.bytes)-len(b.bytes) < len(p) {
		b.bytes = make([]byte, 0, max(blockBytes, len(p)))
	}
	n := len(b.bytes)
	b.bytes = append(b.bytes, p...)
	return b.bytes[n:len(b.bytes):len(b.bytes)]
}

// blockBytes is the size of a block of payloads: one frame that is kept keeps its
// whole block.
const blockBytes = 16 << 10

// name returns a comm as a string, the same one for the same bytes.
func (b *Batch) name(c [16]byte) string {
	if s, ok := b.names[c]; ok {
		return s
	}
	if b.names == nil {
		b.names = map[[16]byte]string{}
	}
	n := 0
	for n < len(c) && c[n] != 0 {
		n++
	}
	s := string(c[:n])
	b.names[c] = s
	return s
}

// Address families (linux/socket.h).
const (
	afUnix  = 1
	afInet  = 2
	afInet6 = 10
)

// address words a struct sockaddr: HOST:PORT, unix:PATH, unix:@NAME.
func address(p []byte) string {
	if len(p) < 2 {
		return ""
	}
	switch binary.NativeEndian.Uint16(p) {
	case afUnix:
		return unixAddress(p[2:])
	case afInet:
		if len(p) >= 8 {
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte(p[4:8])), binary.BigEndian.Uint16(p[2:])).String()
		}
	case afInet6:
		if len(p) >= 24 {
			return netip.AddrPortFrom(netip.AddrFrom16([16]byte(p[8:24])).Unmap(), binary.BigEndian.Uint16(p[2:])).String()
		}
	}
	return ""
}

func unixAddress(p []byte) string {
	if len(p) > 0 && p[0] == 0 { // abstract
		return "unix:@" + string(p[1:])
	}
	for i, c := range p {
		if c == 0 {
			return "unix:" + string(p[:i])
		}
	}
	return "unix:" + string(p)
}

// state takes what socket.bpf.c tells of a change of state: old, new, ports, addresses.
func state(p []byte, family int64) (string, [5]int64) {
	var a [5]int64
	if len(p) < 64 {
		return "", a
	}
	for i := range 4 {
		a[i] = int64(binary.NativeEndian.Uint64(p[8*i:]))
	}
	src, dst := netip.AddrFrom16([16]byte(p[32:48])).Unmap(), netip.AddrFrom16([16]byte(p[48:64])).Unmap()
	if family == afInet {
		src, dst = netip.AddrFrom4([4]byte(p[32:36])), netip.AddrFrom4([4]byte(p[48:52]))
	}
	return src.String() + " " + dst.String(), a
}
