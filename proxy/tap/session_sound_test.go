package tap_test

import (
	"strings"
	"testing"
)

// TestC25SoundWithoutItsEnd: a response whose text the server ended, and whose sound
// it did not, was cut short, whatever its own end says; so is a turn that has no
// other end than that of its sound.
func TestC25SoundWithoutItsEnd(t *testing.T) {
	const (
		opened = `1 s session.created {"session":{"id":"sess_1","model":"m"}}
			5 c session.update {"session":{"output_modalities":["audio","text"]}}
			10 c response.create
			20 s response.created {"response":{"id":"a"}}
			30 s response.output_audio_transcript.delta {"response_id":"a","delta":"Hi"}
			40 s response.output_audio.delta {"response_id":"a","delta":"@480"}` + "\n"
		soundOver = `50 s response.output_audio.done {"response_id":"a"}` + "\n"
		textOver  = `60 s response.output_audio_transcript.done {"response_id":"a","transcript":"Hi"}` + "\n"
		turnDone  = "\nsession turns=1"
	)
	end := func(status string) string {
		return `70 #e s response.done {"response":{"id":"a","status":"` + status + `"}}
			80 s fin`
	}
	const turnForm = `1 s session.created {"id":"sess-1","created":1}
		2 c session.update {"model":"m"}
		10 c input_audio_buffer.commit {"final":false}
		11 c input_audio_buffer.commit {"final":true}
		20 s transcription.delta {"delta":"Hi"}
		30 s text {"type":"response.audio.delta","audio":"@480","format":"pcm16","sample_rate_hz":24000}
		40 s transcription.done {"text":"Hi"}` + "\n"
	const video = `1 c session.config {"model":"m","modalities":["text","audio"]}
		10 c video.query {"text":"what?"}
		20 s response.start
		30 s response.text.delta {"delta":"A cat"}
		40 s response.text.done {"text":"A cat"}
		50 s response.audio.delta {"data":"@wav24000:480","format":"wav"}` + "\n"
	conversation := strings.NewReplacer("output_audio_transcript", "text", "output_audio", "audio")
	runSessions(t, []sessionCase{
		{
			name: "responses: text ended, sound not", path: pathRealtime, script: opened + textOver + end("completed"),
			want: `turn invalid-output/missing_terminal by=server ev.detail~sound ev.end_marker=true samples=480 text=2 ttfa=30 jct=60 offsets.t_term=>e` + turnDone,
		},
		{name: "responses: both ended", path: pathRealtime, script: opened + soundOver + textOver + end("completed"), want: `turn success/done samples=480` + turnDone},
		{name: "responses: neither ended", path: pathRealtime, script: opened + end("completed"), want: `turn success/done samples=480` + turnDone},
		{name: "responses: sound ended, text not", path: pathRealtime, script: opened + soundOver + end("completed"), want: `turn success/done samples=480` + turnDone},
		{name: "responses: cancelled", path: pathRealtime, script: opened + textOver + end("cancelled"), want: `turn client-cancelled/interrupted samples=480` + turnDone},
		{name: "responses: by its token limit", path: pathRealtime, script: opened + textOver + end("incomplete"), want: `turn success/done +incomplete samples=480` + turnDone},
		{
			name: "responses: no sound at all, and none asked for", path: pathRealtime,
			script: `1 s session.created {"session":{"id":"sess_1","model":"m"}}
				10 c response.create
				20 s response.created {"response":{"id":"a"}}
				30 s response.output_text.delta {"response_id":"a","delta":"Hi"}
				40 s response.output_text.done {"response_id":"a","text":"Hi"}` + "\n" + end("completed"),
			want: `turn success/done audio?no%audio` + turnDone,
		},
		{
			name: "conversation: text ended, sound not", path: pathRealtime,
			script: strings.Replace(conversation.Replace(opened+textOver+end("completed")), `"model":"m"`, `"model":"m","capabilities":{"turn_detection":["server_vad"]}`, 1),
			want:   `turn invalid-output/missing_terminal samples=480 dialect_variant=conversation` + turnDone,
		},
		{
			name: "turn form: text ended, sound not", path: pathRealtime, script: turnForm + `50 s close 1000
				51 s fin`,
			want: `turn invalid-output/missing_terminal by=server samples=480 text=2 ev.close_code=1000` + turnDone,
		},
		{name: "turn form: both", path: pathRealtime, script: turnForm + `50 s response.audio.done {"has_audio":true}
			51 s close 1000
			51 s fin`, want: `turn success/done samples=480` + turnDone},
		{
			name: "video chat: text ended, sound not", path: pathVideo, script: video + `60 s close 1000
				61 s fin`,
			want: `turn invalid-output/missing_terminal by=server samples=480 text=5` + turnDone,
		},
		{name: "video chat: both", path: pathVideo, script: video + `60 s response.audio.done
			61 c video.done
			62 s session.done
			62 s fin`, want: `turn success/done samples=480` + turnDone},
	})
}

// TestC51LateSoundWithoutAnID: while the cancelled response alone is open, late
// sound without an id is its own; behind its end it is nobody's, and never the next
// one's first.
func TestC51LateSoundWithoutAnID(t *testing.T) {
	const (
		begun = `1 s session.created {"session":{"id":"sess_1","model":"m"}}
			5 c response.create
			10 s response.created {"response":{"id":"a"}}
			500 s response.output_audio.delta {"response_id":"a","delta":"@480"}
			1000 c response.cancel` + "\n"
		late = `1010 s response.output_audio.delta {"delta":"@480"}
			1200 s response.output_audio.delta {"delta":"@240"}
			1300 #l s response.output_audio.delta {"delta":"@480"}` + "\n"
		over = `1320 s response.done {"response":{"id":"a","status":"cancelled","status_details":{"reason":"client_cancelled"}}}` + "\n"
		next = `1700 c response.create
			1710 s response.created {"response":{"id":"b"}}
			2300 s response.output_audio.delta {"response_id":"b","delta":"@480"}
			2400 s response.done {"response":{"id":"b","status":"completed"}}
			2500 s fin`
		second = "\nturn success/done in=@1700 ttfa=600 samples=480 chunks=1 cancel?nobody\n"
	)
	runSessions(t, []sessionCase{
		{
			name: "ahead of its end", path: pathRealtime, script: begun + late + over + next,
			want: `turn client-cancelled/interrupted ev.interrupted_by=client_cancelled cancel.by=client cancel.at_ns=@1000 cancel.to_silence_ms=300 cancel.chunks_after=3 ` +
				`cancel.samples_after=1200 samples=1680 chunks=4 ttfa=495` + second + `session turns=2 unattributed_chunks=0 unattributed_samples=0 -unattributed_audio`,
		},
		{
			name: "some behind its end", path: pathRealtime, script: begun + late + over + `1400 s response.output_audio.delta {"delta":"@480"}
				1500 s response.output_audio.delta {"delta":"@100"}` + "\n" + next,
			want: `turn client-cancelled/interrupted cancel.to_silence_ms=300 cancel.samples_after=1200 samples=1680` + second +
				`session turns=2 unattributed_chunks=2 unattributed_samples=580 +unattributed_audio`,
		},
		{
			name: "binary", path: pathRealtime, script: begun + `1010 s bin 480
				1250 s bin 480` + "\n" + over + "1400 s bin 100\n" + next,
			want: `turn client-cancelled/interrupted cancel.to_silence_ms=250 cancel.chunks_after=2 cancel.samples_after=960 samples=1440` + second +
				`session turns=2 unattributed_chunks=1 unattributed_samples=100 +unattributed_audio`,
		},
		{
			name: "empty ones are no sound", path: pathRealtime, script: begun + `1010 s response.output_audio.delta {"delta":""}
				1200 s response.output_audio.delta {"delta":null}` + "\n" + over + next,
			want: `turn client-cancelled/interrupted cancel.to_silence_ms?no%sound cancel.chunks_after=0 cancel.samples_after=0 samples=480 audio.empty_events=2` + second +
				`session turns=2 unattributed_samples=0 -unattributed_audio`,
		},
	})
}

// TestC59DeadlineByTextOverASocket: an error that has no code and whose text speaks
// of a deadline is one of the server's, of low confidence; others stay what they
// were.
func TestC59DeadlineByTextOverASocket(t *testing.T) {
	speech := func(members string) string {
		return `1 c session.config {"response_format":"pcm","stream_audio":true}
			10 c input.done
			20 s audio.start {"utterance_index":0,"sentence_index":0,"sentence_text":"Hi","format":"pcm","sample_rate":24000}
			30 s bin 480
			40 #x s error ` + members + `
			50 s audio.done {"utterance_index":0,"sentence_index":0,"total_bytes":0,"error":true}
			60 s session.done {"utterance_index":0,"total_sentences":1}
			61 s fin`
	}
	responses := func(members string) string {
		return `1 s session.created {"session":{"id":"sess_1","model":"m"}}
			10 c response.create
			20 s response.created {"response":{"id":"a"}}
			30 #x s error ` + members + `
			50 s response.done {"response":{"id":"a","status":"failed"}}
			61 s fin`
	}
	turn := func(members string) string {
		return `1 s session.created {"id":"sess-1","created":1}
			2 c session.update {"model":"m"}
			10 c input_audio_buffer.commit {"final":false}
			11 c input_audio_buffer.commit {"final":true}
			20 #x s error ` + members + `
			50 s response.audio.done {"has_audio":false}
			61 s fin`
	}
	const (
		late = "turn deadline-exceeded/upstream_by_text by=server ev.confidence=low ev.in_stream=true ev.error_offset=>x"
		line = "\nsession turns=1"
	)
	runSessions(t, []sessionCase{
		{name: "speech: timed out", path: pathSpeech, script: speech(`{"message":"Stage 1 timed out after 300 s"}`), want: late + " samples=480" + line},
		{name: "speech: deadline exceeded", path: pathSpeech, script: speech(`{"message":"companion deadline exceeded","partial_audio":true,"action":"discard"}`), want: late + " samples=480" + line},
		{name: "speech: a status of its own", path: pathSpeech, script: speech(`{"message":"Stage 1 timed out","code":504}`), want: "turn deadline-exceeded/upstream ev.confidence=null" + line},
		{name: "speech: something else", path: pathSpeech, script: speech(`{"message":"generation failed"}`), want: "turn server-error/server_error samples=480 ev.confidence=null" + line},
		{name: "responses: deadline exceeded", path: pathRealtime, script: responses(`{"error":{"type":"server_error","message":"Deadline exceeded"}}`), want: late + line},
		{name: "responses: a code in words", path: pathRealtime, script: responses(`{"error":{"type":"server_error","code":"deadline_exceeded","message":"no answer"}}`), want: late + line},
		{name: "responses: a string", path: pathRealtime, script: responses(`{"error":"Request timed out"}`), want: late + line},
		{name: "turn form: timed out", path: pathRealtime, script: turn(`{"error":"Generation timed out"}`), want: late + line},
		{name: "turn form: out of memory, timed out", path: pathRealtime, script: turn(`{"error":"CUDA out of memory; request timed out"}`), want: "turn oom/out_of_memory" + line},
		{
			name: "responses: a value of the client's", path: pathRealtime, script: `1 s session.created {"session":{"id":"sess_1","model":"m"}}
				10 c response.create
				20 s error {"error":{"type":"invalid_request_error","code":"invalid_value","message":"timeout must be positive"}}
				61 s fin`,
			want: "turn invalid-request/invalid_value" + line,
		},
		{
			name: "an idle client", path: pathSpeech, script: `1 c session.config {"response_format":"pcm","stream_audio":true}
				10 c input.done
				30000 s error {"message":"Idle timeout"}
				30001 s fin`,
			want: "turn server-error/server_error" + line,
		},
	})
}
