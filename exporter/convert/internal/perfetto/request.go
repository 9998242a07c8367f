package perfetto

import (
	"math"
	"strconv"
	"time"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// Record draws a request or turn, its stages and transfers; number is its own in the run.
func (t *Trace) Record(number int64, r *timeline.Record) error {
	from, to, ok := span(&r.Points)
	if !ok {
		t.Undrawn++
	} else if err := t.draw(number, r, from, to); err != nil {
		return err
	}
	return t.stages(number, r)
}

func (t *Trace) draw(number int64, r *timeline.Record, from, to int64) error {
	id := identity{id: r.RequestID, attempt: r.Attempt, flow: r.Flow}
	if r.SessionID != nil {
		id.session = *r.SessionID
	}
	if t.drawn[t.request(id.id, id.attempt)] { // the client gave two requests one id
		id.id += " record " + strconv.FormatInt(number, 10)
	}
	uuid, err := t.requestTrack(id)
	if err != nil {
		return err
	}
	t.drawn[uuid] = true
	if err := t.slice(mark{track: uuid, at: from, name: r.Flow + " " + string(r.Terminal.State), args: requestArgs(r)}, to); err != nil {
		return err
	}
	if err := t.points(uuid, r); err != nil {
		return err
	}
	if err := t.way(uuid, r); err != nil {
		return err
	}
	return t.ownDelay(r, to)
}

// identity is what a request's track is named by.
type identity struct {
	id, flow, session string
	attempt           int
}

// requestTrack describes a request's track: below its session, where it has one.
func (t *Trace) requestTrack(r identity) (uint64, error) {
	uuid := t.request(r.id, r.attempt)
	if t.described(uuid) {
		return uuid, nil
	}
	parent := t.id("requests")
	if r.session != "" {
		var err error
		if parent, err = t.session(r.session); err != nil {
			return 0, err
		}
	}
	name := r.flow + " " + r.id
	if r.attempt > 1 {
		name += " attempt " + strconv.Itoa(r.attempt)
	}
	return uuid, t.once(track{uuid: uuid, parent: parent, name: name})
}

func requestArgs(r *timeline.Record) []arg {
	return []arg{
		{"request_id", r.RequestID},
		{"server_request_id", r.ServerRequestID},
		{"session_id", r.SessionID},
		{"turn", r.Turn},
		{"dialect", r.Dialect},
		{"path", r.Path},
		{"model", r.Model},
		{"status", r.Status},
		{"state", string(r.Terminal.State)},
		{"reason", r.Terminal.Reason},
		{"quality", r.Quality.Verdict},
		{"t_in_wall_ns", r.TInWallNS},
		{"ttft_ms", r.TTFTMS},
		{"ttfa_ms", r.TTFAMS},
		{"ttfaudible_ms", r.TTFAudibleMS},
		{"jct_ms", r.JCTMS},
		{"rtf", r.RTF},
		{"audio_s", r.AudioS},
		{"bytes_up", r.BytesUp},
		{"bytes_down", r.BytesDown},
	}
}

// point is one point of a timeline by the words of the trace.
type point struct {
	name string
	at   *int64
}

func points(p *timeline.Points) []point {
	return []point{
		{"ingress", p.TIn},
		{"request read", p.TBody},
		{"sent to the server", p.TUp},
		{"response headers", p.THdr},
		{"first text", p.TText},
		{"first audio event", p.TAudioEvent},
		{"first audio", p.TAudio},
		{"first audible", p.TAudible},
		{"end", p.TTerm},
		{"closed", p.TClose},
	}
}

// span is from t_in, else the first point, to t_term, else the last one.
func span(p *timeline.Points) (from, to int64, ok bool) {
	for _, q := range points(p) {
		if q.at == nil {
			continue
		}
		if !ok {
			from, to, ok = *q.at, *q.at, true
		}
		from, to = min(from, *q.at), max(to, *q.at)
	}
	if p.TIn != nil {
		from = *p.TIn
	}
	if p.TTerm != nil {
		to = *p.TTerm
	}
	return from, to, ok
}

func (t *Trace) points(uuid uint64, r *timeline.Record) error {
	for _, p := range points(&r.Points) {
		if p.at == nil || p.name == "ingress" {
			continue
		}
		if err := t.e.mark(mark{kind: typeInstant, track: uuid, at: *p.at, name: p.name}); err != nil {
			return err
		}
	}
	return nil
}

// way draws the named gaps on the way to the first sound, one behind the other.
func (t *Trace) way(uuid uint64, r *timeline.Record) error {
	if r.Points.TIn == nil || len(r.CriticalPath) == 0 {
		return nil
	}
	way := t.id("way", strconv.FormatUint(uuid, 10))
	if err := t.e.describe(track{uuid: way, parent: uuid, name: "way to the first sound"}); err != nil {
		return err
	}
	ms := 0.0
	for _, step := range r.CriticalPath {
		begin := *r.Points.TIn + nanoseconds(ms)
		ms += max(step.MS, 0)
		if err := t.slice(mark{track: way, at: begin, name: step.Gap, args: []arg{{"ms", step.MS}}}, *r.Points.TIn+nanoseconds(ms)); err != nil {
			return err
		}
	}
	return nil
}

// nanoseconds bounds what no clock says, so that times stay times.
func nanoseconds(ms float64) int64 {
	const most = float64(1 << 60)
	return int64(max(-most, min(most, math.Round(ms*float64(time.Millisecond)))))
}

// ownDelay counts the relay's own delay of a request's chunks at its end.
func (t *Trace) ownDelay(r *timeline.Record, at int64) error {
	d := r.OwnDelayUS
	if d == nil {
		return nil
	}
	for _, c := range []struct {
		name  string
		value float64
	}{{"own delay p50", d.P50}, {"own delay p99", d.P99}, {"own delay max", d.Max}} {
		uuid := t.id("delay", c.name)
		if err := t.once(track{uuid: uuid, parent: t.id("run"), name: c.name, unit: "us", rank: rankDelay}); err != nil {
			return err
		}
		if err := t.e.mark(mark{kind: typeCounter, track: uuid, at: at, value: c.value}); err != nil {
			return err
		}
	}
	return nil
}
