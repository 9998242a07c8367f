package session

import (
	"fmt"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

func created(id string) string {
	return `{"type":"response.created","response":{"id":"` + id + `"}}`
}

func delta(id string) string {
	return `{"type":"response.output_text.delta","response_id":"` + id + `","delta":"Hi"}`
}

func audio(id string) string {
	return `{"type":"response.output_audio.delta","response_id":"` + id + `","delta":"$480","format":"pcm16","sample_rate_hz":24000}`
}

func done(id, status string) string {
	return `{"type":"response.done","response":{"id":"` + id + `","status":"` + status + `"}}`
}

// answer is a whole response from at on.
func answer(id string, at int) string {
	return fmt.Sprintf("%d s %s\n%d s %s\n%d s %s\n%d s %s\n", at, created(id), at+10, delta(id), at+20, audio(id), at+30, done(id, "completed"))
}

const (
	commit  = `{"type":"input_audio_buffer.commit"}`
	create  = `{"type":"response.create"}`
	started = `{"type":"input_audio_buffer.speech_started"}`
	stopped = `{"type":"input_audio_buffer.speech_stopped"}`
	hears   = `{"type":"input_audio_buffer.committed"}`
	listen  = `{"type":"response.listen","session_id":"d","epoch":0}`
)

func TestResponses(t *testing.T) {
	for _, v := range []struct{ name, script, want string }{
		{"create asks, the commit led to it", "5 s " + openai + "\n10 c " + commit + "\n12 s " + hears + "\n15 c " + create + "\n" + answer("r1", 20), `
			0 response.create in@15 body@15 text@30 audio@40 term@50 (commit@10) (response_created@20) success done`},
		{"the server's voice detection asks", "5 s " + conversation + "\n8 s " + started + "\n10 s " + stopped + "\n11 s " + hears + "\n" + answer("r1", 20), `
			0 server_vad in@10 text@30 audio@40 term@50 (committed@11) (response_created@20) success done`},
		{"create behind voice detection", "5 s " + openai + "\n10 s " + stopped + "\n11 s " + hears + "\n13 c " + create + "\n" + answer("r1", 20), `
			0 response.create in@13 body@13 text@30 audio@40 term@50 (response_created@20) (server_vad@10) success done`},
		{"two creates, two answers", "5 s " + openai + "\n10 c " + create + "\n12 c " + create + "\n" + answer("r1", 20) + answer("r2", 60), `
			0 response.create in@10 body@10 text@30 audio@40 term@50 (response_created@20) success done
			1 response.create in@12 body@12 text@70 audio@80 term@90 (response_created@60) success done`},
		{"duplex: a commit and the create behind it ask for one", "5 s " + duplex + "\n10 c " + commit + "\n12 c " + create + "\n" + answer("r1", 20) + "50 c " + commit + "\n52 c " + create + "\n" + answer("r2", 60), `
			0 response.create in@12 body@12 text@30 audio@40 term@50 (commit@10) (response_created@20) success done
			1 response.create in@52 body@52 text@70 audio@80 term@90 (commit@50) (response_created@60) success done`},
		{"duplex: nothing asked", "5 s " + duplex + "\n" + answer("r1", 20), `
			0 text@30 audio@40 term@50 (response_created@20) success done`},
		{"duplex: a commit that the model answers by silence", "5 s " + duplex + "\n10 c " + commit + "\n15 s " + listen + "\n" + answer("r1", 20), `
			0 commit in@10 body@10 term@15 success done
			1 text@30 audio@40 term@50 (response_created@20) success done`},
		{"shared: the commit asks", "5 s " + shared + "\n10 c " + commit + "\n" + answer("r1", 20), `
			0 commit in@10 body@10 text@30 audio@40 term@50 (response_created@20) success done`},
		{"responses that overlap", "5 s " + duplex + "\n10 c " + commit + "\n11 c " + commit + "\n20 s " + created("r1") + "\n21 s " + created("r2") + "\n30 s " + delta("r2") + "\n31 s " + delta("r1") + "\n40 s " + done("r1", "completed") + "\n50 s " + done("r2", "completed"), `
			0 commit in@10 body@10 text@31 term@40 (response_created@20) success done
			1 commit in@11 body@11 text@30 term@50 (response_created@21) success done`},
		{"cancelled, with late sound", "5 s " + openai + "\n10 c " + create + "\n20 s " + created("r1") + "\n30 s " + audio("r1") + "\n35 c {\"type\":\"response.cancel\"}\n36 s " + audio("r1") + "\n40 s " + done("r1", "cancelled"), `
			0 response.create in@10 body@10 audio@30 term@40 (response_created@20) client-cancelled interrupted`},
		{"failed by an error", "5 s " + conversation + "\n10 s " + stopped + "\n20 s " + created("r1") + "\n30 s " + delta("r1") + "\n40 s {\"type\":\"error\",\"error\":{\"type\":\"server_error\",\"code\":\"x\",\"message\":\"m\"}}\n41 s " + done("r1", "failed"), `
			0 server_vad in@10 text@30 term@41 (response_created@20) server-error server_error`},
		{"failed without an error", "5 s " + conversation + "\n10 s " + stopped + "\n20 s " + created("r1") + "\n41 s " + done("r1", "failed"), `
			0 server_vad in@10 term@41 (response_created@20) server-error response_failed`},
		{"an error beside a good answer", "5 s " + openai + "\n10 c " + create + "\n20 s " + created("r1") + "\n25 s {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"m\"}}\n30 s " + delta("r1") + "\n40 s " + done("r1", "completed"), `
			0 response.create in@10 body@10 text@30 term@40 (response_created@20) success done`},
		{"a create that is refused by name", "5 s " + openai + "\n10 c {\"type\":\"response.create\",\"event_id\":\"a\"}\n11 c {\"type\":\"response.create\",\"event_id\":\"b\"}\n15 s {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"m\",\"event_id\":\"b\"}}\n" + answer("r1", 20), `
			0 response.create in@11 body@11 term@15 invalid-request invalid_request_error
			1 response.create in@10 body@10 text@30 audio@40 term@50 (response_created@20) success done`},
		{"late output is nobody's", "5 s " + duplex + "\n10 c " + commit + "\n" + answer("r1", 20) + "60 s " + audio("r1") + "\n61 s " + done("r1", "completed"), `
			0 commit in@10 body@10 text@30 audio@40 term@50 (response_created@20) success done`},
		{"a create that nothing answers", "5 s " + openai + "\n10 c " + create + "\n20 c close 1000\n21 s close 1000\n22 s fin\n23 c fin", `
			0 response.create in@10 body@10 term@20 client-cancelled client_closed`},
		{"silence alone is no turn", "5 s " + duplex + "\n15 s " + listen + "\n16 s " + listen, ""},
	} {
		t.Run(v.name, func(t *testing.T) {
			g := replayed(t, "/v1/other").play(v.script).want(v.want)
			if n := len(g.s.asks); n > 0 {
				t.Errorf("%d asks stay", n)
			}
		})
	}
}

func TestListensAreCounted(t *testing.T) {
	g := replayed(t, "/v1/duplex").play("5 s " + duplex + "\n15 s " + listen + "\n16 c " + commit + "\n17 s " + listen + "\n18 s " + listen)
	g.want("0 commit in@16 body@16 term@17 success done")
	if n := g.line().Listens; n != 2 {
		t.Errorf("%d listens, want 2", n)
	}
}

// TestLateSoundIsUnattributed: case C51, the variant without ids.
func TestLateSoundIsUnattributed(t *testing.T) {
	g := replayed(t, "/v1/realtime").play("5 s " + duplex + "\n10 c " + commit + "\n" + answer("r1", 20) + "60 s " + audio("r1"))
	g.want("0 commit in@10 body@10 text@30 audio@40 term@50 (response_created@20) success done").flags("no_close_frame", "output_after_done", "unattributed_audio")
	if l := g.line(); l.UnattributedChunks != 1 || l.UnattributedSamples != 480 {
		t.Errorf("%d chunks, %d samples", l.UnattributedChunks, l.UnattributedSamples)
	}
}

// TestUtteranceWithoutAnswerDoesNotShiftTheNext: what the server heard and did not
// answer must not give its moment to what it answers later, nor shift all turns
// behind it by one.
func TestUtteranceWithoutAnswerDoesNotShiftTheNext(t *testing.T) {
	for name, description := range map[string]string{"conversation": conversation, "duplex": duplex, "openai": openai} {
		t.Run(name, func(t *testing.T) {
			g := replayed(t, "/v1/realtime").play("5 s " + description + "\n10 s " + stopped + "\n9000 s " + started + "\n10000 s " + stopped + "\n" + answer("r1", 10020) + "20000 s " + stopped + "\n" + answer("r2", 20020))
			g.s.Finish(ms(30000))
			g.check()
			var got []float64
			for _, r := range g.turns() {
				if r.TextUnits != nil && *r.TextUnits > 0 && r.TTFTMS != nil {
					got = append(got, *r.TTFTMS)
				}
			}
			if d := gocmp.Diff([]float64{30, 30}, got); d != "" {
				t.Errorf("TTFT (-want +got):\n%s", d)
			}
		})
	}
}

// TestDuplexUsesUpTheAsksOfOneAnswer: the end of speech and the commit behind it
// ask for one answer; the next that nothing asked for has no t_in (contract
// section 1).
func TestDuplexUsesUpTheAsksOfOneAnswer(t *testing.T) {
	g := replayed(t, "/v1/realtime").play("5 s " + duplex + "\n10 s " + stopped + "\n12 c " + commit + "\n13 s " + hears + "\n" + answer("r1", 20) + answer("r2", 9000))
	g.s.Finish(ms(9100))
	if r := g.turns()[1]; r.Points.TIn != nil {
		t.Errorf("%s: measured from what the first turn answered", told(r))
	}
}

// TestDuplexSpeechEndsBehindTheCommit: the same in the other order: the server hears
// the end of speech in what the commit closed.
func TestDuplexSpeechEndsBehindTheCommit(t *testing.T) {
	g := replayed(t, "/v1/realtime").play("5 s " + duplex + "\n10 c " + commit + "\n12 s " + stopped + "\n13 s " + hears + "\n" + answer("r1", 20) + answer("r2", 9000))
	g.s.Finish(ms(9100))
	if r := g.turns()[1]; r.Points.TIn != nil {
		t.Errorf("%s: measured from what the first turn answered", told(r))
	}
}

// TestDuplexCommitsBehindSpeech: the end of speech goes with one commit; the next
// commit asks for the next answer.
func TestDuplexCommitsBehindSpeech(t *testing.T) {
	g := replayed(t, "/v1/realtime").play("5 s " + duplex + "\n10 s " + stopped + "\n12 c " + commit + "\n14 c " + commit + "\n" + answer("r1", 20) + answer("r2", 60))
	g.s.Finish(ms(9100))
	if r := g.turns()[1]; r.Points.TIn == nil || *r.Points.TIn != ms(14) {
		t.Errorf("%s: its commit came at 14", told(r))
	}
}

// TestSilenceAnswersTheEndOfSpeech: the model listens on; what it says 30 s later
// unasked has no t_in.
func TestSilenceAnswersTheEndOfSpeech(t *testing.T) {
	g := replayed(t, "/v1/realtime").play("5 s " + duplex + "\n10 s " + stopped + "\n15 s " + listen + "\n29000 s " + started + "\n" + answer("r1", 30000))
	g.want("0 text@30010 audio@30020 term@30030 (response_created@30000) success done")
}

// TestRefusedCommitAsksForNothingMore: it must not stand for the next answer.
func TestRefusedCommitAsksForNothingMore(t *testing.T) {
	replayed(t, "/v1/realtime").play("5 s " + duplex + `
		10 c {"type":"input_audio_buffer.commit","event_id":"c1"}
		12 s {"type":"error","error":{"type":"invalid_request_error","code":"input_audio_buffer_commit_empty","message":"m","event_id":"c1"}}
		5000 c {"type":"input_audio_buffer.commit","event_id":"c2"}
		` + answer("r1", 5020)).want(`
		0 commit in@10 body@10 term@12 invalid-request invalid_request_error
		1 commit in@5000 body@5000 text@5030 audio@5040 term@5050 (response_created@5020) success done`)
}

// TestLeavingIsTheClients: who says session.close amid a turn has left first;
// these servers then drop the connection (wire/vllm-omni.md sections 5, 8, trap 29).
func TestLeavingIsTheClients(t *testing.T) {
	for _, v := range []struct{ name, script string }{
		{"duplex", "5 s " + duplex + "\n10 c " + commit + "\n20 s " + created("r1") + "\n30 s " + delta("r1") + "\n40 c {\"type\":\"session.close\"}\n41 s {\"type\":\"session.closed\",\"session_id\":\"d\"}\n42 s fin\n43 c fin"},
		{"speech", `
			5 c {"type":"session.config","response_format":"pcm"}
			6 c {"type":"input.text","text":"Hi."}
			7 c {"type":"input.done"}
			10 s {"type":"audio.start","utterance_index":0,"sentence_index":0,"format":"pcm","sample_rate":24000}
			20 s bin 960
			30 c {"type":"session.close"}
			31 s close 1000
			32 c close 1000
			33 s fin`},
	} {
		t.Run(v.name, func(t *testing.T) {
			g := replayed(t, "/v1/other").play(v.script)
			g.s.Finish(ms(50))
			g.check()
			if r := g.turns()[0]; r.Terminal.State != "client-cancelled" {
				t.Errorf("%s (by %s), want client-cancelled", told(r), r.Terminal.By)
			}
		})
	}
}

// TestCloseFrameAheadOfTheTurn: what the server sent before it saw the client's
// close frame is a turn that the client left.
func TestCloseFrameAheadOfTheTurn(t *testing.T) {
	g := replayed(t, "/v1/realtime").play("5 s " + openai + "\n10 c " + create + "\n15 c close 1000\n16 s " + created("r1") + "\n17 s " + delta("r1") + "\n18 s close 1000\n19 s fin\n20 c fin")
	g.want("0 response.create in@10 body@10 text@17 term@15 (response_created@16) client-cancelled client_closed")
}

// TestErrorOfOldDoesNotFailTheLast: an ask at the end is not refused by what the
// server said of something else before it came.
func TestErrorOfOldDoesNotFailTheLast(t *testing.T) {
	g := replayed(t, "/v1/realtime").play("5 s " + openai + `
		10 s {"type":"error","error":{"type":"invalid_request_error","code":"unknown_event","message":"m"}}
		90000 c ` + create + `
		90010 c close 1000
		90011 s close 1000
		90012 s fin`)
	g.want("0 response.create in@90000 body@90000 term@90010 client-cancelled client_closed")
}

// TestErrorThatIsNotFatal: the session lives on (wire/sglang-omni.md section 6b),
// and the client that leaves the turn afterwards has left it.
func TestErrorThatIsNotFatal(t *testing.T) {
	g := replayed(t, "/v1/realtime").play("5 s " + shared + "\n10 c " + commit + "\n20 s " + created("r1") + `
		25 s {"type":"error","sglang":{"fatal":false},"error":{"type":"invalid_request_error","code":"bad","message":"m","event_id":"x9"}}
		30 s ` + delta("r1") + `
		40 c close 1000
		41 s fin`)
	g.want("0 commit in@10 body@10 text@30 term@40 (response_created@20) client-cancelled client_closed")
}

// TestCommitWithoutAnswer: where a commit is what asks, its turn is never dropped
// (contract section 5: nothing is dropped from the attempts).
func TestCommitWithoutAnswer(t *testing.T) {
	for name, description := range map[string]string{"duplex": duplex, "shared": shared} {
		t.Run(name, func(t *testing.T) {
			replayed(t, "/v1/realtime").play("5 s " + description + "\n10 c " + commit + "\n20 s rst").want("0 commit in@10 body@10 term@20 transport-error reset_before_answer")
		})
	}
}

// TestNothingTellsWhatAsked: a realtime answer counts from response.created, and
// says so: that comes behind all queueing.
func TestNothingTellsWhatAsked(t *testing.T) {
	g := replayed(t, "/v1/realtime").play("5 s " + openai + "\n" + answer("r1", 20))
	g.s.Finish(ms(100))
	if r := g.turns()[0]; r.TInSource == nil || *r.TInSource != "response_created" {
		t.Errorf("TTFT %v ms from %v", *r.TTFTMS, r.TInSource)
	}
}

func TestOverIsBounded(t *testing.T) {
	g := replayed(t, "/v1/duplex").play("5 s " + duplex)
	for i := range 2000 {
		g.play(answer(fmt.Sprint("r", i), 10+40*i))
		if len(g.s.over) > maxOver {
			t.Fatalf("%d keys after %d turns", len(g.s.over), i)
		}
	}
	g.s.Finish(ms(1_000_000))
	g.check()
}

// TestLateOutputAtTheBound: the turn just over stays known when others are
// forgotten.
func TestLateOutputAtTheBound(t *testing.T) {
	g := replayed(t, "/v1/duplex").play("5 s " + duplex)
	n := 0
	for ; n < maxOver+1; n++ {
		g.play(answer(fmt.Sprint("r", n), 10+40*n))
	}
	g.play("20000 s " + audio(fmt.Sprint("r", n-2)))
	g.s.Finish(ms(1_000_000))
	if len(g.records) != n {
		t.Errorf("%d turns, want %d: late sound of the turn before the last made one", len(g.records), n)
	}
}

func TestAsksAreBounded(t *testing.T) {
	g := replayed(t, "/v1/duplex").play("5 s " + duplex)
	for i := range 2 * maxAsks {
		g.play(fmt.Sprintf("%d c %s", 10+i, commit))
	}
	if n := len(g.s.asks); n != maxAsks {
		t.Errorf("%d asks are kept", n)
	}
	g.s.Finish(ms(1_000_000))
	g.check()
	g.flags("asks_dropped", "no_close_frame")
	if len(g.records) != maxAsks {
		t.Errorf("%d records", len(g.records))
	}
}

// TestInputOfATurn: what was heard since the turn before, and at which pace.
func TestInputOfATurn(t *testing.T) {
	chunk := `{"type":"input_audio_buffer.append","audio":"$1600"}`
	g := replayed(t, "/v1/realtime").play("5 s " + conversation + "\n100 c " + chunk + "\n200 c " + chunk + "\n300 c " + chunk + "\n310 s " + stopped + "\n" + answer("r1", 320) + "400 c " + chunk + "\n410 s " + stopped + "\n" + answer("r2", 420))
	g.s.Finish(ms(1000))
	g.check()
	r := g.turns()
	if in := r[0].Input; in == nil || in.Messages != 3 || in.Bytes != 9600 || in.AudioS != .3 || in.SpanMS != 200 || in.Pace == nil || *in.Pace < .999 || *in.Pace > 1.001 {
		t.Errorf("%+v", in)
	}
	if in := r[1].Input; in == nil || in.Messages != 1 || in.AudioS != .1 || in.Pace != nil {
		t.Errorf("%+v", in)
	}
	if l := g.line(); l.InputAudioS == nil || *l.InputAudioS != .4 || *l.InputRate != 16000 {
		t.Errorf("%v s at %v", l.InputAudioS, l.InputRate)
	}
}

// TestCancelCounts: case C51.
func TestCancelCounts(t *testing.T) {
	g := replayed(t, "/v1/realtime").play("5 s " + conversation + "\n10 s " + stopped + "\n20 s " + created("r1") + "\n30 s " + audio("r1") + "\n1000 s " + started + "\n1010 s " + audio("r1") + "\n1300 s " + audio("r1") +
		"\n1320 s {\"type\":\"response.done\",\"response\":{\"id\":\"r1\",\"status\":\"cancelled\",\"status_details\":{\"reason\":\"turn_detected\"}}}")
	g.want("0 server_vad in@10 audio@30 term@1320 (response_created@20) client-cancelled interrupted")
	c := g.records[0].Cancel
	if c == nil || c.By != "speech" || c.AtNS != ms(1000) || c.ChunksAfter != 2 || c.SamplesAfter != 960 || c.ToSilenceMS == nil || *c.ToSilenceMS != 300 {
		t.Errorf("%+v", c)
	}
}

// TestMixedNames: case C50.
func TestMixedNames(t *testing.T) {
	old := `{"type":"response.audio.delta","response_id":"r1","delta":"$480"}`
	g := replayed(t, "/v1/realtime").play("5 s " + duplex + "\n20 s " + created("r1") + "\n30 s " + old + "\n40 s " + audio("r1") + "\n50 s " + done("r1", "completed"))
	g.want("0 audio@30 term@50 (response_created@20) success done").flags("mixed_event_names", "no_close_frame")
	if n := *g.records[0].Audio.Samples; n != 960 {
		t.Errorf("%d samples", n)
	}
}

// TestUnknownSoundIsNoVerdict: case C50.
func TestUnknownSoundIsNoVerdict(t *testing.T) {
	g := replayed(t, "/v1/realtime").play(`
		4 c {"type":"session.update","session":{"modalities":["text","audio"]}}
		5 s ` + duplex + "\n10 c " + commit + "\n20 s " + created("r1") + "\n30 s " + delta("r1") + "\n31 s {\"type\":\"response.blob.delta\",\"response_id\":\"r1\",\"blob\":\"$480\"}\n40 s " + done("r1", "completed"))
	g.want("0 commit in@10 body@10 text@30 term@40 (response_created@20) harness-error unknown_events").flags("no_close_frame", "unknown_events")
}
