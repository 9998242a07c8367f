package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// spoken is an utterance of vLLM-Omni's speech stream from at on.
func spoken(at, utterance, sentence int) string {
	return fmt.Sprintf(`
		%d s {"type":"audio.start","utterance_index":%d,"sentence_index":%d,"sentence_text":"x","format":"pcm","sample_rate":24000}
		%d s bin 960
		%d s {"type":"audio.done","utterance_index":%d,"sentence_index":%d,"total_bytes":960,"error":false}
		`, at, utterance, sentence, at+10, at+20, utterance, sentence)
}

func over(at, utterance, sentences int) string {
	return fmt.Sprintf("%d s {\"type\":\"session.done\",\"utterance_index\":%d,\"total_sentences\":%d}\n", at, utterance, sentences)
}

func said(at int, text string) string {
	return fmt.Sprintf("%d c {\"type\":\"input.text\",\"text\":%q}\n", at, text)
}

const (
	speechConfig = "3 c {\"type\":\"session.config\",\"response_format\":\"pcm\",\"stream_audio\":true}\n"
	splitConfig  = "3 c {\"type\":\"session.config\",\"response_format\":\"pcm\",\"stream_audio\":true,\"split_granularity\":\"sentence\"}\n"
	inputDone    = ` c {"type":"input.done"}` + "\n"
)

func TestUtterances(t *testing.T) {
	for _, v := range []struct{ name, script, want string }{
		{"one", speechConfig + said(10, "Hi.") + "12" + inputDone + spoken(20, 0, 0) + over(50, 0, 1), `
			0 input.done in@12 body@12 audio@30 term@50 (input.text@10) success done`},
		{"two, the second said while the first is spoken", speechConfig + said(10, "A") + "12" + inputDone + spoken(20, 0, 0) + said(41, "B") + "42" + inputDone + over(50, 0, 1) + spoken(60, 1, 0) + over(90, 1, 1), `
			0 input.done in@12 body@12 audio@30 term@50 (input.text@10) success done
			1 input.done in@42 body@42 audio@70 term@90 (input.text@41) success done`},
		{"nothing was said", speechConfig + said(10, "Hi.") + "12" + inputDone + spoken(20, 0, 0) + over(50, 0, 1) + "62" + inputDone + over(65, 1, 0), `
			0 input.done in@12 body@12 audio@30 term@50 (input.text@10) success done
			1 input.done in@62 body@62 term@65 success done`},
		{"split, the first sentence begins ahead of the end", splitConfig + said(10, "One. Two") + spoken(20, 0, 0) + "50" + inputDone + spoken(60, 0, 1) + over(90, 0, 2), `
			0 input.text in@10 body@50 audio@30 term@90 (input.done@50) success done`},
		{"an error amid", speechConfig + said(10, "Hi.") + "12" + inputDone + `
			20 s {"type":"audio.start","utterance_index":0,"sentence_index":0,"format":"pcm","sample_rate":24000}
			30 s bin 960
			40 s {"type":"error","message":"Generation failed for utterance 0, sentence 0: fault"}
			41 s {"type":"audio.done","utterance_index":0,"sentence_index":0,"total_bytes":9600,"error":true}
			` + over(42, 0, 1) + said(50, "B") + "52" + inputDone + spoken(60, 1, 0) + over(90, 1, 1), `
			0 input.done in@12 body@12 audio@30 term@42 (input.text@10) server-error server_error
			1 input.done in@52 body@52 audio@70 term@90 (input.text@50) success done`},
		{"never spoken", speechConfig + said(10, "Hi.") + "12" + inputDone + "30 s {\"type\":\"error\",\"message\":\"idle\"}\n31 s rst", `
			0 input.done in@12 body@12 term@30 (input.text@10) server-error server_error`},
		{"an error between utterances", speechConfig + said(10, "Hi.") + "12" + inputDone + spoken(20, 0, 0) + over(50, 0, 1) + "30000 s {\"type\":\"error\",\"message\":\"Idle timeout\"}\n30001 s rst", `
			0 input.done in@12 body@12 audio@30 term@50 (input.text@10) success done`},
		{"words with their times: no binary", speechConfig + said(10, "Hi.") + "12" + inputDone + `
			20 s {"type":"audio.start","utterance_index":0,"sentence_index":0,"format":"pcm","sample_rate":24000}
			30 s {"type":"audio.chunk","utterance_index":0,"sentence_index":0,"sample_rate":24000,"audio_b64":"$480"}
			31 s {"type":"audio.chunk","utterance_index":0,"sentence_index":0,"sample_rate":24000,"audio_b64":""}
			41 s {"type":"audio.done","utterance_index":0,"sentence_index":0,"total_bytes":960,"error":false}
			` + over(42, 0, 1), `
			0 input.done in@12 body@12 audio@30 term@42 (input.text@10) success done`},
	} {
		t.Run(v.name, func(t *testing.T) {
			replayed(t, "/v1/audio/speech/stream").play(v.script).want(v.want)
		})
	}
}

// TestTextBehindTheFirstSentence: in split mode text goes on coming while the
// first sentence is spoken; the end of the input is that of the same utterance.
func TestTextBehindTheFirstSentence(t *testing.T) {
	replayed(t, "/v1/audio/speech/stream").play(splitConfig + said(10, "One.") + spoken(20, 0, 0) + said(45, " Two.") + "50" + inputDone + spoken(60, 0, 1) + over(90, 0, 2) +
		said(60000, "Three.") + "60002" + inputDone + spoken(60010, 1, 0) + over(60040, 1, 1)).want(`
		0 input.text in@10 body@50 audio@30 term@90 (input.done@50) success done
		1 input.done in@60002 body@60002 audio@60020 term@60040 (input.text@60000) success done`)
}

// TestErrorAheadOfAudioStart: it and what the server says of the utterance
// afterwards are one turn, the session's first as any other.
func TestErrorAheadOfAudioStart(t *testing.T) {
	failed := func(at, n int) string {
		return fmt.Sprintf(`
			%d s {"type":"error","message":"voice not found"}
			%d s {"type":"audio.done","utterance_index":%d,"sentence_index":0,"total_bytes":0,"error":true}
			`, at, at+1, n) + over(at+2, n, 1)
	}
	t.Run("first", func(t *testing.T) {
		replayed(t, "/v1/audio/speech/stream").play(speechConfig + said(10, "Hi.") + "12" + inputDone + failed(15, 0)).want(`
			0 input.done in@12 body@12 term@17 (input.text@10) server-error server_error`)
	})
	t.Run("second", func(t *testing.T) {
		replayed(t, "/v1/audio/speech/stream").play(speechConfig + said(10, "Hi.") + "12" + inputDone + spoken(20, 0, 0) + over(50, 0, 1) + said(60, "Hi.") + "62" + inputDone + failed(65, 1)).want(`
			0 input.done in@12 body@12 audio@30 term@50 (input.text@10) success done
			1 input.done in@62 body@62 term@67 (input.text@60) server-error server_error`)
	})
}

// TestEmptyUtteranceFirst: the server's first word is that there is nothing.
func TestEmptyUtteranceFirst(t *testing.T) {
	replayed(t, "/v1/audio/speech/stream").play(speechConfig + "12" + inputDone + over(15, 0, 0)).want(`
		0 input.done in@12 body@12 term@15 success done`)
}

// TestErrorAboutAMessage: audio.done says that the sentence itself is whole.
func TestErrorAboutAMessage(t *testing.T) {
	g := replayed(t, "/v1/audio/speech/stream").play(configured + said(10, "Hello.") + `
		12 s {"type":"error","message":"binary frames are not taken","error_type":"invalid_request_error"}
		` + sentence(20, 0, "Hello."))
	g.s.Finish(ms(100))
	if r := g.turns()[0]; len(g.records) != 1 || r.Terminal.State != timeline.Success {
		t.Errorf("%s, want the sentence to be a success", told(r))
	}
}

const configured = "5 s {\"type\":\"session.configured\",\"session_id\":\"speech_ws_1\",\"response_format\":\"pcm\",\"stream_audio\":true,\"split_granularity\":\"sentence\"}\n"

// sentence is a sentence of SGLang-Omni's speech stream from at on.
func sentence(at, n int, text string) string {
	return fmt.Sprintf(`
		%d s {"type":"audio.start","id":"speech_ws_1-%d","sentence_index":%d,"sentence_text":%q,"format":"pcm","sample_rate":24000}
		%d s bin 960
		%d s {"type":"audio.done","id":"speech_ws_1-%d","sentence_index":%d,"total_bytes":960,"error":false}
		`, at, n, n, text, at, at+10, n, n)
}

// asked gives of each turn what asked for it and when.
func (g *rig) asked() string {
	g.t.Helper()
	g.s.Finish(ms(1_000_000))
	g.check()
	var out []string
	for _, r := range g.turns() {
		source, at := "-", int64(0)
		if r.Points.TIn != nil {
			source, at = *r.TInSource, *r.Points.TIn/1e6
		}
		out = append(out, fmt.Sprintf("%s@%d", source, at))
	}
	return strings.Join(out, " ")
}

func TestSentencesFindTheirMessage(t *testing.T) {
	commit := ` c {"type":"input.commit"}` + "\n"
	end := "900 s {\"type\":\"session.done\",\"session_id\":\"speech_ws_1\",\"total_sentences\":1}\n"
	for _, v := range []struct{ name, script, want string }{
		{"in one message", said(10, "Hello there.") + sentence(20, 0, "Hello there."), "input.text@10"},
		{"over two messages", said(10, "Hello") + said(15, " there.") + sentence(20, 0, "Hello there."), "input.text@15"},
		{"two in one message", said(10, "Yes. No.") + sentence(20, 0, "Yes.") + sentence(50, 1, "No."), "input.text@10 input.text@10"},
		{"a rest that is committed", said(10, "Hi. And") + sentence(20, 0, "Hi.") + "40" + commit + sentence(50, 1, "And"), "input.text@10 input.commit@40"},
		{"a rest at the end", said(10, "Hi. And") + sentence(20, 0, "Hi.") + "40" + inputDone + sentence(50, 1, "And"), "input.text@10 input.done@40"},
		{"commit and end: what came first", said(10, "And") + "20" + commit + "30" + inputDone + sentence(50, 0, "And"), "input.commit@20"},
		{"committed, then more text", said(10, "And") + "20" + commit + sentence(25, 0, "And") + said(40, " more") + "50" + inputDone + sentence(60, 1, "more"), "input.commit@20 input.done@50"},
		{"commit behind a whole sentence asks for nothing", said(10, "Hi.") + "12" + commit + sentence(20, 0, "Hi.") + said(40, "Yo.") + sentence(50, 1, "Yo."), "input.text@10 input.text@40"},
		{"repeated", said(10, "Yes.") + said(20, " Yes.") + said(30, " Yes.") + sentence(40, 0, "Yes.") + sentence(60, 1, "Yes.") + sentence(80, 2, "Yes."), "input.text@10 input.text@20 input.text@30"},
		{"repeated in one", said(10, "Yes. Yes.") + said(20, " Yes.") + sentence(40, 0, "Yes.") + sentence(60, 1, "Yes.") + sentence(80, 2, "Yes."), "input.text@10 input.text@10 input.text@20"},
		{"Chinese", said(10, "你好。再") + said(20, "见！") + sentence(40, 0, "你好。") + sentence(60, 1, "再见！"), "input.text@10 input.text@20"},
		{"decimals split too", said(10, "It is 3.") + said(20, "5 km.") + sentence(40, 0, "It is 3.") + sentence(60, 1, "5 km."), "input.text@10 input.text@20"},
		{"a decimal in one", said(10, "It is 3.5 km.") + sentence(40, 0, "It is 3.") + sentence(60, 1, "5 km."), "input.text@10 input.text@10"},
		{"trimmed", said(10, "  Hi. \n ") + said(20, "\n Yo. ") + sentence(40, 0, "Hi.") + sentence(60, 1, "Yo."), "input.text@10 input.text@20"},
		{"a text that is never spoken lies between", said(10, "...") + said(20, "Hi.") + sentence(40, 0, "Hi."), "input.text@20"},
		{"said long before the form is known", "", ""},
		{"never said", sentence(40, 0, "Where is this from?"), "-@0"},
		{"empty messages", said(10, "") + said(11, "Hi.") + said(12, "") + sentence(20, 0, "Hi."), "input.text@11"},
	} {
		t.Run(v.name, func(t *testing.T) {
			g := replayed(t, "/v1/audio/speech/stream").play(configured + v.script + end)
			if got := g.asked(); got != v.want {
				t.Errorf("%s, want %s", got, v.want)
			}
		})
	}
}

// TestClausesOnlyWhereTheyAreAskedFor: with split_granularity sentence a comma ends
// nothing, so the end of the input asked.
func TestClausesOnlyWhereTheyAreAskedFor(t *testing.T) {
	clause := strings.Replace(configured, "sentence", "clause", 1)
	script := said(10, "Well, yes,") + "5000" + inputDone + sentence(5010, 0, "Well, yes,")
	if got := replayed(t, "/v1/audio/speech/stream").play(configured + script).asked(); got != "input.done@5000" {
		t.Errorf("sentences: %s", got)
	}
	if got := replayed(t, "/v1/audio/speech/stream").play(clause + said(10, "Well, yes,") + sentence(20, 0, "Well,") + sentence(50, 1, "yes,")).asked(); got != "input.text@10 input.text@10" {
		t.Errorf("clauses: %s", got)
	}
}

// TestTextThatTheServerRewrites: where the spoken text is not what was said there
// is no telling which message asked, and a guess is no measurement.
func TestTextThatTheServerRewrites(t *testing.T) {
	script := configured + said(10, "Dr Who 1st.") + said(2000, " Next one.") + sentence(2010, 0, "Doctor Who first.") + sentence(2040, 1, "Next one.")
	if got := replayed(t, "/v1/audio/speech/stream").play(script).asked(); got != "-@0 input.text@2000" {
		t.Errorf("%s, want no t_in for the first", got)
	}
}

func TestSentences(t *testing.T) {
	for _, v := range []struct{ name, script, want string }{
		{"two, with the end of the one before", configured + said(10, "Yes. No.") + sentence(20, 0, "Yes.") + sentence(50, 1, "No."), `
			0 input.text in@10 body@10 audio@20 term@30 success done
			1 input.text in@10 body@10 audio@50 term@60 (previous_done@30) success done`},
		{"one fails, the next does not", configured + said(10, "Yes. No.") + `
			20 s {"type":"audio.start","id":"speech_ws_1-0","sentence_index":0,"sentence_text":"Yes.","format":"pcm","sample_rate":24000}
			21 s bin 960
			30 s {"type":"error","message":"toy fault","error_type":"server_error"}
			31 s {"type":"audio.done","id":"speech_ws_1-0","sentence_index":0,"total_bytes":0,"error":true}
			` + sentence(50, 1, "No."), `
			0 input.text in@10 body@10 audio@21 term@31 server-error server_error
			1 input.text in@10 body@10 audio@50 term@60 (previous_done@31) success done`},
		{"failed without a word", configured + said(10, "Yes.") + `
			20 s {"type":"audio.start","id":"speech_ws_1-0","sentence_index":0,"sentence_text":"Yes.","format":"pcm","sample_rate":24000}
			31 s {"type":"audio.done","id":"speech_ws_1-0","sentence_index":0,"total_bytes":0,"error":true}
			`, `
			0 input.text in@10 body@10 term@31 server-error unit_failed`},
		{"never spoken", configured + said(10, "Yes.") + "20 s fin", `
			0 input.text in@10 body@10 term@20 transport-error closed_before_answer`},
		{"half a sentence that nobody finished", configured + said(10, "Yes") + "20 s fin", ""},
		{"half a sentence, committed", configured + said(10, "Yes") + "12" + ` c {"type":"input.commit"}` + "\n20 s fin", `
			0 input.commit in@12 body@12 term@20 transport-error closed_before_answer`},
		{"half spoken", configured + said(10, "Yes.") + `
			20 s {"type":"audio.start","id":"speech_ws_1-0","sentence_index":0,"sentence_text":"Yes.","format":"pcm","sample_rate":24000}
			21 s bin 960
			30 s rst
			`, `
			0 input.text in@10 body@10 audio@21 term@30 transport-error reset`},
		{"an error between sentences", configured + said(10, "Yes.") + sentence(20, 0, "Yes.") + "40 s {\"type\":\"error\",\"message\":\"idle\",\"error_type\":\"timeout\"}\n41 s fin", `
			0 input.text in@10 body@10 audio@20 term@30 success done`},
	} {
		t.Run(v.name, func(t *testing.T) {
			replayed(t, "/v1/audio/speech/stream").play(v.script).want(v.want)
		})
	}
}

func TestTextIsBounded(t *testing.T) {
	g := replayed(t, "/v1/audio/speech/stream").play(configured)
	for i := range 20 {
		g.play(said(10+i, strings.Repeat("a", 100<<10)))
	}
	if u := g.s.tracker.(*sentences); len(u.text) > maxText {
		t.Errorf("%d bytes are kept", len(u.text))
	}
	g.flags("no_close_frame", "text_dropped")
}

// TestPiecesAreBounded: messages without text weigh too.
func TestPiecesAreBounded(t *testing.T) {
	for name, message := range map[string]string{"commits": `{"type":"input.commit"}`, "empty text": `{"type":"input.text","text":""}`} {
		t.Run(name, func(t *testing.T) {
			g := replayed(t, "/v1/audio/speech/stream").play(configured)
			for i := range 10 * maxAsks {
				g.play(fmt.Sprintf("%d c %s", 10+i, message))
			}
			if n := len(g.s.tracker.(*sentences).pieces); n > maxAsks {
				t.Errorf("%d pieces are kept, all looked at by each write", n)
			}
		})
	}
}

// TestBusyWithSentences: what was asked for and is not spoken is under way.
func TestBusyWithSentences(t *testing.T) {
	g := replayed(t, "/v1/audio/speech/stream").play(configured)
	if g.s.Busy() {
		t.Error("busy with nothing")
	}
	if g.play(said(10, "Hello.")); !g.s.Busy() {
		t.Error("a whole sentence waits, and the session says that it rests")
	}
	if g.play(sentence(20, 0, "Hello.")); g.s.Busy() {
		t.Error("busy with what is over")
	}
	if g.play(said(50, "Half")); g.s.Busy() {
		t.Error("busy with half a sentence")
	}
}

// TestFilesOfUtterances: one binary message is one file, whose declared bytes are
// the file's.
func TestFilesOfUtterances(t *testing.T) {
	g := replayed(t, "/v1/audio/speech/stream").play("3 c {\"type\":\"session.config\",\"response_format\":\"mp3\"}\n" + said(10, "Hi.") + "12" + inputDone + `
		20 s {"type":"audio.start","utterance_index":0,"sentence_index":0,"sentence_text":"x","format":"mp3"}
		30 s bin 960
		40 s {"type":"audio.done","utterance_index":0,"sentence_index":0,"total_bytes":960,"error":false}
		` + over(50, 0, 1))
	g.s.Finish(ms(60))
	g.check()
	r := g.turns()[0]
	if r.TTFAMS != nil || r.AudioS != nil || r.Terminal.State != timeline.Success || r.Audio == nil || r.Audio.Bytes != 960 {
		t.Errorf("%s: %+v", told(r), r.Audio)
	}
}

// TestRewrittenTextIsSpoken: what the server spoke in other words is spoken: it is
// not under way any more, gets no second record, and takes no room.
func TestRewrittenTextIsSpoken(t *testing.T) {
	g := replayed(t, "/v1/audio/speech/stream").play(configured + said(10, "Dr Who 1st.") + sentence(20, 0, "Doctor Who first."))
	if g.s.Busy() {
		t.Error("still busy with it")
	}
	g.play("50 s fin")
	g.s.Finish(ms(60))
	g.check()
	if len(g.records) != 1 {
		t.Errorf("%d records of one sentence", len(g.records))
	}
	g = replayed(t, "/v1/audio/speech/stream").play(configured)
	at := 10
	for range 20 {
		g.play(said(at, strings.Repeat("1st ", 25<<10)+".") + sentence(at+5, 0, "first"))
		at += 50
	}
	g.play(said(at, "Hello.") + sentence(at+5, 1, "Hello."))
	g.s.Finish(ms(int64(at + 90)))
	if r := g.turns()[len(g.records)-1]; r.Points.TIn == nil || *r.Points.TIn != ms(int64(at)) {
		t.Errorf("%s: behind 2 MiB in other words nothing finds its message", told(r))
	}
}
