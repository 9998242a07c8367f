package main

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/omnitap/omnitap/proxy"
	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/timeline"
	"github.com/omnitap/omnitap/proxy/timeline/waveform"
)

// Field cases of sound in every form that it travels in: bodies, events, messages.

// rigChange sets up a relay; nil for nothing.
type rigChange = func(*proxy.Config, *tap.Config)

// checksOf is a rigChange of the checks' thresholds.
func checksOf(c waveform.Config) rigChange {
	return func(_ *proxy.Config, tc *tap.Config) { tc.Timeline.Checks = c }
}

// carrier is a form that chunks of 24 kHz mono samples travel in.
type carrier struct {
	name string
	send func(t testing.TB, change rigChange, chunks ...string) *timeline.Record
}

// carriers are all of them.
func carriers() []carrier {
	return []carrier{
		{"body", speechAnswer},
		{"events", func(t testing.TB, change rigChange, chunks ...string) *timeline.Record {
			t.Helper()
			answer := answerHead("text/event-stream", "X-Sample-Rate: 24000")
			for _, c := range chunks {
				answer += httpChunk(speechDelta(c))
			}
			return exchangeCase(t, change, speechRequest(caseSpeechBody), endFIN, caseWrite{data: answer + httpChunk(speechDone) + zeroChunk}).rec
		}},
		{"chat", func(t testing.TB, change rigChange, chunks ...string) *timeline.Record {
			t.Helper()
			return chatSound(t, change, "stop", chunks...)
		}},
		{"realtime", func(t testing.TB, change rigChange, chunks ...string) *timeline.Record {
			t.Helper()
			rec, _ := realtimeSound(t, change, chunks...)
			return rec
		}},
		{"binary", binarySound},
	}
}

// sockets are the forms of WebSockets alone.
func sockets() []carrier {
	return slices.DeleteFunc(carriers(), func(f carrier) bool { return f.name != "realtime" && f.name != "binary" })
}

// chatSound is a chat stream with text and a file a chunk.
func chatSound(t testing.TB, change rigChange, finish string, chunks ...string) *timeline.Record {
	t.Helper()
	answer := answerHead("text/event-stream") + httpChunk(chatText("Hi"))
	for _, c := range chunks {
		answer += httpChunk(chatAudio(wavFile(24000, 1, c)))
	}
	answer += httpChunk(strings.Replace(chatFinish, `"stop"`, `"`+finish+`"`, 1)) + httpChunk(chatDone) + zeroChunk
	return exchangeCase(t, change, chatRequest(caseAudioChat), endFIN, caseWrite{data: answer}).rec
}

// realtimeSound is a turn with these deltas; it returns when each was sent.
func realtimeSound(t testing.TB, change rigChange, chunks ...string) (rec *timeline.Record, sent []caseStamp) {
	t.Helper()
	deltas := make([]string, len(chunks))
	for i, c := range chunks {
		deltas[i] = soundOf("a", c)
	}
	return realtimeDeltas(t, change, deltas...)
}

// realtimeDeltas is the same of deltas' members as they stand.
func realtimeDeltas(t testing.TB, change rigChange, deltas ...string) (rec *timeline.Record, sent []caseStamp) {
	t.Helper()
	k := startTalks(t, change)
	w := k.opened()
	w.say(client, "session.update", `"session":{"output_modalities":["audio","text"]}`)
	w.begin("a")
	w.say(server, "response.output_audio_transcript.delta", `"response_id":"a","delta":"Hi"`)
	for _, d := range deltas {
		sent = append(sent, w.say(server, "response.output_audio.delta", d))
	}
	w.say(server, "response.output_audio.done", `"response_id":"a"`)
	w.say(server, "response.output_audio_transcript.done", `"response_id":"a","transcript":"Hi"`)
	w.done("a")
	w.shut()
	recs, _ := k.only(t, 1)
	return recs[0], sent
}

// binarySound is an utterance with these binary messages of samples.
func binarySound(t testing.TB, change rigChange, chunks ...string) *timeline.Record {
	t.Helper()
	return utterance(t, change, "pcm", len(strings.Join(chunks, "")), chunks...)
}

// utterance is an utterance of a speech stream that declares total bytes.
func utterance(t testing.TB, change rigChange, format string, total int, messages ...string) *timeline.Record {
	t.Helper()
	k := startTalks(t, change)
	w := k.open("/v1/audio/speech/stream")
	w.say(client, "session.config", `"model":"m","response_format":"`+format+`","stream_audio":true`)
	w.say(client, "input.text", `"text":"Hi"`)
	w.say(client, "input.done", "")
	w.say(server, "audio.start", `"utterance_index":0,"sentence_index":0,"sentence_text":"Hi","format":"`+format+`","sample_rate":24000`)
	for _, m := range messages {
		w.send(server, talkFrame(server, 0x82, m))
	}
	w.say(server, "audio.done", fmt.Sprintf(`"utterance_index":0,"sentence_index":0,"total_bytes":%d,"error":false`, total))
	w.say(server, "session.done", `"utterance_index":0,"total_sentences":1`)
	w.shut()
	recs, _ := k.only(t, 1)
	return recs[0]
}

// wantMeasured checks what a finding measured, within a tolerance.
func wantMeasured(t testing.TB, f waveform.Finding, v waveform.Verdict, want, within float64) {
	t.Helper()
	if f.Verdict != v || f.Measured == nil || math.Abs(*f.Measured-want) > within {
		got := math.NaN()
		if f.Measured != nil {
			got = *f.Measured
		}
		t.Errorf("%s: %s, measured %g (%s), want %s, %g within %g", f.Name, f.Verdict, got, f.Reason, v, want, within)
	}
}

// wantSeconds checks a figure in seconds or a ratio.
func wantSeconds(t testing.TB, name string, got *float64, want float64) {
	t.Helper()
	if got == nil {
		t.Errorf("%s is null, want %g", name, want)
	} else if math.Abs(*got-want) > 1e-9*math.Abs(want) {
		t.Errorf("%s = %v, want %v", name, *got, want)
	}
}

// rateEvent is a speech event that declares rate and channels; 0 for none.
func rateEvent(pcm string, rate, channels int) string {
	more := ""
	if rate != 0 {
		more += fmt.Sprintf(`,"sample_rate":%d`, rate)
	}
	if channels != 0 {
		more += fmt.Sprintf(`,"channels":%d`, channels)
	}
	return sseData(`{"type":"speech.audio.delta","audio":"` + b64(pcm) + `"` + more + `}`)
}

// TestC26WireWinsOverConfiguration: a rate that the wire declares is the one that
// seconds are reckoned with; that the configuration says another is a warning.
func TestC26WireWinsOverConfiguration(t *testing.T) {
	rates := func(_ *proxy.Config, c *tap.Config) { c.Timeline.Rates = map[string]int{"m": 24000} }
	pcm := sine(44100, 44100)
	for _, c := range []struct {
		name, source, warning string
		rate                  int64
		answer                []caseWrite
	}{
		{"a: media type", "content_type", "content_type says 44100 Hz, the configuration 24000 for model m", 44100, soundAnswer("audio/pcm;rate=44100", pcm)},
		{"media type agrees", "content_type", "", 24000, soundAnswer("audio/pcm;rate=24000", pcm)},
		{"header field", "header", "header says 44100 Hz, the configuration 24000 for model m", 44100, []caseWrite{{data: answerHead("audio/pcm", "X-Sample-Rate: 44100") + httpChunk(pcm) + zeroChunk}}},
		{"WAV header", "wav_header", "wav_header says 44100 Hz, the configuration 24000 for model m", 44100, soundAnswer("audio/wav", wavFile(44100, 1, pcm))},
		{"event", "event", "event says 44100 Hz, the configuration 24000 for model m", 44100, eventAnswer(rateEvent(pcm, 44100, 0))},
		{"nothing", "config", "", 24000, soundAnswer("audio/pcm", pcm)},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := exchangeCase(t, rates, speechRequest(caseSpeechBody), endFIN, c.answer...).rec
			wantTerminal(t, rec, timeline.Success, "done")
			wantSamples(t, rec, 44100, 1)
			wantInt(t, "audio.sample_rate", rec.Audio.SampleRate, c.rate)
			wantSeconds(t, "audio_s", rec.AudioS, 44100/float64(c.rate))
			if got := text(rec.Audio.SampleRateSource); got != c.source {
				t.Errorf("sample_rate_source = %s, want %s", got, c.source)
			}
			want := []string{}
			if c.warning != "" {
				want = append(want, c.warning)
			}
			if !slices.Equal(rec.Warnings, want) {
				t.Errorf("warnings %q, want %q", rec.Warnings, want)
			}
			wantFlag(t, rec, "rate_assumed", false)
		})
	}
}

// TestC26RatesDisagree: what declares the rate twice and not alike fails, with both
// numbers; what declares it once agrees with nothing, which is not passed.
func TestC26RatesDisagree(t *testing.T) {
	pcm := sine(9600, 24000)
	file := wavFile(24000, 1, pcm)
	meta := func(rate int) string {
		return strings.Replace(omniAudio(file), `,"logprobs"`, fmt.Sprintf(`,"audio_metadata":{"format":"wav","sample_rate_hz":%d,"channels":1,"frame_count":9600},"logprobs"`, rate), 1)
	}
	done := []string{chatFinish, chatDone}
	for _, c := range []struct {
		name, request string
		answer        []caseWrite
		reason        string // empty: passed
		conflicts     float64
	}{
		{"b: event and its header", speechRequest(caseSpeechBody), eventAnswer(rateEvent(file, 44100, 0)), "rate_conflict: event says 44100 Hz, the header 24000", 1},
		{"b: second event and its header", speechRequest(caseSpeechBody), eventAnswer(rateEvent(file, 24000, 0), rateEvent(wavFile(24000, 1, sineFrom(9600, 9600, 24000)), 44100, 0)), "rate_conflict: the event says 44100 Hz, its header 24000", 1},
		{"b: both events", speechRequest(caseSpeechBody), eventAnswer(rateEvent(file, 44100, 0), rateEvent(wavFile(24000, 1, sineFrom(9600, 9600, 24000)), 44100, 0)), "rate_conflict: event says 44100 Hz, the header 24000", 2},
		{"b: chat's metadata", chatRequest(caseAudioChat), soundAnswer("text/event-stream", append([]string{meta(44100)}, done...)...), "rate_conflict: event says 44100 Hz, the header 24000", 1},
		{"field of the head and header", speechRequest(caseWAVBody), []caseWrite{{data: answerHead("audio/wav", "X-Sample-Rate: 44100") + httpChunk(file) + zeroChunk}}, "rate_conflict: header says 44100 Hz, the header 24000", 1},
		{"field of the head and event", speechRequest(caseSpeechBody), []caseWrite{{data: answerHead("text/event-stream", "X-Sample-Rate: 44100") + httpChunk(rateEvent(pcm, 24000, 0)) + httpChunk(speechDone) + zeroChunk}}, "rate_conflict: header says 44100 Hz, the event 24000", 1},
		{"they agree", speechRequest(caseSpeechBody), eventAnswer(rateEvent(file, 24000, 0)), "", 0},
		{"chat's metadata agrees", chatRequest(caseAudioChat), soundAnswer("text/event-stream", append([]string{meta(24000)}, done...)...), "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := exchangeCase(t, nil, c.request, endFIN, c.answer...).rec
			f := findingOf(t, rec, "rate_agrees")
			if c.reason == "" {
				wantTerminal(t, rec, timeline.Success, "done")
				wantMeasured(t, f, waveform.Passed, 0, 0)
				return
			}
			wantFailed(t, rec, "rate_agrees")
			wantMeasured(t, f, waveform.Failed, c.conflicts, 0)
			if f.Reason != c.reason {
				t.Errorf("reason %q, want %q", f.Reason, c.reason)
			}
		})
	}
	for name, answer := range map[string][]caseWrite{
		"nothing": soundAnswer("audio/pcm", pcm), "the header": soundAnswer("audio/wav", file), "the media type": soundAnswer("audio/pcm;rate=24000", pcm),
		"each event": eventAnswer(rateEvent(pcm, 24000, 1), rateEvent(pcm, 24000, 1)),
	} {
		t.Run("alone: "+name, func(t *testing.T) {
			rec := exchangeCase(t, nil, speechRequest(caseWAVBody), endFIN, answer...).rec
			if f := findingOf(t, rec, "rate_agrees"); f.Verdict != waveform.NotMeasured || f.Reason != "fewer than two declare a rate" {
				t.Errorf("rate_agrees: %s (%s), want not measured: there is nothing to agree with", f.Verdict, f.Reason)
			}
		})
	}
}

// TestC26FormatChanges: rate or channels that change amid a stream fail at their
// chunk; the frames on either side are counted as what they are.
func TestC26FormatChanges(t *testing.T) {
	const n = 4800
	part := func(i int) string { return sineFrom(i*n, n, 24000) }
	stereo := func(i int) string { // each frame twice as many bytes
		b := []byte{}
		for p := part(i); len(p) > 0; p = p[2:] {
			b = append(b, p[0], p[1], p[0], p[1])
		}
		return string(b)
	}
	for _, c := range []struct {
		name    string
		events  []string
		reason  string
		chunk   int
		samples int64
	}{
		{"c: 24000, 24000, 48000", []string{rateEvent(part(0), 24000, 1), rateEvent(part(1), 24000, 1), rateEvent(part(2), 48000, 1)}, "format_change: pcm_s16le 24000 Hz 1 channels, then pcm_s16le 48000 Hz 1 channels", 2, 3 * n},
		{"e: channels 1, then 2", []string{rateEvent(part(0), 24000, 1), rateEvent(stereo(1), 24000, 2)}, "format_change: pcm_s16le 24000 Hz 1 channels, then pcm_s16le 24000 Hz 2 channels", 1, 2 * n},
		{"e: channels 1, 1, then 2", []string{rateEvent(part(0), 24000, 1), rateEvent(part(1), 24000, 1), rateEvent(stereo(2), 24000, 2)}, "format_change: pcm_s16le 24000 Hz 1 channels, then pcm_s16le 24000 Hz 2 channels", 2, 3 * n},
		{"e: files of 1, then 2", []string{speechDelta(wavFile(24000, 1, part(0))), speechDelta(wavFile(24000, 2, stereo(1)))}, "format_change: pcm_s16le 24000 Hz 1 channels, then pcm_s16le 24000 Hz 2 channels", 1, 2 * n},
		{"control", []string{rateEvent(part(0), 24000, 1), rateEvent(part(1), 24000, 1), rateEvent(part(2), 0, 0)}, "", 0, 3 * n},
		{"control: files of 2", []string{speechDelta(wavFile(24000, 2, stereo(0))), speechDelta(wavFile(24000, 2, stereo(1)))}, "", 0, 2 * n},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := exchangeCase(t, nil, speechRequest(caseSpeechBody), endFIN, eventAnswer(c.events...)...).rec
			wantSamples(t, rec, c.samples, int64(len(c.events)))
			if c.reason == "" {
				wantTerminal(t, rec, timeline.Success, "done")
				return
			}
			wantFailed(t, rec, "format_constant")
			if f := findingOf(t, rec, "format_constant"); f.Reason != c.reason || f.Chunk == nil || *f.Chunk != c.chunk || *f.Measured != 1 {
				t.Errorf("finding %+v, want chunk %d: %s", f, c.chunk, c.reason)
			}
		})
	}
}

// TestC26NothingDeclared: samples are exact, seconds are assumed and say so.
func TestC26NothingDeclared(t *testing.T) {
	pcm := ramp(0, 30_001)
	for name, answer := range map[string][]caseWrite{"body": soundAnswer("audio/pcm", pcm[:20_001], pcm[20_001:]), "events": eventAnswer(deltas(pcm[:20_001], pcm[20_001:])...)} {
		t.Run(name, func(t *testing.T) {
			rec := exchangeCase(t, nil, speechRequest(caseSpeechBody), endFIN, answer...).rec
			wantTerminal(t, rec, timeline.Success, "done")
			wantSamples(t, rec, 30_001, 2)
			wantSum(t, rec, pcm)
			wantFlag(t, rec, "rate_assumed", true)
			wantNull(t, "audio.sample_rate", rec.Audio.SampleRate)
			wantNull(t, "audio.sample_rate_source", rec.Audio.SampleRateSource)
			wantInt(t, "audio.assumed_sample_rate", rec.Audio.AssumedSampleRate, 24000)
			wantSeconds(t, "audio_s", rec.AudioS, 30_001/24000.)
			if got := text(rec.Audio.ChannelsSource); got != "assumed" {
				t.Errorf("channels_source = %s, want assumed", got)
			}
		})
	}
}

// TestC17TextWithoutItsSound: text came, and of the sound that was asked for empty
// events alone: that is no success, and none of the checks saw anything.
func TestC17TextWithoutItsSound(t *testing.T) {
	empty := emptyEvents(true)
	for name, rec := range map[string]func(t testing.TB) *timeline.Record{
		"chat": func(t testing.TB) *timeline.Record {
			t.Helper()
			events := append([]string{chatText("Hi"), chatText(" there")}, empty...)
			res := exchangeCase(t, nil, chatRequest(caseAudioChat), endFIN, soundAnswer("text/event-stream", append(events, chatFinish, chatDone)...)...)
			res.wantPointIn(t, "t_text", res.rec.Points.TText, 1)
			res.wantPointIn(t, "t_audio_event", res.rec.Points.TAudioEvent, 3)
			return res.rec
		},
		"vLLM-Omni's chat": func(t testing.TB) *timeline.Record {
			t.Helper()
			events := []string{omniDelta(`"Hi"`, "text"), omniDelta(`" there"`, "text"), omniDelta(`""`, "audio"), omniDelta("null", "audio"), omniAudio(wavHead(24000, 1, 0)), omniDelta(`""`, "audio")}
			return exchangeCase(t, nil, chatRequest(caseAudioChat), endFIN, soundAnswer("text/event-stream", append(events, chatFinish, chatDone)...)...).rec
		},
		"realtime": func(t testing.TB) *timeline.Record {
			t.Helper()
			k := startTalks(t, nil)
			w := k.opened()
			w.say(client, "session.update", `"session":{"output_modalities":["audio","text"]}`)
			w.begin("a")
			for _, s := range []string{"Hi", " there"} {
				w.say(server, "response.output_audio_transcript.delta", `"response_id":"a","delta":"`+s+`"`)
			}
			var first caseStamp
			for i, delta := range []string{`""`, "null", `"` + b64(wavHead(24000, 1, 0)) + `"`, `""`} {
				at := w.say(server, "response.output_audio.delta", `"response_id":"a","delta":`+delta)
				if i == 0 {
					first = at
				}
			}
			w.say(server, "response.output_audio.done", `"response_id":"a"`)
			w.done("a")
			w.shut()
			recs, _ := k.only(t, 1)
			wantWithin(t, "t_audio_event", recs[0].Points.TAudioEvent, first)
			return recs[0]
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := rec(t)
			wantTerminal(t, r, timeline.InvalidOutput, "no_audio")
			wantSamples(t, r, 0, 0)
			wantInt(t, "text_units", r.TextUnits, 2)
			wantNull(t, "ttfa_ms", r.TTFAMS)
			wantNull(t, "audio_gap_ms", r.AudioGapMS)
			if r.TTFTMS == nil || r.Audio.EmptyEvents != 4 {
				t.Errorf("ttft_ms = %v, empty_events = %d, want one and 4", r.TTFTMS, r.Audio.EmptyEvents)
			}
			wantHonest(t, r)
		})
	}
}

// wantHonest checks that no check of sound that was not seen says passed, and that
// each that says nothing says why.
func wantHonest(t testing.TB, rec *timeline.Record) {
	t.Helper()
	if rec.Analysis != "full" {
		t.Errorf("analysis = %s (%s), want full", rec.Analysis, text(rec.AnalysisReason))
	}
	seen := rec.Audio != nil && rec.Audio.Samples != nil && *rec.Audio.Samples > 0
	if !seen && rec.Quality.Verdict == "passed" {
		t.Errorf("quality = passed with no samples seen")
	}
	if rec.Terminal.State == timeline.Success && rec.Quality.Verdict == "failed" {
		t.Errorf("a success whose quality is failed: %+v", rec.Quality)
	}
	for _, f := range rec.Quality.Checks {
		switch {
		case f.Verdict == waveform.Passed && !seen:
			t.Errorf("%s passed with no samples seen", f.Name)
		case f.Verdict != waveform.Passed && f.Reason == "":
			t.Errorf("%s is %s without a reason", f.Name, f.Verdict)
		}
	}
}

// TestC18SilenceOverASocket: a turn in which nothing is heard is no success.
func TestC18SilenceOverASocket(t *testing.T) {
	zeros := strings.Repeat("\x00", 3840)
	for _, f := range sockets() {
		for _, c := range []struct {
			name   string
			chunks []string
			silent bool
		}{
			{"0.08 s of zeros", []string{zeros[:1920], zeros[1920:]}, true},
			{"dither", []string{dither(24_000)}, true},
			{"zeros, then a tone", []string{zeros, sine(24_000, 24000)}, false},
		} {
			t.Run(f.name+"/"+c.name, func(t *testing.T) {
				rec := f.send(t, nil, c.chunks...)
				wantSamples(t, rec, int64(len(strings.Join(c.chunks, ""))/2), int64(len(c.chunks)))
				if rec.TTFAMS == nil {
					t.Error("ttfa_ms is null, want the first playable sound's")
				}
				if !c.silent {
					wantTerminal(t, rec, timeline.Success, "done")
					return
				}
				wantFailed(t, rec, "silence")
				wantNull(t, "t_audible", rec.Points.TAudible)
				wantNull(t, "ttfaudible_ms", rec.TTFAudibleMS)
				wantNull(t, "audible_s", rec.AudibleS)
				wantNull(t, "rtf_audible", rec.RTFAudible)
				how := map[bool]string{true: "each is exactly 0", false: "they are quiet, not 0"}[c.name != "dither"]
				if f, want := findingOf(t, rec, "silence"), fmt.Sprintf("none of %d sample frames is heard: %s", *rec.Audio.Samples, how); f.Reason != want {
					t.Errorf("reason %q, want %q", f.Reason, want)
				}
			})
		}
	}
	t.Run("0.16 s of zeros at 48 kHz", func(t *testing.T) {
		rec, _ := realtimeDeltas(t, nil, soundOf("a", strings.Repeat(zeros, 4))+`,"sample_rate_hz":48000`)
		wantFailed(t, rec, "silence")
		wantSamples(t, rec, 7680, 1)
		wantSeconds(t, "audio_s", rec.AudioS, .16)
	})
}

// TestC19OddBordersOverASocket: messages may end amid a sample, a turn may not.
func TestC19OddBordersOverASocket(t *testing.T) {
	pcm := ramp(0, 48_000)
	for _, f := range sockets() {
		t.Run(f.name, func(t *testing.T) {
			rec := f.send(t, nil, cutAt(pcm, 4063, 1697, 1, 1)...)
			wantTerminal(t, rec, timeline.Success, "done")
			wantSamples(t, rec, 48_000, 5)
			wantSum(t, rec, pcm)
			if slices.Contains(rec.Quality.Failed, "border_jumps") {
				t.Errorf("quality = %+v, want no discontinuity", rec.Quality)
			}
		})
		t.Run(f.name+", odd total", func(t *testing.T) {
			rec := f.send(t, nil, cutAt(pcm+"x", 4063, 1697, 1, 1)...)
			wantTerminal(t, rec, timeline.InvalidOutput, "partial_frame")
			wantSamples(t, rec, 48_000, 5)
			if d := rec.Terminal.Evidence["detail"]; d != "1 bytes beyond whole frames" {
				t.Errorf("detail = %v, want a remainder of 1", d)
			}
		})
	}
}

// TestC21LossAtBordersInEveryForm: what each chunk lacks is told where it lies,
// whatever carries the chunks.
func TestC21LossAtBordersInEveryForm(t *testing.T) {
	const frames, lost, kept = 19_200, 555, 18_645
	chunks := func(lost int) (out []string) {
		for i := range 6 {
			n := frames - lost
			if i == 5 {
				n = kept
			}
			out = append(out, sineFrom(i*frames, n, 24000))
		}
		return out
	}
	hop := func(_ *proxy.Config, c *tap.Config) { c.Timeline.Hops = map[string]int{"m": 1920} }
	for _, f := range carriers() {
		if f.name == "body" {
			continue // TestC21LossAtBorders
		}
		for name, change := range map[string]rigChange{"hop": hop, "no hop": nil} {
			t.Run(f.name+"/"+name, func(t *testing.T) {
				rec := f.send(t, change, chunks(lost)...)
				wantFailed(t, rec, "border_jumps")
				wantSamples(t, rec, 6*kept, 6)
				found := findingOf(t, rec, "border_jumps")
				wantMeasured(t, found, waveform.Failed, 1, 0)
				if *found.Chunk != 1 || *found.Sample != kept {
					t.Errorf("at chunk %d, sample %d, want 1, %d", *found.Chunk, *found.Sample, kept)
				}
				if has := strings.Contains(found.Reason, "1365 samples beyond whole hops of 1920: it lacks 555"); has != (change != nil) || !strings.Contains(found.Reason, "5 of 5 chunk borders") {
					t.Errorf("reason %q", found.Reason)
				}
			})
		}
		t.Run(f.name+"/control", func(t *testing.T) {
			rec := f.send(t, hop, chunks(0)...)
			wantTerminal(t, rec, timeline.Success, "done")
			wantSamples(t, rec, 5*frames+kept, 6)
		})
	}
}

// TestC31RunawayTailInEveryForm: near-silence to the server's limit fails with its
// length, and buys no better RTF of what is heard.
func TestC31RunawayTailInEveryForm(t *testing.T) {
	const second, heard, tail = 24_000, 28_800, 716_160 // 1.2 s and 29.84 s
	tone, quiet := sine(heard, second), hiss(tail, 10)
	chunks := append([]string{tone}, cutAt(quiet, 8*second, 8*second, 8*second, 8*second, 8*second)...)
	forms := carriers()
	forms = append(forms, carrier{"chat, length", func(t testing.TB, change rigChange, chunks ...string) *timeline.Record {
		t.Helper()
		return chatSound(t, change, "length", chunks...)
	}})
	for _, f := range forms {
		t.Run(f.name, func(t *testing.T) {
			rec := f.send(t, nil, chunks...)
			wantFailed(t, rec, "trailing_silence")
			wantSamples(t, rec, heard+tail, int64(len(chunks)))
			found := findingOf(t, rec, "trailing_silence")
			wantMeasured(t, found, waveform.Failed, 29.84, .01)
			if *found.Threshold != 5 || *found.Sample < heard-second/100 || *found.Sample > heard+second/100 {
				t.Errorf("finding %+v, from sample %d, want %d, over 5 s", found, *found.Sample, heard)
			}
			wantSeconds(t, "audio_s", rec.AudioS, 31.04)
			wantSeconds(t, "audible_s", rec.AudibleS, 1.2)
			wantSeconds(t, "rtf", rec.RTF, *rec.JCTMS/1000/31.04)
			wantSeconds(t, "rtf_audible", rec.RTFAudible, *rec.JCTMS/1000/1.2)
		})
	}
	pause := []string{tone, hiss(second*3/2, 10)}
	for _, c := range []struct {
		name   string
		limit  float64
		chunks []string
		tail   float64
		failed bool
	}{
		{"a bound of 30 s lets it pass", 30, chunks, 29.84, false},
		{"a bound of 29 s does not", 29, chunks, 29.84, true},
		{"a tail of 1.5 s", 0, pause, 1.5, false},
		{"a tail of 1.5 s over a bound of 1", 1, pause, 1.5, true},
		{"a pause of 1.5 s within speech", 1, append(slices.Clone(pause), sineFrom(7, second, second)), 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := speechAnswer(t, checksOf(waveform.Config{TrailingSilenceS: c.limit}), c.chunks...)
			if c.failed {
				wantFailed(t, rec, "trailing_silence")
				wantMeasured(t, findingOf(t, rec, "trailing_silence"), waveform.Failed, c.tail, .01)
				return
			}
			wantTerminal(t, rec, timeline.Success, "done")
			wantMeasured(t, findingOf(t, rec, "trailing_silence"), waveform.Passed, c.tail, .01)
		})
	}
}

// TestC34LeadingSilenceInEveryForm: how long the silence ahead is, whatever it is
// made of; it fails where the bound is below it.
func TestC34LeadingSilenceInEveryForm(t *testing.T) {
	const rate, silence, size = 24_000, 7920, 3000 // 330 ms, chunks of 125 ms
	tone := sine(3*size, rate)
	for _, c := range []struct {
		name  string
		quiet func(i int) int
		dc    int
	}{
		{"zeros", func(int) int { return 0 }, 0},
		{"offset of 800", func(int) int { return 800 }, 800},
		{"click of 3 ms", func(i int) int { return map[bool]int{true: 8000 - 16000*(i/12%2), false: 0}[i >= 2400 && i < 2472] }, 0},
		{"click at the start", func(i int) int { return map[bool]int{true: 8000 - 16000*(i/12%2), false: 0}[i < 72] }, 0},
		{"noise at -65 dBFS", func(i int) int { return (i*7919+i*i*31)%63 - 31 }, 0},
	} {
		all := pcmOf(silence+3*size, func(i int) int {
			if i < silence {
				return c.quiet(i)
			}
			return c.dc + int(int16(binary.LittleEndian.Uint16([]byte(tone[2*(i-silence):]))))
		})
		var chunks []string
		for part := range slices.Chunk([]byte(all), 2*size) {
			chunks = append(chunks, string(part))
		}
		for _, f := range carriers() {
			t.Run(f.name+"/"+c.name, func(t *testing.T) {
				rec := f.send(t, nil, chunks...)
				wantTerminal(t, rec, timeline.Success, "done")
				wantMeasured(t, findingOf(t, rec, "leading_silence"), waveform.Passed, .33, .01)
				rec = f.send(t, checksOf(waveform.Config{LeadingSilenceS: .3}), chunks...)
				wantFailed(t, rec, "leading_silence")
				found := findingOf(t, rec, "leading_silence")
				wantMeasured(t, found, waveform.Failed, .33, .01)
				if *found.Threshold != .3 || *found.Sample != 0 || *found.Chunk != 0 {
					t.Errorf("finding %+v, want from the first sample on", found)
				}
			})
		}
		t.Run("points/"+c.name, func(t *testing.T) {
			rec, sent := realtimeSound(t, nil, chunks...)
			wantWithin(t, "t_audio", rec.Points.TAudio, sent[0])
			wantWithin(t, "t_audible", rec.Points.TAudible, sent[silence/size])
			writes := eventAnswer(deltas(chunks...)...)
			for i := range writes {
				writes[i].wait = 5 * time.Millisecond
			}
			res := exchangeCase(t, nil, speechRequest(caseSpeechBody), endFIN, writes...)
			res.wantPointIn(t, "t_audio", res.rec.Points.TAudio, 1)
			res.wantPointIn(t, "t_audible", res.rec.Points.TAudible, 1+silence/size)
			wantInt(t, "offsets.t_audible", res.rec.Offsets.TAudible, sentBefore(writes, 1+silence/size)-2) // the chunk's CRLF
		})
	}
}

// TestC29Base64InEveryForm: strict event by event, and samples go on over borders.
func TestC29Base64InEveryForm(t *testing.T) {
	pcm := sine((3+5+9599+9601)/2, 24000)
	parts := cutAt(pcm, 3, 5, 9599)
	std := make([]string, len(parts))
	for i, p := range parts {
		std[i] = b64(p)
	}
	with := func(i int, s string) []string {
		out := slices.Clone(std)
		out[i] = s
		return out
	}
	url := base64.URLEncoding.EncodeToString([]byte(parts[2]))
	if !strings.ContainsAny(url, "-_") {
		t.Fatal("the samples show no difference between the alphabets")
	}
	forms := map[string]func(t testing.TB, payloads []string) *timeline.Record{
		"chat": func(t testing.TB, payloads []string) *timeline.Record {
			t.Helper()
			answer := answerHead("text/event-stream") + httpChunk(chatText("Hi"))
			for _, p := range payloads {
				answer += httpChunk(chatDelta(`{"audio":{"id":"audio-1","data":"` + p + `"}}`))
			}
			return exchangeCase(t, nil, chatRequest(caseAudioChat), endFIN, caseWrite{data: answer + httpChunk(chatFinish) + httpChunk(chatDone) + zeroChunk}).rec
		},
		"vLLM-Omni's chat": func(t testing.TB, payloads []string) *timeline.Record {
			t.Helper()
			answer := answerHead("text/event-stream") + httpChunk(omniDelta(`"Hi"`, "text"))
			for _, p := range payloads {
				answer += httpChunk(omniDelta(`"`+p+`"`, "audio"))
			}
			return exchangeCase(t, nil, chatRequest(caseAudioChat), endFIN, caseWrite{data: answer + httpChunk(chatFinish) + httpChunk(chatDone) + zeroChunk}).rec
		},
		"realtime": func(t testing.TB, payloads []string) *timeline.Record {
			t.Helper()
			deltas := make([]string, len(payloads))
			for i, p := range payloads {
				deltas[i] = `"response_id":"a","delta":"` + p + `"`
			}
			rec, _ := realtimeDeltas(t, nil, deltas...)
			return rec
		},
	}
	for _, c := range []struct {
		name         string
		events       []string
		lenient, bad bool
	}{
		{"odd lengths", std, false, false},
		{"URL-safe", with(2, url), true, false},
		{"no padding", with(1, strings.TrimRight(std[1], "=")), true, false},
		{"URL-safe, no padding", with(2, strings.TrimRight(url, "=")), true, false},
		{"slashes escaped", with(2, strings.ReplaceAll(std[2], "/", `\/`)), false, false},
		{"a star", with(2, std[2][:100]+"*"+std[2][101:]), false, true},
		{"a line feed", with(2, std[2][:76]+`\n`+std[2][76:]), false, true},
		{"both alphabets", with(2, "+-+-"+std[2][4:]), false, true},
		{"a character too many", with(2, std[2]+"A"), false, true},
		{"padding amid it", with(2, std[2][:99]+"="+std[2][100:]), false, true},
	} {
		for form, send := range forms {
			t.Run(form+"/"+c.name, func(t *testing.T) {
				rec := send(t, c.events)
				wantFlag(t, rec, "lenient_base64", c.lenient)
				if !c.bad {
					wantTerminal(t, rec, timeline.Success, "done")
					wantSamples(t, rec, int64(len(pcm)/2), 4)
					wantSum(t, rec, pcm)
					return
				}
				wantTerminal(t, rec, timeline.InvalidOutput, "base64")
				if d := rec.Terminal.Evidence["detail"]; d != "audio event 2" {
					t.Errorf("detail = %v, want the event's number, 2", d)
				}
				wantNull(t, "audio.samples", audioOf(t, rec).Samples)
				if rec.Quality.Verdict != "not_measured" {
					t.Errorf("quality = %+v, want not measured", rec.Quality)
				}
				wantHonest(t, rec)
			})
		}
	}
}
