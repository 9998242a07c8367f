package tap_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
)

func sha256Of(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

const duplexOpened = `1 c session.update {"session":{"model":"m","output_audio_format":"pcm16"}}
	2 s session.created {"session":{"id":"duplex-1","turn_state":"idle","epoch":0,"model":"m"},"resume_token":"t"}` + "\n"

// duplexDelta is a delta of sound and the transcript that goes with each.
func duplexDelta(ms int, id, sound string) string {
	return fmt.Sprintf(`%d s response.audio.delta {"response_id":"%s","delta":"@%s","format":"pcm16","sample_rate_hz":24000,"metadata":{"audio_duration_ms":20}}
		%d s response.audio_transcript.delta {"response_id":"%s","delta":""}`+"\n", ms, id, sound, ms, id)
}

// TestSessionsDuplex: vLLM-Omni's full duplex (traps 23 to 25).
func TestSessionsDuplex(t *testing.T) {
	runSessions(t, []sessionCase{
		{
			name: "commits, listen, and an answer that nothing asked for", path: pathRealtime + "?duplex=1", script: duplexOpened + `
				5 c input_audio_buffer.append {"audio":"@zero:1600"}
				10 #k c input_audio_buffer.commit
				12 s input_audio_buffer.committed
				15 s response.created {"response_id":"r1","response":{"id":"r1","status":"in_progress"}}
				16 s response.speak {"response_id":"r1"}
				` + duplexDelta(30, "r1", "480") + `
				40 s response.done {"response_id":"r1","response":{"id":"r1","status":"completed"}}
				41 s rate_limits.updated {"rate_limits":[]}
				50 #k2 c input_audio_buffer.commit
				60 #l s response.listen
				65 s response.listen
				70 s response.created {"response_id":"r2","response":{"id":"r2"}}
				` + duplexDelta(80, "r2", "480") + `
				90 s response.done {"response_id":"r2","response":{"id":"r2","status":"completed"}}
				95 c session.close
				96 s session.closed {"reason":"client"}
				96 s fin`,
			want: `
				turn success/done src=commit in=@10 offsets.t_in=>k ttfa=20 jct=30 ttft?no%text text=0 flow=duplex dialect=vllm-omni server_request_id=r1 path=/v1/realtime input.audio_s=0.1
				turn success/done in=@50 offsets.t_in=>k2 jct=10 offsets.t_term=>l +listen audio? ttfa?
				turn success/done in?nothing%asked src?nothing%asked ttfa?nothing%asked ttft? jct?nothing%asked t_in_wall_ns? samples=480
				session turns=3 listens=1 flow=duplex +no_close_frame states.success=3 unknown_events=0`,
		},
		{
			name: "a commit and a create behind it ask for one, a second answer is unasked", path: pathDuplex, script: duplexOpened + `
				10 c input_audio_buffer.commit
				12 c response.create
				15 s response.created {"response_id":"r1","response":{"id":"r1"}}
				20 s response.created {"response_id":"r2","response":{"id":"r2"}}
				` + duplexDelta(30, "r2", "480") + duplexDelta(40, "r1", "480") + `
				50 s response.done {"response_id":"r1","response":{"id":"r1","status":"completed"}}
				60 s response.done {"response_id":"r2","response":{"id":"r2","status":"completed"}}
				70 s fin`,
			want: `
				turn success/done src=response.create in=@12 ttfa=28
				turn success/done in?nothing%asked ttfa?
				session turns=2`,
		},
		{
			name: "barge-in", path: pathDuplex, script: duplexOpened + `
				10 c input_audio_buffer.commit
				15 s response.created {"response_id":"r1","response":{"id":"r1"}}
				` + duplexDelta(30, "r1", "480") + `
				40 s input_audio_buffer.speech_started {}
				41 s overlap.decision {"decision":"barge_in"}
				` + duplexDelta(50, "r1", "480") + `
				60 s response.done {"response_id":"r1","response":{"id":"r1","status":"cancelled","status_details":{"type":"cancelled","reason":"barge_in"}}}
				` + duplexDelta(70, "r1", "480") + `
				80 s fin`,
			want: `
				turn client-cancelled/interrupted ev.interrupted_by=barge_in cancel.by=speech cancel.to_silence_ms=10 cancel.samples_after=480 cancel.chunks_after=1 samples=960
				session turns=1 +output_after_done unattributed_samples=480`,
		},
		{
			name: "formats", path: pathDuplex, script: duplexOpened + `
				10 c input_audio_buffer.commit
				15 s response.created {"response_id":"r1","response":{"id":"r1"}}
				20 s response.audio.delta {"response_id":"r1","delta":"@bytes:160","format":"g711_ulaw","sample_rate_hz":8000}
				21 s response.done {"response_id":"r1","response":{"id":"r1","status":"completed"}}
				30 c input_audio_buffer.commit
				35 s response.created {"response_id":"r2","response":{"id":"r2"}}
				40 s response.audio.delta {"response_id":"r2","delta":"@wav24000:480","format":"pcm16"}
				41 s response.audio_transcript.delta {"response_id":"r2","delta":""}
				45 s response.audio.delta {"response_id":"r2","delta":"@wav24000:480","format":"pcm16"}
				46 s response.done {"response_id":"r2","response":{"id":"r2","status":"completed"}}
				50 c input_audio_buffer.commit
				55 s response.created {"response_id":"r3","response":{"id":"r3"}}
				60 s response.audio.delta {"response_id":"r3","delta":"@480","format":"pcm_s16le"}
				61 s response.done {"response_id":"r3","response":{"id":"r3","status":"completed"}}
				70 s fin`,
			want: `
				turn success/done samples=160 rate=8000 audio.encoding=g711_ulaw ttfa=10
				turn success/done samples=960 rate=24000 audio.container=wav audio.sample_rate_source=wav_header ttfa=10
				turn success/done samples=480 rate?wire audio.assumed_sample_rate=24000 +rate_assumed
				session turns=3`,
		},
		{
			name: "refused for want of a place", path: pathDuplex, script: `1 c session.update {"session":{"model":"m"}}
				2 c input_audio_buffer.commit
				5 s error {"error":"no free session","code":"resource_exhausted"}
				6 s fin`,
			want: `
				turn admission-rejected/resource_exhausted in=@2
				session turns=1 errors=0 flow=duplex`,
		},
		{
			name: "a tool is called", path: pathDuplex, script: duplexOpened + `
				5 c session.update {"session":{"modalities":["text","audio"]}}
				10 c input_audio_buffer.commit
				15 s response.created {"response_id":"r1","response":{"id":"r1"}}
				20 s response.function_call_arguments.delta {"response_id":"r1","delta":"{"}
				21 s response.function_call_arguments.done {"response_id":"r1","arguments":"{}"}
				22 s response.done {"response_id":"r1","response":{"id":"r1","status":"completed"}}
				30 s fin`,
			want: `
				turn success/done ttfa? ttft?
				session turns=1`,
		},
		{
			name: "replaced by another connection", path: pathDuplex, script: duplexOpened + `
				10 c input_audio_buffer.commit
				15 s response.created {"response_id":"r1","response":{"id":"r1"}}
				` + duplexDelta(30, "r1", "480") + `
				40 s session.replaced {}
				41 s close 1000
				41 s fin`,
			want: `
				turn invalid-output/missing_terminal samples=480
				session turns=1 close.code=1000 close.by=server`,
		},
		{ // its own vocabulary in 0.26 and 0.28
			name: "native names", path: pathDuplex, script: `1 c session.create {"model":"m"}
				2 s session.created {"session":{"id":"d1","epoch":0,"turn_state":"idle"}}
				5 c input.text.append {"text":"hi"}
				10 #k c input.commit
				15 s response.created {"response_id":"r1","session_id":"d1","epoch":0}
				20 s response.text.delta {"response_id":"r1","delta":"Ok","session_id":"d1","epoch":0}
				25 s response.output_audio.delta {"response_id":"r1","audio":"@wav24000:480","format":"wav","session_id":"d1","epoch":0}
				30 s response.done {"response_id":"r1","status":"completed","session_id":"d1","epoch":0}
				31 s fin`,
			want: `
				turn success/done in=@10 offsets.t_in=>k ttft=10 ttfa=15 samples=480 text=2 flow=duplex
				session turns=1`,
		},
	})
}

// TestSessionsResume: events that are sent again on a second connection count once.
func TestSessionsResume(t *testing.T) {
	event := func(ms, seq int, name, rest string) string {
		return fmt.Sprintf(`%d s %s {"server_event_seq":%d,"response_id":"r1"%s}`+"\n", ms, name, seq, rest)
	}
	created, done := `,"response":{"id":"r1"}`, `,"response":{"id":"r1","status":"completed"}`
	delta := func(ms, seq int) string {
		return event(ms, seq, "response.audio.delta", `,"delta":"@480","format":"pcm16","sample_rate_hz":24000`)
	}
	first := sessionCase{
		path: pathDuplex, script: duplexOpened + `
			10 c input_audio_buffer.commit
			` + event(15, 0, "response.created", created) + delta(20, 1) + delta(30, 2) + `
			40 c rst`,
		want: `
			turn client-cancelled/client_reset samples=960 in=@10
			session turns=1 replayed_events=0 server_session_id=duplex-1 resumed?`,
	}
	replay := event(5, 0, "response.created", created) + delta(6, 1) + delta(7, 2) + delta(8, 3) + delta(28, 4) + event(40, 5, "response.done", done) + "60 s fin"
	const resume = `1 c session.resume {"session_id":"duplex-1","token":"t"}` + "\n"
	const want = `
		turn success/done samples=960 in?nothing%asked ttfa?
		session turns=1 replayed_events=3 resumed=duplex-1 +resumed +replayed_events server_session_id=duplex-1 flow=duplex`
	for _, second := range []sessionCase{
		{name: "described again", path: pathDuplex + "?resume=1", script: resume + `2 s session.created {"session":{"id":"duplex-1","turn_state":"idle","epoch":0}}` + "\n" + replay, want: want},
		{name: "by /v1/duplex", path: pathDuplex + "?resume=1", script: resume + replay, want: want},
		{name: "by /v1/realtime", path: pathRealtime + "?duplex=1&resume=1", script: resume + replay, want: want},
	} {
		t.Run(second.name, func(t *testing.T) {
			cfg := first.config() // a relay before one server
			got, marks := first.play(t, cfg, 0)
			first.check(t, got, marks)
			got, marks = second.play(t, cfg, 0)
			second.check(t, got, marks)
			got, marks = first.play(t, cfg, 0) // a new session of that name starts afresh
			first.check(t, got, marks)
		})
	}
}

// TestSessionsPaced: sound that is let out in real time measures the pacer.
func TestSessionsPaced(t *testing.T) {
	script := func(step, chunk int, jitter ...int) string {
		var b strings.Builder
		b.WriteString(duplexOpened + "10 c input_audio_buffer.commit\n15 s response.created {\"response_id\":\"r1\",\"response\":{\"id\":\"r1\"}}\n")
		for i := range 8 {
			ms := 30 + i*step
			if len(jitter) > 0 {
				ms += jitter[i%len(jitter)]
			}
			b.WriteString(duplexDelta(ms, "r1", fmt.Sprint(chunk)))
		}
		b.WriteString("4000 s response.done {\"response_id\":\"r1\",\"response\":{\"id\":\"r1\",\"status\":\"completed\"}}\n4001 s fin")
		return b.String()
	}
	const line = "\nsession turns=1"
	runSessions(t, []sessionCase{
		{name: "one second at a time", path: pathDuplex, script: script(400, 9600), want: "turn success/done +paced audio_s=3.2" + line},
		{name: "faster", path: pathDuplex, script: script(100, 9600), want: "turn success/done -paced" + line},
		{name: "slower", path: pathDuplex, script: script(480, 9600), want: "turn success/done -paced" + line},
		{name: "as fast, unsteady", path: pathDuplex, script: script(400, 9600, 0, 250), want: "turn success/done -paced" + line},
	})
}

// TestC26RateInEvents: the rate's source is recorded, a change fails.
func TestC26RateInEvents(t *testing.T) {
	script := func(events ...string) string {
		s := duplexOpened + "10 c input_audio_buffer.commit\n15 s response.created {\"response_id\":\"r1\",\"response\":{\"id\":\"r1\"}}\n"
		for _, e := range events {
			s += "s response.audio.delta {\"response_id\":\"r1\"," + e + "}\n"
		}
		return s + "40 s response.done {\"response_id\":\"r1\",\"response\":{\"id\":\"r1\",\"status\":\"completed\"}}\n50 s fin"
	}
	const line = "\nsession turns=1"
	at := func(sound string, rate int) string {
		return fmt.Sprintf(`"delta":"@%s","sample_rate_hz":%d`, sound, rate)
	}
	runSessions(t, []sessionCase{
		{
			name: "change at event 3", path: pathDuplex, script: script(at("480", 24000), at("480", 24000), at("480", 48000)),
			want: "turn quality-failed/format_constant quality.failed=[\"format_constant\"] samples=1440 ev.format_change~48000" + line,
		},
		{
			name: "channels 1, then 2", path: pathDuplex, script: script(`"delta":"@wav24000:480"`, `"delta":"@wav24000x2:480"`),
			want: "turn quality-failed/format_constant" + line,
		},
		{
			name: "header against event", path: pathDuplex, script: script(at("wav24000:480", 44100)),
			want: "turn quality-failed/rate_agrees rate=24000 audio.sample_rate_source=wav_header" + line,
		},
		{
			name: "wire against table", path: pathDuplex, script: script(at("480", 44100)), rates: map[string]int{"m": 24000},
			want: "turn success/done rate=44100 audio.sample_rate_source=event -rate_assumed" + line,
		},
		{
			name: "table alone", path: pathDuplex, script: script(`"delta":"@480"`), rates: map[string]int{"m": 16000},
			want: "turn success/done rate=16000 audio.sample_rate_source=config -rate_assumed audio_s=0.03" + line,
		},
		{
			name: "nothing declares it", path: pathDuplex, script: script(`"delta":"@480"`),
			want: "turn success/done samples=480 rate?wire audio.assumed_sample_rate=24000 +rate_assumed" + line,
		},
		{
			name: "known once, then silent about it", path: pathDuplex, script: script(at("480", 48000), `"delta":"@480"`),
			want: "turn success/done samples=960 rate=48000 audio.sample_rate_source=event" + line,
		},
	})
}

// TestC50EventNames: old names, new names, mixtures, and what is not known.
func TestC50EventNames(t *testing.T) {
	const (
		opened = `1 s session.created {"session":{"id":"sess_1","model":"m"}}
			2 c session.update {"session":{"modalities":["text","audio"]}}
			5 c response.create
			10 s response.created {"response":{"id":"a"}}` + "\n"
		done = `
			90 s response.done {"response":{"id":"a","status":"completed"}}
			91 s fin`
		line = "\nsession turns=1 analysis=full "
	)
	delta := func(name, key string) string {
		return `20 s response.` + name + `.delta {"response_id":"a","` + key + `":"@480"}` + "\n"
	}
	var cases []sessionCase
	for _, name := range []string{"audio", "output_audio"} {
		for _, key := range []string{"delta", "audio", "data"} {
			cases = append(cases, sessionCase{
				name: name + " " + key, path: pathRealtime, script: opened + delta(name, key) + delta(name, key) + done,
				want: "turn success/done samples=960 chunks=2 ttfa=15" + line + "-mixed_event_names unknown_events=0",
			})
		}
	}
	runSessions(t, append(
		cases,
		sessionCase{
			name: "mixed", path: pathRealtime, script: opened + delta("audio", "delta") + delta("output_audio", "delta") + done,
			want: "turn success/done samples=960 chunks=2" + line + "+mixed_event_names",
		},
		sessionCase{
			name: "binary beside JSON", path: pathRealtime, script: opened + delta("audio", "delta") + "30 s bin 480\n" + delta("audio", "delta") + done,
			want: "turn success/done samples=1440 chunks=3" + line + "unattributed_chunks=0",
		},
		sessionCase{
			name: "only an unknown event with base64", path: pathRealtime,
			script: opened + `20 s sound.piece {"response_id":"a","payload":"@480"}` + done,
			want:   "turn harness-error/unknown_events" + line + "unknown_events=1 +unknown_events",
		},
		sessionCase{
			name: "text and an unknown event with base64", path: pathRealtime,
			script: opened + `15 s response.output_text.delta {"response_id":"a","delta":"Ok"}` + "\n" + `20 s response.sound.piece {"response_id":"a","payload":"@480"}` + done,
			want:   "turn harness-error/unknown_events ttft=10" + line + "unknown_events=1",
		},
		sessionCase{
			name: "an unknown event beside sound", path: pathRealtime,
			script: opened + delta("audio", "delta") + `30 s new.thing {"a":1}` + done,
			want:   "turn success/done samples=480" + line + "unknown_events=1 +unknown_events",
		},
		sessionCase{
			name: "an unknown event with base64, nested, two turns open", path: pathRealtime,
			script: opened + `11 c response.create
				12 s response.created {"response":{"id":"b"}}
				20 s sound.piece {"response_id":"a","payload":"@480"}
				80 s response.done {"response":{"id":"b","status":"completed"}}` + done,
			want: "turn harness-error/unknown_events\nturn invalid-output/no_output\nsession turns=2 unknown_events=1",
		},
	))
}
