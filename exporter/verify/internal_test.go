package verify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/exporter/rundir/schema"
	"github.com/omnitap/omnitap/exporter/verify/internal/shape"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// Whoever adds a field decides here what becomes of it: derived, told, or not
// derivable, with the reason.
func TestEveryFieldIsDecidedUpon(t *testing.T) {
	c, err := shape.Compile(schema.Requests)
	if err != nil {
		t.Fatal(err)
	}
	places := c.Paths()
	for _, p := range places {
		if _, ok := why[p]; !ok {
			t.Errorf("%s is in the schema, and the table `why` does not say what is done with it", p)
		}
	}
	for p := range why {
		if !slices.Contains(places, p) {
			t.Errorf("%s is in the table `why` and in no record", p)
		}
	}
}

// Whoever reads events.jsonl finds each word that the contract does not have in README.
func TestWordsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for k := heardFirst; k < nKinds; k++ {
		if !strings.Contains(string(text), "`"+words[k]+"`") {
			t.Errorf("README.md does not name the event %s", words[k])
		}
	}
}

func TestPlayer(t *testing.T) {
	cases := map[string]struct {
		in             []arrival
		underruns      int64
		stall, longest float64
		need           float64
	}{
		"nothing":             {nil, 0, 0, 0, 0},
		"one":                 {[]arrival{{0, .1}}, 0, 0, 0, 0},
		"in time":             {[]arrival{{0, .1}, {100, .1}, {150, .1}}, 0, 0, 0, 0},
		"late by 150":         {[]arrival{{0, .1}, {250, .1}}, 1, 150, 150, 150},
		"a stall moves":       {[]arrival{{0, .1}, {250, .1}, {350, .1}}, 1, 150, 150, 150},
		"two":                 {[]arrival{{0, .1}, {150, .1}, {350, .1}}, 2, 150, 100, 150},
		"silence of no sound": {[]arrival{{0, 0}, {40, .1}}, 1, 40, 40, 40},
	}
	for name, c := range cases {
		n, stall, longest := player(c.in, 0, stallMS)
		if need := prebuffer(c.in); n != c.underruns || !near(stall, c.stall) || !near(longest, c.longest) || !near(need, c.need) {
			t.Errorf("%s: %d underruns, %v and %v ms, %v ms of head start, want %d, %v, %v, %v", name, n, stall, longest, need, c.underruns, c.stall, c.longest, c.need)
		}
	}
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// With the least head start nothing runs dry; with a little less something does.
func TestPrebufferIsTheLeast(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		in := []arrival{{0, .08}}
		for range 20 {
			in = append(in, arrival{in[len(in)-1].ms + 160*r.Float64(), .02 + .16*r.Float64()})
		}
		need := prebuffer(in)
		if n, _, _ := player(in, need, stallMS); n != 0 {
			t.Fatalf("%d underruns with %v ms", n, need)
		}
		if n, _, _ := player(in, need-0.01, stallMS); need > 0.01 && n == 0 {
			t.Fatalf("no underrun with less than %v ms", need)
		}
	}
}

func TestPercentileAndVariation(t *testing.T) {
	v := []float64{1, 2, 3, 4}
	for p, want := range map[float64]float64{0: 1, 50: 2.5, 95: 3.85, 100: 4} {
		if got := percentile(v, p); !near(got, want) {
			t.Errorf("percentile %v = %v, want %v", p, got, want)
		}
	}
	if got := percentile([]float64{7}, 99); got != 7 {
		t.Errorf("of one value: %v", got)
	}
	for want, v := range map[float64][]float64{0: {5, 5, 5}, 0.5: {1, 3}, math.Sqrt(2.0/3) / 2: {1, 2, 3}} {
		if got := variation(v); !near(got, want) {
			t.Errorf("variation of %v = %v, want %v", v, got, want)
		}
	}
	if got := variation([]float64{0, 0}); got != 0 {
		t.Errorf("without a mean: %v", got)
	}
}

func TestSpans(t *testing.T) {
	var s spans
	for i, x := range []struct {
		from, to int64
		free     bool
	}{
		{10, 20, true},
		{20, 30, true},
		{1, 10, true},
		{40, 50, true},
		{30, 40, true}, // 1 to 50 now
		{49, 51, false},
		{1, 2, false},
		{0, 100, false},
		{25, 26, false},
		{50, 60, true},
		{70, 80, true},
		{60, 71, false},
		{60, 70, true},
		{5, 5, true},
		{-3, 4, true},
		{90, 80, true},
	} {
		if got := s.add(x.from, x.to); got != x.free {
			t.Errorf("%d: %d to %d free: %t, want %t", i, x.from, x.to, got, x.free)
		}
	}
	if len(s) != 1 || s[0] != [2]int64{1, 80} {
		t.Errorf("what touches is not put together: %v", s)
	}
}

// A client may use an id again: each use is a request of its own.
func TestGroupsOfOneID(t *testing.T) {
	q, n := newGroups(), newNames()
	state := n.number([]byte("success"))
	add := func(e event) *group { return q.add([]byte("a"), &e) }
	add(event{kind: ingress, mono: 1})
	if g := add(event{kind: terminal, mono: 2}); g.ended {
		t.Error("an end marker ends it")
	}
	first := add(event{kind: terminal, mono: 2, status: state})
	second := add(event{kind: ingress, mono: 3})
	if !first.ended || first.mixed || second == first || second.ended {
		t.Errorf("first %+v, second %+v", first, second)
	}
	if g := q.take("a", 3, true); g != nil {
		t.Errorf("taken ahead of its end: %+v", g)
	}
	add(event{kind: terminal, mono: 4, status: state})
	if g := q.take("a", 3, true); g != second {
		t.Errorf("took %+v, want the second", g)
	}
	if g := q.take("a", absent, true); g != first {
		t.Errorf("took %+v, want the first", g)
	}
	if g := q.take("a", 1, false); g != nil || len(q.open) != 0 {
		t.Errorf("something is left: %+v", g)
	}
	add(event{kind: ingress, mono: 5})
	if g := add(event{kind: ingress, mono: 6}); !g.mixed {
		t.Error("two requests at once are not told")
	}
}

func readAll(r io.Reader) (got []string, bad []string) {
	for l := newLines("x.jsonl", io.NopCloser(r)); ; {
		line, err := l.next()
		if errors.Is(err, io.EOF) {
			return got, bad
		}
		if err != nil {
			bad = append(bad, err.Error())
			if _, goesOn := errors.AsType[*rundir.LineError](err); !goesOn {
				return got, bad
			}
			continue
		}
		got = append(got, string(line))
	}
}

func TestLines(t *testing.T) {
	got, bad := readAll(iotest.OneByteReader(strings.NewReader("a\n\nbc\n" + strings.Repeat("x", 2<<20) + "\nend")))
	want := []string{"a", "", "bc", strings.Repeat("x", 2<<20)}
	if d := cmp.Diff(want, got); d != "" || len(bad) != 1 || !strings.Contains(bad[0], "line 5 (byte 2097159) is unfinished") {
		t.Errorf("bad %v, lines differ", bad)
	}
	got, bad = readAll(strings.NewReader("a\n" + strings.Repeat("x", maxLine+1) + "\nb\n"))
	if len(got) != 2 || got[1] != "b" || len(bad) != 1 || !strings.Contains(bad[0], "line 2") || !strings.Contains(bad[0], "too long") {
		t.Errorf("a line too long: %d lines, bad %v", len(got), bad)
	}
	if got, bad := readAll(strings.NewReader("\x1f\x8b\x08\n")); got != nil || len(bad) != 1 || !strings.Contains(bad[0], "compressed (gzip)") {
		t.Errorf("gzip: %q, %v", got, bad)
	}
	if got, bad := readAll(strings.NewReader("")); got != nil || bad != nil {
		t.Errorf("nothing: %q, %v", got, bad)
	}
	if _, bad := readAll(io.MultiReader(strings.NewReader("a\n"), iotest.ErrReader(errors.New("broken")))); len(bad) == 0 {
		t.Error("a disk that fails is not told")
	}
}

// Whatever the bytes, the lines are what splitting gives.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\n"))
	f.Add([]byte("a\n\n\xff\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.HasPrefix(text, gzipMagic) {
			return
		}
		got, bad := readAll(bytes.NewReader(text))
		parts := strings.Split(string(text), "\n")
		whole, rest := parts[:len(parts)-1], parts[len(parts)-1]
		if !slices.Equal(got, whole) || (rest != "") != (len(bad) == 1) {
			t.Errorf("%q: %q, bad %v", text, got, bad)
		}
	})
}

// sameEvent compares what the two readings of a line say.
func sameEvent(t *testing.T, line []byte) {
	t.Helper()
	p := parser{names: newNames()}
	var e event
	err := p.parse(line, &e)
	var want timeline.Event
	wantErr := json.Unmarshal(line, &want)
	if err != nil {
		return // it is the stricter of the two
	}
	if wantErr != nil {
		t.Fatalf("%q: read, and encoding/json says %v", line, wantErr)
	}
	number := func(n timeline.Number) int64 {
		if v, ok := n.Get(); ok {
			return v
		}
		return absent
	}
	valid := func(s string) string { return strings.ToValidUTF8(s, "\ufffd") }
	got := fmt.Sprint(words[e.kind], e.attempt, e.chunk, e.mono, e.wall, e.bytes, e.batch, e.off, e.samples, e.rate, e.channels,
		e.chars, e.wire, e.count, e.wait, e.transfer, e.empty, e.cpu, e.runq, e.blocked)
	if w := fmt.Sprint(want.Event, want.Attempt, number(want.ChunkID), want.MonoNS, number(want.WallNS), number(want.Bytes), number(want.Batch),
		number(want.Offset), number(want.Samples), number(want.Rate), number(want.Channels), number(want.Chars), number(want.WireBytes), number(want.Count),
		number(want.WaitNS), number(want.Transfer), number(want.EmptyPolls), number(want.CPUNS), number(want.RunqNS), number(want.BlockedNS)); got != w {
		t.Errorf("%q: %s, encoding/json has %s", line, got, w)
	}
	for _, x := range []struct{ got, want string }{
		{string(p.text(mRun)), string(want.RunID)},
		{string(p.text(mRequest)), want.RequestID},
		{p.names.text(e.session), string(want.SessionID)},
		{p.names.text(e.stage), string(want.Stage)},
		{p.names.text(e.status), string(want.Status)},
		{p.names.text(e.transport), string(want.Transport)},
		{p.names.text(e.peer), string(want.Peer)},
		{p.names.text(e.match), string(want.Match)},
	} {
		if valid(x.got) != valid(x.want) {
			t.Errorf("%q: %q, encoding/json has %q", line, x.got, x.want)
		}
	}
}

func anEvent() []byte {
	e := timeline.Event{
		RunID: "r", RequestID: "q\"é", SessionID: "s", Attempt: 1, Event: "output_chunk", MonoNS: 5, ChunkID: timeline.N(0), Bytes: timeline.N(7),
		Samples: timeline.N(3), Rate: timeline.N(24000), Channels: timeline.N(1), Transport: "shm", Peer: "talker", Match: "id",
		Chars: timeline.N(1), WireBytes: timeline.N(2), Count: timeline.N(3), WaitNS: timeline.N(4), Transfer: timeline.N(0), EmptyPolls: timeline.N(6),
		CPUNS: timeline.N(8), RunqNS: timeline.N(9), BlockedNS: timeline.N(10),
	}
	return rundir.AppendEvent(nil, &e)
}

func TestReadsWhatIsWritten(t *testing.T) {
	p := parser{names: newNames()}
	var e event
	if err := p.parse(anEvent(), &e); err != nil || e.kind != outputChunk || e.samples != 3 || e.off != absent || string(p.text(mRequest)) != "q\"é" {
		t.Errorf("%+v, %v", e, err)
	}
	sameEvent(t, anEvent())
}

func FuzzEvent(f *testing.F) {
	f.Add(anEvent())
	f.Add(bytes.ReplaceAll(anEvent(), []byte(`"mono_ns":5`), []byte(`"mono_ns":9223372036854775807,"new":{"a":[1]}`)))
	f.Add([]byte(`{"event":"ingress"}`))
	f.Fuzz(func(t *testing.T, line []byte) { sameEvent(t, line) })
}

func TestToleranceNear(t *testing.T) {
	for _, c := range []struct {
		a, b float64
		t    tolerance
		want bool
	}{
		{1, 1 + 1e-10, rounded, true},
		{1, 1 + 1e-8, rounded, false},
		{0, 1e-13, rounded, true},
		{0, 1e-9, rounded, false},
		{0, 9e-7, summed, true},
		{5, 5.000002, summed, false},
		{100, 100.00002, single, true},
		{100, 100.001, single, false},
	} {
		if got := c.t.near(c.a, c.b); got != c.want {
			t.Errorf("%v near %v (%s): %t, want %t", c.a, c.b, c.t.text, got, c.want)
		}
	}
}

func TestIsEnergy(t *testing.T) {
	got := map[string]bool{}
	for _, key := range []string{"energy_j", "gpu_energy_mj", "energy", "energy_change", "power_w", "energy_idle_w", "energy_wh", "total_j", "counter_j", "net_j"} {
		got[key] = isEnergy(key)
	}
	want := map[string]bool{"energy_j": true, "gpu_energy_mj": true, "energy": true, "energy_change": false, "power_w": false, "energy_idle_w": false, "energy_wh": true, "total_j": true, "counter_j": true, "net_j": false}
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
}

// Processor time is from the first to the last sample within a stage's time; a sample at
// an end of it leaves nothing open there.
func TestUsage(t *testing.T) {
	var list []*event
	for i := range int64(5) {
		list = append(list, &event{kind: cpuUsage, mono: 10 * i, cpu: 3e6 * i * i, runq: 1e6 * i, blocked: 2e6 * i})
	}
	list[0], list[3] = list[3], list[0] // whatever their order
	ms := func(v float64) *float64 { return &v }
	for name, c := range map[string]struct {
		from, to int64
		want     stage
	}{
		"ends between samples":    {5, 35, stage{CPUMS: ms(24), RunqMS: ms(2), BlockedMS: ms(4), CPUBoundMS: ms(24)}},
		"ends at samples":         {10, 30, stage{CPUMS: ms(24), RunqMS: ms(2), BlockedMS: ms(4), CPUBoundMS: ms(0)}},
		"one end at a sample":     {10, 35, stage{CPUMS: ms(24), RunqMS: ms(2), BlockedMS: ms(4), CPUBoundMS: ms(21)}},
		"nothing behind its end":  {5, 45, stage{CPUMS: ms(45), RunqMS: ms(3), BlockedMS: ms(6)}},
		"one sample in its time":  {15, 25, stage{}},
		"no sample ahead, at all": {-5, 35, stage{CPUMS: ms(27), RunqMS: ms(3), BlockedMS: ms(6)}},
	} {
		v, err := newVerifier(t.TempDir(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		j := judge{v: v, rec: &record{}}
		if j.usageOf(&c.want, list, &c.from, &c.to); v.res.Errors > 0 {
			t.Errorf("%s: %v", name, v.res.Findings)
		}
	}
}
