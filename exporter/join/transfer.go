package join

import "cmp"

// How a transfer, a stage or a request was tied to what it is of.
const (
	// ByID: the request's id stands in the segment's name or in a message.
	ByID = "id"
	// ByConnection: the two processes are known, and no request.
	ByConnection = "connection"
	// ByWindow: by time alone.
	ByWindow = "window"
)

// The confidence of a match, from 0 to 1. These are grades, not probabilities: what
// is below 0.5 is not told.
const (
	// Certain: an identity that both sides know, with both ends of it seen.
	Certain = 1.0
	// OneEnded: the same, but only one end was seen (never read, or its event lost).
	OneEnded = 0.9
	// Readdressed: the bytes on a connection are those of the latest message with their
	// address and size; pools use addresses again.
	Readdressed = 0.95
	// Contradicted: names and processes disagree (another stage wrote it than its name
	// says), or the receiver is told by the rule that it is the next stage.
	Contradicted = 0.7
	// Alone: by time, and nothing else could be meant.
	Alone = 0.8
	// Shared: by time, among others that were at work at once.
	Shared = 0.5
)

// Where the bytes and the end of a transfer are from.
const (
	Exact        = "exact"         // bytes: of the system call
	ControlPlane = "control-plane" // bytes: as a message says
	Syscall      = "syscall"       // end: of the system call
	Ack          = "ack"           // end: the receiver's message
)

// Transfer is one hand-over from a stage to another. Times are CLOCK_MONOTONIC
// nanoseconds, 0 for one that was not seen; Chunk, Bytes, MessageBytes and Misses are
// -1 where they are not known.
type Transfer struct {
	// Transport is shm, inline, tcp, queue, or SGLang-Omni's own name of it.
	Transport string
	// Request is the id in the segment's name or message, as it stands there; Engine
	// the engine's whole id, with its random tail, where that is known. Both are empty
	// where no request could be found.
	Request, Engine string
	From, To        string
	FromPID, ToPID  int32
	Chunk, Bytes    int64
	MessageBytes    int64
	// Key is the segment's name or the store's key, Object SGLang-Omni's object id.
	Key, Object string
	// TxStart and TxEnd are the sender's copying, RxStart and RxEnd the receiver's.
	TxStart, TxEnd, RxStart, RxEnd int64
	// Announced is when the sender's message about it was sent, Heard when the receiver
	// had it, Acked when the sender had the receiver's answer.
	Announced, Heard, Acked int64
	// WaitStart is the receiver's first poll that missed, Misses how many there were.
	WaitStart, Misses int64
	// Empty is how many polls found the segment there but still empty, -1 for not known:
	// servers count these as misses too.
	Empty      int64
	Match      string
	Confidence float64
	// BytesBy and EndBy say where those are from, empty for unknown.
	BytesBy, EndBy string
	// Unread says that it was made and never received; Replaced that its sender put
	// another in its place.
	Unread, Replaced bool

	// forwarded says that the API process sent it, in the place of the stage before.
	forwarded bool
	owner     *request
}

// Start is when it began as far as was seen: TxStart, else when it was announced,
// else when the receiver heard of it.
func (t *Transfer) Start() int64 {
	return cmp.Or(t.TxStart, t.Announced, t.Heard, t.RxStart, t.TxEnd, t.RxEnd)
}

// End is the end of its receipt, else of what was seen last of it.
func (t *Transfer) End() int64 {
	return cmp.Or(t.RxEnd, t.RxStart, t.Heard, t.TxEnd, t.Announced)
}

// Received is when the receiver had it, 0 for never.
func (t *Transfer) Received() int64 { return cmp.Or(t.RxEnd, t.RxStart, t.Heard) }

// ByStart orders transfers by their start, then by key, object and chunk.
func ByStart(a, b Transfer) int {
	return cmp.Or(cmp.Compare(a.Start(), b.Start()), cmp.Compare(a.Key, b.Key),
		cmp.Compare(a.Object, b.Object), cmp.Compare(a.From, b.From), cmp.Compare(a.Chunk, b.Chunk))
}

// told says whether a transfer that no request could be found for is worth telling:
// only one that was received.
func (t *Transfer) told() bool {
	return t.Request != "" || t.Received() > 0
}

func newTransfer(transport string) *Transfer {
	return &Transfer{Transport: transport, Chunk: -1, Bytes: -1, MessageBytes: -1, Misses: -1, Empty: -1}
}

// grade sets match and confidence from what was seen.
func (t *Transfer) grade(contradicted bool) {
	if t.Request == "" {
		t.Match, t.Confidence = ByConnection, Contradicted
		return
	}
	t.Match, t.Confidence = ByID, Certain
	if t.Transport == "tcp" {
		t.Confidence = Readdressed
	}
	if t.Start() == 0 || t.Received() == 0 {
		t.Confidence = OneEnded
	}
	if contradicted {
		t.Confidence = Contradicted
	}
}

// own gives a transfer to a request, once.
func (j *Joiner) own(t *Transfer, r *request) {
	if t.owner != nil {
		return
	}
	j.stats.Transfers++
	t.owner, t.Engine = r, r.engine
	if len(r.transfers) >= j.cfg.Each {
		j.stats.TransfersDropped++
		r.dropped = true
		return
	}
	r.transfers = append(r.transfers, t)
	j.requests.hold(j, r)
}

// release tells a transfer that is let go.
func (j *Joiner) release(t *Transfer) {
	if !t.told() {
		return
	}
	if t.Unread {
		j.stats.Unread++
	}
	if t.Request == "" {
		j.stats.Nameless++
	}
	if j.cfg.Done != nil {
		j.cfg.Done(*t)
	}
}
