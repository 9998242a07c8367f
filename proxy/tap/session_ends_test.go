package tap_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// The turn that is under way where a session ends, and one that is over.
const (
	turnAsked = `1 s session.created {"session":{"id":"sess_1","model":"m"}}
		10 c response.create` + "\n"
	turnBegun = turnAsked + `20 s response.created {"response":{"id":"a"}}` + "\n"
	turnAmid  = turnBegun + `30 s response.output_audio.delta {"response_id":"a","delta":"@480"}` + "\n"
	turnOver  = turnAmid + `40 s response.done {"response":{"id":"a","status":"completed"}}` + "\n"
)

// TestSessionsEndAmidATurn: the end of the session is the end of the turn.
func TestSessionsEndAmidATurn(t *testing.T) {
	var cases []sessionCase
	add := func(name, script, turn, line string) {
		cases = append(cases, sessionCase{name: name, path: pathRealtime, script: script, want: "turn " + turn + "\nsession turns=1 " + line})
	}
	for _, c := range []struct{ code, state string }{
		{"1000", "invalid-output/missing_terminal"},
		{"", "invalid-output/missing_terminal"},
		{"1001", "transport-error/close_1001"},
		{"1003", "invalid-request/close_1003"},
		{"1007", "invalid-request/close_1007"},
		{"1008 policy", "invalid-request/close_1008"},
		{"1009 too big", "invalid-request/close_1009"},
		{"1011 oops", "server-error/close_1011"},
		{"1012", "transport-error/close_1012"},
		{"1013 try again", "admission-rejected/close_1013"},
		{"4000 own", "server-error/close_4000"},
		{"3000", "server-error/close_3000"},
	} {
		code, reason, _ := strings.Cut(c.code, " ")
		if code == "" {
			code = "0"
		}
		line := "close.by=server close.code=" + code + " close_seen_down=" + code + " close_seen_up?no%close -invalid_close_code -no_close_frame"
		if reason != "" {
			line += " close.reason=" + strings.ReplaceAll(reason, " ", "%")
		}
		add("close "+c.code, turnAmid+"50 s close "+c.code+"\n50 s fin", c.state+" by=server in=@10 points.t_term=@50 jct=40 samples=480 phase=content ev.close_code="+code+" ev.close_by=server", line)
	}
	amid := " samples=480 points.t_term=@50 phase=content"
	add("close 1000 ahead of any output", turnBegun+"50 s close 1000\n51 c close 1000\n51 s fin", "invalid-output/no_output", "close_seen_up=1000")
	add("server's FIN", turnAmid+"50 s fin", "transport-error/cut by=server"+amid, "close.by=server close.transport=fin +no_close_frame close.code?")
	add("server's RST", turnAmid+"50 s rst", "transport-error/reset by=server"+amid, "close.by=server close.transport=rst")
	add("server's FIN ahead of the answer", turnAsked+"50 s fin", "transport-error/closed_before_answer phase=before_headers", "")
	add("server's RST ahead of the answer", turnAsked+"50 s rst", "transport-error/reset_before_answer", "")
	add("client's close", turnAmid+"50 c close 1000\n52 s close 1000\n52 s fin\n53 c fin", "client-cancelled/client_closed by=client"+amid+" ev.close_code=1000 ev.close_by=client", "close.by=client close.code=1000 close_seen_up=1000 close_seen_down=1000")
	add("client's close 1001", turnAmid+"50 c close 1001\n52 s close 1001\n52 s fin", "client-cancelled/client_closed"+amid, "close.by=client close.code=1001")
	add("client's close, answered by nothing", turnAmid+"50 c close 1000\n52 s fin", "client-cancelled/client_closed"+amid, "close_seen_down?no%close close.by=client")
	add("client's RST", turnAmid+"50 c rst\n52 s fin", "client-cancelled/client_reset by=client"+amid, "close.by=client close.transport=rst")
	add("client's FIN, then the server's", turnAmid+"50 c fin\n52 s fin", "client-cancelled/half_closed by=client"+amid, "close.by=client close.transport=fin")
	add("client's FIN, and the answer in full", turnAmid+"35 c fin\n40 s response.done {\"response\":{\"id\":\"a\",\"status\":\"completed\"}}\n52 s fin", "success/done points.t_term=@40", "close.by=client")
	add("client's close, and the answer in full", turnAmid+"35 c close 1000\n40 s response.done {\"response\":{\"id\":\"a\",\"status\":\"completed\"}}\n52 s close 1000\n52 s fin", "success/done points.t_term=@40", "close.by=client")
	add("client's FIN before it asked", `1 s session.created {"session":{"id":"sess_1"}}
		10 c response.create
		10 c fin
		20 s response.created {"response":{"id":"a"}}
		30 s response.output_audio.delta {"response_id":"a","delta":"@480"}
		50 s fin`, "client-cancelled/half_closed", "")
	add("client's close before the answer began", turnAsked+`15 c close 1000
		20 s response.created {"response":{"id":"a"}}
		30 s response.output_audio.delta {"response_id":"a","delta":"@480"}
		50 s close 1000
		50 s fin`, "client-cancelled/client_closed by=client", "close.by=client")
	add("error, then the client's close", turnAmid+"40 s error {\"error\":{\"type\":\"server_error\",\"message\":\"CUDA out of memory\"}}\n50 c close 1000\n51 s fin", "oom/out_of_memory by=server", "")
	add("error, then the server's FIN", turnAmid+"40 s error {\"error\":{\"type\":\"server_error\",\"message\":\"boom\"}}\n51 s fin", "server-error/server_error by=server", "")
	add("the capture ends", turnAmid, "harness-error/capture_ends", "close.by=unknown")
	runSessions(t, cases)
}

// TestSessionsEndBehindATurn: how the connection ends behind a turn's end is a
// note and no state.
func TestSessionsEndBehindATurn(t *testing.T) {
	var cases []sessionCase
	for _, c := range []struct{ name, end, line string }{
		{"FIN", "50 s fin", "+no_close_frame close.by=server close.transport=fin"},
		{"RST", "50 s rst", "+no_close_frame close.by=server close.transport=rst"},
		{"1011", "50 s close 1011\n50 s fin", "close.code=1011"},
		{"client's RST", "50 c rst\n51 s fin", "close.by=client close.transport=rst"},
		{"client's close", "50 c close 1001\n51 s close 1001\n51 s fin", "close.code=1001 close.by=client"},
		{"capture ends", "", "close.by=unknown"},
	} {
		cases = append(cases, sessionCase{
			name: c.name, path: pathRealtime, script: turnOver + c.end,
			want: "turn success/done points.t_term=@40 points.t_close?session%went%on\nsession turns=1 states.success=1 " + c.line,
		})
	}
	runSessions(t, cases)
}

// TestC42CloseCodes: both sides' codes apart, as they stand on the wire.
func TestC42CloseCodes(t *testing.T) {
	long := strings.Repeat("r", 123)
	var cases []sessionCase
	for _, c := range []struct{ name, end, line string }{
		{"empty", "50 c close\n51 s close\n51 s fin", "close_seen_up=0 close_seen_down=0 close.code=0 close.reason?no%close -invalid_close_code"},
		{"none", "50 s fin", "close_seen_up?no%close close_seen_down?no%close close.code? +no_close_frame"},
		{"one byte", "50 s close x03\n51 s fin", "+invalid_close_code close.by=server"},
		{"999", "50 s close 999\n51 s fin", "close_seen_down=999 close.code=999 +invalid_close_code"},
		{"1004", "50 s close 1004\n51 s fin", "close_seen_down=1004 +invalid_close_code"},
		{"1005", "50 c close 1005\n51 s fin", "close_seen_up=1005 +invalid_close_code close.by=client"},
		{"1006", "50 s close 1006\n51 s fin", "close_seen_down=1006 +invalid_close_code"},
		{"1015", "50 s close 1015\n51 s fin", "close_seen_down=1015 +invalid_close_code"},
		{"5000", "50 s close 5000\n51 s fin", "close_seen_down=5000 +invalid_close_code"},
		{"long reason", "50 s close 4001 " + long + "\n51 s fin", "close_seen_down=4001 close.reason=" + long + " -invalid_close_code"},
		{"reason that is not UTF-8", "50 s close x03e8ff\n51 s fin", "close_seen_down=1000 +invalid_close_code"},
		{"two codes", "50 c close 4001 mine\n51 s close 4002 yours\n52 s fin", "close_seen_up=4001 close_seen_down=4002 close.code=4001 close.reason=mine close.by=client"},
		{"the server first", "50 s close 4002 yours\n51 c close 4001 mine\n52 c fin", "close_seen_up=4001 close_seen_down=4002 close.code=4002 close.reason=yours close.by=server"},
	} {
		cases = append(cases, sessionCase{
			name: c.name, path: pathRealtime, script: turnOver + c.end,
			want: "turn success/done\nsession turns=1 analysis=full " + c.line,
		})
	}
	runSessions(t, cases)
}

// TestC45Pings: pings are counted, paired by payload, and nothing else.
func TestC45Pings(t *testing.T) {
	runSessions(t, []sessionCase{
		{
			name: "neither output nor activity", path: pathRealtime, script: turnBegun + `
				25 s ping a
				26 s pong x
				28 c pong a
				29 c ping b
				40 s pong b
				1030 s output.ping
				1040 s response.output_audio.delta {"response_id":"a","delta":"@480"}
				1041 s response.done {"response":{"id":"a","status":"completed"}}
				1050 s close 1000
				1050 s fin`,
			want: `
				turn success/done ttfa=1030 ttft? chunks=1
				session pings_up=1 pings_down=1 pongs=3 ping_rtt_ms=3 idle_ms=1010 turns=1`,
		},
		{
			name: "a pong answers the pings before it", path: pathRealtime, script: turnOver + `
				50 s ping a
				60 s ping b
				70 c pong b
				80 c pong a
				90 s fin`,
			want: `
				turn success/done
				session pings_down=2 pongs=2 ping_rtt_ms=10`,
		},
		{
			name: "1011: the client is silent", path: pathRealtime, script: turnAmid + `
				40 s ping a
				20040 s close 1011 keepalive ping timeout
				20040 s fin`,
			want: `
				turn client-cancelled/ping_timeout by=client ev.confidence=low ev.close_code=1011
				session close.by=server close.code=1011 close.reason=keepalive%ping%timeout pings_down=1 pongs=0 ping_rtt_ms?no%ping`,
		},
		{
			name: "1011: the server is silent", path: pathRealtime, script: turnAmid + `
				40 c ping a
				20040 c close 1011 keepalive ping timeout
				20041 s fin`,
			want: `
				turn worker-lost/ping_timeout by=server ev.confidence=low
				session close.by=client close.code=1011 pings_up=1`,
		},
		{
			name: "1011: ahead of any answer", path: pathRealtime, script: turnAsked + `
				40 c ping a
				20040 c close 1011 keepalive ping timeout
				20041 s fin`,
			want: `
				turn worker-lost/ping_timeout by=server ev.confidence=low
				session turns=1`,
		},
		{
			name: "1011: the ping was answered", path: pathRealtime, script: turnAmid + `
				40 s ping a
				41 c pong a
				20040 s close 1011 boom
				20040 s fin`,
			want: `
				turn server-error/close_1011 by=server
				session turns=1`,
		},
	})
}

// TestC41SoundStops: text and pings go on, sound comes once; what came is kept.
func TestC41SoundStops(t *testing.T) {
	script := turnAmid
	for ms := 200; ms <= 3000; ms += 200 {
		script += fmt.Sprintf("%d s response.output_text.delta {\"response_id\":\"a\",\"delta\":\"word \"}\n", ms)
	}
	for ms := 15000; ms <= 105000; ms += 15000 {
		script += fmt.Sprintf("%d s ping p\n%d c pong p\n", ms, ms+1)
	}
	runSessions(t, []sessionCase{
		{
			name: "the client gives up", path: pathRealtime, script: script + "120010 c close 1000\n120011 s close 1000\n120011 s fin",
			want: `
				turn client-cancelled/client_closed by=client ttfa=20 ttft=190 jct=120000 samples=480 chunks=1 text=75 phase=content
				session idle_ms=117011 ping_rtt_ms=1`,
		},
		{
			name: "the server gives up", path: pathRealtime, script: script + "120010 s close 1011 timeout\n120011 s fin",
			want: `
				turn server-error/close_1011 ttfa=20 ttft=190 samples=480
				session pings_down=7`,
		},
		{
			name: "a pause, and it resumes", path: pathRealtime, script: turnAmid + `1530 s response.output_audio.delta {"response_id":"a","delta":"@480"}
				1540 s response.done {"response":{"id":"a","status":"completed"}}
				1550 s fin`,
			want: `
				turn success/done ttfa=20 audio_gap_ms.max=1500 playback.underruns=1 playback.stall_ms=1480 +audio_stall
				session turns=1`,
		},
		{
			name: "a deadline", path: pathRealtime, deadline: time.Minute, script: script + "120010 c close 1000\n120011 s close 1000\n120011 s fin",
			want: `
				turn deadline-exceeded/stall_audio by=relay ttfa=20 ttft=190 jct=120000 samples=480 chunks=1 text=75 phase=content +audio_stall ev.deadline_ms=60000
				session idle_ms=117011`,
		},
	})
}

// TestC59SessionsWaitForEver: a turn that is asked for and never begun, or begun and
// never answered, exceeds its deadline; pings are no answer.
func TestC59SessionsWaitForEver(t *testing.T) {
	pings := ""
	for ms := 15000; ms <= 105000; ms += 15000 {
		pings += fmt.Sprintf("%d s ping p\n%d c pong p\n", ms, ms+1)
	}
	opened := `1 s session.created {"session":{"id":"sess_1","model":"m"}}` + "\n10 c input_audio_buffer.commit\n10 c response.create\n"
	leave := "120010 c close 1000\n120011 s close 1000\n120011 s fin"
	runSessions(t, []sessionCase{
		{
			name: "asked", path: pathRealtime, deadline: time.Minute, script: opened + pings + leave,
			want: "turn deadline-exceeded/deadline by=relay phase=before_headers\nsession turns=1",
		},
		{
			name: "begun", path: pathRealtime, deadline: time.Minute, script: opened + `20 s response.created {"response":{"id":"a"}}` + "\n" + pings + leave,
			want: "turn deadline-exceeded/deadline by=relay phase=before_first_content\nsession turns=1",
		},
		{
			name: "begun late", path: pathRealtime, deadline: time.Minute, script: opened + `70000 s response.created {"response":{"id":"a"}}
				70001 s response.output_audio.delta {"response_id":"a","delta":"@480"}
				70002 s response.done {"response":{"id":"a","status":"completed"}}
				70003 s fin`,
			want: "turn deadline-exceeded/deadline by=relay phase=before_headers jct=69992 ttfa=69991\nsession turns=1",
		},
		{
			name: "speech, no form", path: pathSpeech, deadline: time.Minute, script: "1 c session.config {\"voice\":\"v\"}\n2 c input.text {\"text\":\"Hi.\"}\n3 c input.done\n" + leave,
			want: "turn deadline-exceeded/deadline by=relay phase=before_headers\nsession turns=1",
		},
		{
			name: "the session's limit is each turn's own", path: pathRealtime, deadline: time.Minute, script: opened + `20 s response.created {"response":{"id":"a"}}
				21 s response.output_audio.delta {"response_id":"a","delta":"@480"}
				22 s response.done {"response":{"id":"a","status":"completed"}}
				90000 c input_audio_buffer.commit
				90000 c response.create
				90010 s response.created {"response":{"id":"b"}}
				90011 s response.output_audio.delta {"response_id":"b","delta":"@480"}
				90012 s response.done {"response":{"id":"b","status":"completed"}}
				90013 s fin`,
			want: "turn success/done jct=12\nturn success/done jct=12\nsession turns=2",
		},
	})
}

// TestC39WhereTheTimerStarts: the named origin, and the moments beside it.
func TestC39WhereTheTimerStarts(t *testing.T) {
	script := `1 s session.created {"session":{"id":"sess_1","model":"m"}}` + "\n"
	for ms := 0; ms < 4000; ms += 100 {
		script += fmt.Sprintf("%d c input_audio_buffer.append {\"audio\":\"@zero:2400\"}\n", 10+ms)
	}
	runSessions(t, []sessionCase{{
		name: "realtime", path: pathRealtime, script: script + `4000 c input_audio_buffer.commit
			4000 c response.create
			4001 s response.created {"response":{"id":"a"}}
			4350 s response.output_audio.delta {"response_id":"a","delta":"@480"}
			4400 s response.done {"response":{"id":"a","status":"completed"}}
			4401 s fin`,
		want: `
			turn success/done in=@4000 ttfa=350 also.commit=@4000 input.messages=40 input.audio_s=4 input.span_ms=3900 input.pace=1
			session turns=1 input_audio_s=4`,
	}})
}

// TestSessionsEarlyBytes: what a client sends ahead of the 101 has its own stamps.
func TestSessionsEarlyBytes(t *testing.T) {
	many := ""
	for i := range 100 {
		many += fmt.Sprintf("%d c input_audio_buffer.append {\"audio\":\"@zero:160\"}\n", 100+i)
	}
	const answer = `
		501 s session.created {"session":{"id":"sess_1","model":"m"}}
		520 s response.created {"response":{"id":"a"}}
		550 s response.output_audio.delta {"response_id":"a","delta":"@480"}
		600 s response.done {"response":{"id":"a","status":"completed"}}
		601 s fin`
	runSessions(t, []sessionCase{
		{
			name: "in one piece", path: pathRealtime, script: `5 c input_audio_buffer.append {"audio":"@zero:160"}
				7 #k c response.create
				500 101` + answer,
			want: `
				turn success/done in=@7 offsets.t_in=>k ttfa=543 jct=593 input.messages=1
				session turns=1 opened_mono_ns=1 upgraded_mono_ns=@500 messages_up=2`,
		},
		{
			name: "in fragments", path: pathRealtime, script: `5 c frag 3/10 response.create
				500 101` + answer,
			want: `
				turn success/done in=@5 points.t_body=@25 ttfa=545
				session turns=1 fragments_up=3`,
		},
		{
			name: "half ahead, half behind", path: pathRealtime, script: `5 c frag 2/600 response.create
				600 101
				610 s session.created {"session":{"id":"sess_1","model":"m"}}
				620 s response.created {"response":{"id":"a"}}
				650 s response.output_audio.delta {"response_id":"a","delta":"@480"}
				700 s response.done {"response":{"id":"a","status":"completed"}}
				701 s fin`,
			want: `
				turn success/done in=@5
				session turns=1`,
		},
		{
			name: "a hundred reads", path: pathRealtime, uncut: true, script: many + `
				300 #k c response.create
				500 101` + answer,
			want: `
				turn success/done in=@300 offsets.t_in=>k ttfa=250
				session turns=1`,
		},
	})
}
