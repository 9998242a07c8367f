package main

import (
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/omnitap/omnitap/proxy"
	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// The traps of the servers' wire formats, by their numbers in the descriptions of
// the two formats (section "Traps for a proxy"), as far as they are of HTTP.
//
// vLLM-Omni, tested elsewhere:
//
//	 1 role-only first delta            TestC32RoleOnlyDeltaIsNoText
//	 4 one line above 64 KiB            TestC02LongLines
//	 5 a WAV header in every chunk      TestC15Headers
//	 6 one header with sizes 0xFFFFFFFF TestC14Placeholders, TestC16FirstAudio
//	 7 empty audio events               TestC17EmptyEvents
//	16 failures inside a 200            TestC53ErrorInsideA200
//	17 stream:true, two wire forms      TestC10FormFromTheBytes
//	28 compressed formats               TestC30Compressed
//	32 flush at once                    TestC40NothingIsHeldBack, TestC05LengthIsNotHeldBack
//
// Of WebSocket flows: 19 to 27, 29. Nothing of the wire: 30 (context of a run), 31
// (two generations, one answer).
//
// SGLang-Omni, tested elsewhere:
//
//	 1 headers are no first token       TestC32RoleOnlyDeltaIsNoText
//	 3 a delta of 44 bytes has no sound TestC17EmptyEvents
//	 5 playable is not audible          TestC34LeadingSilenceIsNotHeard
//	 9 first and last request byte      TestC39WhereTheTimerStarts
//	11 headers per delta                TestC15Headers
//	15 HTTP chunks, not reads           TestC06LogicalChunks, TestC19OddBorders
//	17 a terminal payload that repeats  TestCapturesReplayToTheirRecords (chat-stream-audio-repeated)
//	24 a raw stream's bare EOF          TestC07CutMidBody
//	33 huge lines                       TestC02LongLines
//	34 strip and add nothing            TestC09Encodings, TestC82UnmodifiedMeansUnmodified
//	35 no silent retry, no Via          TestC12Generations, TestC82UnmodifiedMeansUnmodified
//	38 two dialects on one path         TestC10FormFromTheBytes
//
// Of WebSocket flows: 6 to 8, 10, 20, 27, 28, 31, 32. Nothing of the wire: 18 (counts
// that speed rounds), 26 (a later GET), 37 (the server's own metric), 39 (CPU).

// chatStream is a chat answer of these events, with its end.
func chatStream(events ...string) caseWrite {
	s := answerHead("text/event-stream")
	for _, e := range append(events, chatFinish, chatDone) {
		s += httpChunk(e)
	}
	return caseWrite{data: s + zeroChunk}
}

// b64 is standard base64.
func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// TestVLLMTrap02SoundInContent: base64 in delta.content is sound where modality
// says so, and text where it does not.
func TestVLLMTrap02SoundInContent(t *testing.T) {
	pcm := sine(2400, 24000)
	for _, c := range []struct {
		name, event    string
		samples, texts int64
	}{
		{"audio", omniAudio(wavFile(24000, 1, pcm)), 2400, 1},
		{"bare pcm", omniAudio(pcm), 2400, 1},
		{"text that looks like it", omniDelta(`"`+b64(pcm)+`"`, "text"), 0, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := exchangeCase(t, nil, chatRequest(caseChatBody), endFIN, chatStream(omniDelta(`"Hey"`, "text"), c.event))
			wantTerminal(t, res.rec, timeline.Success, "done")
			wantInt(t, "text_units", res.rec.TextUnits, c.texts)
			if c.samples == 0 {
				wantNull(t, "audio", res.rec.Audio)
				return
			}
			wantSamples(t, res.rec, c.samples, 1)
		})
	}
}

// TestVLLMTrap03ModalityComesLast: what an event is, is known with its last bytes;
// until then it is neither text nor sound.
func TestVLLMTrap03ModalityComesLast(t *testing.T) {
	chunk := httpChunk(omniAudio(wavFile(24000, 1, sine(24000, 24000))))
	at := strings.Index(chunk, `"modality"`)
	writes := []caseWrite{{data: answerHead("text/event-stream") + chunk[:at]}, {wait: 30 * time.Millisecond, data: chunk[at:]}, {data: httpChunk(chatFinish) + httpChunk(chatDone) + zeroChunk}}
	res := exchangeCase(t, nil, chatRequest(caseAudioChat), endFIN, writes...)
	wantTerminal(t, res.rec, timeline.Success, "done")
	res.wantPointIn(t, "points.t_audio", res.rec.Points.TAudio, 1)
	wantInt(t, "offsets.t_audio", res.rec.Offsets.TAudio, sentBefore(writes, 1)-2)
	wantSamples(t, res.rec, 24000, 1)
	wantNull(t, "points.t_text", res.rec.Points.TText)
}

// TestVLLMTrap08EachPayloadIsItsOwn: base64 is padded chunk by chunk, and a sample
// may lie across two of them.
func TestVLLMTrap08EachPayloadIsItsOwn(t *testing.T) {
	pcm := ramp(0, 3000)
	for _, sizes := range [][]int{{2998, 3002}, {2999, 3001}, {1, 2, 2997, 3000}, {1999, 1999, 2002}} {
		t.Run(fmt.Sprint(sizes), func(t *testing.T) {
			events, at := []string{}, 0
			for _, n := range sizes {
				events = append(events, speechDelta(pcm[at:at+n]))
				at += n
			}
			res := exchangeCase(t, nil, speechRequest(caseSpeechBody), endFIN, eventAnswer(events...)...)
			wantTerminal(t, res.rec, timeline.Success, "done")
			wantSamples(t, res.rec, 3000, int64(len(sizes)))
			wantSum(t, res.rec, pcm)
		})
	}
}

// TestVLLMTrap09RateIsSaidOrAssumed: samples always; seconds with the source of
// the rate, and flagged where nothing says it.
func TestVLLMTrap09RateIsSaidOrAssumed(t *testing.T) {
	pcm := sine(4800, 24000)
	rates := func(_ *proxy.Config, c *tap.Config) { c.Timeline.Rates = map[string]int{"m": 16000} }
	raw := func(head string) caseWrite { return caseWrite{data: head + httpChunk(pcm) + zeroChunk} }
	for _, c := range []struct {
		name    string
		change  func(*proxy.Config, *tap.Config)
		request string
		answer  caseWrite
		rate    int64
		source  string // empty: assumed
	}{
		{"nothing", nil, speechRequest(caseSpeechBody), raw(answerHead("audio/pcm")), 24000, ""},
		{"header", nil, speechRequest(caseSpeechBody), raw(answerHead("audio/pcm", "X-Sample-Rate: 44100")), 44100, "header"},
		{"media type", nil, speechRequest(caseSpeechBody), raw(answerHead("audio/pcm;rate=48000")), 48000, "content_type"},
		{"configuration", rates, speechRequest(caseSpeechBody), raw(answerHead("audio/pcm")), 16000, "config"},
		{"header over configuration", rates, speechRequest(caseSpeechBody), raw(answerHead("audio/pcm", "X-Sample-Rate: 44100")), 44100, "header"},
		{"bare pcm in chat", nil, chatRequest(caseAudioChat), chatStream(omniDelta(`"Hey"`, "text"), omniAudio(pcm)), 24000, ""},
		{"bare pcm in chat, configuration", rates, chatRequest(caseAudioChat), chatStream(omniDelta(`"Hey"`, "text"), omniAudio(pcm)), 16000, "config"},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := exchangeCase(t, c.change, c.request, endFIN, c.answer)
			wantTerminal(t, res.rec, timeline.Success, "done")
			wantSamples(t, res.rec, 4800, 1)
			wantFlag(t, res.rec, "rate_assumed", c.source == "")
			if got, want := *res.rec.AudioS, 4800/float64(c.rate); got != want {
				t.Errorf("audio_s = %v, want %v", got, want)
			}
			if c.source == "" {
				wantNull(t, "audio.sample_rate", res.rec.Audio.SampleRate)
				wantInt(t, "audio.assumed_sample_rate", res.rec.Audio.AssumedSampleRate, c.rate)
				return
			}
			wantInt(t, "audio.sample_rate", res.rec.Audio.SampleRate, c.rate)
			if s := res.rec.Audio.SampleRateSource; s == nil || *s != c.source {
				t.Errorf("audio.sample_rate_source = %v, want %s", s, c.source)
			}
		})
	}
}

// TestVLLMTrap10FramesArePerChannel: a frame holds a sample of each channel (also
// SGLang-Omni's trap 16).
func TestVLLMTrap10FramesArePerChannel(t *testing.T) {
	stereo := pcmOf(4800, func(i int) int { return i / 2 * (1 - 2*(i%2)) })
	for _, c := range []struct {
		name, request string
		answer        caseWrite
	}{
		{"X-Channels", speechRequest(caseSpeechBody), caseWrite{data: answerHead("audio/pcm", "X-Sample-Rate: 24000", "X-Channels: 2") + httpChunk(stereo) + zeroChunk}},
		{"media type", speechRequest(caseSpeechBody), caseWrite{data: answerHead("audio/pcm; rate=24000; channels=2") + httpChunk(stereo) + zeroChunk}},
		{"raw WAV", speechRequest(caseWAVBody), caseWrite{data: answerHead("audio/wav") + httpChunk(wavHead(24000, 2, 0xffffffff)+stereo) + zeroChunk}},
		{"chat WAV", chatRequest(caseAudioChat), chatStream(chatText("Hey"), chatAudio(wavFile(24000, 2, stereo)))},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := exchangeCase(t, nil, c.request, endFIN, c.answer)
			wantTerminal(t, res.rec, timeline.Success, "done")
			wantSamples(t, res.rec, 2400, 1)
			wantInt(t, "audio.channels", res.rec.Audio.Channels, 2)
			if got := *res.rec.AudioS; got != 0.1 {
				t.Errorf("audio_s = %v, want 0.1", got)
			}
		})
	}
}

// TestVLLMTrap11ChoicesRepeatTheSound: with n above 1 each choice holds the same
// sound: it counts once.
func TestVLLMTrap11ChoicesRepeatTheSound(t *testing.T) {
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
			event := func(from int) string {
				var choices []string
				for i := range n {
					choices = append(choices, fmt.Sprintf(`{"index":%d,"delta":{"role":"assistant","content":"%s"},"logprobs":null,"finish_reason":null}`,
						i, b64(wavFile(24000, 1, sineFrom(from, 2400, 24000)))))
				}
				return sseData(`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[` + strings.Join(choices, ",") + `],"modality":"audio"}`)
			}
			res := exchangeCase(t, nil, chatRequest(caseAudioChat), endFIN, chatStream(omniDelta(`"Hey"`, "text"), event(0), event(2400)))
			wantTerminal(t, res.rec, timeline.Success, "done")
			wantSamples(t, res.rec, 4800, 2)
			wantFlag(t, res.rec, "multiple_choices", true)
		})
	}
}

// TestVLLMTrap12TwoChoicesOneIndex: a whole answer has text and sound in two choices
// of index 0, or in one.
func TestVLLMTrap12TwoChoicesOneIndex(t *testing.T) {
	file := b64(wavFile(24000, 1, sine(2400, 24000)))
	audio := `"audio":{"id":"audio-00aa","data":"` + file + `","expires_at":9,"transcript":""}`
	text := `{"index":0,"message":{"role":"assistant","content":"Hey","refusal":null,"audio":null},"logprobs":null,"finish_reason":"stop","stop_reason":null}`
	sound := `{"index":0,"message":{"role":"assistant","content":null,"refusal":null,` + audio + `},"logprobs":null,"finish_reason":"stop","stop_reason":null}`
	for _, c := range []struct{ name, choices string }{
		{"text first", text + "," + sound},
		{"sound first", sound + "," + text},
		{"one choice", `{"index":0,"message":{"role":"assistant","content":"Hey",` + audio + `},"finish_reason":"stop","stop_reason":null}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := exchangeCase(t, nil, chatRequest(`{"model":"m","messages":[]}`), endFIN,
				caseWrite{data: lengthAnswer("application/json", `{"id":"chatcmpl-q2","object":"chat.completion","created":1,"model":"m","choices":[`+c.choices+`],"usage":{"completion_tokens":1}}`)})
			wantTerminal(t, res.rec, timeline.Success, "done")
			wantSamples(t, res.rec, 2400, 1)
			wantInt(t, "text_bytes", res.rec.TextBytes, 3)
			if res.rec.Dialect != "vllm-omni" {
				t.Errorf("dialect = %s, want vllm-omni", res.rec.Dialect)
			}
		})
	}
}

// TestVLLMTrap13ReasonAnywhere: the reason stands on the last modality, or on a chunk
// of none; [DONE] ends the stream.
func TestVLLMTrap13ReasonAnywhere(t *testing.T) {
	sound := omniAudio(wavFile(24000, 1, sine(2400, 24000)))
	stopped := strings.Replace(sound, `"finish_reason":null`, `"finish_reason":"stop"`, 1)
	head := answerHead("text/event-stream") + httpChunk(omniDelta(`"Hey"`, "text"))
	for _, c := range []struct {
		name, rest string
		flag       string
	}{
		{"on sound", httpChunk(stopped) + httpChunk(chatDone), ""},
		{"on empty sound", httpChunk(sound) + httpChunk(strings.Replace(omniDelta(`""`, "audio"), `"finish_reason":null`, `"finish_reason":"stop"`, 1)) + httpChunk(chatDone), ""},
		{"on a chunk of none", httpChunk(sound) + httpChunk(chatFinish) + httpChunk(chatDone), ""},
		{"nowhere", httpChunk(sound) + httpChunk(chatDone), "missing_finish_reason"},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := exchangeCase(t, nil, chatRequest(caseAudioChat), endFIN, caseWrite{data: head + c.rest + zeroChunk})
			wantTerminal(t, res.rec, timeline.Success, "done")
			wantSamples(t, res.rec, 2400, 1)
			wantInt(t, "offsets.t_term", res.rec.Offsets.TTerm, int64(len(head+c.rest)-2))
			wantFlag(t, res.rec, "missing_finish_reason", c.flag != "")
		})
	}
}

// TestVLLMTrap14UsageOfSoundIsNotFinal: every audio chunk says 0 completion tokens.
func TestVLLMTrap14UsageOfSoundIsNotFinal(t *testing.T) {
	sound := strings.Replace(omniAudio(wavFile(24000, 1, sine(2400, 24000))), `"modality"`, `"usage":{"prompt_tokens":7,"total_tokens":7,"completion_tokens":0},"metrics":{},"modality"`, 1)
	final := sseData(`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":7,"total_tokens":12,"completion_tokens":5}}`)
	for _, c := range []struct {
		name   string
		events []string
		tokens int64 // -1: null
	}{
		{"final usage", []string{omniDelta(`"Hey"`, "text"), sound, final}, 5},
		{"final usage ahead of sound", []string{omniDelta(`"Hey"`, "text"), final, sound}, 5},
		{"no final usage", []string{omniDelta(`"Hey"`, "text"), sound}, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := exchangeCase(t, nil, chatRequest(caseAudioChat), endFIN, chatStream(c.events...))
			wantTerminal(t, res.rec, timeline.Success, "done")
			if c.tokens < 0 {
				wantNull(t, "declared_tokens", res.rec.DeclaredTokens)
				return
			}
			wantInt(t, "declared_tokens", res.rec.DeclaredTokens, c.tokens)
		})
	}
}

// TestVLLMTrap15NobodyAskedForSound: modalities left out still give sound.
func TestVLLMTrap15NobodyAskedForSound(t *testing.T) {
	for _, body := range []string{caseChatBody, `{"model":"m","stream":true,"modalities":null}`} {
		t.Run(body, func(t *testing.T) {
			res := exchangeCase(t, nil, chatRequest(body), endFIN, chatStream(omniDelta(`"Hey"`, "text"), omniAudio(wavFile(24000, 1, sine(2400, 24000)))))
			wantTerminal(t, res.rec, timeline.Success, "done")
			wantSamples(t, res.rec, 2400, 1)
			if res.rec.TTFAMS == nil || res.rec.TTFTMS == nil || res.rec.Modalities != nil {
				t.Errorf("ttft %v, ttfa %v, modalities %v, want both times and no modalities", res.rec.TTFTMS, res.rec.TTFAMS, res.rec.Modalities)
			}
		})
	}
}

// TestVLLMTrap18EventLinesAndNoDone: speech events have a line of their own for the
// type, carry sound in audio or delta, and end without [DONE].
func TestVLLMTrap18EventLinesAndNoDone(t *testing.T) {
	pcm := sine(2400, 24000)
	done := strings.Replace(speechDone, "data:", "event: speech.audio.done\ndata:", 1)
	for _, c := range []struct{ name, event string }{
		{"audio", "event: speech.audio.delta\ndata: {\"type\":\"speech.audio.delta\",\"audio\":\"" + b64(pcm) + "\",\"response_format\":\"pcm\"}\n\n"},
		{"delta", "event: speech.audio.delta\ndata: {\"type\":\"speech.audio.delta\",\"delta\":\"" + b64(pcm) + "\",\"response_format\":\"pcm\"}\n\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			answer := answerHead("text/event-stream; charset=utf-8") + httpChunk(c.event) + httpChunk(done)
			res := exchangeCase(t, nil, speechRequest(caseSpeechBody), endFIN, caseWrite{data: answer + zeroChunk})
			wantTerminal(t, res.rec, timeline.Success, "done")
			wantSamples(t, res.rec, 2400, 1)
			wantInt(t, "offsets.t_term", res.rec.Offsets.TTerm, int64(len(answer)-2))
			if res.rec.Dialect != "vllm-omni" {
				t.Errorf("dialect = %s, want vllm-omni", res.rec.Dialect)
			}
		})
	}
}

// TestVLLMTrap33SpacingDiffers: compact, spaced and mixed JSON mean the same (also
// SGLang-Omni's trap 21, with escapes of every kind).
func TestVLLMTrap33SpacingDiffers(t *testing.T) {
	file := b64(wavFile(24000, 1, pcmOf(2400, func(i int) int { return -1 - i*i%30000 })))
	if !strings.Contains(file, "/") || !strings.Contains(file, "+") {
		t.Fatal("the payload shows no escapes")
	}
	audio := `{"id":"chatcmpl-1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"audio":{"id":"audio-1","data":"` + file + `"}},"finish_reason":null}]}`
	spaced := strings.NewReplacer(`":`, `": `, `,"`, `, "`).Replace(audio)
	for _, c := range []struct{ name, event string }{
		{"compact", audio},
		{"spaced", spaced},
		{"wide", strings.NewReplacer(`":`, "\"\t:  ", `,"`, ` , "`).Replace(audio)},
		{"escaped slashes", strings.ReplaceAll(audio, "/", `\/`)},
		{"escaped letters", strings.NewReplacer("+", `\u002B`, "/", `\u002f`).Replace(audio)},
		{"escaped keys", strings.Replace(strings.Replace(audio, `"delta"`, `"d\u0065lta"`, 1), `"audio":`, `"\u0061udio":`, 1)},
		{"other order", `{"choices":[{"finish_reason":null,"delta":{"audio":{"data":"` + file + `","id":"audio-1"}},"index":0}],"model":"m","object":"chat.completion.chunk","id":"chatcmpl-1"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := exchangeCase(t, nil, chatRequest(caseAudioChat), endFIN, chatStream(chatText("naïve 日本"), sseData(c.event)))
			wantTerminal(t, res.rec, timeline.Success, "done")
			wantSamples(t, res.rec, 2400, 1)
			wantInt(t, "text_bytes", res.rec.TextBytes, int64(len("naïve 日本")))
		})
	}
}

// TestVLLMTrap34VideoJobs: the POST answers at once, each poll is an exchange of its
// own, and the synchronous form may name two request ids.
func TestVLLMTrap34VideoJobs(t *testing.T) {
	job := `{"id":"video-1","object":"video","status":"queued"}`
	mp4 := "\x00\x00\x00\x18ftypisom\x00\x00\x00\x00isomiso2" + strings.Repeat("\x00", 4096)
	get := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n" }
	for _, c := range []struct{ name, request, answer string }{
		{"job", post("/v1/videos", `{"model":"m","prompt":"p"}`), lengthAnswer("application/json", job)},
		{"poll", get("/v1/videos/video-1"), lengthAnswer("application/json", strings.Replace(job, "queued", "completed", 1))},
		{"content", get("/v1/videos/video-1/content"), lengthAnswer("video/mp4", mp4)},
		{
			"sync, two ids", post("/v1/videos/sync", `{"model":"m","prompt":"p"}`, "X-Request-Id: mine"),
			strings.Replace(lengthAnswer("video/mp4", mp4), "\r\n\r\n", "\r\nX-Request-Id: video_sync-1\r\nX-Request-Id: mine\r\n\r\n", 1),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := exchangeCase(t, nil, c.request, endFIN, caseWrite{data: c.answer})
			wantTerminal(t, res.rec, timeline.Success, "done")
			if res.rec.Flow != "video" {
				t.Errorf("flow = %s, want video", res.rec.Flow)
			}
			if strings.HasPrefix(c.name, "sync") && (res.rec.RequestID != "mine" || res.rec.RequestIDSource != "client") {
				t.Errorf("request_id = %s (%s), want the client's", res.rec.RequestID, res.rec.RequestIDSource)
			}
			wantNull(t, "ttfa_ms", res.rec.TTFAMS)
			wantNull(t, "audio", res.rec.Audio)
		})
	}
}

// TestSGLangTrap02RoleComesAlone: with sound alone asked for, an event of a role is
// neither text nor sound.
func TestSGLangTrap02RoleComesAlone(t *testing.T) {
	sound := httpChunk(chatAudio(wavFile(24000, 1, sine(2400, 24000))))
	writes := []caseWrite{
		{data: answerHead("text/event-stream") + httpChunk(chatDelta(`{"role": "assistant"}`))},
		{wait: 30 * time.Millisecond, data: sound},
		{data: httpChunk(chatFinish) + httpChunk(chatDone) + zeroChunk},
	}
	res := exchangeCase(t, nil, chatRequest(`{"model":"m","stream":true,"modalities":["audio"]}`), endFIN, writes...)
	wantTerminal(t, res.rec, timeline.Success, "done")
	res.wantPointIn(t, "points.t_audio_event", res.rec.Points.TAudioEvent, 1)
	res.wantPointIn(t, "points.t_audio", res.rec.Points.TAudio, 1)
	wantNull(t, "points.t_text", res.rec.Points.TText)
	wantInt(t, "audio.empty_events", &res.rec.Audio.EmptyEvents, 0)
}

// TestSGLangTrap04OneChunkAtTheEnd: such a model does not stream, and the record says so.
func TestSGLangTrap04OneChunkAtTheEnd(t *testing.T) {
	one := chatAudio(wavFile(24000, 1, sine(24000, 24000)))
	for _, c := range []struct {
		name, request string
		answer        []caseWrite
	}{
		{"chat", chatRequest(caseAudioChat), []caseWrite{chatStream(chatText("Hey"), one)}},
		{"speech events", speechRequest(caseSpeechBody), eventAnswer(speechDelta(sine(24000, 24000)))},
		{"raw", speechRequest(caseSpeechBody), writesOf(answerHead("audio/pcm", "X-Sample-Rate: 24000"), httpChunk(sine(24000, 24000)), zeroChunk)},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := exchangeCase(t, nil, c.request, endFIN, c.answer...)
			wantTerminal(t, res.rec, timeline.Success, "done")
			wantSamples(t, res.rec, 24000, 1)
			if res.rec.Incremental == nil || *res.rec.Incremental {
				t.Errorf("incremental = %v, want false", res.rec.Incremental)
			}
			wantNull(t, "audio_gap_ms", res.rec.AudioGapMS)
			if p := res.rec.Playback; p == nil || p.VLLMOmni != nil || p.Underruns != 0 {
				t.Errorf("playback = %+v, want no underrun and no continuity of one chunk", p)
			}
		})
	}
}

// TestSGLangTrap12AskedFormatIsNoForm: pcm16 is answered with WAV, pcm with bare
// samples: the bytes decide.
func TestSGLangTrap12AskedFormatIsNoForm(t *testing.T) {
	pcm := sine(2400, 44100)
	for _, c := range []struct{ format, payload, container, source string }{
		{"pcm16", wavFile(44100, 1, pcm), "wav", "wav_header"},
		{"pcm", pcm, "raw", ""},
		{"flac", wavFile(44100, 1, pcm), "wav", "wav_header"},
	} {
		t.Run(c.format, func(t *testing.T) {
			body := `{"model":"m","stream":true,"modalities":["text","audio"],"audio":{"format":"` + c.format + `"}}`
			res := exchangeCase(t, nil, chatRequest(body), endFIN, chatStream(chatText("Hey"), chatAudio(c.payload)))
			wantTerminal(t, res.rec, timeline.Success, "done")
			wantSamples(t, res.rec, 2400, 1)
			if got := res.rec.Audio.Container; got == nil || *got != c.container {
				t.Errorf("container = %v, want %s", got, c.container)
			}
			wantFlag(t, res.rec, "rate_assumed", c.source == "")
			if c.source != "" {
				wantInt(t, "audio.sample_rate", res.rec.Audio.SampleRate, 44100)
			}
			wantFlag(t, res.rec, "format_not_as_requested", c.container == "wav") // case C10
		})
	}
}

// TestSGLangTrap13CompressedDeltas: samples of files that are not decoded are
// unknown, not bytes over two.
func TestSGLangTrap13CompressedDeltas(t *testing.T) {
	for _, c := range []struct{ container, payload string }{
		{"mp3", mp3Frames(4)}, {"flac", "fLaC\x00\x00\x00\x22" + strings.Repeat("\x10", 400)}, {"ogg", oggPages(2)},
	} {
		t.Run(c.container, func(t *testing.T) {
			res := exchangeCase(t, nil, chatRequest(caseAudioChat), endFIN, chatStream(chatText("Hey"), chatAudio(c.payload), chatAudio(c.payload)))
			wantTerminal(t, res.rec, timeline.Success, "done")
			if res.rec.Audio == nil {
				t.Fatal("audio is null")
			}
			wantNull(t, "audio.samples", res.rec.Audio.Samples)
			wantNull(t, "audio_s", res.rec.AudioS)
			wantNull(t, "ttfa_ms", res.rec.TTFAMS)
			if res.rec.Audio.Chunks != 2 || res.rec.Audio.Bytes != int64(2*len(c.payload)) || res.rec.Quality.Verdict != "not_measured" {
				t.Errorf("audio = %+v, quality %+v, want 2 chunks of %d bytes, not measured", res.rec.Audio, res.rec.Quality, len(c.payload))
			}
		})
	}
}

// TestSGLangTrap19TextThatComesAgain: deltas are counted as deltas, and beside them
// stands what the server declares.
func TestSGLangTrap19TextThatComesAgain(t *testing.T) {
	final := sseData(`{"id":"chatcmpl-1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":4,"completion_tokens":2,"total_tokens":6}}`)
	res := exchangeCase(t, nil, chatRequest(caseChatBody), endFIN,
		caseWrite{data: answerHead("text/event-stream") + httpChunk(chatText("One")) + httpChunk(chatText(" two")) + httpChunk(chatText("Won too")) + httpChunk(final) + httpChunk(chatDone) + zeroChunk})
	wantTerminal(t, res.rec, timeline.Success, "done")
	wantInt(t, "text_units", res.rec.TextUnits, 3)
	wantInt(t, "declared_tokens", res.rec.DeclaredTokens, 2)
	if res.rec.TextUnit == nil || *res.rec.TextUnit != "delta" {
		t.Errorf("text_unit = %v, want delta", res.rec.TextUnit)
	}
}

// TestSGLangTrap22EndMarkers: each form has an end of its own.
func TestSGLangTrap22EndMarkers(t *testing.T) {
	sse := answerHead("text/event-stream")
	transcript := httpChunk(sseData(`{"type":"transcript.text.delta","delta":"Hi"}`)) + httpChunk(sseData(`{"type":"transcript.text.done","text":"Hi"}`))
	transcription := post("/v1/audio/transcriptions", "x")
	chunk := func(audio, reason string) string {
		return httpChunk(sseData(`{"id": "speech-1", "object": "audio.speech.chunk", "index": 0, "audio": ` + audio + `, "finish_reason": ` + reason + `}`))
	}
	old := chunk(`{"data": "`+b64(wavFile(24000, 1, sine(2400, 24000)))+`", "format": "wav", "mime_type": "audio/wav", "sample_rate": 24000}`, "null")
	for _, c := range []struct {
		name, request, answer string // to the end marker, or the last payload byte
		tail                  string
		state                 timeline.State
		reason, flag          string
		frame                 int // bytes of framing behind the marker in answer
	}{
		{"chat", chatRequest(caseChatBody), sse + httpChunk(chatText("Hi")) + httpChunk(chatFinish) + httpChunk(chatDone), zeroChunk, timeline.Success, "done", "", 2},
		{"chat without", chatRequest(caseChatBody), sse + httpChunk(chatText("Hi")), zeroChunk, timeline.InvalidOutput, "missing_terminal", "", 2},
		{"transcription", transcription, sse + transcript + httpChunk(chatDone), zeroChunk, timeline.Success, "done", "", 2},
		{"transcription without", transcription, sse + transcript, zeroChunk, timeline.Success, "done", "missing_done", 2},
		{"transcription cut", transcription, sse + httpChunk(sseData(`{"type":"transcript.text.delta","delta":"Hi"}`)), zeroChunk, timeline.InvalidOutput, "missing_terminal", "", 2},
		{"speech", speechRequest(caseSpeechBody), sse + httpChunk(speechDelta(sine(2400, 24000))) + httpChunk(speechDone), zeroChunk, timeline.Success, "done", "", 2},
		{"speech without", speechRequest(caseSpeechBody), sse + httpChunk(speechDelta(sine(2400, 24000))), zeroChunk, timeline.InvalidOutput, "missing_terminal", "", 2},
		{"speech chunks", speechRequest(caseSpeechBody), sse + old + chunk("null", `"stop"`) + httpChunk(chatDone), zeroChunk, timeline.Success, "done", "", 2},
		{"raw", speechRequest(caseSpeechBody), answerHead("audio/pcm", "X-Sample-Rate: 24000") + httpChunk(sine(2400, 24000)), zeroChunk, timeline.Success, "done", "", 2},
		{"raw without", speechRequest(caseSpeechBody), answerHead("audio/pcm", "X-Sample-Rate: 24000") + httpChunk(sine(2400, 24000)), "", timeline.TransportError, "cut", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := exchangeCase(t, nil, c.request, endFIN, caseWrite{data: c.answer + c.tail})
			wantTerminal(t, res.rec, c.state, c.reason)
			wantFlag(t, res.rec, "missing_done", c.flag == "missing_done")
			if c.frame > 0 {
				wantInt(t, "offsets.t_term", res.rec.Offsets.TTerm, int64(len(c.answer)-c.frame))
			}
		})
	}
}

// TestSGLangTrap23RefusedInsideAStream: a full queue is a first event with code 503,
// and [DONE] behind it makes no success of it.
func TestSGLangTrap23RefusedInsideAStream(t *testing.T) {
	full := sseData(`{"error": {"message": "The request queue is full.", "type": "server_error", "code": 503}}`)
	for _, c := range []struct{ name, events string }{
		{"first event", httpChunk(full)},
		{"behind a role", httpChunk(chatDelta(`{"role":"assistant","content":""}`)) + httpChunk(full)},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := exchangeCase(t, nil, chatRequest(caseChatBody), endFIN, caseWrite{data: answerHead("text/event-stream") + c.events + httpChunk(chatDone) + zeroChunk})
			if res.rec.Terminal.State != timeline.AdmissionRejected || res.rec.Terminal.By != "server" || *res.rec.Status != 200 {
				t.Errorf("terminal = %+v, status %d, want admission-rejected inside a 200", res.rec.Terminal, *res.rec.Status)
			}
		})
	}
}

// TestSGLangTrap25ReasonsAreUnreliable: any reason, or none, is legal.
func TestSGLangTrap25ReasonsAreUnreliable(t *testing.T) {
	for _, reason := range []string{`"stop"`, `"length"`, `"unknown"`, `"abort"`, `""`, `null`} {
		t.Run(reason, func(t *testing.T) {
			finish := strings.Replace(chatFinish, `"stop"`, reason, 1)
			res := exchangeCase(t, nil, chatRequest(caseChatBody), endFIN, caseWrite{data: answerHead("text/event-stream") + httpChunk(chatText("Hi")) + httpChunk(finish) + httpChunk(chatDone) + zeroChunk})
			wantTerminal(t, res.rec, timeline.Success, "done")
			wantFlag(t, res.rec, "missing_finish_reason", reason == "null" || reason == `""`)
		})
	}
}

// TestSGLangTrap29BacklogIsNoAdmission: a 503 behind content is a stream that was
// dropped because its client did not take it.
func TestSGLangTrap29BacklogIsNoAdmission(t *testing.T) {
	dropped := httpChunk(sseData(`{"error": {"message": "stream dropped", "type": "server_error", "code": 503}}`))
	for _, c := range []struct{ name, request, content string }{
		{"text", chatRequest(caseChatBody), httpChunk(chatText("Hi"))},
		{"sound", chatRequest(caseAudioChat), httpChunk(chatAudio(wavFile(24000, 1, sine(2400, 24000))))},
		{"speech", speechRequest(caseSpeechBody), httpChunk(speechDelta(sine(2400, 24000)))},
		{"reasoning", chatRequest(caseChatBody), httpChunk(chatDelta(`{"reasoning":"hm"}`))},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := exchangeCase(t, nil, c.request, endFIN, caseWrite{data: answerHead("text/event-stream") + c.content + dropped + httpChunk(chatDone) + zeroChunk})
			wantTerminal(t, res.rec, timeline.ServerError, "client_backlog")
		})
	}
}

// TestSGLangTrap30PipelinedInTurn: requests in one segment are answered in turn.
func TestSGLangTrap30PipelinedInTurn(t *testing.T) {
	chat, speech := chatRequest(caseChatBody), speechRequest(caseSpeechBody)
	answers := chatStream(chatText("Hi")).data + answerHead("audio/pcm", "X-Sample-Rate: 24000") + httpChunk(sine(2400, 24000)) + zeroChunk + plainAnswer
	up := caseUpstream(t, func(c *net.TCPConn, _ int) {
		for range 3 {
			_, _ = readCaseRequest(c)
		}
		caseSend(t, c, answers)
	})
	rig := startCaseRig(t, up, nil)
	c := caseDial(t, rig.addr)
	caseSend(t, c, chat+speech+plainRequest)
	if got, err := io.ReadAll(c); err != nil || string(got) != answers {
		t.Errorf("got %d bytes, %v, want %d", len(got), err, len(answers))
	}
	_ = c.Close()
	recs := rig.stop()
	if len(recs) != 3 {
		t.Fatalf("%d records, want 3", len(recs))
	}
	for i, flow := range []string{"chat", "speech", "other"} {
		checkNulls(t, recs[i])
		wantTerminal(t, recs[i], timeline.Success, "done")
		if recs[i].Flow != flow {
			t.Errorf("record %d: flow %s, want %s", i, recs[i].Flow, flow)
		}
	}
	wantInt(t, "text_units", recs[0].TextUnits, 1)
	wantSamples(t, recs[1], 2400, 1)
}

// TestSGLangTrap36UninstrumentableIsNotZero: a body that is not read has unknown
// text and sound, not none.
func TestSGLangTrap36UninstrumentableIsNotZero(t *testing.T) {
	for _, c := range []struct{ name, path, contentType string }{
		{"msgpack session", "/v1/session", "application/msgpack"},
		{"video", "/v1/videos/sync", "video/mp4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := exchangeCase(t, nil, post(c.path, "{}"), endFIN, caseWrite{data: lengthAnswer(c.contentType, "\x82\xa4type\xa5audio\xa4data\xc4\x02\x00\x01")})
			for name, got := range map[string]*int64{"text_units": res.rec.TextUnits, "text_bytes": res.rec.TextBytes} {
				wantNull(t, name, got)
			}
			wantNull(t, "audio", res.rec.Audio)
		})
	}
}
