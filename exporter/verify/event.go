package verify

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/omnitap/omnitap/exporter/verify/internal/scan"
)

// kind is the word of an event.
type kind uint8

const (
	_ kind = iota
	// The points of contract section 2, in the order of points.
	ingress
	requestBodyEnd
	upstreamSent
	responseHeaders
	firstText
	firstAudioEvent
	firstAudio
	firstAudible
	terminal
	closed
	// Chunks.
	textChunk
	outputChunk
	clientWrite
	// Limits.
	deadline
	audioStall
	// The words of contract section 6.
	enqueue
	schedulable
	batchFormed
	computeStart
	computeEnd
	transferStart
	transferEnd
	received
	cancel
	release
	// What the contract has no words for (timeline.EventForm 2).
	heardFirst
	heardLast
	firstSound
	lastSound
	textReset
	reasoningChunk
	emptyAudio
	clientWait
	alternative
	requestMessage
	inputChunk
	inputTaken
	submitted
	firstOutput
	firstPayload
	lastOutput
	payloadReceived
	steps
	cpuUsage
	gpuCalls
	announced
	heard
	receiveStart
	polls
	nKinds
)

// wordsForm is the form of events that has all words; those from heardFirst on are not
// in older ones.
const wordsForm = 2

var words = [nKinds]string{
	"", "ingress", "request_body_end", "upstream_sent", "response_headers", "first_text", "first_audio_event", "first_audio",
	"first_audible", "terminal", "close", "text_chunk", "output_chunk", "client_write", "deadline", "audio_stall",
	"enqueue", "schedulable", "batch_formed", "compute_start", "compute_end", "transfer_start", "transfer_end", "received", "cancel", "release",
	"heard_first", "heard_last", "first_sound", "last_sound", "text_reset", "reasoning_chunk", "empty_audio", "client_wait", "ingress_alternative",
	"request_message", "input_chunk", "input_taken", "submitted", "first_output", "first_payload", "last_output", "payload_received", "steps",
	"cpu_usage", "gpu_calls", "announced", "heard", "receive_start", "polls",
}

var kinds = func() map[string]kind {
	m := map[string]kind{}
	for k := ingress; k < nKinds; k++ {
		m[words[k]] = k
	}
	return m
}()

// absent is an integer that an event does not have.
const absent = -1

// event is what is kept of a line of events.jsonl. Integers are absent where the
// line has null or nothing; texts are numbers of names.
type event struct {
	mono, wall          int64
	off, bytes, samples int64
	chunk               int64
	chars, wire         int64
	count, wait         int64
	transfer, empty     int64
	cpu, runq, blocked  int64
	line                int32
	attempt             int32
	rate, channels      int32
	batch               int32
	session, stage      name
	status, transport   name
	peer, match         name
	kind                kind
}

// name is the number of a text in names, 0 for null.
type name uint32

// names numbers the texts that events repeat.
type names struct {
	numbers map[string]name
	list    []string
}

func newNames() *names { return &names{numbers: map[string]name{}, list: []string{""}} }

func (n *names) number(b []byte) name {
	if len(b) == 0 {
		return 0
	}
	if i, ok := n.numbers[string(b)]; ok {
		return i
	}
	i := name(len(n.list))
	s := string(b)
	n.numbers[s], n.list = i, append(n.list, s)
	return i
}

func (n *names) text(i name) string { return n.list[i] }

// The members of an event (contract section 8): texts ahead of integers.
const (
	mRun = iota
	mRequest
	mSession
	mStage
	mEvent
	mNode
	mDevice
	mStatus
	mTransport
	mPeer
	mMatch
	nTexts
)

const (
	mAttempt = nTexts + iota
	mChunk
	mMono
	mWall
	mBytes
	mBatch
	mOffset
	mSamples
	mRate
	mChannels
	mChars
	mWire
	mCount
	mWait
	mTransfer
	mEmpty
	mCPU
	mRunq
	mBlocked
	nMembers
)

var memberNames = [nMembers]string{
	"run_id", "request_id", "session_id", "stage", "event", "node", "device", "status", "transport", "peer", "match",
	"attempt", "chunk_id", "mono_ns", "wall_ns", "bytes", "batch", "offset", "samples", "sample_rate", "channels",
	"chars", "wire_bytes", "count", "wait_ns", "transfer", "empty_polls", "cpu_ns", "runq_ns", "blocked_ns",
}

var memberNumbers = func() map[string]int {
	m := map[string]int{}
	for i, n := range memberNames {
		m[n] = i
	}
	return m
}()

// Every line has the members of contract section 8; these may not be null.
const (
	always  = 1<<mRun | 1<<mRequest | 1<<mSession | 1<<mStage | 1<<mEvent | 1<<mNode | 1<<mDevice | 1<<mStatus | 1<<mAttempt | 1<<mChunk | 1<<mMono | 1<<mWall | 1<<mBytes | 1<<mBatch
	notNull = 1<<mRequest | 1<<mEvent | 1<<mAttempt | 1<<mMono
)

// parser reads lines of events.jsonl. What texts and ints hold is of the line that
// was read last.
type parser struct {
	r     scan.Reader
	names *names
	texts [nTexts][]byte
	ints  [nMembers]int64
	seen  uint32
	given uint32 // seen and not null
}

var errTwice = errors.New("a member stands there twice")

// parse reads a line into e, all but its line number.
func (p *parser) parse(line []byte, e *event) error {
	p.r.Reset(line)
	p.seen, p.given = 0, 0
	for p.r.Object(); ; {
		key, more := p.r.Key()
		if !more {
			break
		}
		i, known := memberNumbers[string(key)]
		if !known {
			p.added(key)
			continue
		}
		p.member(i)
	}
	if err := p.r.End(); err != nil {
		return err
	}
	if p.seen&always != always || p.given&notNull != notNull {
		return p.lacks()
	}
	return p.fill(e)
}

// added passes over a member that is not known, unless it is one but for its case:
// encoding/json would take it for that.
func (p *parser) added(key []byte) {
	for _, n := range memberNames {
		if strings.EqualFold(n, string(key)) {
			p.r.Fail(fmt.Errorf("%s is %s but for its case", key, n))
		}
	}
	p.r.Skip()
}

// lacks names the first member that should be there.
func (p *parser) lacks() error {
	for i, n := range memberNames {
		if bit := uint32(1) << i; always&^p.seen&bit != 0 {
			return fmt.Errorf("%s is missing", n)
		} else if notNull&^p.given&bit != 0 {
			return fmt.Errorf("%s is null", n)
		}
	}
	return nil
}

func (p *parser) member(i int) {
	bit := uint32(1) << i
	if p.seen&bit != 0 {
		p.r.Fail(fmt.Errorf("%s: %w", memberNames[i], errTwice))
	}
	p.seen |= bit
	if p.r.Peek() == scan.Null {
		p.r.Word()
		return
	}
	p.given |= bit
	if i < nTexts {
		p.texts[i] = p.r.String()
		return
	}
	if p.ints[i] = p.r.Int(); p.ints[i] < 0 {
		p.r.Fail(fmt.Errorf("%s: %d is below 0", memberNames[i], p.ints[i]))
	}
}

func (p *parser) text(i int) []byte {
	if p.given&(1<<i) == 0 {
		return nil
	}
	return p.texts[i]
}

func (p *parser) int(i int) int64 {
	if p.given&(1<<i) == 0 {
		return absent
	}
	return p.ints[i]
}

// fill makes the event of what was read.
func (p *parser) fill(e *event) error {
	k, ok := kinds[string(p.texts[mEvent])]
	if !ok {
		return fmt.Errorf("event: %q is no word of this program's", p.texts[mEvent][:min(64, len(p.texts[mEvent]))])
	}
	for _, i := range [...]int{mAttempt, mRate, mChannels, mBatch} {
		if v := p.int(i); v > math.MaxInt32 {
			return fmt.Errorf("%s: %d is too large", memberNames[i], v)
		}
	}
	*e = event{
		kind: k, mono: p.int(mMono), wall: p.int(mWall), off: p.int(mOffset), bytes: p.int(mBytes), samples: p.int(mSamples), chunk: p.int(mChunk),
		session: p.names.number(p.text(mSession)), stage: p.names.number(p.text(mStage)), status: p.names.number(p.text(mStatus)),
		transport: p.names.number(p.text(mTransport)), peer: p.names.number(p.text(mPeer)), match: p.names.number(p.text(mMatch)),
		attempt: int32(p.int(mAttempt)), rate: int32(p.int(mRate)), channels: int32(p.int(mChannels)), batch: int32(p.int(mBatch)),
		chars: p.int(mChars), wire: p.int(mWire), count: p.int(mCount), wait: p.int(mWait), transfer: p.int(mTransfer), empty: p.int(mEmpty),
		cpu: p.int(mCPU), runq: p.int(mRunq), blocked: p.int(mBlocked),
	}
	return nil
}
