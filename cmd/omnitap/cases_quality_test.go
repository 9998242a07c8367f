package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/proxy"
	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/timeline"
	"github.com/omnitap/omnitap/proxy/timeline/waveform"
)

// hiss is n samples of noise of about so many parts of 16 bits.
func hiss(n int, level float64) string {
	r := rand.New(rand.NewPCG(1, 2))
	return pcmOf(n, func(int) int { return int(level * r.NormFloat64()) })
}

// speechAnswer is exchangeCase for raw 24 kHz sound in these chunks.
func speechAnswer(t testing.TB, change func(*proxy.Config, *tap.Config), chunks ...string) *timeline.Record {
	t.Helper()
	return exchangeCase(t, change, speechRequest(caseWAVBody), endFIN, soundAnswer("audio/wav", append([]string{wavHead(24000, 1, 0xFFFFFFFF)}, chunks...)...)...).rec
}

// findingOf returns what a check says in a record.
func findingOf(t testing.TB, rec *timeline.Record, name string) waveform.Finding {
	t.Helper()
	for _, f := range rec.Quality.Checks {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("no finding of %s in %+v", name, rec.Quality)
	return waveform.Finding{}
}

// TestC21LossAtBorders: each chunk lacks its last 555 samples; with the model's
// hop the amount is told, without it only that the curve breaks. A last chunk
// that is short alone is whole sound.
func TestC21LossAtBorders(t *testing.T) {
	const frames, lost = 19_200, 555
	chunks := func(lost int) (out []string) {
		for i := range 6 {
			n := frames - lost
			if i == 5 {
				n = frames - 555
			}
			out = append(out, sineFrom(i*frames, n, 24000))
		}
		return out
	}
	hop := func(_ *proxy.Config, c *tap.Config) { c.Timeline.Hops = map[string]int{"m": 1920} }
	for name, c := range map[string]struct {
		change func(*proxy.Config, *tap.Config)
		amount bool
	}{"hop": {hop, true}, "no hop": {nil, false}} {
		t.Run(name, func(t *testing.T) {
			rec := speechAnswer(t, c.change, chunks(lost)...)
			wantFailed(t, rec, "border_jumps")
			f := findingOf(t, rec, "border_jumps")
			if has := strings.Contains(f.Reason, "1365 samples beyond whole hops of 1920: it lacks 555"); has != c.amount || !strings.Contains(f.Reason, "5 of 5 chunk borders") {
				t.Errorf("reason %q", f.Reason)
			}
		})
	}
	t.Run("control", func(t *testing.T) { wantTerminal(t, speechAnswer(t, hop, chunks(0)...), timeline.Success, "done") })
}

// TestC31RunawayTail: near-silence up to the server's limit fails with its length;
// a pause within speech does not.
func TestC31RunawayTail(t *testing.T) {
	const second = 24_000
	tone := sine(second*12/10, second)
	rec := speechAnswer(t, nil, tone, hiss(second*2984/100, 10))
	wantFailed(t, rec, "trailing_silence")
	f := findingOf(t, rec, "trailing_silence")
	if f.Measured == nil || *f.Measured < 29.8 || *f.Measured > 29.9 || f.Sample == nil || *f.Sample < second*119/100 || *f.Sample > second*121/100 {
		t.Errorf("finding %+v, want 29.84 s from sample 28800 on", f)
	}
	wantTerminal(t, speechAnswer(t, nil, tone, hiss(second*15/10, 10), sineFrom(7, second, second)), timeline.Success, "done")
}

// TestRepeatedSound: the end of a chunk once more, and a whole chunk once more,
// are told apart, each with its place.
func TestRepeatedSound(t *testing.T) {
	const n = 2400
	var chunks []string
	for i := range 6 {
		chunks = append(chunks, hissFrom(uint64(i), n))
	}
	wantTerminal(t, speechAnswer(t, nil, chunks...), timeline.Success, "done")

	again := append(append([]string{}, chunks[:4]...), chunks[3:]...)
	rec := speechAnswer(t, nil, again...)
	wantFailed(t, rec, "repeated_chunk")
	if f := findingOf(t, rec, "repeated_chunk"); *f.Chunk != 4 || *f.Sample != 4*n {
		t.Errorf("at chunk %d, sample %d, want 4, %d", *f.Chunk, *f.Sample, 4*n)
	}

	tail := append([]string{}, chunks...)
	tail[2] = tail[1][len(tail[1])-2*480:] + tail[2]
	rec = speechAnswer(t, nil, tail...)
	wantFailed(t, rec, "border_overlap")
	if f := findingOf(t, rec, "border_overlap"); *f.Chunk != 2 || *f.Sample != 2*n || *f.Measured != 480 {
		t.Errorf("finding %+v at chunk %d, sample %d, %g samples; want 2, %d, 480", f, *f.Chunk, *f.Sample, *f.Measured, 2*n)
	}
}

// hissFrom is noise with a seed of its own.
func hissFrom(seed uint64, n int) string {
	r := rand.New(rand.NewPCG(seed, 3))
	return pcmOf(n, func(int) int { return int(3000 * r.NormFloat64()) })
}

// TestNotMeasuredIsNotPassed: a stream that its client cut off says nothing of
// its end, and one chunk nothing of borders.
func TestNotMeasuredIsNotPassed(t *testing.T) {
	rec := speechAnswer(t, nil, sine(24_000, 24_000))
	for _, name := range []string{"border_jumps", "border_overlap", "repeated_chunk", "declared_total"} {
		if f := findingOf(t, rec, name); f.Verdict != waveform.NotMeasured || f.Reason == "" {
			t.Errorf("%s: %+v, want not measured with a reason", name, f)
		}
	}
	cut := exchangeCase(t, nil, speechRequest(caseWAVBody), endFIN, soundAnswer("audio/wav", wavHead(24000, 1, 0xFFFFFFFF), sine(24_000, 24_000))[:3]...).rec
	for _, name := range []string{"trailing_silence", "declared_total"} {
		if f := findingOf(t, cut, name); f.Verdict != waveform.NotMeasured {
			t.Errorf("%s of a cut stream: %+v", name, f)
		}
	}
}

// melody is a bar of four notes, each sounding on.
func melody(bars int) (out string) {
	const note = 2400
	for range bars {
		for _, hz := range []float64{262, 330, 392, 523} {
			out += pcmOf(note, func(i int) int {
				return int(6000 * min(1, float64(i)/120) * math.Exp(-float64(i)/2000) * (math.Sin(2*math.Pi*hz*float64(i)/24000) + .3*math.Sin(4.1*math.Pi*hz*float64(i)/24000)))
			})
		}
	}
	return out
}

// TestC23CumulativeSnapshots: each event holds all so far, or the last one holds all
// once more: what came again is told, with the length that is left. A melody that
// repeats a bar is content.
func TestC23CumulativeSnapshots(t *testing.T) {
	const step = 9600
	speechOf := func(i, n int) string { return sound24(t, "voice")[2*i : 2*(i+n)] }
	for kind, part := range map[string]func(i, n int) string{"ramp": ramp, "voice": speechOf} {
		var snapshots, deltas []string
		for i := range 5 {
			snapshots = append(snapshots, part(0, (i+1)*step))
			deltas = append(deltas, part(i*step, step))
		}
		whole := part(0, 5*step)
		for name, c := range map[string]struct {
			chunks []string
			reason string // of repeated_audio; empty: it passes
			chunk  int
		}{
			"snapshots":          {snapshots, "4 chunks each begin with sound that came before as a whole; without what came again the sound has 48000 sample frames, not 144000", 1},
			"two snapshots":      {snapshots[:2], "1 chunk begins with sound that came before as a whole; without what came again the sound has 19200 sample frames, not 28800", 1},
			"the last one alone": {append(deltas[:5:5], whole), "1 chunk begins with sound that came before as a whole; without what came again the sound has 48000 sample frames, not 96000", 5},
			"one and all":        {[]string{deltas[0], part(0, 2*step)}, "1 chunk begins with sound that came before as a whole; without what came again the sound has 19200 sample frames, not 28800", 1},
			"deltas":             {deltas, "", 0},
		} {
			for form, send := range map[string]func(testing.TB, ...string) *timeline.Record{"body": rawSpeech, "events": eventSpeech, "files": fileSpeech, "socket": socketSpeech} {
				t.Run(kind+"/"+name+"/"+form, func(t *testing.T) {
					rec := send(t, c.chunks...)
					if c.reason == "" {
						wantTerminal(t, rec, timeline.Success, "done")
						return
					}
					wantFailed(t, rec, "repeated_audio")
					if f := findingOf(t, rec, "repeated_audio"); f.Reason != c.reason || *f.Chunk != c.chunk {
						t.Errorf("chunk %d: %s; want chunk %d: %s", *f.Chunk, f.Reason, c.chunk, c.reason)
					}
				})
			}
		}
	}
	for _, n := range []int{7000, 5000, 11000} { // samples a chunk: no bar is a chunk
		var chunks []string
		for part := range slices.Chunk([]byte(melody(4)), 2*n) {
			chunks = append(chunks, string(part))
		}
		wantTerminal(t, eventSpeech(t, chunks...), timeline.Success, "done")
	}
}

// The forms that sound comes in: chunks of a body, events with bare samples, events
// with a file each, binary messages.

func rawSpeech(t testing.TB, chunks ...string) *timeline.Record {
	t.Helper()
	return speechAnswer(t, nil, chunks...)
}

func eventSpeech(t testing.TB, chunks ...string) *timeline.Record {
	t.Helper()
	answer := answerHead("text/event-stream", "X-Sample-Rate: 24000")
	for _, c := range chunks {
		answer += httpChunk(speechDelta(c))
	}
	return exchangeCase(t, nil, speechRequest(caseSpeechBody), endFIN, caseWrite{data: answer + httpChunk(speechDone) + zeroChunk}).rec
}

func fileSpeech(t testing.TB, chunks ...string) *timeline.Record {
	t.Helper()
	answer := answerHead("text/event-stream") + httpChunk(chatText("Hi"))
	for _, c := range chunks {
		answer += httpChunk(chatAudio(wavFile(24000, 1, c)))
	}
	return exchangeCase(t, nil, chatRequest(caseAudioChat), endFIN, caseWrite{data: answer + httpChunk(chatFinish) + httpChunk(chatDone) + zeroChunk}).rec
}

func socketSpeech(t testing.TB, chunks ...string) *timeline.Record {
	t.Helper()
	k := startTalks(t, nil)
	w := k.opened()
	w.begin("a")
	for _, c := range chunks {
		w.sound("a", c)
	}
	w.done("a")
	w.shut()
	recs, _ := k.only(t, 1)
	return recs[0]
}

// sound24 is two seconds and a half of made voice, 24 kHz mono.
func sound24(t testing.TB, kind string) string {
	t.Helper()
	if kind != "voice" {
		t.Fatalf("no sound %q", kind)
	}
	r := rand.New(rand.NewPCG(11, 12))
	phase := 0.0
	return pcmOf(60000, func(i int) int {
		x := float64(i) / 24000
		phase += 2 * math.Pi * (130 + 30*math.Sin(2*math.Pi*1.3*x)) / 24000
		v := 0.0
		for h := 1; h <= 12; h++ {
			v += math.Sin(float64(h)*phase) / float64(h)
		}
		return int(5000*v*(.6+.4*math.Sin(2*math.Pi*3*x)) + 30*r.NormFloat64())
	})
}
