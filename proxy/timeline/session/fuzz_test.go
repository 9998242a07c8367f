package session

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// paths and opening messages of the fuzzed sessions, and what may come in them.
var (
	fuzzPaths = []string{"/v1/other", "/v1/realtime", "/v1/duplex", "/v1/audio/speech/stream", "/v1/video/chat/stream", "/v1/realtime/video"}
	fuzzHeads = []string{"", duplex, conversation, shared, openai, turnBased, segmented, `{"type":"session.configured","session_id":"speech_ws_1"}`, `{"type":"response.start"}`, `{"type":"video.start","request_id":"v"}`, `{"type":"audio.start","utterance_index":0,"sentence_index":0,"format":"pcm","sample_rate":24000}`}
	fuzzSteps = steps()
)

func steps() []string {
	var out []string
	add := func(lines ...string) { out = append(out, lines...) }
	for _, id := range []string{"r1", "r2", "r3"} {
		add("s "+created(id), "s "+delta(id), "s "+audio(id), "s "+done(id, "completed"), "s "+done(id, "cancelled"), "s "+done(id, "failed"),
			`s {"type":"response.audio.done","response_id":"`+id+`"}`, `s {"type":"response.output_text.done","response_id":"`+id+`","text":"Hi"}`,
			`s {"type":"response.reasoning.delta","response_id":"`+id+`","delta":"hm"}`, `s {"type":"response.blob","response_id":"`+id+`","b":"$300"}`,
			`c {"type":"response.cancel","response_id":"`+id+`"}`)
	}
	for n := range 3 {
		u := fmt.Sprintf(`"utterance_index":%d,"sentence_index":0`, n)
		add(`s {"type":"audio.start",`+u+`,"format":"pcm","sample_rate":24000}`, `s {"type":"audio.done",`+u+`,"total_bytes":960,"error":false}`, `s {"type":"audio.done",`+u+`,"total_bytes":0,"error":true}`,
			`s {"type":"audio.chunk",`+u+`,"sample_rate":16000,"audio_b64":"$480"}`, fmt.Sprintf(`s {"type":"session.done","utterance_index":%d,"total_sentences":%d}`, n, n),
			fmt.Sprintf(`s {"type":"audio.start","id":"speech_ws_1-%d","sentence_index":%d,"sentence_text":"Hi.","format":"pcm","sample_rate":24000}`, n, n),
			fmt.Sprintf(`s {"type":"audio.done","id":"speech_ws_1-%d","sentence_index":%d,"total_bytes":960,"error":false}`, n, n),
			fmt.Sprintf(`s {"type":"transcription.segment","segment_id":%d,"text":"The","is_final":false,"event_index":%d}`, n, n+2), fmt.Sprintf(`s {"type":"transcription.segment","segment_id":%d,"text":"","is_final":true}`, n),
			fmt.Sprintf(`s {"type":"input_audio_buffer.speech_started","segment_id":%d}`, n), fmt.Sprintf(`s {"type":"input_audio_buffer.speech_stopped","segment_id":%d}`, n), fmt.Sprintf(`s {"type":"input_audio_buffer.committed","segment_id":%d}`, n),
			"s "+numbered(n+1, delta("r1")), "s "+numbered(n+1, created("r2")))
	}
	add("s "+started, "s "+stopped, "s "+hears, "s "+listen, "c "+commit, "c "+create, `c {"type":"response.create","event_id":"e1"}`, `c {"type":"response.cancel"}`,
		`c {"type":"input_audio_buffer.append","audio":"$160"}`, `c {"type":"input_audio_buffer.commit","final":true}`, `c {"type":"input_audio_buffer.commit","final":false}`,
		`c {"type":"session.resume","session_id":"duplex-1"}`, `c {"type":"session.update","session":{"model":"m","modalities":["text","audio"]}}`, `c {"type":"session.config","modalities":["text"]}`,
		`c {"type":"input.text","text":"Hi. Yo."}`, `c {"type":"input.text","text":"x"}`, `c {"type":"input.text","text":"你好。"}`, `c {"type":"input.commit"}`, `c {"type":"input.done"}`, `c {"type":"session.close"}`,
		`c {"type":"video.query","audio_data":"$160"}`, `c {"type":"session.start","model":"v"}`, `c {"type":"transcription.done"}`, `c {"type":"x"}`,
		`s {"type":"error","message":"no"}`, `s {"type":"error","error":"no","code":"processing_error"}`, `s {"type":"error","error":"no","code":"model_not_validated"}`, `s {"type":"error","error":{"type":"invalid_request_error","event_id":"e1"}}`, `s {"type":"error","error":{"code":503,"message":"The request queue is full."}}`,
		"s"+chatStart[2:], `s {"type":"response.text.delta","delta":"x"}`, `s {"type":"response.text.done","text":"x"}`, `s {"type":"response.audio.delta","data":"$240"}`, `s {"type":"response.audio.delta","audio":"!!!","format":"wav"}`, `s {"type":"response.audio.done"}`, `s {"type":"response.done"}`, `s {"type":"response.created"}`,
		`s {"type":"transcription.delta","delta":"x"}`, `s {"type":"transcription.done","text":"x"}`, `s {"type":"session.done"}`, `s {"type":"session.closed","reason":"x"}`, `s {"type":"video.frames.consumed","request_id":"v"}`, `s {"type":"strange","b":"$300"}`,
		"s "+duplex, "s "+conversation, "s "+turnBased, `s {"type":"response.function_call_arguments.delta","response_id":"r1","delta":"{"}`,
		"s bin 960", "s bin 0", "s bin 7", "c bin 4", "s ping a", "c pong a", "c ping", "s pong", "sent", "wrote", "s malformed", "c malformed", "s truncated", "c truncated",
		"c close 1000", "s close 1000", "s close 1011 x", "s close 0", "c fin", "s fin", "c rst", "s rst", "shutdown", "capture", "quiet bytes were dropped", "s violation x", "c violation x")
	return out
}

// FuzzSession plays sequences of all messages on all forms. Whatever comes in
// whatever order, each turn gets one record, the session one line, no number is
// negative and each null has its reason.
func FuzzSession(f *testing.F) {
	find := func(step string) byte {
		for i, s := range fuzzSteps {
			if s == step {
				return byte(i)
			}
		}
		f.Fatal(step)
		return 0
	}
	seed := func(path, head byte, steps ...string) {
		data := []byte{path, head}
		for i, s := range steps {
			data = append(data, find(s), byte(10*i%50))
		}
		f.Add(data, true)
		f.Add(data, false)
	}
	seed(2, 1, "c "+commit, "sent", "s "+created("r1"), "s "+delta("r1"), "s "+audio("r1"), "wrote", "s "+done("r1", "completed"), "s fin")
	seed(1, 2, "s "+started, "s "+stopped, "s "+created("r1"), "s "+audio("r1"), "s "+started, "s "+done("r1", "cancelled"), "c close 1000")
	seed(3, 0, `c {"type":"input.text","text":"Hi. Yo."}`, `c {"type":"input.done"}`, `s {"type":"audio.start","utterance_index":0,"sentence_index":0,"format":"pcm","sample_rate":24000}`, "s bin 960", `s {"type":"session.done","utterance_index":1,"total_sentences":1}`)
	seed(3, 7, `c {"type":"input.text","text":"Hi. Yo."}`, `s {"type":"audio.start","id":"speech_ws_1-0","sentence_index":0,"sentence_text":"Hi.","format":"pcm","sample_rate":24000}`, "s bin 960", `s {"type":"audio.done","id":"speech_ws_1-0","sentence_index":0,"total_bytes":960,"error":false}`)
	seed(4, 8, `c {"type":"video.query","audio_data":"$160"}`, `s {"type":"response.text.delta","delta":"x"}`, `s {"type":"response.text.done","text":"x"}`, `s {"type":"error","message":"no"}`)
	seed(1, 5, `c {"type":"input_audio_buffer.commit","final":false}`, `s {"type":"transcription.delta","delta":"x"}`, `c {"type":"input_audio_buffer.commit","final":true}`, `s {"type":"response.audio.done"}`)
	seed(5, 9, `c {"type":"session.start","model":"v"}`, "s bin 960", `s {"type":"session.done"}`)
	f.Fuzz(func(t *testing.T, data []byte, replay bool) {
		if len(data) < 2 || len(data) > 400 {
			return
		}
		mem := &Memory{}
		// a session ahead of it, so that there is something to take up again
		newRig(t, "/v1/duplex", replay, mem).play("3 s " + duplex + "\n4 s " + numbered(2, delta("r1")) + "\n5 s rst").check()
		g := newRig(t, fuzzPaths[int(data[0])%len(fuzzPaths)], replay, mem)
		at := int64(3)
		if head := fuzzHeads[int(data[1])%len(fuzzHeads)]; head != "" {
			g.play(fmt.Sprintf("%d s %s", at, head))
		}
		for i := 2; i+1 < len(data); i += 2 {
			at += int64(data[i+1])
			g.play(fmt.Sprintf("%d %s", at, fuzzSteps[int(data[i])%len(fuzzSteps)]))
			_ = g.s.Busy()
		}
		g.check()
	})
}

// TestRandomSessions does what FuzzSession does over longer sequences, of the
// messages of all forms mixed.
func TestRandomSessions(t *testing.T) {
	if len(fuzzSteps) > 256 {
		t.Fatalf("%d steps: FuzzSession reaches 256", len(fuzzSteps))
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 200 {
		mem := &Memory{}
		for range 2 {
			g := newRig(t, fuzzPaths[r.IntN(len(fuzzPaths))], r.IntN(2) == 0, mem)
			var script strings.Builder
			at := int64(3)
			if head := fuzzHeads[r.IntN(len(fuzzHeads))]; head != "" {
				fmt.Fprintf(&script, "3 s %s\n", head)
			}
			calm := r.IntN(2) == 0 // the ends come rarely
			for range 1 + r.IntN(60) {
				n := len(fuzzSteps)
				if calm {
					n -= 15
				}
				at += int64(r.IntN(40))
				fmt.Fprintf(&script, "%d %s\n", at, fuzzSteps[r.IntN(n)])
			}
			if g.play(script.String()).check(); t.Failed() {
				t.Fatalf("session %d:\n%s", i, script.String())
			}
		}
	}
}
