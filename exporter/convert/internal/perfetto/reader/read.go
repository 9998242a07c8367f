// Package reader reads the traces that tests made, strictly: what a trace's reader would
// have to guess, forgive or drop is an error. It knows the messages by their numbers in
// Perfetto's protos, apart from the writer.
//
// Out of scope: traces of others.
package reader

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Track is a described track.
type Track struct {
	UUID, Parent  uint64
	Name, Unit    string
	PID           int64
	Events        []Event // in order of time
	parentTrack   *Track
	rank, counter int64
}

// Path is the names of the tracks above, and its own.
func (t *Track) Path() string {
	if t.parentTrack == nil {
		return t.Name
	}
	return t.parentTrack.Path() + " / " + t.Name
}

// Event is one event. Dur is the length of a slice, 0 for a mark or a counter.
type Event struct {
	At, Dur int64
	Kind    string // slice, mark, counter
	Name    string
	Value   float64
	Flow    uint64
	FlowEnd bool
	Args    map[string]any
}

// Trace is what was read.
type Trace struct {
	Tracks []*Track // as they were described
	// Clocks maps clocks to the time of the one snapshot; Primary is the trace's own.
	Clocks  map[uint64]int64
	Primary uint64
	Packets int
	by      map[uint64]*Track
}

// Read reads a trace and checks it.
func Read(r io.Reader) (*Trace, error) {
	t := &Trace{by: map[uint64]*Track{}}
	in := bufio.NewReader(r)
	for {
		packet, err := next(in)
		if errors.Is(err, io.EOF) {
			return t, t.finish()
		}
		if err == nil {
			err = t.packet(packet)
		}
		if err != nil {
			return nil, fmt.Errorf("packet %d: %w", t.Packets, err)
		}
		t.Packets++
	}
}

func next(in *bufio.Reader) ([]byte, error) {
	tag, err := in.ReadByte()
	if err != nil {
		return nil, err
	}
	if tag != 1<<3|byte(protowire.BytesType) {
		return nil, fmt.Errorf("tag %#x is no packet", tag)
	}
	size, shift := 0, 0
	for {
		b, err := in.ReadByte()
		if err != nil {
			return nil, io.ErrUnexpectedEOF
		}
		size |= int(b&0x7f) << shift
		if shift += 7; b < 0x80 {
			break
		}
	}
	p := make([]byte, size)
	if _, err := io.ReadFull(in, p); err != nil {
		return nil, io.ErrUnexpectedEOF
	}
	return p, nil
}

// value is one field of a message.
type value struct {
	n uint64
	b []byte
}

// message reads fields, each of which must be known and have the type that it is known by.
func message(b []byte, types map[protowire.Number]protowire.Type, use func(protowire.Number, value) error) error {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if want, ok := types[field]; !ok || want != kind {
			return fmt.Errorf("field %d of wire type %d is not known", field, kind)
		}
		b = b[n:]
		var v value
		switch kind {
		case protowire.VarintType:
			v.n, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			v.n, n = protowire.ConsumeFixed64(b)
		default:
			v.b, n = protowire.ConsumeBytes(b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if err := use(field, v); err != nil {
			return err
		}
	}
	return nil
}

const (
	varint = protowire.VarintType
	fixed  = protowire.Fixed64Type
	block  = protowire.BytesType
)

type types = map[protowire.Number]protowire.Type

func (t *Trace) packet(b []byte) error {
	var at, sequence uint64
	var body []byte
	var kind protowire.Number
	err := message(b, types{6: block, 8: varint, 10: varint, 11: block, 60: block}, func(f protowire.Number, v value) error {
		switch f {
		case 8:
			at = v.n
		case 10:
			sequence = v.n
		default:
			if body != nil {
				return errors.New("two things in one packet")
			}
			kind, body = f, v.b
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case sequence == 0:
		return errors.New("no sequence: its events are dropped")
	case kind == 6:
		return t.clocks(body)
	case kind == 60:
		return t.track(body)
	case kind == 11 && at == 0:
		return errors.New("an event without a time")
	case kind == 11:
		return t.event(int64(at), body)
	}
	return errors.New("an empty packet")
}

func (t *Trace) clocks(b []byte) error {
	if t.Clocks != nil || t.Packets != 0 {
		return errors.New("clocks are said once, and first")
	}
	t.Clocks = map[uint64]int64{}
	return message(b, types{1: block, 2: varint}, func(f protowire.Number, v value) error {
		if f == 2 {
			t.Primary = v.n
			return nil
		}
		var id uint64
		return message(v.b, types{1: varint, 2: varint}, func(f protowire.Number, v value) error {
			if f == 1 {
				id = v.n
			} else {
				t.Clocks[id] = int64(v.n)
			}
			return nil
		})
	})
}

func (t *Trace) track(b []byte) error {
	k := &Track{}
	err := message(b, types{1: varint, 2: block, 3: block, 5: varint, 8: block, 11: varint, 12: varint}, func(f protowire.Number, v value) error {
		switch f {
		case 1:
			k.UUID = v.n
		case 2:
			k.Name = string(v.b)
		case 3:
			return message(v.b, types{1: varint, 6: block}, func(f protowire.Number, v value) error {
				if f == 1 {
					k.PID = int64(v.n)
				} else {
					k.Name = string(v.b)
				}
				return nil
			})
		case 5:
			k.Parent = v.n
		case 8:
			k.counter = 1
			return message(v.b, types{6: block}, func(_ protowire.Number, v value) error { k.Unit = string(v.b); return nil })
		case 12:
			k.rank = int64(v.n)
		default: // the order of its children, for the eye alone
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case k.UUID == 0 || k.Name == "":
		return fmt.Errorf("a track without a name or number: %+v", k)
	case t.by[k.UUID] != nil:
		return fmt.Errorf("track %q is described twice", k.Name)
	case k.Parent == 0 && k.PID == 0:
		return fmt.Errorf("track %q is below no process", k.Name)
	case k.Parent != 0 && t.by[k.Parent] == nil:
		return fmt.Errorf("track %q comes ahead of the one above it", k.Name)
	}
	k.parentTrack = t.by[k.Parent]
	t.by[k.UUID] = k
	t.Tracks = append(t.Tracks, k)
	return nil
}

func (t *Trace) event(at int64, b []byte) error {
	e := Event{At: at, Args: map[string]any{}}
	var kind, track uint64
	flows := 0
	err := message(b, types{4: block, 9: varint, 11: varint, 23: block, 44: fixed, 47: fixed, 48: fixed}, func(f protowire.Number, v value) error {
		switch f {
		case 4:
			return e.arg(v.b)
		case 9:
			kind = v.n
		case 11:
			track = v.n
		case 23:
			e.Name = string(v.b)
		case 44:
			e.Value = math.Float64frombits(v.n)
		default:
			e.Flow, e.FlowEnd = v.n, f == 48
			flows++
		}
		return nil
	})
	k := t.by[track]
	switch {
	case err != nil:
		return err
	case k == nil:
		return errors.New("an event on a track that was not described")
	case kind < 1 || kind > 4 || flows > 1 || (kind == 4) != (k.counter == 1):
		return fmt.Errorf("an event of type %d with %d flows on %q", kind, flows, k.Path())
	case (kind == 1 || kind == 3) && e.Name == "":
		return fmt.Errorf("an event without a name on %q", k.Path())
	}
	e.Kind = []string{"", "slice", "end", "mark", "counter"}[kind]
	k.Events = append(k.Events, e)
	return nil
}

func (e *Event) arg(b []byte) error {
	var name string
	var v any
	err := message(b, types{10: block, 2: varint, 4: varint, 5: fixed, 6: block}, func(f protowire.Number, x value) error {
		switch f {
		case 10:
			name = string(x.b)
		case 2:
			v = x.n == 1
		case 4:
			v = int64(x.n)
		case 5:
			v = math.Float64frombits(x.n)
		default:
			v = string(x.b)
		}
		return nil
	})
	if err == nil && (name == "" || v == nil || e.Args[name] != nil) {
		err = fmt.Errorf("argument %q is %v, after %v", name, v, e.Args[name])
	}
	e.Args[name] = v
	return err
}

// finish sorts events by time as a reader does, keeping their order within a moment, and
// pairs begins with ends and flows with flows.
func (t *Trace) finish() error {
	begun, ended := map[uint64]int64{}, map[uint64]int64{}
	for _, k := range t.Tracks {
		slices.SortStableFunc(k.Events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
		if err := k.pair(); err != nil {
			return err
		}
		for i := range k.Events {
			e := &k.Events[i]
			side := begun
			if e.FlowEnd {
				side = ended
			}
			if e.Flow != 0 {
				if _, ok := side[e.Flow]; ok {
					return fmt.Errorf("%q: two arrows by one number", k.Path())
				}
				side[e.Flow] = e.At
			}
		}
	}
	for flow, at := range ended {
		if from, ok := begun[flow]; !ok || from > at {
			return errors.New("an arrow ends that did not begin, or ahead of its begin")
		}
	}
	if len(begun) != len(ended) {
		return fmt.Errorf("%d arrows begin and %d end", len(begun), len(ended))
	}
	return nil
}

// pair gives slices their length. Slices of a track lie within each other or apart.
func (t *Track) pair() error {
	var open []int
	var out []Event
	for _, e := range t.Events {
		if e.Kind != "end" {
			if e.Kind == "slice" {
				open = append(open, len(out))
			}
			out = append(out, e)
			continue
		}
		if len(open) == 0 {
			return fmt.Errorf("%q: a slice ends at %d that did not begin", t.Path(), e.At)
		}
		last := open[len(open)-1]
		open = open[:len(open)-1]
		out[last].Dur = e.At - out[last].At
	}
	if len(open) > 0 {
		return fmt.Errorf("%q: slice %q does not end", t.Path(), out[open[0]].Name)
	}
	t.Events = out
	return nil
}

// String lists tracks and events, in order: what a golden file holds.
func (t *Trace) String() string {
	var b strings.Builder
	if t.Primary != 0 {
		fmt.Fprintf(&b, "clocks %v, primary %d\n", t.Clocks, t.Primary)
	}
	for _, k := range t.Tracks {
		fmt.Fprintf(&b, "%s", k.Path())
		if k.Unit != "" {
			fmt.Fprintf(&b, " (%s)", k.Unit)
		}
		b.WriteByte('\n')
		for i := range k.Events {
			e := &k.Events[i]
			fmt.Fprintf(&b, "\t%d +%d %s %q", e.At, e.Dur, e.Kind, e.Name)
			if e.Kind == "counter" {
				fmt.Fprintf(&b, " %v", e.Value)
			}
			if e.Flow != 0 {
				fmt.Fprintf(&b, " flow %x end %t", e.Flow, e.FlowEnd)
			}
			if len(e.Args) > 0 {
				fmt.Fprintf(&b, " %v", e.Args)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}
