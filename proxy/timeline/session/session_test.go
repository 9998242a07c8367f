package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/proxy/timeline"
	"github.com/omnitap/omnitap/proxy/wire/dialect"
)

// TestUpstreamSent: t_up is when the last byte of the turn's input was written on,
// whatever was known by then.
func TestUpstreamSent(t *testing.T) {
	for _, v := range []struct{ name, path, script, want string }{
		{"written behind the ask", "/v1/realtime", "5 s " + openai + "\n10 c " + create + "\n11 sent\n" + answer("r1", 20), `
			0 response.create in@10 body@10 up@11 text@30 audio@40 term@50 (response_created@20) success done`},
		{"written when the turn has begun", "/v1/realtime", "5 s " + openai + "\n10 c " + create + "\n20 s " + created("r1") + "\n21 sent\n30 s " + delta("r1") + "\n40 s " + done("r1", "completed"), `
			0 response.create in@10 body@10 up@21 text@30 term@40 (response_created@20) success done`},
		{"written ahead of the form", "/v1/duplex", "3 c " + create + "\n4 sent\n5 s " + duplex + "\n6 c {\"type\":\"x\"}\n7 sent\n" + answer("r1", 20), `
			0 response.create in@3 body@3 up@4 text@30 audio@40 term@50 (response_created@20) success done`},
		{"said ahead of the form, written behind it", "/v1/duplex", "3 c " + create + "\n5 s " + duplex + "\n7 sent\n" + answer("r1", 20), `
			0 response.create in@3 body@3 up@7 text@30 audio@40 term@50 (response_created@20) success done`},
		{"a generation", "/v1/realtime", "3 s " + turnBased + "\n10" + turnCommit + "11 sent\n30" + turnFinal + "31 sent\n" + generation(40), `
			0 commit in@10 body@30 up@31 text@40 audio@50 term@60 (commit_final@30) success done`},
		{"a generation that answers early", "/v1/realtime", "3 s " + turnBased + "\n10" + turnCommit + "11 sent\n20" + turnText + "30" + turnFinal + "31 sent\n" + generation(40), `
			0 commit in@10 body@30 up@31 text@20 audio@50 term@60 (commit_final@30) success done`},
		{"sentences", "/v1/audio/speech/stream", configured + said(10, "Hi. Yo.") + "11 sent\n" + sentence(20, 0, "Hi.") + sentence(50, 1, "Yo."), `
			0 input.text in@10 body@10 up@11 audio@20 term@30 success done
			1 input.text in@10 body@10 up@11 audio@50 term@60 (previous_done@30) success done`},
		{"an utterance", "/v1/audio/speech/stream", speechConfig + said(10, "Hi.") + "11 sent\n12" + inputDone + "13 sent\n" + spoken(20, 0, 0) + over(50, 0, 1), `
			0 input.done in@12 body@12 up@13 audio@30 term@50 (input.text@10) success done`},
		{"a split utterance", "/v1/audio/speech/stream", splitConfig + said(10, "Hi.") + "11 sent\n" + spoken(20, 0, 0) + "42" + inputDone + "43 sent\n" + over(50, 0, 1), `
			0 input.text in@10 body@42 up@43 audio@30 term@50 (input.done@42) success done`},
		{"a query", "/v1/video/chat/stream", "10" + query + "11 sent\n20" + chatStart + "30" + chatText + "40" + chatOver + "50" + chatAudio + "60" + chatDone, `
			0 video.query in@10 body@10 up@11 text@30 audio@50 term@60 success done`},
		{"the server's voice detection", "/v1/realtime", "5 s " + conversation + "\n10 s " + stopped + "\n11 sent\n" + answer("r1", 20), `
			0 server_vad in@10 text@30 audio@40 term@50 (response_created@20) success done`},
	} {
		t.Run(v.name, func(t *testing.T) { live(t, v.path).play(v.script).want(v.want) })
	}
}

// TestUpstreamSentOfEarlyFinalCommit: both commits came and were written ahead of
// the server's session.created; a later write is not theirs.
func TestUpstreamSentOfEarlyFinalCommit(t *testing.T) {
	live(t, "/v1/realtime").play("2" + turnCommit + "3" + turnFinal + "4 sent\n5 s " + turnBased + "\n6 c {\"type\":\"x\"}\n7 sent\n" + generation(40)).want(`
		0 commit in@2 body@3 up@4 text@40 audio@50 term@60 (commit_final@3) success done`)
}

// TestRecordsWaitForTheirLastWrite: the own delay of the last chunk is known when
// it was written.
func TestRecordsWaitForTheirLastWrite(t *testing.T) {
	g := live(t, "/v1/realtime").play("5 s " + openai + "\n10 c " + create + "\n" + answer("r1", 20))
	if len(g.records) != 0 || !g.s.Busy() {
		t.Fatalf("%d records, busy %v", len(g.records), g.s.Busy())
	}
	g.play("60 wrote")
	if len(g.records) != 1 || g.s.Busy() {
		t.Fatalf("%d records, busy %v", len(g.records), g.s.Busy())
	}
	if d := g.records[0].OwnDelayUS; d == nil || d.N != 2 || d.Max != 30000 {
		t.Errorf("%+v", d)
	}
	g.play("70 c " + create + "\n" + answer("r2", 80)).want(`
		0 response.create in@10 body@10 text@30 audio@40 term@50 (response_created@20) success done
		1 response.create in@70 body@70 text@90 audio@100 term@110 (response_created@80) success done`)
}

func TestSlowClientIsOneTurns(t *testing.T) {
	g := live(t, "/v1/realtime").play("5 s " + duplex + "\n20 s " + created("r1") + "\n21 s " + created("r2") + "\n30 s " + delta("r1") + "\n31 s " + delta("r2"))
	g.s.Wrote(ms(200), ms(150))
	g.play("210 s " + done("r1", "completed") + "\n211 s " + done("r2", "completed"))
	g.s.Finish(ms(300))
	g.check()
	sum := 0.0
	for _, r := range g.records {
		sum += *r.ClientWaitMS
	}
	if sum != 150 {
		t.Errorf("%v ms of waiting in all, want 150", sum)
	}
}

func TestBusy(t *testing.T) {
	g := replayed(t, "/v1/realtime").play("5 s " + duplex)
	step := func(script string, want bool) {
		t.Helper()
		if g.play(script); g.s.Busy() != want {
			t.Errorf("behind %s: busy %v", script, !want)
		}
	}
	step("6 c {\"type\":\"ping\"}", false)
	step("10 c "+commit, true)
	step("20 s "+created("r1"), true)
	step("30 s "+delta("r1"), true)
	step("40 s "+done("r1", "completed"), false)
	step("50 s "+created("r2"), true)
	step("60 s "+done("r2", "completed"), false)
}

// TestBusyAheadOfTheForm: the client of a duplex session speaks first; what it
// asked for is under way though the server has not said a word.
func TestBusyAheadOfTheForm(t *testing.T) {
	g := replayed(t, "/v1/audio/speech/stream").play(speechConfig)
	if g.s.Busy() {
		t.Error("busy with a configuration")
	}
	if g.play(said(10, "Hi.") + "12" + inputDone); !g.s.Busy() {
		t.Error("an utterance was asked for, and the session says that it rests")
	}
}

func TestFinishTwice(t *testing.T) {
	g := replayed(t, "/v1/realtime").play("5 s " + openai + "\n10 c " + create + "\n20 s " + created("r1") + "\n30 finish\n40 finish")
	if len(g.records) != 1 || len(g.lines) != 1 {
		t.Errorf("%d records, %d lines", len(g.records), len(g.lines))
	}
	g.check()
}

func TestPings(t *testing.T) {
	g := replayed(t, "/v1/realtime").play(`
		10 s ping a
		14 c pong a
		20 s ping b
		21 s ping c
		22 s ping d
		30 c pong c
		40 c pong nobody
		50 c ping x
		53 s pong x
		60 s pong d
		70 c pong d`)
	l := g.line()
	if l.PingsDown != 4 || l.PingsUp != 1 || l.Pongs != 6 {
		t.Errorf("%d down, %d up, %d pongs", l.PingsDown, l.PingsUp, l.Pongs)
	}
	// 4, 9 (c, and b before it unanswered by itself), 3, 48
	if l.PingRTTMS == nil || *l.PingRTTMS != 4 {
		t.Errorf("median %v ms", l.PingRTTMS)
	}
	if l.MessagesUp+l.MessagesDown != 0 || l.IdleMS < 999_000 {
		t.Errorf("pings are no activity: %d messages, %v ms idle", l.MessagesUp+l.MessagesDown, l.IdleMS)
	}
}

// TestPingsOfOnePayload: a pong may answer the latest ping alone (RFC 6455 section
// 5.5.3), so of two pings that say the same the older one's round trip is not known.
func TestPingsOfOnePayload(t *testing.T) {
	g := replayed(t, "/v1/realtime").play("10 s ping\n20010 s ping\n20012 c pong")
	if l := g.line(); l.PingRTTMS != nil && *l.PingRTTMS > 2 {
		t.Errorf("round trip %v ms: the first ping may never have been answered", *l.PingRTTMS)
	}
}

func TestPingsAreBounded(t *testing.T) {
	g := replayed(t, "/v1/realtime")
	for i := range 100_000 {
		g.s.Ping(i%2 == 0, []byte("x"), ms(int64(i)))
	}
	if n := len(g.s.pings.open[0]) + len(g.s.pings.open[1]); n > 2*maxPings {
		t.Errorf("%d pings are kept", n)
	}
	for i := range 100_000 {
		g.s.Ping(true, []byte("y"), ms(int64(i)))
		g.s.Pong(false, []byte("y"), ms(int64(i)))
	}
	if n := len(g.s.pings.rtts); n > 1<<14 {
		t.Errorf("%d round trips are kept", n)
	}
}

func TestWhoFailedToAnswerPings(t *testing.T) {
	head := "5 s " + openai + "\n10 c " + create + "\n20 s " + created("r1") + "\n"
	for _, v := range []struct{ name, script, want string }{
		{"the client", head + "30 s ping\n50 s close 1011 keepalive ping timeout\n51 s fin", "client-cancelled ping_timeout"},
		{"the server", head + "30 c ping\n50 c close 1011\n51 c fin", "worker-lost ping_timeout"},
		{"nobody", head + "30 s ping\n31 c pong\n50 s close 1011\n51 s fin", "server-error close_1011"},
	} {
		t.Run(v.name, func(t *testing.T) {
			g := replayed(t, "/v1/realtime").play(v.script)
			g.s.Finish(ms(60))
			g.check()
			if r := g.records[0]; string(r.Terminal.State)+" "+r.Terminal.Reason != v.want || *r.Points.TTerm != ms(50) {
				t.Errorf("%s, want %s", told(r), v.want)
			}
		})
	}
}

func numbered(seq int, message string) string {
	return strings.TrimSuffix(message, "}") + fmt.Sprintf(",\"server_event_seq\":%d}", seq)
}

// TestReplayedEventsCountOnce: trap 24 of wire/vllm-omni.md section 14, over two
// connections.
func TestReplayedEventsCountOnce(t *testing.T) {
	mem := &Memory{}
	first := newRig(t, "/v1/realtime", true, mem).play("5 s " + duplex + "\n10 c " + commit +
		"\n20 s " + numbered(1, created("r1")) + "\n30 s " + numbered(2, delta("r1")) + "\n40 s " + numbered(3, audio("r1")) + "\n50 s rst\n51 c rst")
	first.want("0 commit in@10 body@10 text@30 audio@40 term@50 (response_created@20) transport-error reset")
	second := newRig(t, "/v1/realtime", true, mem).play("3 c {\"type\":\"session.resume\",\"session_id\":\"duplex-1\",\"resume_token\":\"t\"}\n5 s " + duplex +
		"\n20 s " + numbered(1, created("r1")) + "\n21 s " + numbered(2, delta("r1")) + "\n22 s " + numbered(3, audio("r1")) + "\n30 s " + numbered(4, audio("r1")) + "\n40 s " + numbered(5, done("r1", "completed")))
	second.want("0 audio@30 term@40 (response_created@30) success done").flags("no_close_frame", "replayed_events", "resumed")
	if l := second.line(); l.ReplayedEvents != 3 || l.Resumed == nil || *l.Resumed != "duplex-1" || *second.records[0].Audio.Samples != 480 {
		t.Errorf("%d replayed, resumed %v, %d samples", l.ReplayedEvents, l.Resumed, *second.records[0].Audio.Samples)
	}
}

// TestAnotherSessionIsNoReplay: numbers begin again.
func TestAnotherSessionIsNoReplay(t *testing.T) {
	mem := &Memory{}
	for range 2 {
		g := newRig(t, "/v1/realtime", true, mem).play("5 s " + duplex + "\n10 c " + commit + "\n20 s " + numbered(1, created("r1")) + "\n30 s " + numbered(2, delta("r1")) + "\n40 s " + numbered(3, done("r1", "completed")))
		g.want("0 commit in@10 body@10 text@30 term@40 (response_created@20) success done").flags("no_close_frame")
	}
}

func TestMemoryIsBounded(t *testing.T) {
	mem := &Memory{}
	for i := range 10 * maxKnown {
		mem.cursor(fmt.Sprint(i))
	}
	if len(mem.known) != maxKnown || len(mem.order) != maxKnown || cap(mem.order) > 4*maxKnown {
		t.Errorf("%d known, %d in order, room for %d", len(mem.known), len(mem.order), cap(mem.order))
	}
	if (*Memory)(nil).cursor("x") == nil {
		t.Error("a nil Memory gives no place")
	}
}

// TestMemoryForgetsTheOldest: what is used stays.
func TestMemoryForgetsTheOldest(t *testing.T) {
	mem := &Memory{}
	mem.cursor("used").last.Store(7)
	for i := range 3 * maxKnown {
		mem.cursor(fmt.Sprint(i))
		if mem.cursor("used").last.Load() != 7 {
			t.Fatalf("forgotten behind %d others, though it was used all the time", i)
		}
	}
}

// TestMemoryIsForDuplexAlone: no other form numbers its events, and each place that
// they take is one that a session to be resumed loses.
func TestMemoryIsForDuplexAlone(t *testing.T) {
	mem := &Memory{}
	for i, description := range []string{conversation, shared, openai, turnBased, segmented} {
		newRig(t, "/v1/realtime", true, mem).play("5 s " + description)
		if len(mem.known) > 0 {
			t.Fatalf("description %d takes a place", i)
		}
	}
}

// TestEarlyIsBounded: in number, and in bytes.
func TestEarlyIsBounded(t *testing.T) {
	t.Run("number", func(t *testing.T) {
		g := replayed(t, "/v1/other")
		for i := range 10 * maxEarly {
			g.play(fmt.Sprintf("%d c %s", 10+i, create))
		}
		if n := len(g.s.early); n < maxEarly || n > maxEarly+maxAsks { // what asks is kept longer
			t.Errorf("%d are kept", len(g.s.early))
		}
		g.s.Finish(ms(1_000_000))
		g.flags("early_messages_dropped", "no_close_frame")
	})
	t.Run("bytes", func(t *testing.T) {
		g := replayed(t, "/v1/other")
		m := dialect.Message{Kind: dialect.InputText}
		m.Text = make([]byte, 1<<20)
		for range maxEarly {
			g.s.Client(&m, g.span(0, ms(10), 1<<20))
		}
		kept := 0
		for _, e := range g.s.early {
			kept += len(e.m.Text)
		}
		if kept > 4<<20 {
			t.Errorf("%d MiB of text are kept of a session of no known form", kept>>20)
		}
	})
}

// TestEarlySoundOfTheClientCounts: it is no less sound than what comes later.
func TestEarlySoundOfTheClientCounts(t *testing.T) {
	g := replayed(t, "/v1/duplex").play("3 c {\"type\":\"input_audio_buffer.append\",\"audio\":\"$1600\"}\n4 c " + commit + "\n5 s " + duplex + "\n" + answer("r1", 20))
	g.want("0 commit in@4 body@4 text@30 audio@40 term@50 (response_created@20) success done")
	if in, l := g.records[0].Input, g.line(); in == nil || in.AudioS != .1 || *l.InputAudioS != .1 {
		t.Errorf("%+v, the session %v", in, l.InputAudioS)
	}
}

func TestLine(t *testing.T) {
	g := replayed(t, "/v1/realtime").play("5 s " + openai + "\n10 c " + create + "\n" + answer("r1", 20) + "9000 c {\"type\":\"x\"}\n9001 s {\"type\":\"strange\"}\n9010 c close 1000 bye\n9011 s close 1000\n9012 s fin\n9013 c fin")
	g.s.Bytes(1000, 2000)
	g.s.Fragments(false, 2)
	g.s.Fragments(true, 9)
	l := g.line()
	g.check()
	if l.Close.By != "client" || *l.Close.Code != 1000 || *l.Close.Reason != "bye" || l.Close.Transport != "fin" || *l.CloseSeenUp != 1000 || *l.CloseSeenDown != 1000 {
		t.Errorf("%+v", l.Close)
	}
	if l.MessagesUp != 2 || l.MessagesDown != 6 || l.FragmentsUp != 2 || l.FragmentsDown != 9 || l.BytesUp != 1000 || l.BytesDown != 2000 || l.UnknownEvents != 1 {
		t.Errorf("%+v", l)
	}
	if l.IdleMS != 8950 || l.DurationMS < 9000 || l.Analysis != "full" || *l.Model != "m" || *l.ServerSessionID != "sess_o" || l.Flow != "realtime" || l.Dialect != "openai" || *l.DialectVariant != "realtime_responses" {
		t.Errorf("idle %v, %v ms, %s %s %s", l.IdleMS, l.DurationMS, l.Analysis, l.Flow, l.Dialect)
	}
	g.flags("unknown_events")
}

func TestCloseOfALine(t *testing.T) {
	for _, v := range []struct{ script, want string }{
		{"9 c close 1001", "client code=1001 fin=open"},
		{"9 s close 1011 x\n10 c close 1011\n11 s fin", "server code=1011 fin=fin"},
		{"9 s close 0\n10 s fin", "server code=0 fin=fin"},
		{"9 s fin\n10 c fin", "server code=- fin=fin"},
		{"9 c fin\n10 s rst", "client code=- fin=fin"},
		{"9 c fin\n10 c rst", "client code=- fin=rst"},
		{"9 s rst", "server code=- fin=rst"},
		{"9 shutdown", "relay code=- fin=open"},
		{"9 capture", "unknown code=- fin=open"},
		{"", "unknown code=- fin=open"},
	} {
		l := replayed(t, "/v1/realtime").play(v.script).line()
		code := "-"
		if l.Close.Code != nil {
			code = fmt.Sprint(*l.Close.Code)
		}
		if got := fmt.Sprintf("%s code=%s fin=%s", l.Close.By, code, l.Close.Transport); got != v.want {
			t.Errorf("%q: %s, want %s", v.script, got, v.want)
		}
	}
}

// TestEnds: how a turn that is under way ends, by what ends the session.
func TestEnds(t *testing.T) {
	head := "5 s " + openai + "\n10 c " + create + "\n20 s " + created("r1") + "\n30 s " + delta("r1") + "\n"
	for _, v := range []struct{ script, want string }{
		{"40 s fin", "transport-error cut"},
		{"40 s rst", "transport-error reset"},
		{"40 c rst", "client-cancelled client_reset"},
		{"40 c fin\n41 s fin", "client-cancelled half_closed"},
		{"40 c close 1000\n41 s close 1000\n42 s fin", "client-cancelled client_closed"},
		{"40 s close 1000\n41 c close 1000\n42 s fin", "invalid-output missing_terminal"},
		{"40 s close 1013", "admission-rejected close_1013"},
		{"40 s close 1008", "invalid-request close_1008"},
		{"40 s close 1012", "transport-error close_1012"},
		{"40 shutdown", "harness-error proxy_shutdown"},
		{"40 capture", "harness-error capture_ends"},
		{"40 quiet bytes were dropped", "harness-error analysis_incomplete"},
		{"40 s violation reserved bit at byte 9", "invalid-output malformed_frames"},
		{"40 s malformed\n41 s " + done("r1", "completed"), "invalid-output malformed_json"},
		{"40 s truncated\n41 s " + done("r1", "completed"), "success done"},
	} {
		g := replayed(t, "/v1/realtime").play(head + v.script)
		g.s.Finish(ms(90))
		g.check()
		if r := g.records[0]; string(r.Terminal.State)+" "+r.Terminal.Reason != v.want {
			t.Errorf("%q: %s, want %s", v.script, told(r), v.want)
		}
	}
}

// TestEndsOfAnAsk: the same where nothing answered.
func TestEndsOfAnAsk(t *testing.T) {
	for _, v := range []struct{ script, want string }{
		{"40 s fin", "term@40 transport-error closed_before_answer"},
		{"40 s rst", "term@40 transport-error reset_before_answer"},
		{"40 c rst", "term@40 client-cancelled client_reset"},
		{"40 c close 1000\n45 s fin\n46 c fin", "term@40 client-cancelled client_closed"},
		{"40 s close 1013\n45 s fin\n46 c fin", "term@40 admission-rejected close_1013"},
		{"40 shutdown", "term@40 harness-error proxy_shutdown"},
		{"40 capture", "term@40 harness-error capture_ends"},
	} {
		for _, path := range []string{"/v1/realtime", "/v1/other"} {
			replayed(t, path).play("5 s " + openai + "\n10 c " + create + "\n" + v.script).want("0 response.create in@10 body@10 " + v.want)
		}
	}
}

// TestLostClient: the server's answers are still read, and say that what asked is
// not known.
func TestLostClient(t *testing.T) {
	g := replayed(t, "/v1/duplex").play("5 s " + duplex + "\n10 c violation mask missing at byte 3\n" + answer("r1", 20))
	g.want("0 text@30 audio@40 term@50 (response_created@20) success done").flags("no_close_frame", "protocol_violation")
	if r, l := g.records[0], g.line(); r.Analysis != "lost" || l.Analysis != "lost" {
		t.Errorf("%s, %s", r.Analysis, l.Analysis)
	}
}

func TestUnknownSession(t *testing.T) {
	g := replayed(t, "/chat").play("10 c {\"op\":1}\n20 s {\"op\":2}\n30 s bin 100\n40 s fin")
	if g.s.Known() {
		t.Error("known")
	}
	l := g.line()
	g.check()
	if l.Dialect != dialect.Unknown || l.Flow != timeline.FlowOther || l.Analysis != "lost" || *l.AnalysisReason != NoDialect || len(g.records) != 0 {
		t.Errorf("%+v", l)
	}
}

// TestUnansweredByPath: the server never says a word; the path tells what was
// asked for.
func TestUnansweredByPath(t *testing.T) {
	for _, v := range []struct{ path, ask, want string }{
		{"/v1/audio/speech/stream", `{"type":"input.done"}`, "0 input.done in@10 body@10 term@20 transport-error closed_before_answer"},
		{"/v1/video/chat/stream", `{"type":"video.query"}`, "0 video.query in@10 body@10 term@20 transport-error closed_before_answer"},
		{"/v1/realtime/video", `{"type":"session.start"}`, "0 session.start in@10 body@10 term@20 transport-error closed_before_answer"},
		{"/v1/duplex", commit, "0 commit in@10 body@10 term@20 transport-error closed_before_answer"},
		{"/v1/realtime", create, "0 response.create in@10 body@10 term@20 transport-error closed_before_answer"},
	} {
		replayed(t, v.path).play("10 c " + v.ask + "\n20 s fin").want(v.want)
	}
}

// TestTurnsAreAlike: nothing of a turn stays for the next: three of the same give
// the same record but for its number and moments.
func TestTurnsAreAlike(t *testing.T) {
	for name, f := range map[string]struct {
		path, head string
		turn       func(at, n int) string
	}{
		"responses": {"/v1/realtime", "1 s " + openai + "\n", func(at, n int) string {
			return fmt.Sprintf("%d c %s\n", at, create) + answer(fmt.Sprint("r", n), at+10)
		}},
		"conversation": {"/v1/realtime", "1 s " + conversation + "\n", func(at, n int) string {
			return fmt.Sprintf("%d s %s\n%d s %s\n", at-5, started, at, stopped) + answer(fmt.Sprint("r", n), at+10)
		}},
		"duplex": {"/v1/duplex", "1 s " + duplex + "\n", func(at, n int) string {
			return fmt.Sprintf("%d c %s\n", at, commit) + answer(fmt.Sprint("r", n), at+10)
		}},
		"utterances": {"/v1/audio/speech/stream", speechConfig, func(at, n int) string {
			return said(at-1, "Hi.") + fmt.Sprint(at) + inputDone + spoken(at+10, n, 0) + over(at+40, n, 1)
		}},
		"sentences": {"/v1/audio/speech/stream", configured, func(at, n int) string { return said(at, "Hi. ") + sentence(at+10, n, "Hi.") }},
		"generations": {"/v1/realtime", "1 s " + turnBased + "\n", func(at, _ int) string {
			return fmt.Sprint(at) + turnCommit + fmt.Sprint(at+5) + turnFinal + generation(at+10)
		}},
		"segments": {"/v1/realtime", "1 s " + segmented + "\n", func(at, n int) string {
			return heardSegment(at, n, "speech_stopped", 2*n+2) + segment(at+10, n, "The", true, 2*n+3)
		}},
		"queries": {"/v1/video/chat/stream", "", func(at, _ int) string {
			return fmt.Sprint(at) + query + fmt.Sprint(at+10) + chatStart + fmt.Sprint(at+20) + chatText + fmt.Sprint(at+30) + chatOver + fmt.Sprint(at+40) + chatAudio + fmt.Sprint(at+50) + chatDone
		}},
	} {
		t.Run(name, func(t *testing.T) {
			script := f.head
			for n := range 3 {
				script += f.turn(1000*(n+1), n)
			}
			g := replayed(t, f.path).play(script)
			g.s.Finish(ms(9000))
			g.check()
			if len(g.records) != 3 {
				t.Fatalf("%d turns", len(g.records))
			}
			var first string
			for n, r := range g.turns() {
				one := fmt.Sprint(value(r.TTFTMS), value(r.TTFAMS), value(r.JCTMS), r.Terminal.State, *r.TInSource, r.Flags, r.BytesDown, r.BytesUp)
				if first == "" {
					first = one
				}
				if one != first {
					t.Errorf("turn %d is %s, the first %s", n, one, first)
				}
			}
		})
	}
}

func value(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprint(*v)
}

// TestSampleOverTwoMessages: samples that lie across messages are joined.
func TestSampleOverTwoMessages(t *testing.T) {
	g := replayed(t, "/v1/audio/speech/stream").play(speechConfig + said(10, "Hi.") + "12" + inputDone + `20 s {"type":"audio.start","utterance_index":0,"sentence_index":0,"format":"pcm","sample_rate":24000}` + "\n")
	p := pcm(480)
	g.binary(ms(30), true, p[:333])
	g.binary(ms(40), true, p[333:])
	g.play("50 s {\"type\":\"audio.done\",\"utterance_index\":0,\"sentence_index\":0,\"total_bytes\":960}\n" + over(60, 0, 1))
	g.want("0 input.done in@12 body@12 audio@40 term@60 (input.text@10) success done")
	if a := g.records[0].Audio; *a.Samples != 480 || a.Chunks != 2 || a.DeclaredSamples == nil || *a.DeclaredSamples != 480 {
		t.Errorf("%+v", a)
	}
}

// TestSoundOfNobody: binary messages between turns belong to none.
func TestSoundOfNobody(t *testing.T) {
	g := replayed(t, "/v1/audio/speech/stream").play(configured + said(10, "Hi.") + "15 s bin 960\n" + sentence(20, 0, "Hi.") + "40 s bin 480")
	g.want("0 input.text in@10 body@10 audio@20 term@30 success done").flags("no_close_frame", "unattributed_audio")
	if l := g.line(); l.UnattributedChunks != 2 || l.UnattributedSamples != 720 {
		t.Errorf("%d chunks, %d samples", l.UnattributedChunks, l.UnattributedSamples)
	}
}

func TestForms(t *testing.T) {
	for _, v := range []struct{ first, flow, server, variant string }{
		{duplex, "duplex", "vllm-omni", "duplex"},
		{conversation, "realtime", "sglang-omni", "conversation"},
		{shared, "duplex", "sglang-omni", "shared"},
		{openai, "realtime", "openai", "realtime_responses"},
		{turnBased, "realtime", "vllm-omni", "realtime_turn"},
		{segmented, "transcription", "sglang-omni", "transcription_segments"},
		{`{"type":"response.start"}`, "video_chat", "vllm-omni", "video_chat"},
		{`{"type":"video.start","request_id":"v"}`, "video_out", "vllm-omni", "video_out"},
		{`{"type":"session.configured","session_id":"x"}`, "speech_ws", "sglang-omni", "speech_stream"},
		{`{"type":"audio.start","utterance_index":0}`, "speech_ws", "vllm-omni", "speech_stream"},
	} {
		l := replayed(t, "/ws").play("5 s " + v.first).line()
		if l.Flow != v.flow || l.Dialect != v.server || *l.DialectVariant != v.variant {
			t.Errorf("%s: %s %s %s", v.first, l.Flow, l.Dialect, *l.DialectVariant)
		}
	}
}

// TestTurnsThatAreOverAreLetGo: a session that rests holds no turn, no ask and none
// of their sound: not in the spare room of its lists either.
func TestTurnsThatAreOverAreLetGo(t *testing.T) {
	g := live(t, "/v1/realtime").play("5 s " + duplex + "\n10 c " + commit + "\n11 c " + commit + "\n" + answer("r1", 20) + "51 wrote\n" + answer("r2", 60) + "91 wrote")
	if g.s.Busy() {
		t.Fatal("busy")
	}
	n := 0
	for _, l := range [][]*turn{g.s.open[:cap(g.s.open)], g.s.waiting[:cap(g.s.waiting)]} {
		for _, x := range l {
			if x != nil {
				n++
			}
		}
	}
	for _, a := range g.s.asks[:cap(g.s.asks)] {
		if a != nil {
			n++
		}
	}
	if n > 0 {
		t.Errorf("%d turns and asks that are over are still held", n)
	}
}

// TestLongFirstMessage: more text than is kept, with nothing kept before it.
func TestLongFirstMessage(t *testing.T) {
	g := replayed(t, "/v1/audio/speech/stream")
	g.play("3 c {\"type\":\"input.text\",\"text\":\"" + strings.Repeat("a", 2<<20) + "\"}")
	g.flags("early_messages_dropped", "no_close_frame")
}
