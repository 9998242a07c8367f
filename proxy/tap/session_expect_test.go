package tap_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// runSessions plays each case and checks it, whatever the cuts of its bytes.
func runSessions(t *testing.T, cases []sessionCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cfg := c.config()
			got, marks := c.play(t, cfg, 0)
			c.check(t, got, marks)
			cuts := []int{1, 7}
			if len(got.lines) == 1 && got.lines[0].BytesUp+got.lines[0].BytesDown > 8<<10 {
				cuts = []int{509}
			}
			for _, cut := range cuts {
				if c.uncut {
					break
				}
				other, _ := c.play(t, c.config(), cut)
				if diff := cmp.Diff(got.flat(t), other.flat(t)); diff != "" {
					t.Errorf("cut into %d bytes (+) it reads otherwise:\n%s", cut, diff)
				}
			}
		})
	}
}

func (c sessionCase) config() *tap.Config {
	cfg := tap.Config{MaxEvent: c.maxEvent, Timeline: timeline.Config{Rates: c.rates, Deadline: c.deadline}}.WithDefaults()
	return &cfg
}

// flat gives all that came by dotted names.
func (s *sessions) flat(t testing.TB) map[string]string {
	t.Helper()
	out := map[string]string{}
	add := func(prefix string, x any) {
		for k, v := range flatten(t, x) {
			if v == "" || v[0] != '{' {
				out[prefix+k] = v
			}
		}
	}
	for i, r := range s.records.records {
		add(fmt.Sprintf("record %d: ", i), r)
	}
	for i, l := range s.lines {
		add(fmt.Sprintf("session %d: ", i), l)
	}
	return out
}

// check compares what came with the case's want, and what holds for every session.
func (c sessionCase) check(t *testing.T, got *sessions, marks map[string]mark) {
	t.Helper()
	recs := slices.Clone(got.records.records)
	slices.SortStableFunc(recs, func(a, b *timeline.Record) int { return turnOf(a) - turnOf(b) })
	wholeSession(t, got, recs)
	turn := 0
	for line := range strings.Lines(c.want) {
		kind, tokens, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch kind {
		case "", "//":
		case "turn":
			if turn < len(recs) {
				expect(t, fmt.Sprintf("turn %d", turn), recs[turn], recs[turn].Flags, marks, tokens)
			}
			turn++
		case "session":
			if len(got.lines) == 1 {
				expect(t, "session", got.lines[0], got.lines[0].Flags, marks, tokens)
			}
		case "none":
			if len(got.lines) != 0 {
				t.Errorf("%d session lines, want none", len(got.lines))
			}
		default:
			t.Fatalf("no expectation: %s", line)
		}
	}
	if turn != len(recs) {
		t.Errorf("%d records, want %d", len(recs), turn)
		for _, r := range recs {
			t.Logf("turn %d: %s/%s, t_in by %v", turnOf(r), r.Terminal.State, r.Terminal.Reason, text(r.TInSource))
		}
	}
}

func text(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}

// wholeSession checks what holds whatever happened: the line adds up, each record
// has one end, no null lacks its reason.
func wholeSession(t *testing.T, got *sessions, recs []*timeline.Record) {
	t.Helper()
	terminals := map[string]int{}
	for _, e := range got.events {
		if e.Event == "terminal" && e.Status != "" {
			terminals[e.RequestID]++
		}
	}
	for _, r := range recs {
		nullsHaveReasons(t, fmt.Sprintf("turn %d", turnOf(r)), r, r.Unmeasured)
		if n := terminals[r.RequestID]; n != 1 {
			t.Errorf("turn %d: %d terminal events, want 1", turnOf(r), n)
		}
		if in, end := r.Points.TIn, r.Points.TTerm; in != nil && end != nil && *end < *in {
			t.Errorf("turn %d ends %d ns ahead of t_in", turnOf(r), *in-*end)
		}
	}
	if len(got.lines) > 1 {
		t.Fatalf("%d session lines", len(got.lines))
	}
	for _, l := range got.lines {
		nullsHaveReasons(t, "session", l, l.Unmeasured)
		n := 0
		for _, k := range l.States {
			n += k
		}
		turns := 0
		for _, r := range recs {
			if turnOf(r) >= 0 {
				turns++
			}
		}
		if n != turns || l.Turns != n {
			t.Errorf("session: turns %d, states %v, records of turns %d", l.Turns, l.States, turns)
		}
	}
}

// nullsHaveReasons checks that every null has its reason, and nothing else has one.
func nullsHaveReasons(t *testing.T, at string, x any, reasons map[string]string) {
	t.Helper()
	flat := flatten(t, x)
	for name, raw := range flat {
		free := strings.HasPrefix(name, "terminal.evidence") || strings.HasPrefix(name, "unmeasured")
		if raw == "null" && !free && reasons[name] == "" {
			t.Errorf("%s: %s is null without a reason", at, name)
		}
	}
	for name, why := range reasons {
		if raw, ok := flat[name]; ok && raw != "null" {
			t.Errorf("%s: unmeasured names %s (%s), which is %s", at, name, why, raw)
		}
	}
}

// short names of fields in expectations.
var fieldNames = map[string]string{
	"src": "t_in_source", "in": "points.t_in", "ttft": "ttft_ms", "ttfa": "ttfa_ms", "jct": "jct_ms",
	"samples": "audio.samples", "chunks": "audio.chunks", "rate": "audio.sample_rate", "phase": "terminal.phase", "by": "terminal.by",
	"text": "text_bytes", "also": "t_in_alternatives", "ev": "terminal.evidence", "why": "analysis_reason",
}

// expect checks TOKENS of a line: STATE/REASON, +flag, -flag (it is not there),
// KEY=VALUE, KEY!VALUE (another one), KEY~PART (% is a space), KEY?WHY (null for a
// reason that holds WHY). A value @MS is that moment, <L and >L the offset of the
// first and the last byte of the line labelled L.
func expect(t *testing.T, at string, x any, flags []string, marks map[string]mark, tokens string) {
	t.Helper()
	flat := flatten(t, x)
	for token := range strings.FieldsSeq(tokens) {
		i := strings.IndexAny(token, "=!~?")
		switch {
		case token[0] == '+' || token[0] == '-':
			if has := slices.Contains(flags, token[1:]); has != (token[0] == '+') {
				t.Errorf("%s: flags %q, want %s", at, flags, token)
			}
		case i < 0:
			if got := unquote(flat["terminal.state"]) + "/" + unquote(flat["terminal.reason"]); got != token {
				t.Errorf("%s: %s, want %s; evidence %s", at, got, token, flat["terminal.evidence"])
			}
		default:
			expectField(t, at, flat, marks, token, i)
		}
	}
}

func expectField(t *testing.T, at string, flat map[string]string, marks map[string]mark, token string, i int) {
	t.Helper()
	key, want := token[:i], strings.ReplaceAll(token[i+1:], "%", " ")
	if first, rest, _ := strings.Cut(key, "."); fieldNames[first] != "" {
		key = strings.TrimSuffix(fieldNames[first]+"."+rest, ".")
	}
	got, ok := flat[key]
	if !ok {
		got = "null"
	}
	got = unquote(got)
	bad := false
	switch token[i] {
	case '=':
		bad = !same(got, pointOf(t, marks, want))
	case '!':
		bad = same(got, pointOf(t, marks, want))
	case '~':
		bad = !strings.Contains(got, want)
	case '?':
		reason := unquote(flat["unmeasured."+key])
		if got != "null" || !strings.Contains(reason, want) {
			t.Errorf("%s: %s = %s (%s), want null for %q", at, key, got, reason, want)
		}
		return
	}
	if bad {
		t.Errorf("%s: %s = %s, want %s (%s)", at, key, got, token[i:], pointOf(t, marks, want))
	}
}

// pointOf turns @MS, <L and >L into numbers.
func pointOf(t *testing.T, marks map[string]mark, want string) string {
	t.Helper()
	if want == "" {
		return want
	}
	switch want[0] {
	case '@':
		ms, _ := strconv.ParseInt(want[1:], 10, 64)
		return strconv.FormatInt(replayBase+ms*1e6, 10)
	case '<', '>':
		m, ok := marks[want[1:]]
		if !ok {
			t.Fatalf("no line is labelled %s", want[1:])
		}
		if want[0] == '<' {
			return strconv.FormatInt(m.first, 10)
		}
		return strconv.FormatInt(m.last, 10)
	}
	return want
}

// same compares two values; numbers may differ by the error of their reckoning.
func same(a, b string) bool {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	if errX != nil || errY != nil || x == math.Trunc(x) && y == math.Trunc(y) {
		return a == b
	}
	return math.Abs(x-y) <= 1e-9*math.Abs(x)
}

func unquote(raw string) string {
	var s string
	if raw != "" && raw[0] == '"' && json.Unmarshal([]byte(raw), &s) == nil {
		return s
	}
	return raw
}
