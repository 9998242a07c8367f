package session

import (
	"bufio"
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/proxy/timeline"
	"github.com/omnitap/omnitap/proxy/wire/dialect"
)

// rig plays a script of messages into a Session and keeps what comes out.
type rig struct {
	t       testing.TB
	s       *Session
	reader  dialect.Reader
	off     [2]int64
	records []*timeline.Record
	lines   []*timeline.Session
	events  []timeline.Event
}

func (g *rig) Event(e *timeline.Event)     { g.events = append(g.events, *e) }
func (g *rig) Record(r *timeline.Record)   { g.records = append(g.records, r) }
func (g *rig) Session(l *timeline.Session) { g.lines = append(g.lines, l) }
func ms(n int64) int64                     { return n * 1e6 }
func config() *timeline.Config             { c := timeline.Config{}.WithDefaults(); return &c }
func info(path string, replay bool) Info {
	return Info{Method: "GET", Path: path, RequestID: "q", Source: "own", Opened: ms(1), Upgraded: ms(2), Replay: replay}
}
func replayed(t testing.TB, p string) *rig { t.Helper(); return newRig(t, p, true, nil) }
func live(t testing.TB, path string) *rig  { t.Helper(); return newRig(t, path, false, nil) }
func (g *rig) span(d int, at, n int64) Span {
	g.off[d] += n
	return Span{at, at, g.off[d] - n + 1, g.off[d]}
}

func newRig(t testing.TB, path string, replay bool, mem *Memory) *rig {
	t.Helper()
	g := &rig{t: t}
	g.s = New(config(), timeline.Identity{}, info(path, replay), g, mem)
	return g
}

// pcm is a tone of n samples, louder than silence, of whole periods: that it comes
// again says nothing.
func pcm(n int) []byte {
	b := make([]byte, 0, 2*n)
	for i := range n {
		b = binary.LittleEndian.AppendUint16(b, uint16(int16(12000*math.Sin(2*math.Pi*float64(i%48)/48))))
	}
	return b
}

var sound = regexp.MustCompile(`\$(\d+)`)

// play reads a script: a line is a time in milliseconds, a side and a message, or
// a word for what else may happen. $480 in a message is that many samples of sound.
func (g *rig) play(script string) *rig {
	g.t.Helper()
	for l := range strings.Lines(script) {
		if l = strings.TrimSpace(l); l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		when, rest, _ := strings.Cut(l, " ")
		n, err := strconv.ParseInt(when, 10, 64)
		if err != nil {
			g.t.Fatalf("%s: %v", l, err)
		}
		at := ms(n)
		g.s.Now(at)
		who, what, _ := strings.Cut(rest, " ")
		switch who {
		case "c", "s":
			g.side(at, who == "s", what)
		case "sent":
			g.s.Sent(at, g.off[0])
		case "wrote":
			g.s.Wrote(at, 0)
		case "shutdown":
			g.s.Shutdown(at)
		case "capture":
			g.s.CaptureEnds(at)
		case "quiet":
			g.s.Quiet(what)
		case "finish":
			g.s.Finish(at)
		default:
			g.t.Fatalf("what is %q?", l)
		}
	}
	return g
}

func (g *rig) side(at int64, server bool, what string) {
	g.t.Helper()
	d := side(server)
	word, rest, _ := strings.Cut(what, " ")
	switch word {
	case "bin":
		n, _ := strconv.Atoi(rest)
		g.binary(at, server, pcm(n/2))
	case "ping":
		g.s.Ping(server, []byte(rest), at)
	case "pong":
		g.s.Pong(server, []byte(rest), at)
	case "close":
		code, reason, _ := strings.Cut(rest, " ")
		n, _ := strconv.Atoi(code)
		g.s.CloseFrame(server, n, reason, true, at)
	case "fin", "rst":
		e := map[string]timeline.End{"fin": timeline.FIN, "rst": timeline.RST}[word]
		if server {
			g.s.ServerEnd(e, at)
		} else {
			g.s.ClientEnd(e, at)
		}
	case "violation":
		g.s.Violation(server, rest)
	case "malformed":
		g.s.Malformed(server, g.span(d, at, 10), "malformed_json", "bad")
	case "truncated":
		g.s.Truncated(server, g.span(d, at, 10), "too much")
	default:
		g.text(at, server, what)
	}
}

func (g *rig) text(at int64, server bool, what string) {
	g.t.Helper()
	data := sound.ReplaceAllStringFunc(what, func(m string) string {
		n, _ := strconv.Atoi(m[1:])
		return base64.StdEncoding.EncodeToString(pcm(n))
	})
	span := g.span(side(server), at, int64(len(data)+2))
	read := g.reader.Client
	if server {
		read = g.reader.Server
	}
	m, err := read([]byte(data))
	switch {
	case err != nil:
		g.t.Fatalf("%s: %v", what, err)
	case server:
		g.s.Server(m, span)
	default:
		g.s.Client(m, span)
	}
}

func (g *rig) binary(at int64, server bool, p []byte) {
	span := g.span(side(server), at, int64(len(p)+2))
	if !server {
		g.s.ClientBinary(span)
		return
	}
	g.s.BinaryStart(Span{at, at, span.Start, span.Start})
	g.s.Binary(p[:len(p)/2])
	g.s.Binary(p[len(p)/2:])
	g.s.BinaryEnd(span, int64(len(p)))
}

// told gives a turn in a line: the moments that it has, in milliseconds.
func told(r *timeline.Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d", *r.Turn)
	if r.TInSource != nil {
		b.WriteString(" " + *r.TInSource)
	}
	p := &r.Points
	for _, v := range []struct {
		name string
		at   *int64
	}{{"in", p.TIn}, {"body", p.TBody}, {"up", p.TUp}, {"text", p.TText}, {"audio", p.TAudio}, {"term", p.TTerm}} {
		if v.at != nil {
			fmt.Fprintf(&b, " %s@%d", v.name, *v.at/1e6)
		}
	}
	names := make([]string, 0, len(r.TInAlternatives))
	for name := range r.TInAlternatives {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&b, " (%s@%d)", name, r.TInAlternatives[name]/1e6)
	}
	fmt.Fprintf(&b, " %s %s", r.Terminal.State, r.Terminal.Reason)
	return b.String()
}

// want compares the turns with lines of told, ends the session first where the
// script did not, and holds it to what is true of all.
func (g *rig) want(turns string) *rig {
	g.t.Helper()
	g.s.Finish(ms(1_000_000))
	g.check()
	var got, want []string
	for _, r := range g.turns() {
		got = append(got, told(r))
	}
	for s := bufio.NewScanner(strings.NewReader(turns)); s.Scan(); {
		if l := strings.TrimSpace(s.Text()); l != "" {
			want = append(want, l)
		}
	}
	if d := gocmp.Diff(want, got); d != "" {
		g.t.Errorf("turns (-want +got):\n%s", d)
	}
	return g
}

func (g *rig) turns() []*timeline.Record {
	out := slices.Clone(g.records)
	slices.SortStableFunc(out, func(a, b *timeline.Record) int { return cmp.Compare(*a.Turn, *b.Turn) })
	return out
}

func (g *rig) line() *timeline.Session {
	g.t.Helper()
	g.s.Finish(ms(1_000_000))
	if len(g.lines) != 1 {
		g.t.Fatalf("%d lines of the session", len(g.lines))
	}
	return g.lines[0]
}

// check holds what is true of every session that is over.
func (g *rig) check() {
	g.t.Helper()
	l := g.line()
	if l.Turns != len(g.records) {
		g.t.Errorf("%d turns and %d records", l.Turns, len(g.records))
	}
	sum := 0
	for _, n := range l.States {
		sum += n
	}
	if sum != l.Turns {
		g.t.Errorf("states %v of %d turns", l.States, l.Turns)
	}
	for i, r := range g.turns() {
		if *r.Turn != i {
			g.t.Errorf("turn %d stands where %d is due", *r.Turn, i)
		}
		if *r.SessionID != l.SessionID || r.RequestID != fmt.Sprintf("%s-t%d", l.SessionID, i) {
			g.t.Errorf("turn %d of session %s is called %s", i, *r.SessionID, r.RequestID)
		}
		g.nulls(fmt.Sprintf("turn %d", i), r, r.Unmeasured)
		for name, v := range map[string]*float64{"ttft": r.TTFTMS, "ttfa": r.TTFAMS, "ttfaudible": r.TTFAudibleMS, "jct": r.JCTMS, "rtf": r.RTF, "tpot": r.TPOTMS} {
			if v != nil && *v < 0 {
				g.t.Errorf("turn %d: %s is %v", i, name, *v)
			}
		}
		if in := r.Input; in != nil && (in.Pace != nil && *in.Pace < 0 || in.SpanMS < 0 || in.AudioS < 0) {
			g.t.Errorf("turn %d: input %+v", i, *in)
		}
		if c := r.Cancel; c != nil && (c.ChunksAfter < 0 || c.SamplesAfter < 0 || c.ToSilenceMS != nil && *c.ToSilenceMS < 0) {
			g.t.Errorf("turn %d: cancel %+v", i, *c)
		}
		if r.Reasoning != nil && r.Reasoning.FirstMS != nil && *r.Reasoning.FirstMS < 0 {
			g.t.Errorf("turn %d: reasoning %+v", i, *r.Reasoning)
		}
	}
	g.nulls("the session", l, l.Unmeasured)
	if l.DurationMS < 0 || l.IdleMS < 0 || l.PingRTTMS != nil && *l.PingRTTMS < 0 || l.InputAudioS != nil && *l.InputAudioS < 0 {
		g.t.Errorf("duration %v, idle %v, rtt %v, input %v", l.DurationMS, l.IdleMS, l.PingRTTMS, l.InputAudioS)
	}
	if !slices.IsSorted(l.Flags) {
		g.t.Errorf("flags %v", l.Flags)
	}
}

// nulls holds that every null has a reason and nothing else has one.
func (g *rig) nulls(what string, v any, unmeasured map[string]string) {
	g.t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		g.t.Fatal(err)
	}
	var walk func(prefix string, raw json.RawMessage)
	walk = func(prefix string, raw json.RawMessage) {
		null := string(raw) == "null"
		if reason := unmeasured[prefix]; null != (reason != "") && !strings.HasPrefix(prefix, "unmeasured") {
			g.t.Errorf("%s: %s is %s, reason %q", what, prefix, raw, reason)
		}
		var m map[string]json.RawMessage
		if len(raw) > 0 && raw[0] == '{' && json.Unmarshal(raw, &m) == nil {
			for k, v := range m {
				walk(strings.TrimPrefix(prefix+"."+k, "."), v)
			}
		}
	}
	walk("", b)
}

func (g *rig) flags(want ...string) *rig {
	g.t.Helper()
	if d := gocmp.Diff(append([]string{}, want...), g.line().Flags); d != "" {
		g.t.Errorf("flags of the session (-want +got):\n%s", d)
	}
	return g
}

// Descriptions of sessions, as the captures have them.
const (
	duplex       = `{"type":"session.created","session":{"id":"duplex-1","turn_state":"idle","epoch":0,"model":"m","modalities":["text","audio"]}}`
	conversation = `{"type":"session.created","session":{"id":"sess_c","model":"m","capabilities":{"turn_detection":["server_vad"]},"modalities":["text"]}}`
	shared       = `{"type":"session.created","session":{"id":"sess_s","model":"m","sglang":{"granted":null}}}`
	openai       = `{"type":"session.created","session":{"id":"sess_o","model":"m"}}`
	turnBased    = `{"type":"session.created","id":"sess-t","created":1}`
	segmented    = `{"type":"session.created","session":{"id":"sess_g","model":"m","intent":"transcription"},"event_index":1}`
)
