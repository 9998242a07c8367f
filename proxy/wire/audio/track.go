package audio

import (
	"bytes"
	"encoding/binary"
)

// Pos is where payload bytes lie in the server's stream. Bytes of a body lie
// one behind the other from Off; bytes decoded from an event are all complete
// at Off, its end.
type Pos struct {
	Off  int64
	Wire bool
}

// Plus returns the position n bytes on.
func (p Pos) Plus(n int) Pos {
	if p.Wire {
		p.Off += int64(n)
	}
	return p
}

// Problem is something wrong with the form of a stream.
type Problem string

// Problems that a Track reports.
const (
	EmbeddedHeader     Problem = "embedded_header"     // a WAV header amid a body's samples
	RepeatedHeader     Problem = "repeated_header"     // a compressed file starts anew
	HeaderInconsistent Problem = "header_inconsistent" // a WAV header contradicts itself
	ByteRateWrong      Problem = "byte_rate_wrong"
	FormatMismatch     Problem = "format_mismatch" // the label says another container
)

// Sink is told what a Track finds.
type Sink interface {
	// Container brings the container, once for each payload that starts one.
	Container(c Container)
	// Header brings a WAV header that was read.
	Header(h Header)
	// Samples brings sample bytes; the first lies at pos. Cuts fall anywhere.
	Samples(p []byte, pos Pos)
	// Opaque brings bytes of a format that is not decoded.
	Opaque(p []byte, pos Pos)
	// Problem brings a fault of the form.
	Problem(k Problem, detail string)
}

// Track reads one stream of sound. Set Sink, and Declared where a label says
// what the container is; then Begin, Write and End for each payload: once for a
// body, once an event for events.
type Track struct {
	Sink     Sink
	Declared Container
	// Files says that each payload may be a file of its own (events), so that a
	// header at its start is no fault. Such payloads are written whole.
	Files bool

	mode     trackMode
	wav      *wavWalker
	left     int64 // declared data bytes left, -1 for no bound
	skip     int64 // bytes of a metadata chunk behind the data
	head     []byte
	headPos  Pos
	started  bool // a payload was begun before
	ending   bool // no more bytes come: nothing is held
	inWAV    bool // the stream's samples come from a WAV
	payloads int
}

type trackMode uint8

const (
	modeSniff  trackMode = iota // at a place where a header may start
	modeHeader                  // inside a WAV header
	modeSamples
	modeTail // behind the declared data of a WAV
	modeOpaque
	modeProbe // opaque, at a place where a file may start anew
	modeBroken
)

// Begin starts a payload.
func (t *Track) Begin() {
	t.payloads++
	if t.mode == modeBroken {
		return
	}
	if t.payloads == 1 || t.Files {
		t.mode = modeSniff
		t.head = t.head[:0]
	}
}

// Border marks a place in a body where servers start a file, if they do: the
// start of an HTTP chunk.
func (t *Track) Border() {
	switch {
	case t.inWAV && t.mode == modeSamples:
		t.mode = modeSniff
	case t.mode == modeOpaque:
		t.mode = modeProbe
		t.head = t.head[:0]
	}
}

// BorderEnd marks the end of an HTTP chunk: what was gathered behind the declared
// data, too short to begin a chunk of metadata, is samples.
func (t *Track) BorderEnd() {
	if t.mode == modeTail && len(t.head) > 0 {
		t.beyond()
	}
}

// Write brings payload bytes, the first at pos.
func (t *Track) Write(p []byte, pos Pos) {
	for len(p) > 0 {
		var n int
		switch t.mode {
		case modeSniff:
			n = t.sniff(p, pos)
		case modeHeader:
			n = t.header(p, pos)
		case modeSamples:
			n = t.samples(p, pos)
		case modeTail:
			n = t.tail(p, pos)
		case modeProbe:
			n = t.probe(p)
			t.Sink.Opaque(p[:n], pos)
		case modeOpaque, modeBroken:
			t.Sink.Opaque(p, pos)
			n = len(p)
		}
		p, pos = p[n:], pos.Plus(n)
	}
}

// End ends a payload: what is too short to be a header is samples.
func (t *Track) End() {
	t.ending = true
	defer func() { t.ending = false }()
	if t.mode == modeTail && len(t.head) > 0 {
		t.beyond()
	}
	if t.mode == modeSniff && len(t.head) > 0 {
		t.decide(Raw)
	}
}

func (t *Track) sniff(p []byte, pos Pos) int {
	if len(t.head) == 0 {
		t.headPos = pos
		if c, more := Sniff(p, t.Declared, t.Files); !more { // the usual case: no copy
			t.choose(c)
			return 0
		}
	}
	for i, b := range p {
		t.head = append(t.head, b)
		if c, more := Sniff(t.head, t.Declared, false); !more {
			t.decide(c)
			return i + 1
		}
	}
	return len(p)
}

// decide chooses and reads again what was gathered to tell.
func (t *Track) decide(c Container) {
	head, pos := t.head, t.headPos
	t.head = nil
	t.choose(c)
	t.Write(head, pos)
}

func (t *Track) choose(c Container) {
	again := t.started
	t.started = true
	switch c {
	case WAV:
		if again && !t.Files {
			t.Sink.Problem(EmbeddedHeader, "")
		}
		t.Sink.Container(WAV)
		t.mode, t.wav, t.inWAV = modeHeader, &wavWalker{}, true
	case Raw:
		if again && t.inWAV || t.Declared == "" || t.Declared == Raw {
			t.mode = modeSamples
			if !t.inWAV {
				t.Sink.Container(Raw)
				t.left = -1
			}
			break
		}
		if t.Declared == WAV {
			t.Sink.Problem(FormatMismatch, "labelled wav, no RIFF header")
			t.mode, t.left = modeBroken, -1
			return
		}
		t.Sink.Container(t.Declared) // a label without a magic that we know
		t.mode = modeOpaque
	default:
		if again {
			t.Sink.Problem(RepeatedHeader, string(c))
		}
		t.Sink.Container(c)
		t.mode = modeOpaque
	}
	t.mismatch(c)
}

// mismatch compares the label of a payload with its magic. That events which say
// pcm hold a WAV each is a convention.
func (t *Track) mismatch(c Container) {
	oggs := func(c Container) bool { return c == Ogg || c == Opus }
	if t.Files && !c.compressed() || t.Declared == "" || c == t.Declared || c == Raw || oggs(c) && oggs(t.Declared) {
		return
	}
	t.Sink.Problem(FormatMismatch, "labelled "+string(t.Declared)+", bytes are "+string(c))
}

func (t *Track) header(p []byte, _ Pos) int {
	n, done, err := t.wav.feed(p)
	switch {
	case err != nil:
		t.Sink.Problem(HeaderInconsistent, err.Error())
		t.mode = modeBroken
	case done:
		h := t.wav.h
		t.wav = nil
		t.left = h.DataBytes
		if t.left == 0 {
			t.left = -1 // no size yet: samples may follow all the same
		}
		if h.ByteRateWrong {
			t.Sink.Problem(ByteRateWrong, "")
		}
		t.Sink.Header(h)
		t.mode = modeSamples
		if h.Format.Encoding == "" {
			t.mode = modeOpaque
		}
	}
	return n
}

func (t *Track) samples(p []byte, pos Pos) int {
	n := len(p)
	if t.left >= 0 && int64(n) > t.left {
		n = int(t.left)
	}
	held := false
	if t.inWAV && !t.Files && !t.ending {
		if i := embedded(p[:n]); i < n {
			n, held = i, true
		}
	}
	if n > 0 {
		t.Sink.Samples(p[:n], pos)
	}
	if t.left >= 0 {
		t.left -= int64(n)
	}
	switch {
	case held:
		t.mode = modeSniff
	case t.left == 0:
		t.mode = modeTail
		t.head = t.head[:0]
	}
	return n
}

// embedded returns where a file of its own may start amid a body's samples, the
// length of p for nowhere. What may be the beginning of a header at the end of p
// counts: it is held until the next bytes tell.
func embedded(p []byte) int {
	for i := 0; ; i++ {
		j := bytes.IndexByte(p[i:], 'R')
		if j < 0 {
			return len(p)
		}
		i += j
		b := p[i:]
		if string(b[:min(4, len(b))]) == "RIFF"[:min(4, len(b))] && (len(b) < 12 || string(b[8:12]) == "WAVE") {
			return i
		}
	}
}

// probe looks for a compressed file that starts anew: a tag of MP3, FLAC's magic,
// the first page of an Ogg stream (RFC 3533 section 6: bit 2 of byte 5).
func (t *Track) probe(p []byte) int {
	n := min(6-len(t.head), len(p))
	t.head = append(t.head, p[:n]...)
	if len(t.head) < 6 {
		return n
	}
	id := string(t.head[:4])
	if id[:3] == "ID3" || id == "fLaC" || id == "OggS" && t.head[5]&2 != 0 {
		t.Sink.Problem(RepeatedHeader, id)
	}
	t.head = t.head[:0]
	t.mode = modeOpaque
	return n
}

// tail reads what follows the declared data: another file, a chunk of metadata,
// or samples beyond the declared size.
func (t *Track) tail(p []byte, pos Pos) int {
	if t.skip > 0 {
		n := min(t.skip, int64(len(p)))
		t.skip -= n
		return int(n)
	}
	if len(t.head) == 0 {
		t.headPos = pos
	}
	n := min(8-len(t.head), len(p))
	t.head = append(t.head, p[:n]...)
	if len(t.head) < 8 {
		return n
	}
	if isMetadata(t.head[:4]) {
		size := int64(binary.LittleEndian.Uint32(t.head[4:]))
		t.skip = size + size&1
		t.head = t.head[:0]
		return n
	}
	t.beyond()
	return n
}

// beyond reads what was gathered behind the declared data as what it is then: a
// file of its own, or samples.
func (t *Track) beyond() {
	head, pos := t.head, t.headPos
	t.head, t.left, t.mode = nil, -1, modeSniff
	t.Write(head, pos)
}

// isMetadata reports whether an id is one of a chunk that may follow the data.
func isMetadata(id []byte) bool {
	switch string(id) {
	case "LIST", "INFO", "id3 ", "ID3 ", "bext", "JUNK", "junk", "cue ", "PEAK", "fact", "afsp", "PAD ":
		return true
	}
	return false
}
