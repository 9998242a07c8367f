// Package control reads what stage processes tell each other: vLLM's engine
// messages, SGLang-Omni's control messages, Mooncake's pull messages, pickled
// queue items. It takes the heads and tails of frames, as probes copy them, and
// says what they show; what was cut off is absent. It is pure, and does not know
// processes, times or requests of the relay.
package control

// Kind is what a message is.
type Kind uint8

// The kinds of messages.
const (
	Unknown Kind = iota
	// Add and Abort are vLLM's requests to an engine core; Outputs its answer to
	// some; Statistics an answer without any output.
	Add
	Abort
	Outputs
	Statistics
	// Submit, DataReady, DataAck, Stream, Complete are SGLang-Omni's; Cancel is its
	// abort; Admin any other of its types.
	Submit
	DataReady
	DataAck
	Stream
	Complete
	Cancel
	Admin
	// Query, Pull, PullDone, PullMissing, PullFailed are the side channel of
	// Mooncake's transfer engine connector: query_info, the pull message, its answers.
	// A Query and a Pull tell their Key, and no Requests: Key splits it.
	Query
	Pull
	PullDone
	PullMissing
	PullFailed
	// QueryFound is the answer to a Query that says how many bytes there are.
	QueryFound
	// Task and Result are a queue item of vLLM-Omni's first generation, to a stage
	// and from it.
	Task
	Result
)

// Frame is one frame of a message as it was seen: Size bytes, of which Head is the
// first and Tail the last 64 where Head is shorter than Size.
type Frame struct {
	Size       int64
	Head, Tail []byte
}

// Message is what a message shows. Zero values and nils are what it does not show.
type Message struct {
	Kind Kind
	// Requests are the ids that it names, in order, as on the wire.
	Requests []string
	// Outputs are vLLM's outputs, one an entry of Requests.
	Outputs []Output
	// Unseen is how many more requests the message names behind the bytes that were
	// copied.
	Unseen int
	// From and To are stages by name; Chunk the chunk number; Done the end of a stream.
	From, To string
	Chunk    *int64
	Done     *bool
	// Transport, Segment, Object and Bytes are where the data lies: SGLang-Omni's
	// transport and object id, the shared memory's name, the bytes moved.
	Transport, Segment, Object string
	// RefType is the type of SGLang-Omni's reference (DataRef, InlineStreamChunk,
	// TorchCudaIpcPayload, …), Modality that of a Stream.
	RefType, Modality string
	Success           *bool
	Bytes             *int64
	// Key, Addrs, Lengths, Host and Port are a pull's: the key asked for and where
	// the receiver wants the data.
	Key            string
	Addrs, Lengths []uint64
	Host           string
	Port           int64
	// WireBytes is the size of all frames.
	WireBytes int64
}

// Output is one request's part of an Outputs message.
type Output struct {
	Request string
	// Tokens is the number of new tokens; Finished the finish reason (0 stop,
	// 1 length, 2 abort), nil while it goes on.
	Tokens   int
	Finished *int64
	// QueuedNS and ScheduledNS are the scheduler's own events, CLOCK_MONOTONIC
	// nanoseconds, 0 where it tells none. The last of each kind counts.
	QueuedNS, ScheduledNS int64
	// Cut says that the copied bytes end inside this output: what is zero or nil here
	// may be a value that was not seen.
	Cut bool
}
