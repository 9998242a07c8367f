package plan

import (
	"bytes"
	"compress/gzip"
	"slices"
	"time"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
)

// Stop is what a Piece of kind Halt does.
type Stop uint8

// The acts of a Halt.
const (
	Pause   Stop = iota // only its wait: a stall
	Cut                 // FIN
	Reset               // RST
	BadSize             // a bad chunk-size line, then FIN
)

// NotRaw marks a Piece whose bytes are not the samples themselves.
const NotRaw = -1

// Piece is one unit of a body: an SSE event, an HTTP chunk of raw audio, a
// whole file.
type Piece struct {
	Kind Kind
	// Wait is the time after the piece before was due.
	Wait time.Duration
	Data []byte
	// Texts are the text deltas, PCM the sample bytes that are in Data.
	Texts []string
	PCM   []byte
	// Raw is the number of bytes of Data before the samples, or NotRaw.
	Raw  int
	Stop Stop
}

func (p *Piece) isOutput() bool { return p.Kind == Text || p.Kind == Audio || p.Kind == Empty }

// Field is one field of an answer's head.
type Field struct{ Name, Value string }

// Fields makes fields of names and values in turn.
func Fields(pairs ...string) []Field {
	out := make([]Field, 0, len(pairs)/2)
	for pair := range slices.Chunk(pairs, 2) {
		out = append(out, Field{Name: pair[0], Value: pair[1]})
	}
	return out
}

// Ending is how an answer that went out whole is booked.
type Ending string

// The endings that a plan knows.
const (
	Complete Ending = "complete" // as asked
	Refused  Ending = "refused"  // a 4xx or 5xx
	Failed   Ending = "error"    // a failure inside a 200, complete as the dialect has it
)

// Answer is a planned answer.
type Answer struct {
	Status int
	// Fields stand before the content type.
	Fields      []Field
	ContentType string
	// Late means that the head waits for the first piece.
	Late bool
	// Whole means Content-Length; else the script's framing.
	Whole bool
	// SSE means that comments may be put in.
	SSE bool
	// Form is sse, raw, whole or json.
	Form   string
	Pieces []Piece
	// Live gives the pieces that are made while the answer goes out, behind Pieces; nil
	// where all are planned. It waits for them, until stop is closed: then ok is false.
	Live func(stop <-chan struct{}) (b Burst, ok bool)
	// Before is a stop before the head.
	Before *Piece
	// Fail makes the pieces of a failure in mid-stream; nil is a cut.
	Fail func() []Piece
	End  Ending
	// Short is the number of bytes that Content-Length promises too much.
	Short int
	// Gzip means that Content-Encoding says so.
	Gzip bool
}

// Burst is what a live answer gives out at once.
type Burst struct {
	Pieces []Piece
	// Last says that nothing comes behind it; Failed that the answer failed by it.
	Last, Failed bool
}

// JSON is a whole JSON answer.
func JSON(status int, body string) Answer {
	a := Answer{Status: status, ContentType: "application/json", Whole: true, Form: "json", End: Complete}
	if status >= 400 {
		a.End = Refused
	}
	if body != "" {
		a.Pieces = []Piece{{Data: []byte(body), Raw: NotRaw}}
	}
	return a
}

// Disturb applies the faults that are edits of the plan.
func (a *Answer) Disturb(f *script.Set) {
	if f.ErrorAt.IsSet() && a.End != Refused {
		tail := []Piece{{Kind: Halt, Stop: Cut}}
		if a.Fail != nil {
			tail = a.Fail()
			a.End = Failed
		}
		a.insert(f.ErrorAt, true, tail...)
	}
	if n := len(a.Pieces); a.SSE && n > 0 {
		if f.BOM {
			a.Pieces[0].Data = append([]byte("\xef\xbb\xbf"), a.Pieces[0].Data...)
		}
		if f.Unterminated {
			last := &a.Pieces[n-1]
			last.Data = bytes.TrimRight(last.Data, "\r\n")
		}
	}
	if f.ContentType != "" {
		a.ContentType = f.ContentType
	}
	if f.Gzip {
		a.compress()
	}
	if a.Short = f.ShortLength; a.Short > 0 {
		a.Whole = true
	}
	stops := []struct {
		at script.Point
		p  Piece
	}{
		{f.Stall, Piece{Kind: Halt, Wait: f.StallFor}},
		{f.Cut, Piece{Kind: Halt, Stop: Cut}},
		{f.Reset, Piece{Kind: Halt, Stop: Reset}},
		{f.BadSize, Piece{Kind: Halt, Stop: BadSize}},
	}
	for _, s := range stops {
		if s.at.IsSet() {
			a.insert(s.at, s.p.Stop != Pause, s.p)
		}
	}
}

// insert puts pieces at a point, in place of what follows if truncate is set.
func (a *Answer) insert(at script.Point, truncate bool, tail ...Piece) {
	if at.Unit == script.AtStart && tail[0].Kind == Halt {
		a.Before = &tail[0]
		return
	}
	i := a.locate(at)
	rest := slices.Clone(a.Pieces[i:])
	a.Pieces = append(a.Pieces[:i:i], tail...)
	if !truncate {
		a.Pieces = append(a.Pieces, rest...)
	}
}

// locate finds the index of a point in the pieces; a byte point splits the
// piece that it falls into. A point beyond the end is the end. An answer
// without audio counts its text events as audio.
func (a *Answer) locate(at script.Point) int {
	counted := func(*Piece) bool { return true }
	switch at.Unit {
	case script.AtStart, script.AtHead:
		return 0
	case script.AtOutput:
		i := len(a.Pieces)
		for i > 0 && !a.Pieces[i-1].isOutput() {
			i--
		}
		return i
	case script.AtEnd:
		return len(a.Pieces)
	case script.AfterByte:
		return a.split(at.N)
	case script.AfterAudio:
		k := Text
		if slices.ContainsFunc(a.Pieces, func(p Piece) bool { return p.Kind == Audio }) {
			k = Audio
		}
		counted = func(p *Piece) bool { return p.Kind == k }
	default:
	}
	n := at.N
	for i := range a.Pieces {
		if n == 0 {
			return i
		}
		if counted(&a.Pieces[i]) {
			n--
		}
	}
	return len(a.Pieces)
}

// split cuts the piece that byte n of the body is in and returns the index of
// the part that begins there.
func (a *Answer) split(n int) int {
	for i := range a.Pieces {
		p := a.Pieces[i]
		if n == 0 {
			return i
		}
		if n < len(p.Data) {
			one, two := p, p
			one.Data, two.Data = p.Data[:n:n], p.Data[n:]
			two.Wait, one.Texts, one.PCM, two.PCM = 0, nil, nil, nil
			if p.Raw != NotRaw {
				two.Raw = max(0, p.Raw-n)
				one.PCM, two.PCM = one.Data[min(p.Raw, n):], two.Data[two.Raw:]
			} else {
				two.PCM = p.PCM
				one.Kind = Other
			}
			a.Pieces = slices.Replace(a.Pieces, i, i+1, one, two)
			return i + 1
		}
		n -= len(p.Data)
	}
	return len(a.Pieces)
}

// compress makes the body one gzip member that is flushed after each piece.
func (a *Answer) compress() {
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	for i := range a.Pieces {
		p := &a.Pieces[i]
		_, _ = z.Write(p.Data) // a bytes.Buffer does not fail
		_ = z.Flush()
		if i == len(a.Pieces)-1 {
			_ = z.Close()
		}
		p.Data, p.Raw = bytes.Clone(buf.Bytes()), NotRaw
		buf.Reset()
	}
	a.Gzip = true
}

// Size is the length of the body.
func (a *Answer) Size() int {
	n := 0
	for i := range a.Pieces {
		n += len(a.Pieces[i].Data)
	}
	return n
}
