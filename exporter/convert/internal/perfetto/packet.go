package perfetto

import (
	"bufio"
	"fmt"
	"io"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers, of protos/perfetto/trace in Perfetto's repository.
const (
	tracePacket = 1 // Trace

	packetClocks    = 6 // TracePacket
	packetTime      = 8
	packetSequence  = 10
	packetEvent     = 11
	packetTrack     = 60
	trackUUID       = 1 // TrackDescriptor
	trackName       = 2
	trackProcess    = 3
	trackParent     = 5
	trackCounter    = 8
	trackOrder      = 11
	trackRank       = 12
	processPID      = 1 // ProcessDescriptor
	processName     = 6
	counterUnitName = 6  // CounterDescriptor
	eventType       = 9  // TrackEvent
	eventTrack      = 11 // of a track's UUID
	eventName       = 23
	eventAnnotation = 4
	eventFlow       = 47
	eventLastFlow   = 48
	eventDouble     = 44
	annotationName  = 10 // DebugAnnotation
	annotationBool  = 2
	annotationInt   = 4
	annotationFloat = 5
	annotationText  = 6
	clocksClock     = 1 // ClockSnapshot
	clocksPrimary   = 2
	clockID         = 1 // ClockSnapshot.Clock
	clockTime       = 2
)

// Values of enumerations.
const (
	typeBegin   = 1 // TrackEvent.Type
	typeEnd     = 2
	typeInstant = 3
	typeCounter = 4

	clockRealtime  = 1 // BuiltinClock
	clockMonotonic = 3

	orderByTime = 2 // TrackDescriptor.ChildTracksOrdering
	orderByRank = 3

	sequence = 1 // all packets are of one writer

	unnamed = "no name"
)

// arg is one argument of an event; nil values are left out.
type arg struct {
	name  string
	value any // string, int64, float64, bool, or a pointer to one
}

// track describes a track. The zero parent is none.
type track struct {
	uuid, parent uint64
	name         string
	unit         string // of a counter, "" for a track of slices
	rank         int32  // among its siblings
	pid          int32  // of a process, 0 for none
}

// mark is one event on a track.
type mark struct {
	kind  uint64
	track uint64
	at    int64
	name  string
	flow  uint64 // 0 for none
	last  bool   // the flow ends here
	value float64
	args  []arg
}

// encoder writes packets. Its buffers are used again.
type encoder struct {
	w                         *bufio.Writer
	packet, body, inner, head []byte
}

func newEncoder(w io.Writer) *encoder { return &encoder{w: bufio.NewWriterSize(w, 256<<10)} }

func (e *encoder) describe(t track) error {
	b := number(e.body[:0], trackUUID, t.uuid)
	if t.parent != 0 {
		b = number(b, trackParent, t.parent)
	}
	if t.pid == 0 {
		b = text(b, trackName, or(t.name, unnamed))
	} else {
		e.inner = number(e.inner[:0], processPID, uint64(t.pid))
		e.inner = text(e.inner, processName, t.name)
		b = bytesField(b, trackProcess, e.inner)
	}
	if t.unit != "" {
		e.inner = text(e.inner[:0], counterUnitName, t.unit)
		b = bytesField(b, trackCounter, e.inner)
	}
	order := uint64(orderByTime)
	if t.pid != 0 {
		order = orderByRank
	}
	b = number(b, trackOrder, order)
	e.body = number(b, trackRank, uint64(t.rank))
	e.packet = number(e.packet[:0], packetSequence, sequence)
	e.packet = bytesField(e.packet, packetTrack, e.body)
	return e.write()
}

// mark writes an event. The boot is time 0: what is not behind it is no time, and drawn at 1.
func (e *encoder) mark(m mark) error {
	m.at = max(m.at, 1)
	b := number(e.body[:0], eventType, m.kind)
	b = number(b, eventTrack, m.track)
	if m.kind == typeBegin || m.kind == typeInstant {
		b = text(b, eventName, or(m.name, unnamed))
	}
	if m.flow != 0 {
		field := protowire.Number(eventFlow)
		if m.last {
			field = eventLastFlow
		}
		b = protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), m.flow)
	}
	if m.kind == typeCounter {
		b = double(b, eventDouble, m.value)
	}
	for _, a := range m.args {
		if in := appendArg(e.inner[:0], a); in != nil {
			e.inner = in
			b = bytesField(b, eventAnnotation, in)
		}
	}
	e.body = b
	e.packet = number(e.packet[:0], packetTime, uint64(m.at))
	e.packet = number(e.packet, packetSequence, sequence)
	e.packet = bytesField(e.packet, packetEvent, b)
	return e.write()
}

// clocks says what the wall clock was at a moment, and that all times are monotonic.
func (e *encoder) clocks(mono, wall int64) error {
	b := e.body[:0]
	for _, c := range [][2]int64{{clockMonotonic, mono}, {clockRealtime, wall}} {
		e.inner = number(e.inner[:0], clockID, uint64(c[0]))
		e.inner = number(e.inner, clockTime, uint64(c[1]))
		b = bytesField(b, clocksClock, e.inner)
	}
	e.body = number(b, clocksPrimary, clockMonotonic)
	e.packet = number(e.packet[:0], packetSequence, sequence)
	e.packet = bytesField(e.packet, packetClocks, e.body)
	return e.write()
}

func (e *encoder) write() error {
	e.head = protowire.AppendVarint(protowire.AppendTag(e.head[:0], tracePacket, protowire.BytesType), uint64(len(e.packet)))
	_, err := e.w.Write(e.head)
	if err == nil {
		_, err = e.w.Write(e.packet)
	}
	if err != nil {
		return fmt.Errorf("writing the trace: %w", err)
	}
	return nil
}

func (e *encoder) flush() error {
	if err := e.w.Flush(); err != nil {
		return fmt.Errorf("writing the trace: %w", err)
	}
	return nil
}

func number(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func text(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func bytesField(b []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}

func double(b []byte, field protowire.Number, v float64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), math.Float64bits(v))
}

// appendArg returns nil for an argument without a value.
func appendArg(b []byte, a arg) []byte {
	b = text(b, annotationName, a.name)
	switch v := a.value.(type) {
	case string:
		if v == "" {
			return nil
		}
		return text(b, annotationText, v)
	case *string:
		if v == nil {
			return nil
		}
		return text(b, annotationText, *v)
	case int64:
		return number(b, annotationInt, uint64(v))
	case *int64:
		if v == nil {
			return nil
		}
		return number(b, annotationInt, uint64(*v))
	case *int:
		if v == nil {
			return nil
		}
		return number(b, annotationInt, uint64(*v))
	case float64:
		return double(b, annotationFloat, v)
	case *float64:
		if v == nil {
			return nil
		}
		return double(b, annotationFloat, *v)
	case bool:
		return number(b, annotationBool, protowire.EncodeBool(v))
	}
	return nil
}
