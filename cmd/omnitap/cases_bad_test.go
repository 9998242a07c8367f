package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/proxy/timeline"
	"github.com/omnitap/omnitap/proxy/timeline/waveform"
)

// Bad input: sound that is broken, odd, or not what its label says, in every form
// that sound travels in. Each has a verdict, none is passed by default, and nothing
// falls over it.

// labelled is one payload of sound with what labels it.
type labelled struct {
	media  string // of a body
	format string // of events and sessions
	bytes  string
}

// labelForms send it as a body, a speech event, a delta of a realtime turn, and a
// binary message of an utterance.
func labelForms() map[string]func(t testing.TB, l labelled) *timeline.Record {
	return map[string]func(t testing.TB, l labelled) *timeline.Record{
		"body": func(t testing.TB, l labelled) *timeline.Record {
			t.Helper()
			answer := soundAnswer(l.media, l.bytes)
			if l.bytes == "" { // a chunk of nothing would be the end
				answer = soundAnswer(l.media)
			}
			return exchangeCase(t, nil, speechRequest(caseWAVBody), endFIN, answer...).rec
		},
		"body of a length": func(t testing.TB, l labelled) *timeline.Record {
			t.Helper()
			return exchangeCase(t, nil, speechRequest(caseWAVBody), endFIN, caseWrite{data: lengthAnswer(l.media, l.bytes)}).rec
		},
		"event": func(t testing.TB, l labelled) *timeline.Record {
			t.Helper()
			event := sseData(`{"type":"speech.audio.delta","audio":"` + b64(l.bytes) + `","response_format":"` + l.format + `"}`)
			return exchangeCase(t, nil, speechRequest(caseSpeechBody), endFIN, eventAnswer(event)...).rec
		},
		"realtime": func(t testing.TB, l labelled) *timeline.Record {
			t.Helper()
			rec, _ := realtimeDeltas(t, nil, soundOf("a", l.bytes)+`,"format":"`+l.format+`"`)
			return rec
		},
		"binary": func(t testing.TB, l labelled) *timeline.Record {
			t.Helper()
			return utterance(t, nil, l.format, len(l.bytes), l.bytes)
		},
	}
}

func wavLabel(bytes string) labelled { return labelled{"audio/wav", "wav", bytes} }

// f32 is a WAV file of f32le values.
func f32(values ...float32) string {
	b := make([]byte, 0, 4*len(values))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return riff(fmtChunk(3, 1, 24000, 32), riffChunk("data", string(b)))
}

// f32Tone is n values of a tone, and those of bad at their places.
func f32Tone(n int, bad map[int]float64) string {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(.5 * math.Sin(2*math.Pi*440*float64(i)/24000))
		if x, ok := bad[i]; ok {
			v[i] = float32(x)
		}
	}
	return f32(v...)
}

// wide is s16le samples as s24le.
func wide(pcm string) string {
	b := make([]byte, 0, len(pcm)*3/2)
	for i := 0; i < len(pcm); i += 2 {
		b = append(b, 0, pcm[i], pcm[i+1])
	}
	return string(b)
}

// square is n bytes that go between two companded values of one size and either
// sign, 400 times a second at 8 kHz.
func square(a byte, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = a ^ byte(i/10%2)<<7
	}
	return string(b)
}

// TestBadSamples: samples in odd encodings are counted and looked at as what they
// are; what is no number, or no whole frame, fails with its place or amount.
func TestBadSamples(t *testing.T) {
	const n = 2400
	pcm := sine(n, 24000)
	nan, inf := math.NaN(), math.Inf(1)
	nans := map[int]float64{}
	for i := range n {
		nans[i] = nan
	}
	unsized := func(fmtChunk, data string) string { return wavOf(0xFFFFFFFF, fmtChunk, "data"+le32(0xFFFFFFFF)) + data }
	for _, c := range []struct {
		name     string
		in       labelled
		encoding string
		rate     int64 // 0: the form's own
		samples  int64
		failed   []string // quality-failed by these
		reason   string   // else invalid-output for this
		bad      float64  // samples that are not finite
		badAt    int64
	}{
		{name: "float NaN alone", in: wavLabel(f32Tone(n, nans)), encoding: "pcm_f32le", rate: 24000, samples: n, failed: []string{"finite", "silence"}, bad: n},
		{name: "a NaN in a tone", in: wavLabel(f32Tone(n, map[int]float64{1234: nan})), encoding: "pcm_f32le", rate: 24000, samples: n, failed: []string{"finite"}, bad: 1, badAt: 1234},
		{name: "infinities in a tone", in: wavLabel(f32Tone(n, map[int]float64{600: inf, 601: -inf, 2000: inf})), encoding: "pcm_f32le", rate: 24000, samples: n, failed: []string{"finite"}, bad: 3, badAt: 600},
		{name: "floats, 3 bytes more", in: wavLabel(unsized(fmtChunk(3, 1, 24000, 32), floats(n)+"xyz")), encoding: "pcm_f32le", rate: 24000, samples: n, reason: "partial_frame"},
		{name: "24 bits", in: wavLabel(riff(fmtChunk(1, 1, 24000, 24), riffChunk("data", wide(pcm)))), encoding: "pcm_s24le", rate: 24000, samples: n},
		{name: "24 bits of silence", in: wavLabel(riff(fmtChunk(1, 1, 24000, 24), riffChunk("data", strings.Repeat("\x00", 3*n)))), encoding: "pcm_s24le", rate: 24000, samples: n, failed: []string{"silence"}},
		{name: "24 bits, a byte more", in: wavLabel(unsized(fmtChunk(1, 1, 24000, 24), wide(pcm)+"x")), encoding: "pcm_s24le", rate: 24000, samples: n, reason: "partial_frame"},
		{name: "mu-law file", in: wavLabel(riff(fmtChunk(7, 1, 8000, 8), riffChunk("data", square(0x9f, n)))), encoding: "g711_ulaw", rate: 8000, samples: n},
		{name: "A-law file", in: wavLabel(riff(fmtChunk(6, 1, 8000, 8), riffChunk("data", square(0xa5, n)))), encoding: "g711_alaw", rate: 8000, samples: n},
		{name: "mu-law", in: labelled{"audio/PCMU;rate=8000", "g711_ulaw", square(0x9f, n)}, encoding: "g711_ulaw", samples: n},
		{name: "mu-law silence", in: labelled{"audio/PCMU;rate=8000", "g711_ulaw", strings.Repeat("\xff", n)}, encoding: "g711_ulaw", samples: n, failed: []string{"silence"}},
		{name: "A-law", in: labelled{"audio/PCMA;rate=8000", "g711_alaw", square(0xa5, n)}, encoding: "g711_alaw", samples: n},
		{name: "A-law silence", in: labelled{"audio/PCMA;rate=8000", "g711_alaw", strings.Repeat("\xd5", n)}, encoding: "g711_alaw", samples: n, failed: []string{"silence"}},
		{name: "big-endian file", in: wavLabel(rifx(pcm, 24000)), encoding: "pcm_s16be", rate: 24000, samples: n},
		{name: "big-endian file of silence", in: wavLabel(rifx(dither(n), 24000)), encoding: "pcm_s16be", rate: 24000, samples: n, failed: []string{"silence"}},
		{name: "8 bits of silence", in: wavLabel(riff(fmtChunk(1, 1, 24000, 8), riffChunk("data", strings.Repeat("\x80", n)))), encoding: "pcm_u8", rate: 24000, samples: n, failed: []string{"silence"}},
	} {
		for form, send := range labelForms() {
			t.Run(c.name+"/"+form, func(t *testing.T) {
				rec := send(t, c.in)
				a := audioOf(t, rec)
				wantSamples(t, rec, c.samples, 1)
				if got := text(a.Encoding); got != c.encoding {
					t.Errorf("encoding = %s, want %s", got, c.encoding)
				}
				if c.rate != 0 {
					wantInt(t, "audio.sample_rate", a.SampleRate, c.rate)
				}
				switch {
				case c.failed != nil:
					wantFailed(t, rec, c.failed...)
				case c.reason != "":
					wantTerminal(t, rec, timeline.InvalidOutput, c.reason)
				default:
					wantTerminal(t, rec, timeline.Success, "done")
				}
				finite := findingOf(t, rec, "finite")
				if c.bad == 0 {
					wantMeasured(t, finite, waveform.Passed, 0, 0)
				} else if wantMeasured(t, finite, waveform.Failed, c.bad, 0); *finite.Sample != c.badAt {
					t.Errorf("finite at sample %d, want %d", *finite.Sample, c.badAt)
				}
				wantHonest(t, rec)
			})
		}
	}
}

// TestBadLabels: what is not what its label says is invalid output, and what cannot
// be looked into is not measured.
func TestBadLabels(t *testing.T) {
	id3 := "ID3\x04\x00\x00\x00\x00\x00\x0a" + strings.Repeat("\x00", 10)
	page := "<!doctype html><title>502 Bad Gateway</title>"
	for _, c := range []struct {
		name   string
		in     labelled
		detail string // of a format_mismatch; empty: success, not measured
	}{
		{"mp3 with a tag labelled wav", wavLabel(id3 + mp3Frames(3)), "labelled wav, bytes are mp3"},
		{"mp3 labelled wav", wavLabel(mp3Frames(3)), "labelled wav, "},
		{"ogg labelled wav", wavLabel(oggPages(3)), "labelled wav, bytes are ogg"},
		{"flac labelled pcm", labelled{"audio/pcm", "pcm", "fLaC" + strings.Repeat("\x55", 400)}, "labelled raw, bytes are flac"},
		{"ogg labelled mp3", labelled{"audio/mpeg", "mp3", oggPages(3)}, "labelled mp3, bytes are ogg"},
		{"a page labelled wav", wavLabel(page), "labelled wav, no RIFF header"},
		{"samples labelled wav", wavLabel(sine(2400, 24000)), "labelled wav, no RIFF header"},
		{"mp3 within wav", wavLabel(riff(fmtChunk(0x55, 1, 24000, 16), riffChunk("data", mp3Frames(3)))), ""},
		{"12 bits", wavLabel(riff(fmtChunk(1, 1, 24000, 12), riffChunk("data", sine(2400, 24000)))), ""},
		{"mp3", labelled{"audio/mpeg", "mp3", id3 + mp3Frames(3)}, ""},
	} {
		for form, send := range labelForms() {
			t.Run(c.name+"/"+form, func(t *testing.T) {
				rec := send(t, c.in)
				if c.detail == "" {
					wantTerminal(t, rec, timeline.Success, "done")
				} else {
					wantTerminal(t, rec, timeline.InvalidOutput, "format_mismatch")
					if d := fmt.Sprint(rec.Terminal.Evidence["detail"]); !strings.HasPrefix(d, c.detail) {
						t.Errorf("detail = %q, want %q", d, c.detail)
					}
				}
				wantNull(t, "audio.samples", audioOf(t, rec).Samples)
				wantNull(t, "ttfa_ms", rec.TTFAMS)
				wantNull(t, "audio_s", rec.AudioS)
				if rec.Quality.Verdict != "not_measured" || len(rec.Quality.NotMeasured) != len(timeline.CheckNames()) {
					t.Errorf("quality = %s, %q not measured, want all", rec.Quality.Verdict, rec.Quality.NotMeasured)
				}
				wantHonest(t, rec)
			})
		}
	}
}

// TestPlanarStereoLabelledMono: one channel behind the other is longer sound of one
// channel as far as anybody can tell: nothing may be claimed of it.
func TestPlanarStereoLabelledMono(t *testing.T) {
	left, right := sine(24_000, 24000), pcmOf(24_000, func(i int) int { return int(9000 * math.Sin(2*math.Pi*330*float64(i)/24000)) })
	for form, send := range labelForms() {
		t.Run(form, func(t *testing.T) {
			rec := send(t, wavLabel(wavFile(24000, 1, left+right)))
			wantTerminal(t, rec, timeline.Success, "done")
			wantSamples(t, rec, 48_000, 1)
			wantInt(t, "audio.channels", rec.Audio.Channels, 1)
			wantSeconds(t, "audio_s", rec.AudioS, 2)
			wantSum(t, rec, left+right)
			if len(rec.Quality.Failed) != 0 || len(rec.Warnings) != 0 {
				t.Errorf("quality = %+v, warnings %q, want no claim", rec.Quality, rec.Warnings)
			}
			wantHonest(t, rec)
		})
	}
}

// TestZeroLength: nothing at all, in every form, is no output; no check passes.
func TestZeroLength(t *testing.T) {
	empty := []labelled{wavLabel(""), wavLabel(wavHead(24000, 1, 0)), wavLabel(wavHead(24000, 1, 0xFFFFFFFF)), wavLabel("RIFF"), {"audio/pcm", "pcm", ""}}
	for i, l := range empty {
		for form, send := range labelForms() {
			if l.bytes == "RIFF" && form != "body" && form != "body of a length" {
				continue // an event of four bytes is two samples
			}
			t.Run(fmt.Sprintf("%d/%s", i, form), func(t *testing.T) {
				rec := send(t, l)
				if form == "realtime" {
					wantTerminal(t, rec, timeline.InvalidOutput, "no_audio") // it has a transcript
				} else {
					wantTerminal(t, rec, timeline.InvalidOutput, map[bool]string{true: "format_mismatch", false: "no_output"}[l.bytes == "RIFF"])
				}
				wantNull(t, "ttfa_ms", rec.TTFAMS)
				wantNull(t, "rtf", rec.RTF)
				wantNull(t, "audio_s", rec.AudioS)
				if rec.Quality.Verdict != "not_measured" {
					t.Errorf("quality = %s, want not measured", rec.Quality.Verdict)
				}
				wantHonest(t, rec)
			})
		}
	}
	for name, c := range map[string]struct{ request, answer string }{
		"chat: no events":       {chatRequest(caseAudioChat), answerHead("text/event-stream") + zeroChunk},
		"chat: [DONE] alone":    {chatRequest(caseAudioChat), answerHead("text/event-stream") + httpChunk(chatDone) + zeroChunk},
		"chat: empty deltas":    {chatRequest(caseAudioChat), answerHead("text/event-stream") + httpChunk(chatText("")+strings.Join(emptyEvents(true), "")+chatFinish+chatDone) + zeroChunk},
		"speech: no body":       {speechRequest(caseSpeechBody), lengthAnswer("audio/pcm", "")},
		"speech: empty events":  {speechRequest(caseSpeechBody), answerHead("text/event-stream") + httpChunk(strings.Join(emptyEvents(false), "")+speechDone) + zeroChunk},
		"speech: an empty JSON": {speechRequest(caseSpeechBody), lengthAnswer("application/json", "{}")},
		"speech: JSON of none":  {speechRequest(caseSpeechBody), lengthAnswer("application/json", "")},
	} {
		t.Run(name, func(t *testing.T) {
			rec := exchangeCase(t, nil, c.request, endFIN, caseWrite{data: c.answer}).rec
			wantTerminal(t, rec, timeline.InvalidOutput, "no_output")
			if rec.Quality.Verdict != "not_measured" {
				t.Errorf("quality = %s, want not measured", rec.Quality.Verdict)
			}
			wantHonest(t, rec)
		})
	}
}

// tenHours is what 10 hours of 24 kHz mono are in bytes: below what is taken for a
// placeholder.
const tenHours = 10 * 3600 * 24000 * 2

// TestTenHoursDeclared: a size that could be true and is not fails with both numbers,
// costs nothing, and lends the sound no length.
func TestTenHoursDeclared(t *testing.T) {
	pcm := sine(2400, 24000)
	for form, send := range labelForms() {
		if form == "binary" {
			send = func(t testing.TB, _ labelled) *timeline.Record {
				t.Helper()
				return utterance(t, nil, "pcm", tenHours, pcm)
			}
		}
		t.Run(form, func(t *testing.T) {
			rec := send(t, wavLabel(wavHead(24000, 1, tenHours)+pcm))
			wantFailed(t, rec, "declared_total")
			wantMeasured(t, findingOf(t, rec, "declared_total"), waveform.Failed, 4800-tenHours, 0)
			wantSamples(t, rec, 2400, 1)
			wantInt(t, "audio.declared_samples", rec.Audio.DeclaredSamples, tenHours/2)
			wantSeconds(t, "audio_s", rec.AudioS, .1)
			if e := rec.Terminal.Evidence; fmt.Sprint(e["declared_bytes"], e["sample_bytes"]) != fmt.Sprint(tenHours, 4800) {
				t.Errorf("evidence = %v, want both numbers", e)
			}
			wantHonest(t, rec)
		})
	}
	t.Run("RF64", func(t *testing.T) {
		file := []byte(rf64(pcm))
		binary.LittleEndian.PutUint64(file[28:], 1<<62) // the ds64 chunk's data size
		rec := labelForms()["body"](t, wavLabel(string(file)))
		wantFailed(t, rec, "declared_total")
		wantSamples(t, rec, 2400, 1)
		wantInt(t, "audio.declared_samples", rec.Audio.DeclaredSamples, 1<<61)
	})
	t.Run("Content-Length that is cut", func(t *testing.T) {
		answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: audio/pcm\r\nX-Sample-Rate: 24000\r\nContent-Length: %d\r\n\r\n%s", tenHours, pcm)
		rec := exchangeCase(t, nil, speechRequest(caseSpeechBody), endFIN, caseWrite{data: answer}).rec
		wantTerminal(t, rec, timeline.TransportError, "cut")
		wantInt(t, "audio.samples", audioOf(t, rec).Samples, 2400)
		wantSeconds(t, "audio_s", rec.AudioS, .1)
		for _, name := range []string{"declared_total", "trailing_silence"} {
			if f := findingOf(t, rec, name); f.Verdict != waveform.NotMeasured {
				t.Errorf("%s of a cut stream: %+v", name, f)
			}
		}
		wantHonest(t, rec)
	})
}

// TestAbsurdDeclarations: rates and channels that no sound has are not believed, and
// nothing falls over them.
func TestAbsurdDeclarations(t *testing.T) {
	pcm := sine(2400, 24000)
	const huge = "4611686018427387905" // twice it is beyond 64 bits
	members := map[string]bool{        // absurd, or merely none
		`"channels":` + huge: true, `"channels":1000000000`: true, `"sample_rate":` + huge: true, `"sample_rate":9223372036854775807`: true,
		`"channels":-1`: false, `"sample_rate":-24000`: false, `"sample_rate":0,"channels":0`: false, `"sample_rate":24000.5`: false, `"sample_rate":"24000"`: false, `"sample_rate":1e400`: false,
	}
	check := func(t *testing.T, rec *timeline.Record, absurd bool) {
		t.Helper()
		if absurd {
			wantTerminal(t, rec, timeline.InvalidOutput, "header_inconsistent")
			if d := fmt.Sprint(rec.Terminal.Evidence["detail"]); !strings.Contains(d, "are declared") {
				t.Errorf("detail = %q, want what was declared", d)
			}
		} else {
			wantTerminal(t, rec, timeline.Success, "done")
			wantSeconds(t, "audio_s", rec.AudioS, .2)
		}
		wantSamples(t, rec, 4800, 2)
		wantHonest(t, rec)
	}
	for m, absurd := range members {
		t.Run("event/"+m, func(t *testing.T) {
			event := func(pcm string) string {
				return sseData(`{"type":"speech.audio.delta","audio":"` + b64(pcm) + `",` + m + `}`)
			}
			check(t, exchangeCase(t, nil, speechRequest(caseSpeechBody), endFIN, eventAnswer(event(pcm), event(sineFrom(2400, 2400, 24000)))...).rec, absurd)
		})
		if strings.Contains(m, "channels") {
			continue // a session's are one
		}
		t.Run("realtime/"+m, func(t *testing.T) {
			rec, _ := realtimeDeltas(t, nil, soundOf("a", pcm)+","+m, soundOf("a", sineFrom(2400, 2400, 24000))+","+m)
			check(t, rec, absurd)
		})
	}
	for name, file := range map[string]string{
		"255 channels at 4 GHz": riff(fmtChunk(1, 255, 0xFFFFFFFF/510, 16), riffChunk("data", strings.Repeat("\x00\x10\x00\xf0", 255*60))),
		"at 1 Hz":               riff(fmtChunk(1, 1, 1, 16), riffChunk("data", pcm)),
	} {
		for form, send := range labelForms() {
			t.Run(name+"/"+form, func(t *testing.T) {
				rec := send(t, wavLabel(file))
				if slices.Contains([]timeline.State{timeline.HarnessError, timeline.TransportError}, rec.Terminal.State) || rec.Analysis != "full" {
					t.Errorf("terminal = %+v, analysis %s", rec.Terminal, rec.Analysis)
				}
				wantHonest(t, rec)
			})
		}
	}
}
