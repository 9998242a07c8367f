package script

import (
	"fmt"
	"strings"
	"time"
)

// Fault describes one fault for help texts.
type Fault struct {
	// Name and Arg make its grammar: "name" or "name=arg"; an Arg in square
	// brackets may be left out.
	Name, Arg string
	// Where it applies: all, sse, chat, wav, raw, audio, whole, ws.
	Where string
	// Doc says in one sentence what goes over the wire.
	Doc string

	set func(*Set, string) error
}

// Usage is how the fault is written: name, name=arg or name[=arg].
func (f *Fault) Usage() string {
	if arg, optional := strings.CutPrefix(f.Arg, "["); optional {
		return f.Name + "[=" + arg
	}
	if f.Arg != "" {
		return f.Name + "=" + f.Arg
	}
	return f.Name
}

// Faults returns all faults in the order of the manual.
func Faults() []Fault {
	out := make([]Fault, 0, 64)
	out = append(out, eventFaults()...)
	out = append(out, audioFaults()...)
	out = append(out, wireFaults()...)
	return append(out, socketFaults()...)
}

// Parse reads faults written "name" or "name=value" into a script. An
// unknown name, a bad value and a fault given twice are errors.
func Parse(list []string) (Script, error) {
	if _, err := Compile(list); err != nil {
		return Script{}, err
	}
	return Script{Faults: list}, nil
}

// Set is the compiled form of a fault list. Its fields mean what the docs of
// the faults of that name say; the zero value is no fault at all.
type Set struct {
	// events
	Role                                        *bool
	NoDone, DoubleDone, AfterDone, Unterminated bool
	NoFinish, EmptyFinish, NoAudio, NoText      bool
	NoSpace, BOM, MultiLine                     bool
	Empty                                       []string
	Huge, BadBase64, BadJSON                    int
	ErrorAt                                     Point
	ErrorForm                                   string
	ContentType, Base64Form                     string

	// audio
	Lost, LostTail, Repeat                        int
	Cumulative, WholeRepeat, OddBytes, HeaderEach bool
	WrongRate, SplitHeader                        int
	RateChange, ChannelChange                     [2]int
	Placeholder                                   *uint32
	// wire
	Cut, Reset, Stall, BadSize                  Point
	StallFor                                    time.Duration
	Status, ShortLength, RetryAfter, SendBuffer int
	RejectUpload, Burst, Gzip, Gate, HalfClose  bool
	Segments                                    []int
	SegmentRange                                [2]int
	SegmentPause, InterimGap, Idle              time.Duration
	Merge, ChunkEvents                          int
	Interim                                     []int
	ChunkBytes                                  []int
	// WebSocket
	Fragments              int
	FragmentPing           []byte
	PingEvery              time.Duration
	NoPong, NoCloseReply   bool
	HalfCloseAt, DeafAt    Point
	DeafFor                time.Duration
	CloseAt, BadFrameAt    Point
	ClosePayload           []byte
	BadFrame               string
	Skip                   []string
	LateDone, LateAudioGap time.Duration
	LateAudio, Replay      int
	LateAudioID            string
	Unknown                int
}

// Compile parses a list of faults.
func Compile(list []string) (Set, error) {
	var f Set
	seen := map[string]bool{}
	table := Faults()
	for _, entry := range list {
		name, value, _ := strings.Cut(entry, "=")
		i := 0
		for i < len(table) && table[i].Name != name {
			i++
		}
		switch {
		case i == len(table):
			return Set{}, fmt.Errorf("unknown fault %q", name)
		case seen[name]:
			return Set{}, fmt.Errorf("fault %q given twice", name)
		}
		seen[name] = true
		if err := table[i].set(&f, value); err != nil {
			return Set{}, fmt.Errorf("reading fault %q: %w", entry, err)
		}
	}
	return f, nil
}

// flag is a fault without a value.
func flag(name, where, doc string, field func(*Set) *bool) Fault {
	return Fault{Name: name, Where: where, Doc: doc, set: func(f *Set, v string) error {
		if v != "" {
			return fmt.Errorf("unexpected value %q", v)
		}
		*field(f) = true
		return nil
	}}
}

// count is a fault whose value is a number; fallback < 0 makes it required.
func count(name, arg, where, doc string, fallback int, field func(*Set) *int) Fault {
	return Fault{Name: name, Arg: arg, Where: where, Doc: doc, set: func(f *Set, v string) error {
		if v == "" && fallback >= 0 {
			*field(f) = fallback
			return nil
		}
		n, err := parseCount(v)
		*field(f) = n
		return err
	}}
}

// at is a fault whose value is a Point.
func at(name, where, doc string, fallback Point, field func(*Set) *Point) Fault {
	return Fault{Name: name, Arg: "[POINT]", Where: where, Doc: doc, set: func(f *Set, v string) error {
		p, _, err := parsePoint(v, fallback)
		*field(f) = p
		return err
	}}
}
