// Package pickle writes and reads the queue items of vLLM-Omni's first generation:
// dictionaries in Python's pickle protocol 4, in the frames of a
// multiprocessing.Connection. It writes what CPython writes for plain values and reads
// no more than that, and members of enumerations: no other classes, no references but to
// what a dictionary repeats.
package pickle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Dict is a dictionary in its order. Values are nil, bool, int, float64, string,
// []byte, Enum and Dict.
type Dict []Item

// Enum is a member of an enumeration by its value, a string.
type Enum struct{ Module, Class, Value string }

// Item is one entry.
type Item struct {
	Key   string
	Value any
}

// Get returns the value of a key, nil where there is none.
func (d Dict) Get(key string) any {
	for _, it := range d {
		if it.Key == key {
			return it.Value
		}
	}
	return nil
}

// Str returns a string's value, empty where there is none.
func (d Dict) Str(key string) string { s, _ := d.Get(key).(string); return s }

// Int returns a number's value, 0 where there is none.
func (d Dict) Int(key string) int { n, _ := d.Get(key).(int); return n }

// The opcodes of protocol 4 that are used.
const (
	opProto      = 0x80
	opFrame      = 0x95
	opMark       = '('
	opStop       = '.'
	opDict       = '}'
	opSetItem    = 's'
	opSetItems   = 'u'
	opMemoize    = 0x94
	opNone       = 'N'
	opTrue       = 0x88
	opFalse      = 0x89
	opInt1       = 'K'
	opInt2       = 'M'
	opInt4       = 'J'
	opLong1      = 0x8a
	opFloat      = 'G'
	opShortStr   = 0x8c
	opStr        = 'X'
	opShortBytes = 'C'
	opBytes      = 'B'
	opGlobal     = 0x93
	opTuple1     = 0x85
	opReduce     = 'R'

	protocol = 4
	// batch is how many items CPython writes behind one mark.
	batch = 1000
)

// Encode returns the pickle of a dictionary. A value of another type than Dict names
// is written as None.
func Encode(d Dict) []byte {
	body := append(appendDict(nil, d), opStop)
	b := []byte{opProto, protocol, opFrame}
	b = binary.LittleEndian.AppendUint64(b, uint64(len(body)))
	return append(b, body...)
}

func appendDict(b []byte, d Dict) []byte {
	b = append(b, opDict, opMemoize)
	for len(d) > 0 {
		part := d[:min(len(d), batch)]
		d = d[len(part):]
		if len(part) == 1 {
			b = append(appendItem(b, part[0]), opSetItem)
			continue
		}
		b = append(b, opMark)
		for _, it := range part {
			b = appendItem(b, it)
		}
		b = append(b, opSetItems)
	}
	return b
}

func appendItem(b []byte, it Item) []byte { return appendValue(appendValue(b, it.Key), it.Value) }

func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case bool:
		if v {
			return append(b, opTrue)
		}
		return append(b, opFalse)
	case int:
		return appendInt(b, v)
	case float64:
		return binary.BigEndian.AppendUint64(append(b, opFloat), math.Float64bits(v))
	case string:
		return append(appendSized(b, opShortStr, opStr, v), opMemoize)
	case []byte:
		return append(appendSized(b, opShortBytes, opBytes, string(v)), opMemoize)
	case Enum:
		b = append(appendValue(appendValue(b, v.Module), v.Class), opGlobal, opMemoize)
		return append(appendValue(b, v.Value), opTuple1, opMemoize, opReduce, opMemoize)
	case Dict:
		return appendDict(b, v)
	}
	return append(b, opNone)
}

func appendInt(b []byte, v int) []byte {
	switch {
	case v >= 0 && v < 1<<8:
		return append(b, opInt1, byte(v))
	case v >= 0 && v < 1<<16:
		return binary.LittleEndian.AppendUint16(append(b, opInt2), uint16(v))
	case v >= math.MinInt32 && v <= math.MaxInt32:
		return binary.LittleEndian.AppendUint32(append(b, opInt4), uint32(int32(v)))
	}
	return binary.LittleEndian.AppendUint64(append(b, opLong1, 8), uint64(v))
}

func appendSized(b []byte, short, long byte, s string) []byte {
	if len(s) < 1<<8 {
		b = append(b, short, byte(len(s)))
	} else {
		b = binary.LittleEndian.AppendUint32(append(b, long), uint32(len(s)))
	}
	return append(b, s...)
}

// ErrFormat says that bytes are no pickle, or one with more in it than is read here.
var ErrFormat = errors.New("no pickle of plain values")

// Decode reads what Encode wrote. Byte strings are copied.
func Decode(b []byte) (Dict, error) {
	m := machine{in: b}
	v, err := m.run()
	if err != nil {
		return nil, fmt.Errorf("%w: %w at byte %d", ErrFormat, err, len(b)-len(m.in))
	}
	d, ok := v.(Dict)
	if !ok {
		return nil, fmt.Errorf("%w: a %T and no dictionary", ErrFormat, v)
	}
	return d, nil
}

// mark is the opcode's own value on the stack.
type mark struct{}

type machine struct {
	in    []byte
	stack []any
}

var errEnd = errors.New("the end comes too soon")

func (m *machine) next(n int) ([]byte, error) {
	if n < 0 || n > len(m.in) {
		return nil, errEnd
	}
	b := m.in[:n]
	m.in = m.in[n:]
	return b, nil
}

func (m *machine) run() (any, error) {
	for {
		op, err := m.next(1)
		if err != nil {
			return nil, err
		}
		if op[0] == opStop {
			return m.result()
		}
		if err := m.step(op[0]); err != nil {
			return nil, err
		}
	}
}

func (m *machine) result() (any, error) {
	if len(m.stack) != 1 {
		return nil, fmt.Errorf("%d values are left", len(m.stack))
	}
	return m.stack[0], nil
}

func (m *machine) push(v any) { m.stack = append(m.stack, v) }

func (m *machine) step(op byte) error {
	switch op {
	case opProto:
		_, err := m.next(1)
		return err
	case opFrame:
		_, err := m.next(8)
		return err
	case opMemoize:
		return nil
	case opMark:
		m.push(mark{})
	case opDict:
		m.push(Dict(nil))
	case opNone:
		m.push(nil)
	case opTrue, opFalse:
		m.push(op == opTrue)
	case opSetItem:
		return m.set(len(m.stack) - 2)
	case opSetItems:
		return m.set(m.marked() + 1)
	case opShortStr, opStr, opShortBytes, opBytes:
		return m.sized(op)
	case opGlobal, opTuple1, opReduce:
		return m.enum(op)
	default:
		return m.number(op)
	}
	return nil
}

// class and tuple are what an Enum is made of on the way.
type (
	class struct{ module, name string }
	tuple struct{ value string }
)

// enum does a step on the way to an Enum.
func (m *machine) enum(op byte) error {
	n := len(m.stack)
	if op == opTuple1 {
		if n > 0 {
			if s, ok := m.stack[n-1].(string); ok {
				m.stack[n-1] = tuple{s}
				return nil
			}
		}
		return errors.New("no string to make a tuple of")
	}
	if n < 2 {
		return errEnd
	}
	var v any
	switch a := m.stack[n-2].(type) {
	case string:
		if name, ok := m.stack[n-1].(string); ok && op == opGlobal {
			v = class{a, name}
		}
	case class:
		if t, ok := m.stack[n-1].(tuple); ok && op == opReduce {
			v = Enum{a.module, a.name, t.value}
		}
	}
	if v == nil {
		return errors.New("no member of an enumeration")
	}
	m.stack = append(m.stack[:n-2], v)
	return nil
}

// marked is where the last mark stands, -1 without one.
func (m *machine) marked() int {
	for i, v := range slices.Backward(m.stack) {
		if _, ok := v.(mark); ok {
			return i
		}
	}
	return -1
}

// set moves the pairs from first on into the dictionary below them (and the mark).
func (m *machine) set(first int) error {
	at := first - 1
	if at >= 0 && at < len(m.stack) {
		if _, ok := m.stack[at].(mark); ok {
			at--
		}
	}
	if at < 0 || (len(m.stack)-first)%2 != 0 {
		return errors.New("no dictionary to set items in")
	}
	d, ok := m.stack[at].(Dict)
	if !ok {
		return errors.New("no dictionary to set items in")
	}
	for pairs := m.stack[first:]; len(pairs) > 0; pairs = pairs[2:] {
		key, ok := pairs[0].(string)
		if !ok {
			return fmt.Errorf("a key is a %T", pairs[0])
		}
		if _, ok := pairs[1].(mark); ok {
			return errors.New("a mark is no value")
		}
		d = append(d, Item{key, pairs[1]})
	}
	m.stack = append(m.stack[:at], d)
	return nil
}

func (m *machine) sized(op byte) error {
	size := 1
	if op == opStr || op == opBytes {
		size = 4
	}
	b, err := m.next(size)
	if err != nil {
		return err
	}
	if b, err = m.next(little(b)); err != nil {
		return err
	}
	if op == opStr || op == opShortStr {
		m.push(string(b))
	} else {
		m.push(append([]byte{}, b...))
	}
	return nil
}

func little(b []byte) (n int) {
	for i, c := range b {
		n |= int(c) << (8 * i)
	}
	return n
}

func (m *machine) number(op byte) error {
	size, ok := map[byte]int{opInt1: 1, opInt2: 2, opInt4: 4, opLong1: 9, opFloat: 8}[op]
	if !ok {
		return fmt.Errorf("opcode %#02x", op)
	}
	b, err := m.next(size)
	if err != nil {
		return err
	}
	switch op {
	case opInt4:
		m.push(int(int32(binary.LittleEndian.Uint32(b))))
	case opLong1:
		if b[0] != 8 {
			return fmt.Errorf("a number of %d bytes", b[0])
		}
		m.push(int(binary.LittleEndian.Uint64(b[1:])))
	case opFloat:
		m.push(math.Float64frombits(binary.BigEndian.Uint64(b)))
	default:
		m.push(little(b))
	}
	return nil
}
