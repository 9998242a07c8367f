// Package timeline turns what was read of one exchange into its record: points,
// metrics, terminal state, checks on the sound (contract.md sections 2 to 5).
//
// A Builder is told, in the order of the bytes, what the parsers found. It has
// no clock: Now sets the receive stamp of the read that what follows was
// completed by. The same calls give the same record, live or from a capture.
//
// It knows no connection and no byte of a format: proxy/tap drives it.
package timeline

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"slices"

	"github.com/omnitap/omnitap/proxy/wire/dialect"
)

// point indexes the points of contract section 2.
type point int

const (
	pIn point = iota
	pBody
	pUp
	pHdr
	pText
	pAudioEvent
	pAudio
	pAudible
	pTerm
	pClose
	nPoints
)

var pointNames = [nPoints]string{"t_in", "t_body", "t_up", "t_hdr", "t_text", "t_audio_event", "t_audio", "t_audible", "t_term", "t_close"}

var eventNames = [nPoints]string{
	"ingress", "request_body_end", "upstream_sent", "response_headers", "first_text",
	"first_audio_event", "first_audio", "first_audible", "terminal", "close",
}

// Identity says which exchange a Builder follows.
type Identity struct {
	RunID, Node  string
	ConnectionID uint64
	// OwnID is the request id where neither the client nor we put one on the wire.
	OwnID string
	// Kernel says that stamps are the kernel's.
	Kernel bool
	// WallOffset is what to add to a monotonic stamp to get wall-clock
	// nanoseconds; nil where it is not known.
	WallOffset *int64
	// LastAbort is when a client last left by a reset, 0 for never: a failure soon
	// after may follow from it.
	LastAbort int64
	// Replay says that what only a live relay can measure is absent.
	Replay bool
}

// Builder follows one exchange. Make it with New.
type Builder struct {
	cfg  *Config
	id   Identity
	sink Sink
	now  int64

	at    [nPoints]place
	ready bool // the request id is known: events may go out

	requestID, idSource string
	traceparent         string
	method, path        string
	contentType         string
	request             dialect.Request
	asks                *Asked // the request as it was sent, nil where it is not kept
	requestSum          []byte // hash of the request's body
	requestUnread       string // why the request's fields are not known

	status       int
	answer       Answer
	serverID     string
	model        string
	dialect      string
	family       dialect.Family
	headDialect  string
	bodyBytes    int64 // payload bytes of the answer
	lastBody     place
	headEnd      place
	lastSeen     int64 // when a turn's last message came
	unknown      int
	audioLike    bool
	multi        bool
	failedItems  int
	declaredToks int64

	text      hash.Hash
	textHead  []byte // its first bytes, to tell an error that is sent as content
	textBytes int64
	textUnits int64
	lastText  int64
	snapshot  bool // the text at hand stands for all text so far
	reasoning Reasoning
	reasonAt  int64
	tool      bool

	snd     *sound
	byAudio int64 // sample frames that had come by t_audio

	finish, hasFinish bool
	final             bool
	marker            place
	afterMarker       int
	said              *said
	complete          bool
	close             closing
	trouble           []trouble
	flags             []string // few: a set would weigh more
	warnings          []string

	analysis, analysisReason string
	dropped                  int64 // bytes ahead of analysis
	slow                     bool  // the relay itself took long over a chunk
	event                    *Event
	delays                   []float32
	pending                  []pendingWrite
	waited                   int64
	held                     place // of blocked writes that are not told yet: the last, and how long all were
	bytesUp, bytesDown       int64
	reused                   bool
	noBody                   bool
	done, tunnel, ambiguous  bool

	limits                     limits
	turn                       *Turn // nil for an exchange
	asked                      string
	also                       map[string]int64
	inServer                   int64
	begun, free                bool
	state                      State
	socket                     bool // the request asks for a WebSocket
	askLost                    bool // analysis is truncated on the client's side alone
	input                      *Input
	interrupted                *interruption
	cancel                     *Cancel
	cancelChunks, cancelFrames int64 // what had come when it was asked for
}

type pendingWrite struct {
	chunk int64
	text  bool
	mono  int64
	bytes int64
}

// Answer is what a response head tells about its body.
type Answer struct {
	// ContentType is the media type without parameters, in lower case.
	ContentType string
	// Unit is the logical chunk of a raw body: http_chunk, body or read.
	Unit string
	// Rate and Channels are what headers or media type parameters declare.
	Rate, Channels int
	// RateFrom names where Rate was learned.
	RateFrom string
	// Dialect is what the head alone tells, empty for nothing.
	Dialect string
	// RequestID is the server's id where the head carries one.
	RequestID string
	// Events and Whole say how the body is read: server-sent events, or one
	// JSON text.
	Events, Whole bool
	// Sound says that the body is sound.
	Sound bool
	// Server and Via name what answered and what stands on the way: fields of
	// the head, for a person who wonders who held an answer back.
	Server, Via string
}

// New returns a Builder whose request's first byte is byte off of the client's
// stream, received at mono.
func New(cfg *Config, id Identity, sink Sink, mono, off int64) *Builder {
	b := &Builder{cfg: cfg, id: id, sink: sink, now: mono, analysis: "full", declaredToks: -1}
	b.requestID, b.idSource = id.OwnID, "own"
	if mono != 0 {
		b.at[pIn] = place{mono, off}
	}
	b.renew()
	return b
}

// Now sets the receive stamp of the read whose bytes are looked at next.
func (b *Builder) Now(mono int64) {
	if b.now = mono; mono > b.limits.next {
		b.passed(mono)
	}
}

// RequestID returns the id as far as it is known.
func (b *Builder) RequestID() string { return b.requestID }

// IDSource says where RequestID comes from.
func (b *Builder) IDSource() string { return b.idSource }

// Path returns the request's path without query.
func (b *Builder) Path() string { return b.path }

// Opened returns when the request's first byte came, and the answer's.
func (b *Builder) Opened() (request, answer int64) { return b.at[pIn].mono, b.at[pHdr].mono }

// Flag adds a flag to the record.
func (b *Builder) Flag(name string) {
	if !slices.Contains(b.flags, name) {
		b.flags = append(b.flags, name)
	}
}

// Warn adds a warning to the record.
func (b *Builder) Warn(text string) {
	if len(b.warnings) < 32 {
		b.warnings = append(b.warnings, text)
	}
}

// set notes a point once, at the current stamp.
func (b *Builder) set(p point, off int64) {
	b.setAt(p, place{b.now, off})
}

func (b *Builder) setAt(p point, at place) {
	if b.at[p].mono != 0 {
		return
	}
	b.at[p] = at
	if b.ready && p != pTerm { // Finish tells of the end, with its state
		b.point(p)
	}
}

// point sends the event of a point out, with what it tells beside its moment.
func (b *Builder) point(p point) {
	at, e := b.at[p], Event{}
	switch {
	case p == pAudio:
		e.Samples = N(b.byAudio)
	case p == pIn && b.inServer > 0:
		at.off, e.Status = b.inServer, "server"
	}
	b.emit(eventNames[p], at, e)
}

// emit sends an event out.
func (b *Builder) emit(name string, at place, e Event) {
	if !b.cfg.NoEvents {
		b.send(name, at, e)
	}
}

func (b *Builder) send(name string, at place, e Event) {
	if b.sink == nil {
		return
	}
	if b.event == nil {
		b.event = new(Event)
	}
	*b.event = e // one a builder: a sink does not keep it
	o := b.event
	o.RunID, o.Node, o.RequestID, o.Attempt = Text(b.id.RunID), Text(b.id.Node), b.requestID, 1
	if b.turn != nil {
		o.SessionID = Text(b.turn.Session)
	}
	o.Event, o.MonoNS, o.Offset = name, at.mono, Positive(at.off)
	o.Flow = b.Flow()
	if b.id.WallOffset != nil {
		o.WallNS = N(at.mono + *b.id.WallOffset)
	}
	b.sink.Event(o)
}

// Request notes a request head: its method, path without query, and the
// client's request id, empty for none.
func (b *Builder) Request(method, path, contentType, clientID string) {
	b.method, b.path, b.contentType = method, path, contentType
	if clientID != "" {
		b.requestID, b.idSource = clientID, "client"
	}
	b.Identify()
}

// Injected notes the id that the relay put into the request's head.
func (b *Builder) Injected(id string) { b.requestID, b.idSource = id, "injected" }

// Identify lets events out: no better id will come.
func (b *Builder) Identify() {
	if b.ready {
		return
	}
	b.ready = true
	for p, at := range b.at {
		if at.mono != 0 && point(p) != pTerm {
			b.point(point(p))
		}
	}
}

// RequestEnd notes the last byte of the request and what its body asked for.
// unread says why the body's fields are not known, empty where they are.
func (b *Builder) RequestEnd(off int64, q dialect.Request, unread string) {
	b.request, b.requestUnread = q, unread
	b.set(pBody, off)
	if b.model == "" {
		b.model = q.Model
	}
}

// RequestSum notes the SHA-256 of the request's body.
func (b *Builder) RequestSum(sum []byte) { b.requestSum = sum }

// Method returns the request's method.
func (b *Builder) Method() string { return b.method }

// UpstreamSent notes that request bytes up to off were written to the server.
func (b *Builder) UpstreamSent(mono, off int64) {
	if b.at[pBody].mono != 0 && off >= b.at[pBody].off {
		b.setAt(pUp, place{mono, b.at[pBody].off})
	}
}

// AnswerStart notes the first byte of a final answer, received at mono.
func (b *Builder) AnswerStart(mono, off int64) { b.setAt(pHdr, place{mono, off}) }

// Socket notes that the request asks for a WebSocket.
func (b *Builder) Socket() { b.socket = true }

// SocketRefused notes that the server opened a WebSocket only to refuse it by an
// error, whose last byte is off.
func (b *Builder) SocketRefused(f *dialect.Failure, off int64) {
	b.tunnel = false
	b.fault(f, off)
}

// Discard ends the following without a record: others tell of the exchange.
func (b *Builder) Discard() { b.done = true }

// Tunnel notes that the connection is a tunnel from here.
func (b *Builder) Tunnel() {
	b.tunnel = true
	b.limits.next = never // the request was answered
}

// Flow returns the exchange's flow as far as method and path tell.
func (b *Builder) Flow() string { return flowOf(b.method, b.path) }

// AnswerHead notes a final response head.
func (b *Builder) AnswerHead(status int, a Answer) {
	b.status, b.answer = status, a
	b.headDialect = a.Dialect
	if a.RequestID != "" {
		b.serverID = a.RequestID
	}
}

// Informational notes a 1xx answer.
func (b *Builder) Informational(status int) {
	if status != 100 {
		b.Flag("informational")
	}
}

// NoBody notes that the answer has no body by rule (HEAD, 204, 304).
func (b *Builder) NoBody() { b.noBody = true }

// AddBytes counts wire bytes of the exchange, by direction.
func (b *Builder) AddBytes(up, down int64) {
	b.bytesUp += up
	if b.bytesDown += down; down > 0 && b.turn != nil {
		b.lastSeen = b.now
	}
}

// Reused notes that the connection carried exchanges before.
func (b *Builder) Reused() { b.reused = true }

// Analysis notes that the reading is not full. The first reason stays.
func (b *Builder) Analysis(level, reason string) {
	if b.analysis == "full" {
		b.analysis, b.analysisReason = level, reason
	}
}

// Dropped notes that n bytes of the exchange were dropped ahead of analysis.
func (b *Builder) Dropped(n int64) {
	b.dropped += n
	if b.analysis == "full" || b.analysisReason == "" || b.dropped > n {
		b.analysis, b.analysisReason = "truncated", fmt.Sprintf("%d bytes were dropped ahead of analysis", b.dropped)
	}
}

// relayLagNS is how long the relay itself may take over a chunk before its record
// says so.
const relayLagNS = 50e6

// Wrote notes that everything read so far was accepted by the client's socket
// at mono, after the write had blocked for waited nanoseconds.
func (b *Builder) Wrote(mono, waited int64) {
	b.waited += waited
	if len(b.pending) == 0 {
		b.hold(mono, waited)
		return
	}
	b.tellHeld()
	for i, p := range b.pending {
		b.slow = b.slow || mono-p.mono-waited > relayLagNS
		if len(b.delays) < maxChunks {
			b.delays = append(b.delays, float32(mono-p.mono)/1e3)
		}
		status := Text("audio")
		if p.text {
			status = "text"
		}
		e := Event{ChunkID: N(p.chunk), Bytes: N(p.bytes), Status: status}
		if i == 0 { // one write took them all
			e.WaitNS = Positive(waited)
		}
		b.emit("client_write", place{mono, 0}, e)
	}
	b.pending = b.pending[:0]
}

// hold keeps how long a write was blocked that completed no chunk: many of them are one
// event, ahead of the next chunk's or of the end.
func (b *Builder) hold(mono, waited int64) {
	if waited > 0 {
		b.held = place{mono, b.held.off + waited}
	}
}

// tellHeld tells what hold keeps.
func (b *Builder) tellHeld() {
	if b.held.off > 0 {
		b.emit(EventClientWait, place{b.held.mono, 0}, Event{WaitNS: N(b.held.off)})
		b.held = place{}
	}
}

// Blocked notes that a write to the client failed after it had been blocked for
// waited nanoseconds.
func (b *Builder) Blocked(waited int64) {
	b.waited += waited
	b.hold(b.now, waited)
}

// WaitsForWrite reports whether chunks are not known to be written yet.
func (b *Builder) WaitsForWrite() bool { return len(b.pending) > 0 }

// textHeadSize is how much of the text is looked at for an error's own words.
const textHeadSize = 64

func (b *Builder) addText(p []byte, off int64) {
	if b.text == nil {
		b.text = sha256.New()
	}
	b.text.Write(p)
	if n := textHeadSize - len(b.textHead); n > 0 {
		b.textHead = append(b.textHead, p[:min(n, len(p))]...)
	}
	b.textBytes += int64(len(p))
	b.lastText = b.now
	b.set(pText, off)
	b.chunkOut("text_chunk", b.textUnits, off, int64(len(p)), 0, true)
	b.textUnits++
}

// chunkOut sends a chunk's event out and waits for its write.
func (b *Builder) chunkOut(name string, n, off, size, frames int64, text bool) {
	e := Event{ChunkID: N(n), Bytes: N(size)}
	if text && b.snapshot {
		e.Status = "snapshot"
	}
	if !text && b.snd != nil && b.snd.opaque == 0 {
		rate, _ := b.snd.rate()
		e.Samples, e.Rate, e.Channels = N(frames), Positive(int64(rate)), Positive(int64(b.snd.format.Channels))
	}
	b.emit(name, place{b.now, off}, e)
	if !b.id.Replay && len(b.pending) < 4096 {
		b.pending = append(b.pending, pendingWrite{n, text, b.now, size})
	}
}
