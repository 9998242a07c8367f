package session

import (
	"fmt"
	"slices"
	"testing"

	"github.com/omnitap/omnitap/proxy/timeline"
)

const (
	turnCommit = ` c {"type":"input_audio_buffer.commit","final":false}` + "\n"
	turnFinal  = ` c {"type":"input_audio_buffer.commit","final":true}` + "\n"
	turnText   = ` s {"type":"transcription.delta","delta":"Sure"}` + "\n"
	turnAudio  = ` s {"type":"response.audio.delta","audio":"$480","format":"pcm16","sample_rate_hz":24000}` + "\n"
	turnDone   = ` s {"type":"response.audio.done","has_audio":true}` + "\n"
	turnSound  = ` c {"type":"input_audio_buffer.append","audio":"$1600"}` + "\n"
)

func generation(at int) string {
	return fmt.Sprintf("%d%s%d%s%d%s", at, turnText, at+10, turnAudio, at+20, turnDone)
}

func turnError(at int, code string) string {
	return fmt.Sprintf("%d s {\"type\":\"error\",\"error\":\"no\",\"code\":%q}\n", at, code)
}

func TestGenerations(t *testing.T) {
	head := "3 s " + turnBased + "\n"
	for _, v := range []struct{ name, script, want string }{
		{"one", head + "10" + turnCommit + "20" + turnSound + "30" + turnFinal + generation(40), `
			0 commit in@10 body@30 text@40 audio@50 term@60 (commit_final@30) success done`},
		{"it answers while the user speaks", head + "10" + turnCommit + "20" + turnSound + "25" + turnText + "30" + turnFinal + generation(40), `
			0 commit in@10 body@30 text@25 audio@50 term@60 (commit_final@30) success done`},
		{"a commit amid is ignored", head + "10" + turnCommit + "30" + turnFinal + "40" + turnText + "45" + turnCommit + generation(50), `
			0 commit in@10 body@30 text@40 audio@60 term@70 (commit_final@30) success done`},
		{"a second commit ahead of the answer", head + "10" + turnCommit + "20" + turnCommit + "30" + turnFinal + generation(40) + "100" + turnCommit + "130" + turnFinal + generation(140), `
			0 commit in@10 body@30 text@40 audio@50 term@60 (commit_final@30) success done
			1 commit in@100 body@130 text@140 audio@150 term@160 (commit_final@130) success done`},
		{"two", head + "10" + turnCommit + "30" + turnFinal + generation(40) + "100" + turnCommit + "130" + turnFinal + generation(140), `
			0 commit in@10 body@30 text@40 audio@50 term@60 (commit_final@30) success done
			1 commit in@100 body@130 text@140 audio@150 term@160 (commit_final@130) success done`},
		{"an engine fault, with its end", head + "10" + turnCommit + "30" + turnFinal + "40" + turnText + turnError(45, "processing_error") + "46 s {\"type\":\"response.audio.done\",\"has_audio\":false}", `
			0 commit in@10 body@30 text@40 term@46 (commit_final@30) server-error server_error`},
		{"a refusal starts none", head + "10" + turnCommit + turnError(15, "model_not_validated") + "100" + turnCommit + "130" + turnFinal + generation(140), `
			0 commit in@10 term@15 invalid-request model_not_validated
			1 commit in@100 body@130 text@140 audio@150 term@160 (commit_final@130) success done`},
		{"a slip amid", head + "10" + turnCommit + turnError(15, "invalid_audio") + "30" + turnFinal + generation(40), `
			0 commit in@10 body@30 text@40 audio@50 term@60 (commit_final@30) success done`},
		{"nothing answers", head + "10" + turnCommit + "30" + turnFinal + "40 s rst", `
			0 commit in@10 body@30 term@40 (commit_final@30) transport-error reset_before_answer`},
		{"the final commit alone asks nothing", head + "10" + turnFinal + "40 s fin", ""},
		{"cut short", head + "10" + turnCommit + "30" + turnFinal + "40" + turnText + "50 s fin", `
			0 commit in@10 body@30 text@40 term@50 (commit_final@30) transport-error cut`},
	} {
		t.Run(v.name, func(t *testing.T) {
			want := v.want
			replayed(t, "/v1/realtime").play(v.script).want(want)
		})
	}
}

func TestInputOfAGeneration(t *testing.T) {
	g := replayed(t, "/v1/realtime").play("3 s " + turnBased + "\n5" + turnSound + "10" + turnCommit + "20" + turnSound + "120" + turnSound + "130" + turnFinal + generation(140))
	g.s.Finish(ms(300))
	g.check()
	if in := g.records[0].Input; in == nil || in.Messages != 2 || in.AudioS != .2 || in.SampleRate != 16000 || in.SampleRateSource != "dialect" {
		t.Errorf("%+v", in)
	}
}

func segment(at, n int, text string, final bool, index int) string {
	return fmt.Sprintf("%d s {\"type\":\"transcription.segment\",\"segment_id\":%d,\"text\":%q,\"is_final\":%v,\"event_index\":%d}\n", at, n, text, final, index)
}

func heardSegment(at, n int, what string, index int) string {
	return fmt.Sprintf("%d s {\"type\":\"input_audio_buffer.%s\",\"segment_id\":%d,\"event_index\":%d}\n", at, what, n, index)
}

func TestSegments(t *testing.T) {
	head := "3 s " + segmented + "\n"
	for _, v := range []struct {
		name, script, want string
		flags              []string
	}{
		{"by voice", head + heardSegment(10, 0, "speech_started", 2) + segment(20, 0, "The", false, 3) + heardSegment(30, 0, "speech_stopped", 4) + heardSegment(31, 0, "committed", 5) + segment(40, 0, "The quick", true, 6), `
			0 server_vad in@30 text@20 term@40 (committed@31) (speech_started@10) success done`, nil},
		{"by the client's commit", head + heardSegment(10, 0, "speech_started", 2) + "30 c " + commit + "\n" + heardSegment(31, 0, "committed", 3) + segment(40, 0, "The", true, 4), `
			0 commit in@30 body@30 text@40 term@40 (committed@31) (speech_started@10) success done`, nil},
		{"silence is final and empty", head + heardSegment(30, 0, "speech_stopped", 2) + segment(40, 0, "", true, 3), `
			0 server_vad in@30 term@40 success done`, nil},
		{"events are missing", head + heardSegment(30, 0, "speech_stopped", 4) + segment(40, 0, "x", true, 5), `
			0 server_vad in@30 text@40 term@40 success done`, []string{"events_missing"}},
		{"cut amid", head + heardSegment(10, 0, "speech_started", 2) + segment(20, 0, "The", false, 3) + "50 s rst", `
			0 text@20 term@50 (speech_started@10) transport-error reset`, nil},
		{"an error", head + heardSegment(10, 0, "speech_started", 2) + "20 s {\"type\":\"error\",\"error\":{\"type\":\"server_error\",\"message\":\"m\"},\"event_index\":3}\n50 s fin", `
			0 term@20 (speech_started@10) server-error server_error`, nil},
	} {
		t.Run(v.name, func(t *testing.T) {
			replayed(t, "/v1/realtime").play(v.script).want(v.want).flags(slices.Sorted(slices.Values(append(v.flags, "no_close_frame")))...)
		})
	}
}

// TestTextOfASegmentIsTheLast: each event holds the whole hypothesis.
func TestTextOfASegmentIsTheLast(t *testing.T) {
	g := replayed(t, "/v1/realtime").play("3 s " + segmented + "\n" + heardSegment(10, 0, "speech_stopped", 2) + segment(20, 0, "The quick fox", false, 3) + segment(40, 0, "The quick", true, 4))
	g.s.Finish(ms(100))
	if r := g.records[0]; *r.TextBytes != 9 || *r.TextUnits != 2 || *r.Points.TText != ms(20) {
		t.Errorf("%d bytes in %d units, %s", *r.TextBytes, *r.TextUnits, told(r))
	}
}

// TestEndOfInputAsksForTheLastSegment: contract section 1 names an end of input
// among what asks.
func TestEndOfInputAsksForTheLastSegment(t *testing.T) {
	replayed(t, "/v1/realtime").play("3 s " + segmented + "\n" + heardSegment(10, 0, "speech_started", 2) + "30 c {\"type\":\"transcription.done\"}\n" + heardSegment(31, 0, "committed", 3) + segment(40, 0, "The", true, 4)).want(`
		0 transcription.done in@30 body@30 text@40 term@40 (committed@31) (speech_started@10) success done`)
}

// TestEventBehindAFinalSegment: what comes late is no new segment.
func TestEventBehindAFinalSegment(t *testing.T) {
	replayed(t, "/v1/realtime").play("3 s " + segmented + "\n" + heardSegment(10, 0, "speech_stopped", 2) + segment(40, 0, "The", true, 3) + heardSegment(41, 0, "committed", 4)).want(`
		0 server_vad in@10 text@40 term@40 success done`)
}

const (
	chatStart = ` s {"type":"response.start"}` + "\n"
	chatText  = ` s {"type":"response.text.delta","delta":"Hel"}` + "\n"
	chatOver  = ` s {"type":"response.text.done","text":"Hello"}` + "\n"
	chatAudio = ` s {"type":"response.audio.delta","data":"$480","format":"pcm16"}` + "\n"
	chatDone  = ` s {"type":"response.audio.done"}` + "\n"
	query     = ` c {"type":"video.query","text":"What?"}` + "\n"
	chatError = ` s {"type":"error","message":"Query processing failed"}` + "\n"
	chatEnd   = ` s {"type":"session.done"}` + "\n"
	textOnly  = `3 c {"type":"session.config","modalities":["text"]}` + "\n"
)

func TestQueries(t *testing.T) {
	for _, v := range []struct{ name, script, want string }{
		{"text and sound", "10" + query + "20" + chatStart + "30" + chatText + "40" + chatOver + "50" + chatAudio + "60" + chatDone, `
			0 video.query in@10 body@10 text@30 audio@50 term@60 success done`},
		{"text behind its end", "10" + query + "20" + chatStart + "30" + chatText + "40" + chatOver + "50" + chatAudio + "55" + chatText + "60" + chatDone, `
			0 video.query in@10 body@10 text@30 audio@50 term@60 success done`},
		{"text alone was asked for", textOnly + "10" + query + "20" + chatStart + "30" + chatText + "40" + chatOver + "100" + query + "120" + chatStart + "130" + chatText + "140" + chatOver, `
			0 video.query in@10 body@10 text@30 term@40 success done
			1 video.query in@100 body@100 text@130 term@140 success done`},
		{"text alone came, then the next", "10" + query + "20" + chatStart + "30" + chatText + "40" + chatOver + "100" + query + "120" + chatStart + "130" + chatText + "140" + chatOver + "200" + chatEnd, `
			0 video.query in@10 body@10 text@30 term@40 success done
			1 video.query in@100 body@100 text@130 term@140 success done`},
		{"text alone came, then the end", "10" + query + "20" + chatStart + "30" + chatText + "40" + chatOver + "90 s rst", `
			0 video.query in@10 body@10 text@30 term@40 success done`},
		{"interrupted by the next", "10" + query + "20" + chatStart + "30" + chatText + "35" + query + "50" + chatStart + "60" + chatText + "70" + chatOver + "80" + chatAudio + "90" + chatDone, `
			0 video.query in@10 body@10 text@30 term@50 client-cancelled interrupted
			1 video.query in@35 body@35 text@60 audio@80 term@90 success done`},
		{"interrupted before it begins", "10" + query + "15" + query + "20" + chatStart + "30" + chatText + "40" + chatOver + "50" + chatAudio + "60" + chatDone, `
			0 video.query in@10 body@10 term@20 client-cancelled interrupted
			1 video.query in@15 body@15 text@30 audio@50 term@60 success done`},
		{"a fault, then the end of the text", "10" + query + "20" + chatStart + "30" + chatText + "40" + chatError + "41" + chatOver + "100" + query + "120" + chatStart + "130" + chatText + "140" + chatOver + "200" + chatEnd, `
			0 video.query in@10 body@10 text@30 term@41 server-error server_error
			1 video.query in@100 body@100 text@130 term@140 success done`},
		{"a fault behind the text", "10" + query + "20" + chatStart + "30" + chatText + "40" + chatOver + "50" + chatError + "100" + query + "120" + chatStart + "130" + chatText + "140" + chatOver + "200" + chatEnd, `
			0 video.query in@10 body@10 text@30 term@50 server-error server_error
			1 video.query in@100 body@100 text@130 term@140 success done`},
		{"nobody asked", "20" + chatStart + "30" + chatText + "40" + chatOver + "50" + chatAudio + "60" + chatDone, `
			0 text@30 audio@50 term@60 success done`},
		{"never begun", "5 s {\"type\":\"video.frame.ack\",\"frame_id\":\"f\"}\n10" + query + "20 s fin", `
			0 video.query in@10 body@10 term@20 transport-error closed_before_answer`},
		{"cut amid", "10" + query + "20" + chatStart + "30" + chatText + "40 s fin", `
			0 video.query in@10 body@10 text@30 term@40 transport-error cut`},
	} {
		t.Run(v.name, func(t *testing.T) {
			replayed(t, "/v1/video/chat/stream").play(v.script).want(v.want)
		})
	}
}

// TestTextOfTheDoneEventAlone: a server that buffers sends one text.done and one
// audio delta (wire/vllm-omni.md section 9, VLLM_VIDEO_ASYNC_CHUNK=off).
func TestTextOfTheDoneEventAlone(t *testing.T) {
	t.Run("text", func(t *testing.T) {
		replayed(t, "/v1/video/chat/stream").play(textOnly + "10" + query + "20" + chatStart + "40" + chatOver).want(`
			0 video.query in@10 body@10 text@40 term@40 success done`)
	})
	t.Run("text and sound", func(t *testing.T) {
		g := replayed(t, "/v1/video/chat/stream").play("10" + query + "20" + chatStart + "40" + chatOver + "50" + chatAudio + "60" + chatDone)
		g.want("0 video.query in@10 body@10 text@40 audio@50 term@60 success done")
		if n := *g.records[0].TextBytes; n != 5 {
			t.Errorf("%d bytes of text, want 5", n)
		}
	})
}

// TestQueryThatFailedEndsAtItsError: not at the query behind it.
func TestQueryThatFailedEndsAtItsError(t *testing.T) {
	t.Run("begun", func(t *testing.T) {
		replayed(t, "/v1/video/chat/stream").play("10" + query + "20" + chatStart + "30" + chatError + "90000" + query + "90020" + chatStart + "90030" + chatText + "90040" + chatOver + "90100" + chatEnd).want(`
			0 video.query in@10 body@10 term@30 server-error server_error
			1 video.query in@90000 body@90000 text@90030 term@90040 success done`)
	})
	t.Run("not begun, the session's first message", func(t *testing.T) {
		replayed(t, "/v1/video/chat/stream").play("10" + query + "30" + chatError + "90000" + query + "90020" + chatStart + "90030" + chatText + "90040" + chatOver + "90100" + chatEnd).want(`
			0 video.query in@10 body@10 term@30 server-error server_error
			1 video.query in@90000 body@90000 text@90030 term@90040 success done`)
	})
}

// TestStartThatCrossesTheNextQuery: the server's response.start was on its way when
// the next query came: there are two starts, so both queries began.
func TestStartThatCrossesTheNextQuery(t *testing.T) {
	g := replayed(t, "/v1/video/chat/stream").play("10" + query + "1000" + query + "1001" + chatStart + "1002" + chatText + "1020" + chatStart + "1030" + chatText + "1040" + chatOver + "1050" + chatAudio + "1060" + chatDone)
	g.s.Finish(ms(2000))
	g.check()
	for _, r := range g.turns() {
		if r.Terminal.State == timeline.Success && (r.Points.TIn == nil || *r.Points.TIn != ms(1000)) {
			t.Errorf("%s: its query came at 1000", told(r))
		}
		if r.Terminal.State != timeline.Success && r.TTFTMS != nil && *r.TTFTMS != 992 {
			t.Errorf("%s: a TTFT of %v ms", told(r), *r.TTFTMS)
		}
	}
}

func TestSpokenQuery(t *testing.T) {
	g := replayed(t, "/v1/video/chat/stream").play("5 c {\"type\":\"audio.chunk\",\"data\":\"$1600\"}\n10 c {\"type\":\"video.query\",\"audio_data\":\"$1600\"}\n20" + chatStart + "30" + chatText + "40" + chatOver + "50" + chatAudio + "60" + chatDone)
	g.want("0 video.query in@10 body@10 text@30 audio@50 term@60 success done")
	in, l := g.records[0].Input, g.line()
	if in == nil || in.Messages != 2 || in.AudioS != .2 {
		t.Errorf("%+v", in)
	}
	if l.InputAudioS == nil || *l.InputAudioS != .2 {
		t.Errorf("the session heard %v s, its turn .2", *l.InputAudioS)
	}
}

const videoStart = ` c {"type":"session.start","prompt":"p","model":"m"}` + "\n"

func TestVideos(t *testing.T) {
	for _, v := range []struct{ name, script, want string }{
		{"whole", "10" + videoStart + "20 s {\"type\":\"video.start\",\"request_id\":\"v1\"}\n30 s {\"type\":\"video.chunk_metadata\",\"byte_length\":5}\n31 s bin 500\n40 s {\"type\":\"session.done\",\"chunks\":1}", `
			0 session.start in@10 body@10 term@40 success done`},
		{"refused", "10" + videoStart + "20 s {\"type\":\"error\",\"message\":\"no\"}\n21 s close 1000", `
			0 session.start in@10 body@10 term@20 server-error server_error`},
		{"stopped amid", "10" + videoStart + "20 s {\"type\":\"video.start\",\"request_id\":\"v1\"}\n30 s bin 500\n40 s rst", `
			0 session.start in@10 body@10 term@40 transport-error reset`},
		{"nothing", "10" + videoStart + "40 s fin", `
			0 session.start in@10 body@10 term@40 transport-error closed_before_answer`},
	} {
		t.Run(v.name, func(t *testing.T) {
			replayed(t, "/v1/realtime/video").play(v.script).want(v.want)
		})
	}
}

// TestBytesOfAVideo: what comes is counted in bytes.
func TestBytesOfAVideo(t *testing.T) {
	g := replayed(t, "/v1/realtime/video").play("10" + videoStart + "20 s {\"type\":\"video.start\",\"request_id\":\"v1\"}\n31 s bin 50000\n40 s {\"type\":\"session.done\",\"chunks\":1}")
	g.s.Finish(ms(50))
	if r := g.records[0]; r.BytesDown < 50000 || *r.ServerRequestID != "v1" || *r.Model != "m" {
		t.Errorf("%d bytes down, server id %s", r.BytesDown, *r.ServerRequestID)
	}
	if l := g.line(); l.UnattributedChunks != 0 {
		t.Errorf("%d chunks are nobody's", l.UnattributedChunks)
	}
}

// TestStartsThatCrossSeveralQueries: turns are numbered without a gap, whichever of
// the queries that wait the starts turn out to be of.
func TestStartsThatCrossSeveralQueries(t *testing.T) {
	for waiting := 2; waiting < 6; waiting++ {
		for starts := 1; starts <= waiting; starts++ {
			script := "3" + chatStart
			for i := range waiting {
				script += fmt.Sprint(10+i) + query
			}
			for i := range starts {
				script += fmt.Sprint(100+10*i) + chatStart + fmt.Sprint(105+10*i) + chatText
			}
			script += "200" + chatOver + "210" + chatAudio + "220" + chatDone
			g := replayed(t, "/v1/video/chat/stream").play(script)
			g.s.Finish(ms(1000))
			g.check()
			if t.Failed() {
				t.Fatalf("%d queries, %d starts", waiting, starts)
			}
		}
	}
}
