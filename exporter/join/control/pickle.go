package control

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"
)

// Limits of what is looked at in a pickle.
const (
	maxPickle = 4096
	maxMemo   = 256
)

// isPickle says whether b begins like a pickle of protocol 2 to 5, the ones that
// multiprocessing has used.
func isPickle(b []byte) bool {
	return len(b) >= 2 && b[0] == 0x80 && b[1] >= 2 && b[1] <= 5
}

// pickle reads a queue item: vLLM-Omni's first generation to and from a stage,
// SGLang-Omni's from the first rank of a stage to the others.
func (m *Message) pickle(b []byte) bool {
	p := pickle{b: b[:min(len(b), maxPickle)], i: 2}
	s := queueItem{m: m}
	for p.step() {
		s.pushed(&p)
	}
	// An item whose kind would stand in the bytes that are missing is not guessed.
	return len(m.Requests) > 0 && (s.decided || p.done)
}

// queueItem gathers the known keys of an item: a key is a string that is pushed right
// before its value.
type queueItem struct {
	m   *Message
	key []byte
	// decided says that what stands behind the first request was seen.
	decided bool
	// last is the string that was pushed last, whatever came behind it.
	last []byte
}

func (q *queueItem) pushed(p *pickle) {
	if !p.pushed {
		if !p.memoized {
			q.key = nil
		}
		return
	}
	key := q.key
	q.key = p.text
	if q.m.Kind == Unknown {
		q.m.Kind = Task
	}
	if p.text != nil {
		if string(p.text) == "abort" && !q.decided && q.types(key) {
			q.m.Kind = Abort
		}
		q.word(p.text)
		q.last = p.text
	}
	switch string(key) {
	case "request_id":
		q.request(p.text)
	case "stage_id":
		if q.m.Kind == Result && q.m.From == "" {
			q.m.From = p.name()
		}
	case "from_stage":
		q.m.From = p.name()
	case "to_stage":
		q.m.To = p.name()
	case "size":
		if q.m.Segment != "" && q.m.Bytes == nil && p.text == nil && p.number >= 0 {
			n := p.number
			q.m.Bytes = &n
		}
	}
}

// types says whether what is pushed is the value of type, be it a word or one of
// OmniStageTaskType's (entrypoints/stage_utils.py of vLLM-Omni 0.11 to 0.14), whose
// class is named right before it.
func (q *queueItem) types(key []byte) bool {
	return string(key) == "type" || string(q.last) == "OmniStageTaskType"
}

// word looks at a string by itself: the one behind the first request tells an item
// from a stage from one to it.
func (q *queueItem) word(s []byte) {
	if q.m.Segment == "" && isRandom(s) {
		q.m.Segment = string(s)
	}
	if q.decided || len(q.m.Requests) == 0 {
		return
	}
	q.decided = true
	switch string(s) {
	case "stage_id", "engine_outputs", "engine_outputs_shm":
		q.m.Kind = Result
	}
}

func (q *queueItem) request(id []byte) {
	if !readable(id) || len(q.m.Requests) == maxNames {
		return
	}
	if !slices.Contains(q.m.Requests, string(id)) {
		q.m.Requests = append(q.m.Requests, string(id))
	}
}

// pickle walks over the operations of a pickle, without building what they say.
type pickle struct {
	b []byte
	i int
	// text is the string that the last step pushed, nil where it pushed none; number
	// the whole number, or -1.
	text   []byte
	number int64
	// pushed says that the last step pushed a value, memoized that it only stored one.
	pushed, memoized bool
	// done says that the end was seen.
	done bool

	// memo holds the strings that were stored, top the one that was pushed last, saved
	// how many values were stored.
	memo  [maxMemo]span
	top   span
	saved int
}

// span is a string in the pickle: its place, and 0 for none.
type span struct{ from, to uint16 }

// name is a pushed string or number as a stage's name.
func (p *pickle) name() string {
	switch {
	case readable(p.text):
		return string(p.text)
	case p.text == nil && p.number >= 0:
		return strconv.FormatInt(p.number, 10)
	}
	return ""
}

// What an operation's argument is: a fixed number of bytes (the value itself), or a
// length of so many bytes in front of the bytes.
const (
	opFixed   = 0x00
	opSized   = 0x10
	opPush    = 0x20
	opText    = 0x40
	opUnknown = 0xff
	opBytes   = 0x0f
)

// ops says by operation what follows it and whether it pushes a value, or a string.
// The operations of protocol 0, whose arguments are lines, end the walk, but for a
// class by name.
var ops = func() (t [256]uint8) {
	for i := range t {
		t[i] = opUnknown
	}
	for _, op := range []byte("()}]tlaesubRdN012Qoc.\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x93\x94\x97\x98") {
		t[op] = opFixed
	}
	for _, op := range []byte("N\x88\x89") {
		t[op] = opPush
	}
	for op, n := range map[byte]uint8{'K': 1, 'M': 2, 'J': 4, 'G': 8, 'h': 1, 'j': 4} {
		t[op] = opPush | n
	}
	for op, n := range map[byte]uint8{'q': 1, 'r': 4, 0x80: 1, 0x95: 8, 0x82: 1, 0x83: 2, 0x84: 4} {
		t[op] = opFixed | n
	}
	for op, n := range map[byte]uint8{'C': 1, 'B': 4, 0x8e: 8, 0x96: 8, 'U': 1, 'T': 4, 0x8a: 1, 0x8b: 4} {
		t[op] = opPush | opSized | n
	}
	for op, n := range map[byte]uint8{0x8c: 1, 'X': 4, 0x8d: 8} {
		t[op] = opPush | opSized | opText | n
	}
	return t
}()

// step does one operation; it says false at the end, and where the bytes end in it.
func (p *pickle) step() bool {
	p.text, p.number, p.pushed, p.memoized = nil, -1, false, false
	top := p.top
	p.top = span{}
	if p.i >= len(p.b) {
		return false
	}
	op := p.b[p.i]
	what := ops[op]
	n := int(what & opBytes)
	p.i++
	if what == opUnknown || len(p.b)-p.i < n {
		return false
	}
	arg := little(p.b[p.i : p.i+n])
	p.i += n
	if what&opSized != 0 {
		if arg > uint64(len(p.b)-p.i) {
			return false
		}
		if what&opText != 0 {
			p.text = p.b[p.i : p.i+int(arg)]
			p.top = span{uint16(p.i), uint16(p.i + int(arg))}
		}
		p.i += int(arg)
	}
	p.pushed = what&opPush != 0
	switch op {
	case 'c':
		return p.lines(2)
	case '.':
		p.done = true
		return false
	case 'K', 'M', 'J':
		p.number = int64(int32(arg))
	case 'h', 'j':
		p.text = p.recall(arg)
	case 'q', 'r':
		p.store(arg, top)
	case 0x94:
		p.store(uint64(p.saved), top)
	}
	return true
}

// lines leaves n lines behind: a class by name has two.
func (p *pickle) lines(n int) bool {
	for ; n > 0; n-- {
		end := bytes.IndexByte(p.b[p.i:], '\n')
		if end < 0 {
			return false
		}
		p.i += end + 1
	}
	return true
}

func little(b []byte) uint64 {
	var full [8]byte
	copy(full[:], b)
	return binary.LittleEndian.Uint64(full[:])
}

// store puts the string that the step before pushed, if it did, into the memo.
func (p *pickle) store(at uint64, top span) {
	p.memoized = true
	p.saved++
	if at < maxMemo {
		p.memo[at] = top
	}
}

func (p *pickle) recall(at uint64) []byte {
	if at >= maxMemo {
		return nil
	}
	s := p.memo[at]
	if s.to == 0 {
		return nil
	}
	return p.b[s.from:s.to]
}
