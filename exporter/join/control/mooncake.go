package control

import (
	"bytes"
	"encoding/binary"
)

// The words of the side channel of vLLM-Omni's Mooncake transfer engine connector.
const (
	wordQuery   = "query_info"
	wordDone    = "trans_done"
	wordFailed  = "trans_error"
	wordMissing = "info_not_found"
)

// side reads a frame that begins with one of the words.
func (m *Message) side(b []byte, size int64) bool {
	if rest, ok := bytes.CutPrefix(b, []byte(wordQuery)); ok {
		r := reader{b: rest}
		m.Kind = Query
		n, ok := r.mapping()
		if !ok && len(rest) > 0 {
			return false
		}
		m.pull(&r, n)
		return true
	}
	if size != int64(len(b)) {
		return false
	}
	switch string(b) {
	case wordDone:
		m.Kind = PullDone
	case wordFailed:
		m.Kind = PullFailed
	case wordMissing:
		m.Kind = PullMissing
	}
	return m.Kind != Unknown
}

// sideMap reads a map without a type: the pull message, or the answer to a query.
func (m *Message) sideMap(b []byte) bool {
	r := reader{b: b}
	n, _ := r.mapping()
	m.pull(&r, n)
	return m.Kind != Unknown
}

// pull reads the fields of the side channel's maps; the field that only one of them
// has says which it is, where it is not known before.
func (m *Message) pull(r *reader, n int) {
	for ; n > 0 && !r.over; n-- {
		key, _ := r.str()
		switch string(key) {
		case "request_id":
			m.Key, _ = r.text()
		case "remote_hostname":
			m.Host, _ = r.text()
			m.Kind = Pull
		case "remote_port":
			m.Port, _ = r.integer()
		case "dst_addrs":
			m.Addrs = unsigneds(r)
		case "lengths":
			m.Lengths = unsigneds(r)
		case "data_size":
			m.Kind, m.Bytes = QueryFound, size(r)
		default:
			r.skip(1)
		}
	}
}

func unsigneds(r *reader) []uint64 {
	n, _ := r.array()
	if n == 0 {
		return nil
	}
	list := make([]uint64, 0, min(n, len(r.b)-r.i, maxNames))
	for ; n > 0 && !r.over; n-- {
		if v, ok := r.unsigned(); ok && len(list) < maxNames {
			list = append(list, v)
		}
	}
	return list
}

// The operations of Mooncake's TCP header. Versions from 0.3.13 set the high bit.
const (
	mooncakeRead  = 0
	mooncakeWrite = 1
	mooncakeNew   = 0x80
)

// MooncakeHeader reads the header of a transfer over TCP, little-endian: bytes,
// address at the receiver, operation (0x81 or 0x01 a write from the sender of the
// header, 0x80 or 0x00 a read by it), seven zeros. It is sent in a call of its own;
// anything else is not ok.
func MooncakeHeader(head []byte) (size, addr uint64, op byte, ok bool) {
	if len(head) != 24 || binary.LittleEndian.Uint64(head[16:])>>8 != 0 {
		return 0, 0, 0, false
	}
	size, addr, op = binary.LittleEndian.Uint64(head), binary.LittleEndian.Uint64(head[8:]), head[16]
	if bare := op &^ mooncakeNew; bare != mooncakeRead && bare != mooncakeWrite {
		return 0, 0, 0, false
	}
	// No process has the first page, nor addresses of more than 57 bits.
	if size == 0 || size > 1<<48 || addr < 1<<12 || addr >= 1<<57 {
		return 0, 0, 0, false
	}
	return size, addr, op, true
}

// MooncakeAck reads the receiver's answer to a write, from version 0.3.13 on: the
// status, 0 for success, and the mark VTCM.
func MooncakeAck(head []byte) (status uint32, ok bool) {
	if len(head) != 8 || string(head[4:]) != "VTCM" {
		return 0, false
	}
	return binary.LittleEndian.Uint32(head), true
}
