package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/omnitap/omnitap/proxy"
	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// Field cases C14 to C30: what lies in the sound.

// soundAnswer is a chunked answer: one write for the head, one for each HTTP
// chunk of payload and one for the end.
func soundAnswer(contentType string, payloads ...string) []caseWrite {
	out := writesOf(answerHead(contentType))
	for _, p := range payloads {
		out = append(out, caseWrite{data: httpChunk(p)})
	}
	return append(out, caseWrite{data: zeroChunk})
}

// eventAnswer is a speech stream of events.
func eventAnswer(events ...string) []caseWrite {
	return soundAnswer("text/event-stream", append(slices.Clone(events), speechDone)...)
}

// deltas makes a speech event of each payload.
func deltas(payloads ...string) []string {
	out := make([]string, len(payloads))
	for i, p := range payloads {
		out[i] = speechDelta(p)
	}
	return out
}

// bodyAt turns a byte of the body (from 1) of a soundAnswer into one of the stream.
func bodyAt(payloads []string, n int) int64 {
	off := len(answerHead("audio/wav"))
	for _, p := range payloads {
		frame := len(fmt.Sprintf("%x\r\n", len(p)))
		if n <= len(p) {
			return int64(off + frame + n)
		}
		n -= len(p)
		off += frame + len(p) + 2
	}
	return -1
}

// wantSum checks the hash of the samples.
func wantSum(t testing.TB, rec *timeline.Record, pcm string) {
	t.Helper()
	sum := sha256.Sum256([]byte(pcm))
	if rec.Audio == nil || rec.Audio.SHA256 == nil || *rec.Audio.SHA256 != hex.EncodeToString(sum[:]) {
		t.Error("audio.sha256 is not that of the samples sent")
	}
}

// TestC14Placeholders: a size that streaming writers put is no size.
func TestC14Placeholders(t *testing.T) {
	pcm := sine(24_000, 24000)
	for _, size := range []uint32{0xFFFFFFFF, 0x7FFFFFFF, 0, 2_000_000_000} {
		t.Run(fmt.Sprintf("%#x", size), func(t *testing.T) {
			res := exchangeCase(t, nil, speechRequest(caseWAVBody), endFIN, soundAnswer("audio/wav", wavHead(24000, 1, size), pcm[:20_000], pcm[20_000:])...)
			wantTerminal(t, res.rec, timeline.Success, "done")
			wantSamples(t, res.rec, 24_000, 2)
			wantNull(t, "declared_samples", res.rec.Audio.DeclaredSamples)
			wantSum(t, res.rec, pcm)
			if s := res.rec.AudioS; s == nil || *s != 1 {
				t.Errorf("audio_s = %v, want 1", s)
			}
			if !slices.Contains(res.rec.Quality.NotMeasured, "declared_total") {
				t.Errorf("quality = %+v, want declared_total not measured", res.rec.Quality)
			}
		})
	}
}

// TestC14WrongSize: a size that could be true and is not is a failure, with both numbers.
func TestC14WrongSize(t *testing.T) {
	pcm := sine(24_000, 24000)
	for _, tc := range []struct {
		name     string
		declared uint32
	}{{"short", 96_000}, {"long", 24_000}, {"short by a sample", 48_002}, {"long by a sample", 47_998}} {
		t.Run(tc.name, func(t *testing.T) {
			res := exchangeCase(t, nil, speechRequest(caseWAVBody), endFIN, soundAnswer("audio/wav", wavHead(24000, 1, tc.declared)+pcm)...)
			wantFailed(t, res.rec, "declared_total")
			wantSamples(t, res.rec, 24_000, 1)
			wantInt(t, "declared_samples", res.rec.Audio.DeclaredSamples, int64(tc.declared/2))
			if s := res.rec.Audio.DeclaredSource; s == nil || *s != "wav_header" {
				t.Errorf("declared_source = %v, want wav_header", s)
			}
			if e := res.rec.Terminal.Evidence; fmt.Sprint(e["declared_bytes"], e["sample_bytes"]) != fmt.Sprint(tc.declared, 48_000) {
				t.Errorf("evidence = %v, want both numbers", e)
			}
		})
	}
}

// fiveWAVs are five files of 4,800 samples of one tone.
func fiveWAVs(rates ...int) (files []string) {
	for i := range 5 {
		rate := 24000
		if i < len(rates) {
			rate = rates[i]
		}
		files = append(files, wavHead(rate, 1, 9600)+sineFrom(4800*i, 4800, 24000))
	}
	return files
}

// TestC15Headers: a header amid a body is a fault, a file an event is a convention.
func TestC15Headers(t *testing.T) {
	files, pcm := fiveWAVs(), sine(24_000, 24000)
	unsized := make([]string, 5)
	headed := []string{files[0]}
	headed[0] = wavHead(24000, 1, 0xFFFFFFFF) + pcm[:9600]
	for i, f := range files {
		unsized[i] = wavHead(24000, 1, 0xFFFFFFFF) + f[44:]
		if i > 0 {
			headed = append(headed, f[44:])
		}
	}
	toClose := "HTTP/1.1 200 OK\r\nContent-Type: audio/wav\r\n\r\n" + strings.Join(files, "")
	for _, tc := range []struct {
		name     string
		writes   []caseWrite
		chunks   int64
		failed   string
		embedded int
	}{
		{"raw, an HTTP chunk each", soundAnswer("audio/wav", files...), 5, "embedded_header", 4},
		{"raw, one HTTP chunk", soundAnswer("audio/wav", strings.Join(files, "")), 1, "embedded_header", 4},
		{"raw, no sizes", soundAnswer("audio/wav", unsized...), 5, "embedded_header", 4},
		{"raw, no sizes, one HTTP chunk", soundAnswer("audio/wav", strings.Join(unsized, "")), 1, "embedded_header", 4},
		{"raw, no sizes, other HTTP chunks", soundAnswer("audio/wav", cutAt(strings.Join(unsized, ""), 9700, 9700, 9700, 9700)...), 5, "embedded_header", 4},
		{"raw, to the close, cut anywhere", cutEvery(toClose, 997), 0, "embedded_header", 4},
		{"events, a file each", eventAnswer(deltas(files...)...), 5, "", 0},
		{"events, unsized files", eventAnswer(deltas(unsized...)...), 5, "", 0},
		{"events, one header", eventAnswer(deltas(headed...)...), 5, "", 0},
		{"events, another rate", eventAnswer(deltas(fiveWAVs(24000, 24000, 22050)...)...), 5, "format_constant", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			res := exchangeCase(t, nil, speechRequest(caseWAVBody), endFIN, tc.writes...)
			if tc.failed == "" {
				wantTerminal(t, res.rec, timeline.Success, "done")
			} else {
				wantFailed(t, res.rec, tc.failed)
			}
			if tc.chunks == 0 { // reads: how many is the relay's affair
				tc.chunks = audioOf(t, res.rec).Chunks
			}
			wantSamples(t, res.rec, 24_000, tc.chunks)
			wantSum(t, res.rec, pcm)
			if n, _ := res.rec.Terminal.Evidence["embedded_headers"].(int); n != tc.embedded {
				t.Errorf("embedded_headers = %v, want %d", n, tc.embedded)
			}
		})
	}
}

// TestC16FirstAudio: a header is no audio, and neither is half a sample. The
// contract's first playable audio is 20 ms of it; at 1,000 Hz and a limit of 1 ms
// it is the first frame.
func TestC16FirstAudio(t *testing.T) {
	mono, stereo := wavHead(24000, 1, 3840), wavHead(24000, 2, 3840)
	slow, slow2 := wavHead(1000, 1, 3840), wavHead(1000, 2, 3840)
	pcm := sine(1920, 24000)
	for _, tc := range []struct {
		name     string
		payloads []string
		minMS    int
		write    int // that completes the first playable audio
		at       int // byte of the body that does
	}{
		{"header, 1 B, rest", []string{mono, pcm[:1], pcm[1:]}, 0, 3, 44 + 960},
		{"header in pieces", []string{mono[:10], mono[10:], pcm[:1], pcm[1:]}, 0, 4, 44 + 960},
		{"header and 1 B", []string{mono + pcm[:1], pcm[1:2], pcm[2:]}, 0, 3, 44 + 960},
		{"stereo", []string{stereo, pcm[:3], pcm[3:]}, 0, 3, 44 + 1920},
		{"just 20 ms", []string{mono, pcm[:959], pcm[959:960], pcm[960:]}, 0, 3, 44 + 960},
		{"frame: header, 1 B, rest", []string{slow, pcm[:1], pcm[1:]}, 1, 3, 44 + 2},
		{"frame: header in pieces", []string{slow[:10], slow[10:], pcm[:1], pcm[1:]}, 1, 4, 44 + 2},
		{"frame: header and 1 B", []string{slow + pcm[:1], pcm[1:2], pcm[2:]}, 1, 2, 44 + 2},
		{"frame: stereo, 3 B", []string{slow2, pcm[:3], pcm[3:]}, 1, 3, 44 + 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			change := func(_ *proxy.Config, c *tap.Config) { c.Timeline.MinPlayableMS = tc.minMS }
			writes := soundAnswer("audio/wav", tc.payloads...)
			for i, ms := range []int{0, 2, 40, 5} { // 20, 900 and 950 ms, scaled down
				if i < len(writes) {
					writes[i].wait = time.Duration(ms) * time.Millisecond
				}
			}
			res := exchangeCase(t, change, speechRequest(caseWAVBody), endFIN, writes...)
			wantTerminal(t, res.rec, timeline.Success, "done")
			res.wantPointIn(t, "t_hdr", res.rec.Points.THdr, 0)
			res.wantPointIn(t, "t_audio", res.rec.Points.TAudio, tc.write)
			wantInt(t, "offsets.t_audio", res.rec.Offsets.TAudio, bodyAt(tc.payloads, tc.at))
			wantMetric(t, "ttfa_ms", res.rec.TTFAMS, res.rec.Points.TAudio, res.rec.Points.TIn)
		})
	}
}

// wantMetric checks a metric against its points.
func wantMetric(t testing.TB, name string, got *float64, to, from *int64) {
	t.Helper()
	if got == nil || to == nil || from == nil {
		t.Errorf("%s = %v of %v and %v, want none of them null", name, got, to, from)
	} else if want := float64(*to-*from) / 1e6; math.Abs(*got-want) > 1e-6 {
		t.Errorf("%s = %v, want %v", name, *got, want)
	}
}

// TestC16LeadingSilence: two seconds of zeros are playable and not audible.
func TestC16LeadingSilence(t *testing.T) {
	payloads := []string{wavHead(24000, 1, 96_000+4800), strings.Repeat("\x00", 96_000), sine(2400, 24000)}
	writes := soundAnswer("audio/wav", payloads...)
	writes[3].wait = 40 * time.Millisecond
	res := exchangeCase(t, nil, speechRequest(caseWAVBody), endFIN, writes...)
	wantTerminal(t, res.rec, timeline.Success, "done")
	res.wantPointIn(t, "t_audio", res.rec.Points.TAudio, 2)
	res.wantPointIn(t, "t_audible", res.rec.Points.TAudible, 3)
	wantInt(t, "offsets.t_audible", res.rec.Offsets.TAudible, bodyAt(payloads, 44+96_000+4)) // the tone's sample 0 is 0
	wantMetric(t, "ttfaudible_ms", res.rec.TTFAudibleMS, res.rec.Points.TAudible, res.rec.Points.TIn)
}

// The ways to say nothing in an audio event.
func emptyEvents(chat bool) []string {
	header := base64.StdEncoding.EncodeToString([]byte(wavHead(24000, 1, 0)))
	if chat {
		e := func(audio string) string {
			return sseData(`{"id":"chatcmpl-1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"audio":` + audio + `},"finish_reason":null}]}`)
		}
		return []string{e(`{"data":""}`), e("null"), e(`{"data":"` + header + `"}`), e(`{"data":null}`)}
	}
	e := func(fields string) string { return sseData(`{"type":"speech.audio.delta"` + fields + `}`) }
	return []string{e(`,"audio":""`), e(`,"audio":null`), e(`,"audio":"` + header + `"`), e("")}
}

// TestC17EmptyEvents: an event without samples is an audio event, and no audio.
func TestC17EmptyEvents(t *testing.T) {
	pcm := base64.StdEncoding.EncodeToString([]byte(sine(2400, 24000)))
	chatReal := sseData(`{"id":"chatcmpl-1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"audio":{"data":"` + pcm + `"}},"finish_reason":null}]}`)
	usage := sseData(`{"id":"chatcmpl-1","object":"chat.completion.chunk","model":"m","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`)
	for _, tc := range []struct {
		name, request, real, end string
		empty                    []string
	}{
		{"speech", speechRequest(caseSpeechBody), speechDelta(sine(2400, 24000)), speechDone, emptyEvents(false)},
		{"chat", chatRequest(caseAudioChat), chatReal, chatFinish + usage + chatDone, emptyEvents(true)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			res := exchangeCase(t, nil, tc.request, endFIN, soundAnswer("text/event-stream", append(slices.Clone(tc.empty), tc.real, tc.end)...)...)
			wantTerminal(t, res.rec, timeline.Success, "done")
			wantSamples(t, res.rec, 2400, 1)
			if n := res.rec.Audio.EmptyEvents; n != int64(len(tc.empty)) {
				t.Errorf("empty_events = %d, want %d", n, len(tc.empty))
			}
			res.wantPointIn(t, "t_audio_event", res.rec.Points.TAudioEvent, 1)
			res.wantPointIn(t, "t_audio", res.rec.Points.TAudio, 1+len(tc.empty))
		})
		t.Run(tc.name+", only empty ones", func(t *testing.T) {
			res := exchangeCase(t, nil, tc.request, endFIN, soundAnswer("text/event-stream", append(slices.Clone(tc.empty), tc.end)...)...)
			wantTerminal(t, res.rec, timeline.InvalidOutput, "no_output") // no text either
			wantSamples(t, res.rec, 0, 0)
			wantNull(t, "ttfa_ms", res.rec.TTFAMS)
			wantNull(t, "audio_gap_ms", res.rec.AudioGapMS)
			res.wantPointIn(t, "t_audio_event", res.rec.Points.TAudioEvent, 1)
		})
	}
}

// dither is n samples of the least significant bit's noise.
func dither(n int) string {
	b := make([]byte, 0, 2*n)
	state := uint32(1)
	for range n {
		state = state*1664525 + 1013904223
		b = binary.LittleEndian.AppendUint16(b, uint16(int16(state>>30)%3-1))
	}
	return string(b)
}

// TestC18Silence: a stream in which nothing is heard is no success.
func TestC18Silence(t *testing.T) {
	zeros := strings.Repeat("\x00", 3840)
	for _, tc := range []struct {
		name, pcm string
		rate      int
		silent    bool
	}{
		{"0.08 s of zeros", zeros, 24000, true},
		{"0.16 s of zeros at 48 kHz", strings.Repeat(zeros, 4), 48000, true},
		{"dither", dither(24_000), 24000, true},
		{"zeros, then a tone", zeros + sine(24_000, 24000), 24000, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			res := exchangeCase(t, nil, speechRequest(caseWAVBody), endFIN, soundAnswer("audio/wav", wavHead(tc.rate, 1, uint32(len(tc.pcm))), tc.pcm)...)
			wantSamples(t, res.rec, int64(len(tc.pcm)/2), 1)
			res.wantPointIn(t, "t_audio", res.rec.Points.TAudio, 2)
			if !tc.silent {
				wantTerminal(t, res.rec, timeline.Success, "done")
				res.wantPointIn(t, "t_audible", res.rec.Points.TAudible, 2)
				return
			}
			wantFailed(t, res.rec, "silence")
			wantNull(t, "t_audible", res.rec.Points.TAudible)
			wantNull(t, "ttfaudible_ms", res.rec.TTFAudibleMS)
		})
	}
}

// floats is n f32le samples of a tone.
func floats(n int) string {
	b := make([]byte, 0, 4*n)
	for i := range n {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(0.5*math.Sin(2*math.Pi*440*float64(i)/24000))))
	}
	return string(b)
}

// cutAt cuts s into pieces of these sizes and the rest.
func cutAt(s string, sizes ...int) (out []string) {
	for _, n := range sizes {
		out = append(out, s[:n])
		s = s[n:]
	}
	return append(out, s)
}

// TestC19OddBorders: chunks may end amid a sample frame; a stream may not.
func TestC19OddBorders(t *testing.T) {
	pcm := ramp(0, 48_000)
	wide := wavOf(0xFFFFFFFF, fmtChunk(3, 1, 24000, 32), "data"+le32(0xFFFFFFFF))
	two := wavHead(24000, 2, 0xFFFFFFFF)
	for _, tc := range []struct {
		name, contentType, header, pcm string
		cuts                           []int
		samples                        int64
		rest                           int
	}{
		{"mono", "audio/pcm", "", pcm, []int{4063, 1697, 1, 1}, 48_000, 0},
		{"stereo at 2 B", "audio/wav", two, pcm, []int{44 + 4002, 1702, 2, 2}, 24_000, 0},
		{"float at 3 B", "audio/wav", wide, floats(24_000), []int{44 + 4003, 1697, 1, 1}, 24_000, 0},
		{"mono, odd total", "audio/pcm", "", pcm + "x", []int{4063, 1697, 1, 1}, 48_000, 1},
		{"stereo, half a frame more", "audio/wav", two, pcm + "xy", []int{44 + 4002}, 24_000, 2},
		{"float, 3 B more", "audio/wav", wide, floats(24_000) + "xyz", []int{44 + 4003}, 24_000, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			res := exchangeCase(t, nil, speechRequest(caseSpeechBody), endFIN, soundAnswer(tc.contentType, cutAt(tc.header+tc.pcm, tc.cuts...)...)...)
			wantSamples(t, res.rec, tc.samples, int64(len(tc.cuts)+1))
			if slices.Contains(res.rec.Quality.Failed, "border_jumps") {
				t.Errorf("quality = %+v, want no discontinuity", res.rec.Quality)
			}
			if tc.rest == 0 {
				wantTerminal(t, res.rec, timeline.Success, "done")
				wantSum(t, res.rec, tc.pcm)
				return
			}
			wantTerminal(t, res.rec, timeline.InvalidOutput, "partial_frame")
			if d := fmt.Sprint(res.rec.Terminal.Evidence["detail"]); !strings.HasPrefix(d, fmt.Sprint(tc.rest, " ")) {
				t.Errorf("detail = %q, want a remainder of %d", d, tc.rest)
			}
		})
	}
	t.Run("events", func(t *testing.T) {
		res := exchangeCase(t, nil, speechRequest(caseSpeechBody), endFIN, eventAnswer(deltas(cutAt(pcm, 4063, 1697, 1, 1)...)...)...)
		wantTerminal(t, res.rec, timeline.Success, "done")
		wantSamples(t, res.rec, 48_000, 5)
		wantSum(t, res.rec, pcm)
	})
}

// riff joins a RIFF file of true sizes.
func riff(chunks ...string) string {
	n := 4
	for _, c := range chunks {
		n += len(c)
	}
	return wavOf(uint32(n), chunks...)
}

// riffChunk is one chunk with its padding.
func riffChunk(id, body string) string {
	return id + le32(uint32(len(body))) + body + strings.Repeat("\x00", len(body)&1)
}

// extensible is a fmt chunk of 40 bytes.
func extensible(tag, channels, rate, bits int) string {
	body := le16(0xFFFE) + fmtChunk(tag, channels, rate, bits)[10:]
	return riffChunk("fmt ", body+le16(22)+le16(bits)+le32(4)+le16(tag)+"\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71")
}

// bigEndian swaps the bytes of 16-bit samples.
func bigEndian(s string) string {
	b := []byte(s)
	for i := 0; i+1 < len(b); i += 2 {
		b[i], b[i+1] = b[i+1], b[i]
	}
	return string(b)
}

// rifx is a big-endian file of 16-bit mono.
func rifx(pcm string, rate int) string {
	be32 := func(n int) string { return string(binary.BigEndian.AppendUint32(nil, uint32(n))) }
	be16 := func(n int) string { return string(binary.BigEndian.AppendUint16(nil, uint16(n))) }
	fmtBody := be16(1) + be16(1) + be32(rate) + be32(2*rate) + be16(2) + be16(16)
	return "RIFX" + be32(36+len(pcm)) + "WAVE" + "fmt " + be32(16) + fmtBody + "data" + be32(len(pcm)) + bigEndian(pcm)
}

// rf64 is a file whose size stands in a ds64 chunk.
func rf64(pcm string) string {
	le64 := func(n int) string { return string(binary.LittleEndian.AppendUint64(nil, uint64(n))) }
	ds64 := riffChunk("ds64", le64(72+len(pcm))+le64(len(pcm))+le64(len(pcm)/2)+le32(0))
	return "RF64" + le32(0xFFFFFFFF) + "WAVE" + ds64 + fmtChunk(1, 1, 24000, 16) + "data" + le32(0xFFFFFFFF) + pcm
}

// spoil puts other bytes into a fmt chunk made by fmtChunk.
func spoil(fmtChunk string, at int, with string) string {
	return fmtChunk[:8+at] + with + fmtChunk[8+at+len(with):]
}

// TestC28Headers: headers are walked, not skipped.
func TestC28Headers(t *testing.T) {
	pcm := sine(2400, 24000)
	data, plain := riffChunk("data", pcm), fmtChunk(1, 1, 24000, 16)
	wide := make([]byte, 0, 7200)
	for i := 0; i < len(pcm); i += 2 {
		wide = append(wide, 0, pcm[i], pcm[i+1])
	}
	for _, tc := range []struct {
		name, file, encoding string
		flag                 string
	}{
		{"JUNK ahead of fmt", riff(riffChunk("JUNK", strings.Repeat("j", 28)), plain, data), "pcm_s16le", ""},
		{"odd bext ahead of fmt", riff(riffChunk("bext", strings.Repeat("b", 603)), plain, data), "pcm_s16le", ""},
		{"LIST between", riff(plain, riffChunk("LIST", "INFOISFT\x04\x00\x00\x00Lavf"), data), "pcm_s16le", ""},
		{"LIST behind", riff(plain, data, riffChunk("LIST", "INFOISFT\x04\x00\x00\x00Lavf")), "pcm_s16le", ""},
		{"fmt of 18", riff(riffChunk("fmt ", plain[8:]+le16(0)), data), "pcm_s16le", ""},
		{"extensible", riff(extensible(1, 1, 24000, 16), data), "pcm_s16le", ""},
		{"float32", riff(fmtChunk(3, 1, 24000, 32), riffChunk("data", floats(2400))), "pcm_f32le", ""},
		{"24 bits", riff(fmtChunk(1, 1, 24000, 24), riffChunk("data", string(wide))), "pcm_s24le", ""},
		{"byte rate wrong", riff(spoil(plain, 8, le32(96000)), data), "pcm_s16le", "byte_rate_wrong"},
		{"RF64", rf64(pcm), "pcm_s16le", ""},
		{"RIFX", rifx(pcm, 24000), "pcm_s16be", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for split, writes := range map[string][]caseWrite{
				"one": soundAnswer("audio/wav", tc.file), "border behind the header": soundAnswer("audio/wav", cutAt(tc.file, 20, 25)...),
			} {
				res := exchangeCase(t, nil, speechRequest(caseWAVBody), endFIN, writes...)
				wantTerminal(t, res.rec, timeline.Success, "done")
				if res.rec.Audio == nil || res.rec.Audio.Encoding == nil || *res.rec.Audio.Encoding != tc.encoding {
					t.Fatalf("%s: audio = %+v, want %s", split, res.rec.Audio, tc.encoding)
				}
				wantInt(t, "audio.samples", audioOf(t, res.rec).Samples, 2400)
				wantInt(t, "audio.sample_rate", res.rec.Audio.SampleRate, 24000)
				wantInt(t, "audio.declared_samples", res.rec.Audio.DeclaredSamples, 2400)
				wantFlag(t, res.rec, "byte_rate_wrong", tc.flag != "")
				if tc.encoding != "pcm_f32le" && res.rec.Points.TAudible == nil {
					t.Errorf("%s: t_audible is null", split)
				}
			}
		})
	}
}

// TestC28Lies: a header that contradicts itself is not believed.
func TestC28Lies(t *testing.T) {
	pcm := sine(2400, 24000)
	data, plain := riffChunk("data", pcm), fmtChunk(1, 1, 24000, 16)
	for _, tc := range []struct{ name, file, reason string }{
		{"block align wrong", riff(spoil(plain, 12, le16(4)), data), "header_inconsistent"},
		{"bits against block align", riff(spoil(plain, 14, le16(24)), data), "header_inconsistent"},
		{"no channels", riff(spoil(plain, 2, le16(0)), data), "header_inconsistent"},
		{"data ahead of fmt", riff(data, plain), "header_inconsistent"},
		{"no data chunk", riff(plain, riffChunk("LIST", "INFO")), "no_output"},
		{"header alone", riff(plain)[:30], "no_output"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			res := exchangeCase(t, nil, speechRequest(caseWAVBody), endFIN, soundAnswer("audio/wav", tc.file)...)
			wantTerminal(t, res.rec, timeline.InvalidOutput, tc.reason)
			wantNull(t, "ttfa_ms", res.rec.TTFAMS)
			if res.rec.Audio != nil && res.rec.Audio.Samples != nil && *res.rec.Audio.Samples != 0 {
				t.Errorf("samples = %d, want none counted", *res.rec.Audio.Samples)
			}
		})
	}
}

// encodedDelta is a speech event of base64 text as it is.
func encodedDelta(b64 string) string {
	return sseData(`{"type":"speech.audio.delta","audio":"` + b64 + `"}`)
}

// TestC29Base64: each event is decoded by itself and strictly; samples go on
// over the borders.
func TestC29Base64(t *testing.T) {
	pcm := sine((3+5+9599+9601)/2, 24000)
	parts := cutAt(pcm, 3, 5, 9599)
	std := make([]string, len(parts))
	for i, p := range parts {
		std[i] = base64.StdEncoding.EncodeToString([]byte(p))
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
	for _, tc := range []struct {
		name    string
		events  []string
		lenient bool
		bad     bool
	}{
		{"odd lengths", std, false, false},
		{"URL-safe", with(2, url), true, false},
		{"no padding", with(1, strings.TrimRight(std[1], "=")), true, false},
		{"URL-safe, no padding", with(2, strings.TrimRight(url, "=")), true, false},
		{"a star", with(2, std[2][:100]+"*"+std[2][101:]), false, true},
		{"a line feed", with(2, std[2][:76]+`\n`+std[2][76:]), false, true},
		{"a line feed at the end", with(2, std[2]+`\n`), false, true},
		{"both alphabets", with(2, "+-+-"+std[2][4:]), false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			events := make([]string, len(tc.events))
			for i, e := range tc.events {
				events[i] = encodedDelta(e)
			}
			res := exchangeCase(t, nil, speechRequest(caseSpeechBody), endFIN, eventAnswer(events...)...)
			wantFlag(t, res.rec, "lenient_base64", tc.lenient)
			if !tc.bad {
				wantTerminal(t, res.rec, timeline.Success, "done")
				wantSamples(t, res.rec, int64(len(pcm)/2), 4)
				wantSum(t, res.rec, pcm)
				return
			}
			wantTerminal(t, res.rec, timeline.InvalidOutput, "base64")
			if d := res.rec.Terminal.Evidence["detail"]; d != "audio event 2" {
				t.Errorf("detail = %v, want the event's number, 2", d)
			}
			wantNull(t, "audio.samples", audioOf(t, res.rec).Samples)
		})
	}
}

// mp3Frames is n frames of MPEG-1 layer III, 128 kbit/s at 44.1 kHz: 417 bytes each.
func mp3Frames(n int) string {
	return strings.Repeat("\xff\xfb\x90\x00"+strings.Repeat("\x55", 413), n)
}

// adtsFrames is n AAC frames of 100 bytes.
func adtsFrames(n int) string {
	return strings.Repeat("\xff\xf1\x50\x80\x0c\x9f\xfc"+strings.Repeat("\x55", 93), n)
}

// oggPages is an Ogg Opus stream: its first page and n others.
func oggPages(n int) string {
	page := func(kind, seq byte, body string) string {
		return "OggS\x00" + string(kind) + strings.Repeat("\x00", 8) + "abcd" + string([]byte{seq, 0, 0, 0}) + "\x00\x00\x00\x00\x01" + string([]byte{byte(len(body))}) + body
	}
	out := page(2, 0, "OpusHead\x01\x01\x38\x01\x80\xbb\x00\x00\x00\x00\x00")
	for i := range n {
		out += page(0, byte(i+1), strings.Repeat("\xaa", 200))
	}
	return out
}

// TestC30Compressed: what is not decoded is not counted, and not blamed.
func TestC30Compressed(t *testing.T) {
	id3 := "ID3\x04\x00\x00\x00\x00\x00\x0a" + strings.Repeat("\x00", 10)
	for _, tc := range []struct {
		name, format, contentType, container string
		payloads                             []string
		repeated                             bool
	}{
		{"mpeg, ID3 once", "mp3", "audio/mpeg", "mp3", []string{id3 + mp3Frames(3), mp3Frames(3)}, false},
		{"mpeg, ID3 in each chunk", "mp3", "audio/mpeg", "mp3", []string{id3 + mp3Frames(3), id3 + mp3Frames(3), id3 + mp3Frames(3)}, true},
		{"mpeg without a tag", "mp3", "audio/mpeg", "mp3", []string{mp3Frames(3), mp3Frames(3)}, false},
		{"ogg cut anywhere", "opus", "audio/ogg", "ogg", cutAt(oggPages(5), 3, 100, 301, 1), false},
		{"ogg started anew", "opus", "audio/ogg", "ogg", []string{oggPages(2), oggPages(2)}, true},
		{"adts", "aac", "audio/aac", "aac", cutAt(adtsFrames(6), 150, 7), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			request := speechRequest(`{"model":"m","input":"hi","response_format":"` + tc.format + `"}`)
			res := exchangeCase(t, nil, request, endFIN, soundAnswer(tc.contentType, tc.payloads...)...)
			wantCompressed(t, res, tc.container, len(strings.Join(tc.payloads, "")))
			wantFlag(t, res.rec, "repeated_header", tc.repeated)
			wantFlag(t, res.rec, "format_not_as_requested", false)
			want := len(tc.payloads)
			if len(tc.payloads[0]) < 4 { // too short to tell what it is: it counts with the next
				want--
			}
			if n := len(outputChunks(res.events)); n != want || res.rec.Audio.Chunks != int64(want) {
				t.Errorf("%d output_chunk events, audio.chunks %d, want %d", n, res.rec.Audio.Chunks, want)
			}
		})
	}
	t.Run("a file an event", func(t *testing.T) {
		request := speechRequest(`{"model":"m","input":"hi","stream_format":"sse","response_format":"mp3"}`)
		file := id3 + mp3Frames(3)
		res := exchangeCase(t, nil, request, endFIN, eventAnswer(deltas(file, file)...)...)
		wantCompressed(t, res, "mp3", 2*len(file))
		wantFlag(t, res.rec, "repeated_header", true)
	})
}

// wantCompressed checks what may be said of sound that is not decoded.
func wantCompressed(t testing.TB, res *caseResult, container string, size int) {
	t.Helper()
	rec := res.rec
	wantTerminal(t, rec, timeline.Success, "done")
	if rec.Audio == nil || rec.Audio.Container == nil || *rec.Audio.Container != container || rec.Audio.Bytes != int64(size) {
		t.Fatalf("audio = %+v, want %d bytes of %s", rec.Audio, size, container)
	}
	wantNull(t, "audio.samples", rec.Audio.Samples)
	if r := rec.Unmeasured["audio.samples"]; !strings.HasPrefix(r, "codec") {
		t.Errorf("unmeasured audio.samples = %q, want codec", r)
	}
	wantNull(t, "ttfa_ms", rec.TTFAMS)
	wantNull(t, "rtf", rec.RTF)
	if rec.Quality.Verdict != "not_measured" || len(rec.Quality.Failed) > 0 {
		t.Errorf("quality = %+v, want not measured", rec.Quality)
	}
	res.wantPointIn(t, "t_audio_event", rec.Points.TAudioEvent, 1)
}
