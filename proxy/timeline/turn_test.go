package timeline

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/proxy/wire/dialect"
)

// kept is a Sink that keeps what it is given.
type kept struct {
	record *Record
	events []Event
}

func (k *kept) Record(r *Record) { k.record = r }
func (k *kept) Session(*Session) {}
func (k *kept) Event(e *Event)   { k.events = append(k.events, *e) }

// tone is n samples that a person hears.
func tone(n int) []byte {
	b := make([]byte, 0, 2*n)
	for i := range n {
		b = binary.LittleEndian.AppendUint16(b, uint16(int16(9000*math.Sin(float64(i)/5))))
	}
	return b
}

func spoken(n, rate int) *dialect.Event {
	return &dialect.Event{AudioTyped: true, Tokens: -1, Parts: []dialect.Part{{Base64: []byte(base64.StdEncoding.EncodeToString(tone(n))), Format: "pcm16", Rate: rate, Frames: -1}}}
}

func written(text string) *dialect.Event { return &dialect.Event{Text: []byte(text), Tokens: -1} }

func newTurn(k *kept, change func(*Turn)) *Builder {
	cfg := Config{}.WithDefaults()
	t := Turn{Session: "q", N: 3, Flow: FlowRealtime, Dialect: dialect.OpenAI, Variant: "realtime_responses", Method: "GET", Path: "/v1/realtime", RequestID: "q-t3", Source: "own"}
	if change != nil {
		change(&t)
	}
	return NewTurn(&cfg, Identity{Replay: true}, k, t)
}

const msec = int64(1e6)

// at moves the builder to a stamp.
func at(b *Builder, ms int64) *Builder {
	b.Now(ms * msec)
	return b
}

func TestTurnRecord(t *testing.T) {
	k := &kept{}
	b := newTurn(k, func(u *Turn) { u.ServerID, u.Model, u.Modalities = "resp_1", "m", []string{"text", "audio"} })
	b.Asked("commit", 10*msec, 100)
	b.Also("committed", 12*msec)
	b.Also("committed", 13*msec) // the first stays
	b.InputEnd(11*msec, 100)
	b.Begin()
	at(b, 30).Event(written("Hi"), 500)
	at(b, 40).Event(spoken(960, 24000), 900)
	at(b, 50).Marker(1000)
	at(b, 60).Marker(1100)
	at(b, 61).Event(written("late"), 1200)
	if s := b.Finish(); s != Success || b.Finish() != Success {
		t.Fatalf("state %s", s)
	}
	r := k.record
	if *r.SessionID != "q" || *r.Turn != 3 || r.RequestID != "q-t3" || *r.ServerRequestID != "resp_1" || *r.TInSource != "commit" || *r.Status != 101 || *r.DialectVariant != "realtime_responses" {
		t.Errorf("%+v", r)
	}
	if *r.TTFTMS != 20 || *r.TTFAMS != 30 || *r.TTFAudibleMS != 30 || *r.JCTMS != 40 || *r.AudioS != .04 || *r.RTF != 1 {
		t.Errorf("ttft %v ttfa %v audible %v jct %v audio %v rtf %v", *r.TTFTMS, *r.TTFAMS, *r.TTFAudibleMS, *r.JCTMS, *r.AudioS, *r.RTF)
	}
	if *r.Offsets.TIn != 100 || *r.Offsets.TBody != 100 || *r.Offsets.TText != 500 || *r.Offsets.TAudio != 900 || *r.Offsets.TTerm != 1000 || r.TInServerOffset != nil {
		t.Errorf("%+v", r.Offsets)
	}
	if d := cmp.Diff(map[string]int64{"committed": 12 * msec}, r.TInAlternatives); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"after_terminal"}, r.Flags); d != "" {
		t.Error(d)
	}
	for _, e := range k.events {
		if e.RequestID != "q-t3" || e.SessionID != "q" {
			t.Errorf("%+v", e)
		}
	}
}

// TestTurnOfTheServer: where the server's own event asked, no byte of the client
// completes t_in.
func TestTurnOfTheServer(t *testing.T) {
	k := &kept{}
	b := newTurn(k, nil)
	b.InServer(1587)
	b.Asked("server_vad", 10*msec, 0)
	b.Begin()
	at(b, 30).Event(written("Hi"), 2200)
	at(b, 50).Marker(3000)
	b.Finish()
	r := k.record
	if *r.Points.TIn != 10*msec || r.Offsets.TIn != nil || *r.TInServerOffset != 1587 || r.Unmeasured["offsets.t_in"] == "" || *r.TTFTMS != 20 {
		t.Errorf("%+v", r)
	}
}

// TestTurnThatNobodyAskedFor has no TTFT, no TTFA and no JCT (contract section 1).
func TestTurnThatNobodyAskedFor(t *testing.T) {
	k := &kept{}
	b := newTurn(k, nil)
	b.Begin()
	at(b, 30).Event(&dialect.Event{Reasoning: []byte("hm"), Tokens: -1}, 400)
	at(b, 31).Event(written("Hi"), 500)
	at(b, 40).Event(spoken(960, 24000), 900)
	at(b, 50).Marker(1000)
	b.Finish()
	r := k.record
	for name, v := range map[string]*float64{"ttft_ms": r.TTFTMS, "ttfa_ms": r.TTFAMS, "ttfaudible_ms": r.TTFAudibleMS, "jct_ms": r.JCTMS, "rtf": r.RTF, "xrt": r.XRT, "reasoning.first_ms": r.Reasoning.FirstMS} {
		if v != nil || r.Unmeasured[name] == "" {
			t.Errorf("%s is %v, because %q", name, v, r.Unmeasured[name])
		}
	}
	if r.Points.TText == nil || r.Points.TAudio == nil || r.AudioS == nil {
		t.Error("the points themselves are measured")
	}
	for name, reason := range map[string]string{"rtf": r.Unmeasured["rtf"], "xrt": r.Unmeasured["xrt"]} {
		if reason == "no samples counted" || reason == "no audio came" {
			t.Errorf("%s is null because %q, and %d samples came", name, reason, *r.Audio.Samples)
		}
	}
}

// TestTextAheadOfTIn: a hypothesis comes before the user has spoken.
func TestTextAheadOfTIn(t *testing.T) {
	k := &kept{}
	b := newTurn(k, func(u *Turn) { u.Flow = FlowTranscription })
	b.Begin()
	at(b, 20).Snapshot([]byte("The quick fox"), 300)
	b.Asked("server_vad", 30*msec, 0)
	at(b, 40).Snapshot([]byte("The quick"), 400)
	at(b, 40).Marker(400)
	if s := b.Finish(); s != Success {
		t.Error(s)
	}
	if r := k.record; r.TTFTMS != nil || *r.JCTMS != 10 || *r.TextBytes != 9 || *r.TextUnits != 2 || r.Unmeasured["ttft_ms"] != "it came ahead of t_in" {
		t.Errorf("ttft %v jct %v, %d bytes: %s", r.TTFTMS, *r.JCTMS, *r.TextBytes, r.Unmeasured["ttft_ms"])
	}
}

// TestSilentSegment: a final hypothesis without text takes back what was heard.
func TestSilentSegment(t *testing.T) {
	k := &kept{}
	b := newTurn(k, func(u *Turn) { u.Flow = FlowTranscription })
	b.Begin()
	at(b, 20).Snapshot([]byte("Uh"), 300)
	at(b, 40).Snapshot(nil, 400)
	at(b, 40).Marker(400)
	b.Finish()
	if r := k.record; *r.TextBytes != 0 {
		t.Errorf("%d bytes of text", *r.TextBytes)
	}
}

// TestUpstreamSentOfATurn: t_up is the first write that covers the input.
func TestUpstreamSentOfATurn(t *testing.T) {
	k := &kept{}
	b := newTurn(k, nil)
	b.Asked("commit", 10*msec, 100)
	b.UpstreamSent(11*msec, 100) // its end is not known yet
	b.InputEnd(12*msec, 200)
	b.UpstreamSent(13*msec, 199)
	b.UpstreamSent(14*msec, 200)
	b.UpstreamSent(15*msec, 300)
	at(b, 50).Marker(1000)
	b.Finish()
	if r := k.record; *r.Points.TUp != 14*msec || *r.Offsets.TUp != 200 {
		t.Errorf("%+v", r.Points)
	}
}

func TestInterrupted(t *testing.T) {
	k := &kept{}
	b := newTurn(k, nil)
	b.Asked("commit", 10*msec, 100)
	b.Begin()
	at(b, 20).Event(spoken(480, 24000), 500)
	b.Cancelled(30*msec, "client")
	b.Cancelled(31*msec, "speech") // the first counts
	at(b, 40).Event(spoken(240, 24000), 900)
	at(b, 50).Interrupted("barge_in")
	at(b, 50).Marker(1000)
	if s := b.Finish(); s != ClientCancelled {
		t.Error(s)
	}
	r := k.record
	if r.Terminal.Reason != "interrupted" || r.Terminal.By != "client" || *r.JCTMS != 40 {
		t.Errorf("%+v", r.Terminal)
	}
	if c := r.Cancel; c.By != "client" || c.ChunksAfter != 1 || c.SamplesAfter != 240 || *c.ToSilenceMS != 10 {
		t.Errorf("%+v", *c)
	}
}

// TestErrorEndsBeforeItsInterruption: what the server said comes first (contract
// section 5), so its moment is t_term too.
func TestErrorEndsBeforeItsInterruption(t *testing.T) {
	k := &kept{}
	b := newTurn(k, nil)
	b.Asked("video.query", 10*msec, 100)
	b.Begin()
	at(b, 20).Event(&dialect.Event{Tokens: -1, Err: &dialect.Failure{Message: "Query processing failed"}}, 300)
	at(b, 90_000).Interrupted("next_query")
	if s := b.Finish(); s != ServerError {
		t.Error(s)
	}
	if r := k.record; *r.JCTMS != 10 {
		t.Errorf("JCT %v ms, want 10", *r.JCTMS)
	}
}

func TestDeclaredTotals(t *testing.T) {
	for _, v := range []struct {
		name  string
		tell  func(*Builder)
		state State
		diff  any
	}{
		{"as declared", func(b *Builder) { b.Declared(1920) }, Success, int64(960)},
		{"in two units", func(b *Builder) { b.Declared(1000); b.Declared(920) }, Success, int64(960)},
		{"more than came", func(b *Builder) { b.Declared(2000) }, QualityFailed, int64(1000)},
		{"none", func(*Builder) {}, Success, nil},
		{"one of them means nothing", func(b *Builder) { b.Declared(1920); b.Undeclared() }, Success, nil},
	} {
		k := &kept{}
		b := newTurn(k, func(u *Turn) { u.Flow = FlowSpeechWS })
		b.Asked("input.done", 10*msec, 100)
		b.Begin()
		b.Rate(24000, "event", true)
		b.BinaryStart("pcm")
		b.Binary(tone(960))
		at(b, 30).BinaryEnd(500)
		v.tell(b)
		at(b, 50).Marker(1000)
		s := b.Finish()
		var got any
		if d := k.record.Audio.DeclaredSamples; d != nil {
			got = *d
		}
		if s != v.state || got != v.diff {
			t.Errorf("%s: %s with %v declared, want %s with %v", v.name, s, got, v.state, v.diff)
		}
	}
}

// TestBinaryMessages: whatever a message completes was complete at its end
// (records.md section 1), and an empty one is no sound.
func TestBinaryMessages(t *testing.T) {
	k := &kept{}
	b := newTurn(k, func(u *Turn) { u.Flow = FlowSpeechWS })
	b.Asked("input.done", 10*msec, 100)
	b.Begin()
	b.Rate(24000, "event", true)
	at(b, 20).BinaryStart("pcm")
	b.BinaryEnd(200)
	at(b, 25).BinaryStart("pcm")
	b.Binary(make([]byte, 400)) // silence, less than is playable
	b.BinaryEnd(300)
	at(b, 30).BinaryStart("pcm")
	for _, n := range []int{1, 998, 1, 960} {
		b.Binary(tone(n)[:n])
	}
	at(b, 31).BinaryEnd(900)
	at(b, 40).Marker(1000)
	b.Finish()
	r := k.record
	if *r.Points.TAudioEvent != 20*msec || *r.Points.TAudio != 31*msec || *r.Points.TAudible != 31*msec || *r.Offsets.TAudio != 900 || *r.Offsets.TAudible != 900 {
		t.Errorf("%+v %+v", r.Points, r.Offsets)
	}
	if a := r.Audio; a.Chunks != 2 || a.EmptyEvents != 1 || *a.Samples != 1180 || *a.ChunkUnit != "message" {
		t.Errorf("%+v", a)
	}
	if d := cmp.Diff([]string{"rate_assumed"}, r.Flags); d != "" {
		t.Errorf("the rate is nominal: %s", d)
	}
}

// TestFilesInMessages: each message of a wav session is a file of its own.
func TestFilesInMessages(t *testing.T) {
	whole := tone(1200)
	file := func(n int) []byte {
		p := whole[:2*n]
		whole = whole[2*n:]
		h := []byte("RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x80\x3e\x00\x00\x00\x7d\x00\x00\x02\x00\x10\x00data\x00\x00\x00\x00")
		binary.LittleEndian.PutUint32(h[4:], uint32(36+len(p)))
		binary.LittleEndian.PutUint32(h[40:], uint32(len(p)))
		return append(h, p...)
	}
	k := &kept{}
	b := newTurn(k, func(u *Turn) { u.Flow = FlowSpeechWS })
	b.Asked("input.done", 10*msec, 100)
	b.Begin()
	b.Rate(24000, "event", true) // wrong: the files say 16000
	for i, n := range []int{800, 400} {
		f := file(n)
		at(b, int64(20+i)).BinaryStart("wav")
		b.Binary(f[:30])
		b.Binary(f[30:])
		b.BinaryEnd(int64(2000 * (i + 1)))
		b.Declared(int64(len(f)))
	}
	at(b, 50).Marker(5000)
	if s := b.Finish(); s != Success {
		t.Errorf("%s %s", s, k.record.Terminal.Reason)
	}
	if a := k.record.Audio; *a.Samples != 1200 || *a.SampleRate != 16000 || *a.Container != "wav" || a.Chunks != 2 {
		t.Errorf("%+v", a)
	}
}

func TestRateOfATurn(t *testing.T) {
	for _, v := range []struct {
		name    string
		rates   map[string]int // of the model table
		turn    func(*Turn)
		rate    any
		from    any
		assumed any
		flags   []string
	}{
		{"the session's", nil, func(u *Turn) { u.Rate, u.RateFrom = 16000, "session" }, int64(16000), "session", nil, []string{}},
		{"the dialect's", nil, func(u *Turn) { u.Rate, u.RateFrom = 24000, "dialect" }, int64(24000), "dialect", nil, []string{}},
		{"the dialect's, nominal", nil, func(u *Turn) { u.Rate, u.RateFrom, u.Nominal = 24000, "dialect", true }, int64(24000), "dialect", nil, []string{"rate_assumed"}},
		{"nominal, and the model table knows", map[string]int{"m": 16000}, func(u *Turn) { u.Model, u.Rate, u.RateFrom, u.Nominal = "m", 24000, "dialect", true }, int64(16000), "config", nil, []string{}},
		{"nobody's", nil, nil, nil, nil, int64(24000), []string{"rate_assumed"}},
	} {
		k := &kept{}
		cfg := Config{Rates: v.rates}.WithDefaults()
		u := Turn{Session: "q", Flow: FlowRealtime, RequestID: "q-t0", Source: "own"}
		if v.turn != nil {
			v.turn(&u)
		}
		b := NewTurn(&cfg, Identity{Replay: true}, k, u)
		b.Asked("commit", 10*msec, 100)
		b.Begin()
		at(b, 20).Event(spoken(960, 0), 500)
		at(b, 50).Marker(1000)
		b.Finish()
		a := k.record.Audio
		if got := []any{deref(a.SampleRate), deref(a.SampleRateSource), deref(a.AssumedSampleRate)}; !cmp.Equal(got, []any{v.rate, v.from, v.assumed}) || !cmp.Equal(k.record.Flags, v.flags) {
			t.Errorf("%s: %v %v", v.name, got, k.record.Flags)
		}
	}
}

func deref[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

func TestCloseFramesOfATurn(t *testing.T) {
	for _, v := range []struct {
		by, code int
		text     bool
		want     string
	}{
		{1, 1000, true, "client-cancelled client_closed client"},
		{1, 0, true, "client-cancelled client_closed client"},
		{2, 1000, true, "invalid-output missing_terminal server"},
		{2, 1000, false, "invalid-output no_output server"},
		{2, 0, false, "invalid-output no_output server"},
		{2, 1001, true, "transport-error close_1001 server"},
		{2, 1002, true, "invalid-request close_1002 server"},
		{2, 1007, true, "invalid-request close_1007 server"},
		{2, 1009, true, "invalid-request close_1009 server"},
		{2, 1011, true, "server-error close_1011 server"},
		{2, 1012, true, "transport-error close_1012 server"},
		{2, 1013, false, "admission-rejected close_1013 server"},
		{2, 4000, true, "server-error close_4000 server"},
	} {
		k := &kept{}
		b := newTurn(k, nil)
		b.Asked("commit", 10*msec, 100)
		b.Begin()
		if v.text {
			at(b, 20).Event(written("Hi"), 300)
		}
		b.CloseFrame(v.by, v.code, "x", 30*msec)
		b.CloseFrame(3-v.by, 1000, "", 31*msec) // the other's echo
		b.ServerEnd(FIN, 32*msec)
		b.ClientEnd(FIN, 33*msec)
		b.Finish()
		r := k.record
		if got := string(r.Terminal.State) + " " + r.Terminal.Reason + " " + r.Terminal.By; got != v.want || *r.JCTMS != 20 {
			t.Errorf("%d by %d: %s after %v ms, want %s", v.code, v.by, got, *r.JCTMS, v.want)
		}
	}
}

// TestOwesNothing: an empty answer to nothing is no failure.
func TestOwesNothing(t *testing.T) {
	for _, free := range []bool{true, false} {
		k := &kept{}
		b := newTurn(k, func(u *Turn) { u.Flow = FlowSpeechWS })
		b.Asked("input.done", 10*msec, 100)
		if free {
			b.OwesNothing()
		}
		b.Begin()
		at(b, 20).Marker(300)
		if s := b.Finish(); (s == Success) != free {
			t.Errorf("owes nothing %v: %s", free, s)
		}
	}
}

// TestRateOfG711: G.711 is 8 kHz where nothing declares another rate; a label that
// does wins.
func TestRateOfG711(t *testing.T) {
	for _, c := range []struct {
		name    string
		rate    int
		want    int64
		from    string
		seconds float64
	}{
		{"undeclared", 0, 8000, "encoding", 0.3},
		{"declared", 16000, 16000, "event", 0.15},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := &kept{}
			b := newTurn(k, func(u *Turn) { u.Rate, u.RateFrom, u.Nominal = 24000, "dialect", true })
			b.Asked("response.create", 10*msec, 100)
			b.Begin()
			pcm := make([]byte, 2400)
			for i := range pcm {
				pcm[i] = 0x90 ^ byte(i/10%2)<<7
			}
			ev := dialect.Event{Tokens: -1, AudioTyped: true, Parts: []dialect.Part{{Base64: []byte(base64.StdEncoding.EncodeToString(pcm)), Format: "g711_ulaw", Rate: c.rate}}}
			at(b, 20).Event(&ev, 500)
			at(b, 50).Marker(5000)
			b.Finish()
			a := k.record.Audio
			if a == nil || a.SampleRate == nil || *a.SampleRate != c.want || *a.SampleRateSource != c.from || *k.record.AudioS != c.seconds {
				t.Errorf("audio = %+v, %v s; want %d Hz by %s, %g s", a, k.record.AudioS, c.want, c.from, c.seconds)
			}
			if len(k.record.Quality.Failed) > 0 {
				t.Errorf("failed %q", k.record.Quality.Failed)
			}
		})
	}
}
