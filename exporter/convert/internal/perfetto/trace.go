package perfetto

import (
	"fmt"
	"hash/fnv"
	"io"
	"strconv"
	"time"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// Run is what a trace says of a run. Nil is not known.
type Run struct {
	ID, Node, Dir, Program, Upstream string
	StartMonoNS, StartWallNS         *int64
	// Clocks says that the wall clock may be told for the whole trace.
	Clocks bool
}

// Trace writes one trace. Its owner closes what it writes to.
type Trace struct {
	e   *encoder
	run int // from 1
	// drawn has the tracks that were described; true for a request with a record.
	drawn map[uint64]bool
	// chunk has the last chunk of every track of chunks: some come behind the end.
	chunk map[uint64]int64
	// work has the tracks of the record at hand in its stages.
	work []uint64
	// Undrawn counts records without any point in time.
	Undrawn int64
}

// New begins a trace.
func New(w io.Writer) *Trace {
	return &Trace{e: newEncoder(w), drawn: map[uint64]bool{}, chunk: map[uint64]int64{}}
}

// Close writes out what is buffered.
func (t *Trace) Close() error { return t.e.flush() }

// Ranks of the tracks below a run, from the top.
const (
	rankRequests int32 = iota
	rankSessions
	rankStages
	rankDelay
)

// Run begins a run: what follows is of it.
func (t *Trace) Run(r Run) error {
	t.run++
	clear(t.drawn)
	clear(t.chunk)
	if r.Clocks && r.StartMonoNS != nil && r.StartWallNS != nil {
		if err := t.e.clocks(*r.StartMonoNS, *r.StartWallNS); err != nil {
			return err
		}
	}
	name := fmt.Sprintf("run %s on %s", or(r.ID, r.Dir), or(r.Node, "a node without a name"))
	if err := t.e.describe(track{uuid: t.id("run"), name: name, pid: int32(t.run)}); err != nil {
		return err
	}
	for _, g := range []track{
		{uuid: t.id("requests"), parent: t.id("run"), name: "requests", rank: rankRequests},
		{uuid: t.id("sessions"), parent: t.id("run"), name: "sessions", rank: rankSessions},
		{uuid: t.id("begin"), parent: t.id("run"), name: "run", rank: rankRequests},
	} {
		if err := t.e.describe(g); err != nil {
			return err
		}
	}
	if r.StartMonoNS == nil {
		return nil
	}
	args := []arg{
		{"run_id", r.ID},
		{"node", r.Node},
		{"dir", r.Dir},
		{"program", r.Program},
		{"upstream", r.Upstream},
		{"clock", "CLOCK_MONOTONIC of the node"},
		{"start_wall_ns", r.StartWallNS},
	}
	if r.StartWallNS != nil {
		args = append(args, arg{"start", time.Unix(0, *r.StartWallNS).UTC().Format(time.RFC3339Nano)})
	}
	return t.e.mark(mark{kind: typeInstant, track: t.id("begin"), at: *r.StartMonoNS, name: "run began", args: args})
}

// id names a track or flow of this run; it is the same wherever it is asked for.
func (t *Trace) id(parts ...string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(strconv.AppendInt(nil, int64(t.run), 10))
	for _, p := range parts {
		_, _ = h.Write([]byte{0})
		_, _ = io.WriteString(h, p)
	}
	return max(h.Sum64(), 1) // 0 is no track
}

// request is the track of a request.
func (t *Trace) request(id string, attempt int) uint64 {
	return t.id("request", id, strconv.Itoa(attempt))
}

// once describes a track that was not described yet.
func (t *Trace) once(d track) error {
	if t.described(d.uuid) {
		return nil
	}
	t.drawn[d.uuid] = false
	return t.e.describe(d)
}

func (t *Trace) described(uuid uint64) bool {
	_, ok := t.drawn[uuid]
	return ok
}

// slice draws from begin to end; what has no length, or ends ahead of its begin, is a mark.
func (t *Trace) slice(m mark, end int64) error {
	if end <= m.at {
		m.kind = typeInstant
		return t.e.mark(m)
	}
	m.kind = typeBegin
	if err := t.e.mark(m); err != nil {
		return err
	}
	return t.e.mark(mark{kind: typeEnd, track: m.track, at: end})
}

// Session draws a session.
func (t *Trace) Session(s *timeline.Session) error {
	track, err := t.session(s.SessionID)
	if err != nil {
		return err
	}
	args := []arg{
		{"session_id", s.SessionID},
		{"dialect", s.Dialect},
		{"model", s.Model},
		{"turns", int64(s.Turns)},
		{"input_audio_s", s.InputAudioS},
		{"close_by", s.Close.By},
		{"close_code", s.Close.Code},
		{"messages_up", s.MessagesUp},
		{"messages_down", s.MessagesDown},
	}
	end := s.OpenedMonoNS + nanoseconds(s.DurationMS)
	return t.slice(mark{track: track, at: s.OpenedMonoNS, name: s.Flow, args: args}, end)
}

func (t *Trace) session(id string) (uint64, error) {
	uuid := t.id("session", id)
	return uuid, t.once(track{uuid: uuid, parent: t.id("sessions"), name: "session " + id})
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
