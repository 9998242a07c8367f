package tap_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestSessionsManyEarlyMessages: vLLM-Omni says nothing until it speaks, and a
// client may send its text word by word.
func TestSessionsManyEarlyMessages(t *testing.T) {
	script := "1 c session.config {\"response_format\":\"pcm\",\"stream_audio\":true}\n"
	for i := range 600 {
		script += fmt.Sprintf("%d c input.text {\"text\":\"w%d \"}\n", 10+i, i)
	}
	runSessions(t, []sessionCase{{
		name: "speech", path: pathSpeech, script: script + `700 #d c input.done
			720 s audio.start {"utterance_index":0,"sentence_index":0,"sentence_text":"w","format":"pcm","sample_rate":24000}
			750 s bin 480
			760 s audio.done {"utterance_index":0,"sentence_index":0,"total_bytes":960,"error":false}
			770 s session.done {"utterance_index":0,"total_sentences":1}
			780 s fin`,
		want: `
			turn success/done src=input.done in=@700 offsets.t_in=>d also.input.text=@10 ttfa=50 jct=70
			session turns=1 messages_up=602`,
	}})
}

// TestSessionsPipelined: what a client asks for ahead of time is taken in order.
func TestSessionsPipelined(t *testing.T) {
	const (
		config = `c session.config {"response_format":"pcm","stream_audio":true}
			10 c input.text {"text":"Hi"}
			20 c input.done
			30 c input.text {"text":"Yo"}
			40 c input.done` + "\n"
		second = `
			110 s audio.start {"utterance_index":1,"sentence_index":0,"sentence_text":"Yo","format":"pcm","sample_rate":24000}
			120 s bin 480
			130 s audio.done {"utterance_index":1,"sentence_index":0,"total_bytes":960,"error":false}
			140 s session.done {"utterance_index":1,"total_sentences":1}
			150 s fin`
	)
	runSessions(t, []sessionCase{
		{
			name: "utterances", path: pathSpeech, script: config + `
				60 s audio.start {"utterance_index":0,"sentence_index":0,"sentence_text":"Hi","format":"pcm","sample_rate":24000}
				70 s bin 480
				80 s audio.done {"utterance_index":0,"sentence_index":0,"total_bytes":960,"error":false}
				90 s session.done {"utterance_index":0,"total_sentences":1}` + second,
			want: `
				turn success/done in=@20 ttfa=50
				turn success/done in=@40 ttfa=80
				session turns=2`,
		},
		{
			name: "the first fails ahead of its start", path: pathSpeech, script: config + `
				60 s error {"message":"CUDA out of memory"}
				70 s audio.done {"utterance_index":0,"sentence_index":0,"total_bytes":0,"error":true}
				90 s session.done {"utterance_index":0,"total_sentences":1}` + second,
			want: `
				turn oom/out_of_memory in=@20
				turn success/done in=@40 ttfa=80
				session turns=2`,
		},
		{ // a text session: nothing cuts an answer off
			name: "speech queues up", path: pathRealtime, script: `1 s session.created {"session":{"id":"s1","modalities":["text"],"capabilities":{"turn_detection":["server_vad"]}}}
				10 s input_audio_buffer.speech_stopped {"audio_end_ms":100}
				15 s response.created {"response":{"id":"a"}}
				20 s input_audio_buffer.speech_stopped {"audio_end_ms":200}
				30 s input_audio_buffer.speech_stopped {"audio_end_ms":300}
				40 s response.text.delta {"response_id":"a","delta":"Ah"}
				50 s response.done {"response":{"id":"a","status":"completed"}}
				51 s response.created {"response":{"id":"b"}}
				60 s response.text.delta {"response_id":"b","delta":"Ah"}
				70 s response.done {"response":{"id":"b","status":"completed"}}
				71 s response.created {"response":{"id":"c"}}
				80 s response.text.delta {"response_id":"c","delta":"Ah"}
				90 s response.done {"response":{"id":"c","status":"completed"}}
				99 s fin`,
			want: `
				turn success/done in=@10 ttft=30
				turn success/done in=@20 ttft=40
				turn success/done in=@30 ttft=50
				session turns=3`,
		},
		{ // it ended by itself
			name: "the next query comes just ahead of the end", path: pathVideo, script: `1 c session.config {"modalities":["text","audio"]}
				10 c video.query {"text":"what?"}
				20 s response.start
				30 s response.audio.delta {"data":"@wav24000:480","format":"wav"}
				60 c video.query {"text":"and?"}
				65 s response.audio.done
				70 s response.start
				80 s response.audio.delta {"data":"@wav24000:480","format":"wav"}
				90 s response.audio.done
				95 s fin`,
			want: `
				turn success/done in=@10 jct=55
				turn success/done in=@60 ttfa=20
				session turns=2`,
		},
	})
}

// TestSessionsClientLeaves: a client that ends its session in words amid a turn has
// left, however the server then ends the connection.
func TestSessionsClientLeaves(t *testing.T) {
	const speech = `c session.config {"response_format":"pcm","stream_audio":true}
		10 c input.done
		20 s audio.start {"utterance_index":0,"sentence_index":0,"sentence_text":"Hi","format":"pcm","sample_rate":24000}
		30 s bin 480` + "\n"
	duplex := duplexOpened + "10 c input_audio_buffer.commit\n15 s response.created {\"response_id\":\"r1\",\"response\":{\"id\":\"r1\"}}\n" + duplexDelta(30, "r1", "480")
	runSessions(t, []sessionCase{
		{
			name: "speech", path: pathSpeech, script: speech + "40 c session.close\n50 s close 1000\n50 s fin",
			want: "turn client-cancelled/client_closed by=client samples=480\nsession turns=1",
		},
		{
			name: "speech, and all of it comes", path: pathSpeech, script: speech + `40 c session.close
				50 s audio.done {"utterance_index":0,"sentence_index":0,"total_bytes":960,"error":false}
				60 s session.done {"utterance_index":0,"total_sentences":1}
				61 s close 1000
				61 s fin`,
			want: "turn success/done samples=480\nsession turns=1",
		},
		{
			name: "duplex", path: pathDuplex, script: duplex + "40 c session.close\n50 s session.closed {\"reason\":\"client\"}\n50 s fin",
			want: "turn client-cancelled/client_closed by=client samples=480\nsession turns=1",
		},
		{ // the server ends it in words, and the turn has no end
			name: "the server's own end", path: pathDuplex, script: duplex + "50 s session.expired\n50 s fin",
			want: "turn invalid-output/missing_terminal by=server samples=480\nsession turns=1",
		},
	})
}

// TestSessionsInflatedOverTheBound: a few compressed bytes may be many.
func TestSessionsInflatedOverTheBound(t *testing.T) {
	runSessions(t, []sessionCase{{
		name: "text", ext: "permessage-deflate", maxEvent: 4096, path: pathRealtime,
		script: turnBegun + `30 s z response.output_text.delta {"response_id":"a","delta":"` + strings.Repeat("x", 100_000) + `"}
			40 s z response.output_audio.delta {"response_id":"a","delta":"@480"}
			90 s z response.done {"response":{"id":"a","status":"completed"}}
			91 s fin`,
		want: `
			turn success/done analysis=truncated why~over%4096 ttfa=30 samples?truncated
			session turns=1 analysis=truncated`,
	}})
}
