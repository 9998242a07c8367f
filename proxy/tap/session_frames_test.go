package tap_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestC43Compression: the reader inflates a copy, whatever of it is compressed.
func TestC43Compression(t *testing.T) {
	const (
		asked = `1 s z session.created {"session":{"id":"sess_1","model":"m"}}
			10 c z response.create
			20 s response.created {"response":{"id":"a"}}` + "\n"
		delta = `response.output_audio.delta {"response_id":"a","delta":"@480"}` + "\n"
		done  = `90 s z response.done {"response":{"id":"a","status":"completed"}}
			91 s fin`
	)
	var cases []sessionCase
	for _, ext := range []string{
		"permessage-deflate",
		"permessage-deflate; server_no_context_takeover; client_no_context_takeover",
		"permessage-deflate; server_no_context_takeover",
		"permessage-deflate; client_max_window_bits=15; server_max_window_bits=15",
	} {
		cases = append(cases, sessionCase{
			name: ext, ext: ext, path: pathRealtime,
			script: asked + "30 s z " + delta + "40 s " + delta + "50 #a s z frag 3/5 " + delta + "70 s z bin 480\n" + done,
			want: `turn success/done in=@10 ttfa=20 samples=1920 chunks=4 points.t_term=@90
				session analysis=full compression=` + strings.ReplaceAll(ext, " ", "%"),
		})
	}
	const malformed = "\nsession turns=1 "
	runSessions(t, append(
		cases,
		sessionCase{
			name: "RSV1 on a continuation", ext: "permessage-deflate", path: pathRealtime,
			script: asked + "30 s z " + delta + `40 s frame 01 {"type":
				41 s frame c0 "x"}
				50 s z ` + delta + done,
			want: "turn invalid-output/malformed_frames by=server samples=480 analysis=lost why~reserved%bit ev.framing~reserved" + malformed + "analysis=lost why~server: +protocol_violation",
		},
		sessionCase{
			name: "RSV1 without compression", path: pathRealtime,
			script: strings.ReplaceAll(asked, " z ", " ") + "30 s " + delta + "40 s frame c1 xxxx\n50 s " + delta + strings.ReplaceAll(done, " z ", " "),
			want:   "turn invalid-output/malformed_frames samples=480" + malformed + "+protocol_violation compression?none",
		},
		sessionCase{
			name: "bad deflate", ext: "permessage-deflate; server_no_context_takeover", path: pathRealtime,
			script: asked + "30 s z " + delta + "40 s frame c1 \xff\xff\xff\xff\xff\n50 s z " + delta + done,
			want:   "turn invalid-output/malformed_deflate samples=960 by=server" + malformed + "+malformed_message analysis=full",
		},
		sessionCase{
			name: "bad deflate, and the context is gone", ext: "permessage-deflate", path: pathRealtime,
			script: asked + "30 s z " + delta + "40 s frame c1 \xff\xff\xff\xff\xff\n50 s z " + delta + done,
			want:   "turn invalid-output/malformed_deflate by=server" + malformed + "+malformed_message",
		},
		sessionCase{
			name: "an extension that is not known", ext: "x-own", path: pathRealtime,
			script: strings.ReplaceAll(asked+"30 s "+delta+done, " z ", " "),
			want: `turn success/tunnel_closed analysis=unsupported_encoding why~x-own
				session turns=0 analysis=unsupported_encoding why~x-own flow=realtime compression=x-own`,
		},
		sessionCase{
			name: "a parameter that is not known", ext: "permessage-deflate; own_param", path: pathRealtime,
			script: strings.ReplaceAll(asked+"30 s "+delta+done, " z ", " "),
			want: `turn success/tunnel_closed analysis=unsupported_encoding why~own_param
				session turns=0 analysis=unsupported_encoding why~own_param`,
		},
	))
}

// TestC44Fragments: a message's time is that of its last fragment; control frames
// come between.
func TestC44Fragments(t *testing.T) {
	const line = "\nsession turns=1 "
	runSessions(t, []sessionCase{
		{
			name: "audio in fragments", path: pathRealtime, script: turnBegun + `30 #a s frag 4/10 response.output_audio.delta {"response_id":"a","delta":"@480"}
				90 s response.done {"response":{"id":"a","status":"completed"}}
				91 s fin`,
			want: "turn success/done ttfa=50 points.t_audio_event=@60 offsets.t_audio=>a chunks=1" + line + "fragments_down=7 messages_down=4",
		},
		{
			name: "an ask in fragments", path: pathRealtime, script: `1 s session.created {"session":{"id":"sess_1"}}
				10 #k c frag 3/10 response.create
				40 s response.created {"response":{"id":"a"}}
				50 s response.output_audio.delta {"response_id":"a","delta":"@480"}
				90 s response.done {"response":{"id":"a","status":"completed"}}
				91 s fin`,
			want: "turn success/done in=@10 points.t_body=@30 offsets.t_body=>k ttfa=40" + line + "fragments_up=3 messages_up=1",
		},
		{
			name: "binary in fragments", path: pathSpeech, script: `1 c session.config {"response_format":"pcm","stream_audio":true}
				10 c input.done
				20 s audio.start {"utterance_index":0,"sentence_index":0,"sentence_text":"Hi","format":"pcm","sample_rate":24000}
				30 #b s frag 3/10 bin 960
				60 s audio.done {"utterance_index":0,"sentence_index":0,"total_bytes":1920,"error":false}
				61 s session.done {"utterance_index":0,"total_sentences":1}
				62 s fin`,
			want: "turn success/done ttfa=40 ttfaudible_ms=40 points.t_audio_event=@50 offsets.t_audio=>b samples=960 chunks=1" + line + "fragments_down=6",
		},
		{
			name: "a character and a sample cut, empty fragments, pings between", path: pathRealtime, script: turnBegun + `
				30 s frame 01 {"type":"response.output_text.delta","response_id":"a","delta":"` + "é\xe2" + `
				31 s ping a
				32 s frame 00
				33 c pong a
				34 s frame 00 ` + "\x82" + `
				35 s frame 00
				36 #x s frame 80 ` + "\xac" + `"}
				40 s frame 01
				41 s frame 00 {"type":"response.output_audio.delta","response_id":"a","delta":"@480"}
				42 s ping b
				43 #a s frame 80
				90 s response.done {"response":{"id":"a","status":"completed"}}
				91 s fin`,
			want: "turn success/done ttft=26 offsets.t_text=>x text=5 text_sha256=" + sha256Of("é€") + " ttfa=33 offsets.t_audio=>a" + line + "pings_down=2 pongs=1 ping_rtt_ms=2 analysis=full",
		},
		{
			name: "text that is not UTF-8", path: pathRealtime, script: turnAmid + `
				35 s frame 81 {"type":"response.output_text.delta","response_id":"a","delta":"` + "\xff\xfe" + `"}
				90 s response.done {"response":{"id":"a","status":"completed"}}
				91 s fin`,
			want: "turn invalid-output/malformed_text samples=480" + line + "+malformed_message",
		},
		{
			name: "empty messages", path: pathRealtime, script: turnAmid + `
				35 s frame 82
				90 s response.done {"response":{"id":"a","status":"completed"}}
				91 s fin`,
			want: "turn success/done samples=480 chunks=1 audio.empty_events=1" + line + "messages_down=5",
		},
		{
			name: "cut amid the fragments", path: pathRealtime, script: turnAmid + `
				40 s frame 01 {"type":"response.outp
				50 s fin`,
			want: "turn transport-error/cut samples=480" + line + "-cut_in_frame analysis=full",
		},
		{
			name: "close amid the fragments", path: pathRealtime, script: turnAmid + `
				40 s frame 01 {"type":"response.outp
				50 s close 1001
				50 s fin`,
			want: "turn transport-error/close_1001 samples=480" + line + "close.code=1001",
		},
		{
			name: "cut amid a frame", path: pathRealtime, script: turnAmid + `
				40 s raw 817e0400 7b22
				50 s fin`,
			want: "turn transport-error/cut samples=480" + line + "+cut_in_frame analysis=full close.by=server",
		},
		{
			name: "cut amid a frame's head", path: pathRealtime, script: turnAmid + `
				40 s raw 81
				50 s rst`,
			want: "turn transport-error/reset samples=480" + line + "+cut_in_frame",
		},
		{
			name: "the client cut amid a frame", path: pathRealtime, script: turnAmid + `
				40 c raw 81fe0400 00000000 7b22
				50 c rst
				51 s fin`,
			want: "turn client-cancelled/client_reset samples=480" + line + "+cut_in_frame close.by=client",
		},
	})
}

// TestSessionsBadFrames: what breaks the protocol is not read on; what is known
// stands, with the reason.
func TestSessionsBadFrames(t *testing.T) {
	const done = `
		90 s response.done {"response":{"id":"a","status":"completed"}}
		91 s fin`
	var cases []sessionCase
	for _, c := range []struct{ name, frame, why string }{
		{"masked", `frame! 81 {"type":"x"}`, "wrong masking"},
		{"oversize control", "frame 89 " + strings.Repeat("p", 126), "malformed control frame"},
		{"control in fragments", "frame 09 p", "malformed control frame"},
		{"lone continuation", "frame 80 x", "misplaced fragment"},
		{"message inside a message", "frame 01 {\n35 s frame 81 {}", "misplaced fragment"},
		{"reserved opcode", "frame 83 x", "reserved opcode"},
		{"reserved control opcode", "frame 8b x", "reserved opcode"},
		{"RSV2", "frame a1 {}", "reserved bit"},
		{"length with the top bit", "raw 817fffffffffffffffff", "malformed frame length"},
		{"no frames at all", "raw 485454502f312e3120353030", "reserved"},
	} {
		why := strings.ReplaceAll(c.why, " ", "%")
		cases = append(cases, sessionCase{
			name: "server: " + c.name, path: pathRealtime, script: turnAmid + "35 s " + c.frame + done,
			want: `turn invalid-output/malformed_frames by=server samples=480 ttfa=20 analysis=lost why~server:%` + why + ` ev.framing~` + why + ` points.t_term=@35
				session turns=1 analysis=lost why~server:%` + why + ` +protocol_violation bytes_down!0`,
		})
		if c.name == "masked" || strings.HasPrefix(c.frame, "raw") {
			continue
		}
		cases = append(cases, sessionCase{ // what asked for it is known, the answer is read
			name: "client: " + c.name, path: pathRealtime, script: turnAmid + "35 c " + strings.ReplaceAll(c.frame, "35 s", "35 c") + done,
			want: `turn success/done samples=480 in=@10 ttfa=20 analysis=full
				session turns=1 analysis=lost why~client:%` + why + ` +protocol_violation`,
		})
	}
	runSessions(t, append(
		cases,
		sessionCase{
			name: "client: unmasked", path: pathRealtime, script: turnAmid + "35 c frame! 81 {\"type\":\"response.create\"}" + done,
			want: `turn success/done samples=480 in=@10
				session turns=1 analysis=lost why~client:%wrong%masking +protocol_violation`,
		},
		sessionCase{ // what asks for the next turn cannot be known
			name: "client: unmasked ahead of the turn", path: pathRealtime, script: `1 s session.created {"session":{"id":"sess_1"}}
				10 c frame! 81 {"type":"response.create"}
				20 s response.created {"response":{"id":"a"}}
				30 s response.output_audio.delta {"response_id":"a","delta":"@480"}` + done,
			want: `turn success/done samples=480 analysis=lost why~client:%wrong%masking in?wrong%masking ttfa?wrong%masking
				session turns=1 analysis=lost +protocol_violation`,
		},
		sessionCase{
			name: "behind a turn's end", path: pathRealtime, script: turnOver + "50 s frame! 81 {}\n60 s fin",
			want: `turn success/done analysis=full samples=480
				session turns=1 analysis=lost why~wrong%masking +protocol_violation`,
		},
		sessionCase{
			name: "the server, ahead of any answer", path: pathRealtime, script: turnAsked + "35 s frame! 81 {}\n60 s fin",
			want: `turn invalid-output/malformed_frames in=@10 analysis=lost why~wrong%masking
				session turns=1 analysis=lost`,
		},
		sessionCase{
			name: "frames behind a close frame", path: pathRealtime, script: turnOver + "50 s close 1000\n51 s session.updated {}\n52 c close 1000\n60 s fin",
			want: `turn success/done
				session turns=1 close.by=server close.code=1000`,
		},
	))
}

// TestSessionsBadMessages: messages that are not read, or mean nothing.
func TestSessionsBadMessages(t *testing.T) {
	const (
		delta = `40 s response.output_audio.delta {"response_id":"a","delta":"@480"}` + "\n"
		done  = `
			90 s response.done {"response":{"id":"a","status":"completed"}}
			91 s fin`
	)
	big := fmt.Sprintf(`{"type":"response.output_audio.delta","response_id":"a","delta":"%s"}`, strings.Repeat("AAAA", 3000))
	runSessions(t, []sessionCase{
		{
			name: "JSON that is none", path: pathRealtime, script: turnAmid + "35 s text {\"type\":\"response.output_audio.del\n" + delta + done,
			want: `turn invalid-output/malformed_json by=server samples=960 ev.detail~byte
				session turns=1 +malformed_message analysis=full`,
		},
		{
			name: "JSON that is none, of the client", path: pathRealtime, script: turnAmid + "35 c text {{{\n" + delta + done,
			want: `turn success/done samples=960
				session turns=1 +malformed_message warnings~byte analysis=full`,
		},
		{
			name: "JSON that is none, of nobody", path: pathRealtime, script: turnOver + "50 s text nonsense\n60 s fin",
			want: `turn success/done
				session turns=1 +malformed_message warnings~byte`,
		},
		{
			name: "JSON that is no object", path: pathRealtime, script: turnAmid + "35 s text [1,2]\n35 s text 7\n35 s text null\n35 c text [1]\n" + delta + done,
			want: `turn success/done samples=960
				session turns=1`,
		},
		{
			name: "types that are none", path: pathRealtime, script: turnAmid + "35 s text {\"type\":7}\n35 s text {\"type\":null}\n35 s text {}\n35 c text {\"type\":[]}\n" + delta + done,
			want: `turn success/done samples=960
				session turns=1 unknown_events=3 +unknown_events`,
		},
		{
			name: "payloads that are none", path: pathRealtime, script: turnAmid +
				"35 s text {\"type\":\"response.output_audio.delta\",\"response_id\":\"a\",\"delta\":null}\n36 s text {\"type\":\"response.output_audio.delta\",\"response_id\":\"a\",\"delta\":7}\n" + delta + done,
			want: `turn success/done samples=960 audio.empty_events=2 chunks=2
				session turns=1`,
		},
		{
			name: "bad base64", path: pathRealtime, script: turnAmid + "35 s response.output_audio.delta {\"response_id\":\"a\",\"delta\":\"AAA*\"}\n" + delta + done,
			want: `turn invalid-output/base64 by=server ev.detail~audio%event
				session turns=1`,
		},
		{
			name: "a message over the bound", maxEvent: 4096, path: pathRealtime, script: turnAmid + "35 s text " + big + "\n" + delta + done,
			want: `turn success/done analysis=truncated why~over%4096 samples?truncated quality.verdict=not_measured ttfa=20
				session turns=1 analysis=truncated why~over%4096`,
		},
		{
			name: "all of the sound over the bound", maxEvent: 4096, path: pathRealtime, script: `1 s session.created {"session":{"id":"sess_1"}}
				10 c response.create {"response":{"modalities":["text","audio"]}}
				20 s response.created {"response":{"id":"a"}}
				35 s text ` + big + done,
			want: `turn harness-error/not_analysed analysis=truncated ttfa?over
				session turns=1 analysis=truncated`,
		},
		{
			name: "a message over the bound behind the turn", maxEvent: 4096, path: pathRealtime, script: turnOver + "50 s text " + big + "\n60 s fin",
			want: `turn success/done analysis=full samples=480
				session turns=1 analysis=truncated`,
		},
		{ // binary is not held: there is no bound
			name: "binary over the bound", maxEvent: 4096, path: pathSpeech, script: `1 c session.config {"response_format":"pcm","stream_audio":true}
				10 c input.done
				20 s audio.start {"utterance_index":0,"sentence_index":0,"sentence_text":"Hi","format":"pcm","sample_rate":24000}
				30 s bin 24000
				60 s audio.done {"utterance_index":0,"sentence_index":0,"total_bytes":48000,"error":false}
				61 s session.done {"utterance_index":0,"total_sentences":1}
				62 s fin`,
			want: `turn success/done samples=24000 analysis=full
				session turns=1 analysis=full`,
		},
		{ // what asked for the turn is in it: t_in cannot be known
			name: "an ask over the bound", maxEvent: 4096, path: pathVideo, script: `1 c session.config {"model":"m"}
				10 c video.query {"text":"what?","audio_data":"@zero:4000"}
				20 s response.start
				30 s response.text.delta {"delta":"A cat"}
				40 s response.text.done {"text":"A cat"}
				50 s response.audio.delta {"data":"@wav24000:480"}
				60 s response.audio.done
				70 s fin`,
			want: `turn success/done samples=480 in?over%4096 ttfa?over%4096 analysis=truncated
				session turns=1 analysis=truncated why~over%4096`,
		},
		{
			name: "an ask over the bound, where the server tells its own moment", maxEvent: 4096, path: pathRealtime, script: `1 s session.created {"session":{"id":"sess_1"}}
				10 c response.create {"response":{"instructions":"` + strings.Repeat("x", 5000) + `"}}
				20 s response.created {"response":{"id":"a"}}
				30 s response.output_audio.delta {"response_id":"a","delta":"@480"}` + done,
			want: `turn success/done samples=480 analysis=truncated
				session turns=1 analysis=truncated`,
		},
		{
			name: "events of no known dialect", path: "/ws/chat", script: `1 s text {"hello":1}
				10 c text {"say":"x"}
				20 s text {"op":"msg","body":"y"}
				30 s bin 480
				40 c close 1000
				41 s close 1000
				41 s fin`,
			want: `turn success/tunnel_closed analysis=lost why~no%known%dialect flow=opaque
				session turns=0 analysis=lost why~no%known%dialect flow=other dialect=unknown unknown_events=2 close.code=1000 messages_up=1 messages_down=3`,
		},
		{ // SGLang-Omni's /v1/session: msgpack in binary frames both ways (trap 36)
			name: "binary both ways", path: "/v1/session", script: `1 c bin bytes:40
				10 s bin bytes:40
				20 s close 1011
				20 s fin`,
			want: `turn success/tunnel_closed analysis=lost why~no%known%dialect flow=opaque
				session turns=0 analysis=lost flow=other close.code=1011 messages_up=1 messages_down=1`,
		},
		{
			name: "a known path, events of no known dialect", path: pathRealtime, script: `1 s text {"hello":1}
				10 c text {"say":"x"}
				20 s text {"op":"msg"}
				40 s fin`,
			want: `session turns=0 analysis=lost why~no%known%dialect flow=realtime unknown_events=2`,
		},
	})
}

// TestUpgradesRefused: an upgrade that is answered otherwise is a request of the
// flow that its path names.
func TestUpgradesRefused(t *testing.T) {
	var cases []sessionCase
	for _, p := range []struct{ path, flow string }{
		{pathSpeech, "speech_ws"},
		{pathRealtime, "realtime"},
		{pathRealtime + "?duplex=1", "realtime"},
		{pathDuplex, "duplex"},
		{pathVideo, "video_chat"},
		{pathVideoOut, "video_out"},
		{"/ws", "other"},
	} {
		for _, a := range []struct{ answer, state string }{
			{"403 no", "invalid-request/http_403"},
			{"404 no", "invalid-request/http_404"},
			{"426 no", "invalid-request/http_426"},
			{"429 no", "admission-rejected/http_429"},
			{`503 {"error":{"code":"unavailable","message":"full"}}`, "admission-rejected/http_503"},
			{"500 no", "server-error/http_500"},
		} {
			status := a.answer[:3]
			cases = append(cases, sessionCase{
				name: p.flow + " " + p.path + " " + status, path: p.path, script: "20 answer " + a.answer + "\n30 s fin",
				want: "turn " + a.state + " flow=" + p.flow + " status=" + status + " jct=20 session_id?no%session\nnone",
			})
		}
	}
	runSessions(t, append(
		cases,
		sessionCase{
			name: "200 where sound is owed", path: pathSpeech, script: "20 answer 200 hello\n30 s fin",
			want: "turn invalid-output/no_output flow=speech_ws status=200\nnone",
		},
		sessionCase{
			name: "200 where text or sound is owed", path: pathRealtime, script: "20 answer 200 hello\n30 s fin",
			want: "turn invalid-output/no_output flow=realtime status=200\nnone",
		},
		sessionCase{
			name: "200 to an upgrade that is nothing of ours", path: "/ws", script: "20 answer 200 hello\n30 s fin",
			want: "turn success/done flow=other status=200\nnone",
		},
	))
}
