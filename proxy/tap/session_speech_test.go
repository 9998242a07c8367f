package tap_test

import "testing"

// TestSessionsSpeechVLLM: vLLM-Omni's speech stream, a turn an utterance.
func TestSessionsSpeechVLLM(t *testing.T) {
	const config = `c session.config {"model":"m","response_format":"pcm","stream_audio":true}` + "\n"
	runSessions(t, []sessionCase{
		{
			name: "two utterances", path: pathSpeech, script: config + `
				10 #t c input.text {"text":"Hi"}
				20 #d c input.done
				30 s audio.start {"utterance_index":0,"sentence_index":0,"sentence_text":"Hi","format":"pcm","sample_rate":24000}
				100 #b0 s bin 240
				120 #b s bin 240
				130 s audio.done {"utterance_index":0,"sentence_index":0,"total_bytes":960,"error":false}
				140 #e s session.done {"utterance_index":0,"total_sentences":1}
				150 s bin 48
				200 c input.text {"text":"Yo"}
				210 #d2 c input.done
				220 s audio.start {"utterance_index":1,"sentence_index":0,"sentence_text":"Yo","format":"pcm","sample_rate":24000}
				300 s bin 480
				310 s audio.done {"utterance_index":1,"sentence_index":0,"total_bytes":960,"error":false}
				320 s session.done {"utterance_index":1,"total_sentences":1}
				400 c session.close
				400 s close 1000
				400 c close 1000
				400 s fin
				400 c fin`,
			want: `
				turn success/done src=input.done in=@20 offsets.t_in=>d offsets.t_body=>d also.input.text=@10 ttfa=100 jct=120 ` +
				`offsets.t_audio=>b offsets.t_audio_event=>b0 offsets.t_term=>e samples=480 chunks=2 rate=24000 +rate_assumed flow=speech_ws dialect=vllm-omni ` +
				`audio.chunk_unit=message audio.declared_samples=480 audio.declared_source=done_event model=m turn=0 session_id=r-0 request_id=r-0-t0 status=101
				turn success/done src=input.done in=@210 offsets.t_in=>d2 ttfa=90 jct=110 samples=480 chunks=1 turn=1 request_id=r-0-t1
				session turns=2 states.success=2 close.by=server close.code=1000 close_seen_up=1000 close_seen_down=1000 flow=speech_ws dialect=vllm-omni ` +
				`unattributed_chunks=1 unattributed_samples=48 +unattributed_audio -no_close_frame messages_up=6 messages_down=10 analysis=full input_audio_s?no%sound`,
		},
		{
			name: "split granularity", path: pathSpeech, script: `c session.config {"response_format":"pcm","stream_audio":true,"split_granularity":"sentence"}
				10 #t c input.text {"text":"Hi. "}
				20 c input.text {"text":"Yo. "}
				60 s audio.start {"utterance_index":0,"sentence_index":0,"sentence_text":"Hi.","format":"pcm","sample_rate":24000}
				90 s bin 480
				95 s audio.done {"utterance_index":0,"sentence_index":0,"total_bytes":960,"error":false}
				96 s audio.start {"utterance_index":0,"sentence_index":1,"sentence_text":"Yo.","format":"pcm","sample_rate":24000}
				100 #d c input.done
				110 s bin 480
				120 s audio.done {"utterance_index":0,"sentence_index":1,"total_bytes":960,"error":false}
				130 s session.done {"utterance_index":0,"total_sentences":2}
				200 #t2 c input.text {"text":"Oh"}
				210 #d2 c input.done
				250 s audio.start {"utterance_index":1,"sentence_index":0,"sentence_text":"Oh","format":"pcm","sample_rate":24000}
				290 s bin 480
				295 s audio.done {"utterance_index":1,"sentence_index":0,"total_bytes":960,"error":false}
				296 s session.done {"utterance_index":1,"total_sentences":1}
				300 s fin`,
			want: `
				turn success/done src=input.text in=@10 offsets.t_in=>t points.t_body=@100 offsets.t_body=>d ttfa=80 jct=120 samples=960 also.input.done=@100
				turn success/done src=input.done in=@210 offsets.t_in=>d2 ttfa=80 samples=480
				session turns=2 +no_close_frame close.by=server close.transport=fin`,
		},
		{
			name: "empty input", path: pathSpeech, script: config + `
				10 c input.done
				20 s session.done {"utterance_index":0,"total_sentences":0}
				30 s fin`,
			want: `
				turn success/done src=input.done jct=10 +empty_input audio?no%audio ttfa?
				session turns=1`,
		},
		{
			name: "error, done, and on", path: pathSpeech, script: config + `
				10 c input.text {"text":"Hi"}
				10 c input.done
				20 s audio.start {"utterance_index":0,"sentence_index":0,"sentence_text":"Hi","format":"pcm","sample_rate":24000}
				30 s bin 480
				40 #x s error {"message":"generation failed","partial_audio":true,"action":"discard"}
				50 s audio.done {"utterance_index":0,"sentence_index":0,"total_bytes":0,"error":true}
				60 s session.done {"utterance_index":0,"total_sentences":1}
				110 c input.text {"text":"Hi"}
				110 c input.done
				120 s audio.start {"utterance_index":1,"sentence_index":0,"sentence_text":"Hi","format":"pcm","sample_rate":24000}
				130 s bin 480
				150 s audio.done {"utterance_index":1,"sentence_index":0,"total_bytes":960,"error":false}
				160 s session.done {"utterance_index":1,"total_sentences":1}
				170 s rst`,
			want: `
				turn server-error/server_error by=server ev.error_offset=>x samples=480 ttfa=20
				turn success/done samples=480
				session turns=2 states.success=1 states.server-error=1 errors=0 close.transport=rst`,
		},
		{
			name: "failed unit without an error", path: pathSpeech, script: config + `
				10 c input.text {"text":"Hi"}
				10 c input.done
				20 s audio.start {"utterance_index":0,"sentence_index":0,"sentence_text":"Hi","format":"pcm","sample_rate":24000}
				30 s bin 480
				50 s audio.done {"utterance_index":0,"sentence_index":0,"total_bytes":960,"error":true}
				60 s session.done {"utterance_index":0,"total_sentences":1}
				70 s fin`,
			want: `
				turn server-error/unit_failed samples=480
				session turns=1`,
		},
		{
			name: "word timestamps say the true rate", path: pathSpeech, script: `c session.config {"response_format":"pcm","stream_audio":true,"word_timestamps":true}
				10 c input.text {"text":"Hi"}
				10 c input.done
				20 s audio.start {"utterance_index":0,"sentence_index":0,"sentence_text":"Hi","format":"pcm","sample_rate":24000,"word_timestamps":true}
				50 #a s audio.chunk {"utterance_index":0,"sentence_index":0,"chunk_id":0,"sample_rate":16000,"audio_b64":"@320","timestamps":null}
				60 s audio.chunk {"utterance_index":0,"sentence_index":0,"chunk_id":1,"sample_rate":16000,"audio_b64":"","timestamps":[]}
				70 s audio.done {"utterance_index":0,"sentence_index":0,"total_bytes":640,"error":false}
				71 s audio.start {"utterance_index":0,"sentence_index":1,"sentence_text":"Yo","format":"pcm","sample_rate":24000,"word_timestamps":true}
				80 s audio.chunk {"utterance_index":0,"sentence_index":1,"chunk_id":0,"sample_rate":16000,"audio_b64":"@320","timestamps":null}
				90 s audio.done {"utterance_index":0,"sentence_index":1,"total_bytes":640,"error":false}
				91 s session.done {"utterance_index":0,"total_sentences":2}
				92 s fin`,
			want: `
				turn success/done samples=640 chunks=2 audio.empty_events=1 rate=16000 -rate_assumed ttfa=40 offsets.t_audio=>a audio_s=0.04
				session turns=1`,
		},
		{
			name: "one file", path: pathSpeech, script: `c session.config {"response_format":"wav"}
				10 c input.text {"text":"Hi"}
				10 c input.done
				20 s audio.start {"utterance_index":0,"sentence_index":0,"sentence_text":"Hi","format":"wav"}
				50 s bin wav16000:320
				60 s audio.done {"utterance_index":0,"sentence_index":0,"total_bytes":684,"error":false}
				61 s session.done {"utterance_index":0,"total_sentences":1}
				62 s fin`,
			want: `
				turn success/done samples=320 chunks=1 rate=16000 audio.sample_rate_source=wav_header audio.container=wav -rate_assumed
				session turns=1`,
		},
		{
			name: "a file that is not decoded", path: pathSpeech, script: `c session.config {"response_format":"mp3"}
				10 c input.done
				20 s audio.start {"utterance_index":0,"sentence_index":0,"sentence_text":"Hi","format":"mp3"}
				50 s frame 82 ID3aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
				60 s audio.done {"utterance_index":0,"sentence_index":0,"total_bytes":44,"error":false}
				61 s session.done {"utterance_index":0,"total_sentences":1}
				62 s fin`,
			want: `
				turn success/done samples?codec audio.bytes=44 ttfa?codec audio_s?
				session turns=1`,
		},
		{
			name: "a total that does not add up", path: pathSpeech, script: config + `
				10 c input.done
				20 s audio.start {"utterance_index":0,"sentence_index":0,"sentence_text":"Hi","format":"pcm","sample_rate":24000}
				50 s bin 480
				60 s audio.done {"utterance_index":0,"sentence_index":0,"total_bytes":1200,"error":false}
				61 s session.done {"utterance_index":0,"total_sentences":1}
				62 s fin`,
			want: `
				turn quality-failed/declared_total samples=480 audio.declared_samples=600
				session turns=1`,
		},
		{
			name: "no sound", path: pathSpeech, script: config + `
				10 c input.done
				20 s audio.start {"utterance_index":0,"sentence_index":0,"sentence_text":"Hi","format":"pcm","sample_rate":24000}
				30 s bin 0
				60 s audio.done {"utterance_index":0,"sentence_index":0,"total_bytes":0,"error":false}
				61 s session.done {"utterance_index":0,"total_sentences":1}
				62 s fin`,
			want: `
				turn invalid-output/no_output ttfa? audio.empty_events=1
				session turns=1`,
		},
		{
			name: "a rejected message ahead of the first config", path: pathSpeech, script: `c text {"type":"input.text","text":"Hi"}
				20 s error {"message":"expected session.config"}
				21 s fin`,
			want: `
				turn server-error/server_error in=@0
				session turns=0 errors=1 +errors +no_close_frame flow=speech_ws dialect=unknown`,
		},
		{
			name: "idle time-out between utterances", path: pathSpeech, script: config + `
				10 c input.done
				20 s audio.start {"utterance_index":0,"sentence_index":0,"sentence_text":"Hi","format":"pcm","sample_rate":24000}
				50 s bin 480
				60 s audio.done {"utterance_index":0,"sentence_index":0,"total_bytes":960,"error":false}
				61 s session.done {"utterance_index":0,"total_sentences":1}
				30061 s error {"message":"Idle timeout"}
				30062 s fin`,
			want: `
				turn success/done
				session turns=1 states.success=1 errors=1 +errors +no_close_frame idle_ms=30000`,
		},
		{ // one utterance a connection, no utterance_index: 0.24
			name: "without an utterance's number", path: pathSpeech, script: config + `
				10 c input.text {"text":"Hi. Yo."}
				20 c input.done
				30 s audio.start {"sentence_index":0,"sentence_text":"Hi.","format":"pcm","sample_rate":24000}
				100 s bin 480
				130 s audio.done {"sentence_index":0,"total_bytes":960,"error":false}
				131 s audio.start {"sentence_index":1,"sentence_text":"Yo.","format":"pcm","sample_rate":24000}
				140 s bin 480
				150 s audio.done {"sentence_index":1,"total_bytes":960,"error":false}
				160 s session.done {"total_sentences":2}
				170 s fin`,
			want: `
				turn success/done src=input.done in=@20 ttfa=80 jct=140 samples=960 dialect=vllm-omni
				session turns=1 dialect=vllm-omni`,
		},
		{
			name: "binary ahead of any start", path: pathSpeech, script: config + `
				10 c input.done
				15 s bin 480
				20 s audio.start {"utterance_index":0,"sentence_index":0,"sentence_text":"Hi","format":"pcm","sample_rate":24000}
				50 s bin 480
				60 s audio.done {"utterance_index":0,"sentence_index":0,"total_bytes":960,"error":false}
				61 s session.done {"utterance_index":0,"total_sentences":1}
				62 s fin`,
			want: `
				turn success/done samples=480 ttfa=40
				session turns=1 unattributed_chunks=1 unattributed_samples=480`,
		},
	})
}

// TestSessionsSpeechSGLang: SGLang-Omni's speech stream, a turn a sentence.
func TestSessionsSpeechSGLang(t *testing.T) {
	const config = `c session.config {"model":"m","response_format":"pcm","stream_audio":true}
		1 s session.configured {"session_id":"speech_ws_a","response_format":"pcm","stream_audio":true,"split_granularity":"sentence"}` + "\n"
	runSessions(t, []sessionCase{
		{ // trap 8: the message that completed the sentence, and the end of the one before
			name: "what asks for a sentence", path: pathSpeech, script: config + `
				10 c input.text {"text":"H"}
				20 #dot c input.text {"text":"i. Y"}
				25 c input.text {"text":"o"}
				50 s audio.start {"id":"speech_ws_a-0","sentence_index":0,"sentence_text":"Hi.","format":"pcm","sample_rate":24000}
				50 s bin 480
				60 s audio.done {"id":"speech_ws_a-0","sentence_index":0,"total_bytes":960,"error":false}
				70 #done c input.done
				90 s audio.start {"id":"speech_ws_a-1","sentence_index":1,"sentence_text":"Yo","format":"pcm","sample_rate":24000}
				90 s bin 480
				99 s audio.done {"id":"speech_ws_a-1","sentence_index":1,"total_bytes":960,"error":false}
				100 s session.done {"session_id":"speech_ws_a","total_sentences":2}
				100 s close 1000
				101 c close 1000
				101 s fin`,
			want: `
				turn success/done src=input.text in=@20 offsets.t_in=>dot ttfa=30 jct=40 server_request_id=speech_ws_a-0 dialect=sglang-omni
				turn success/done src=input.done in=@70 offsets.t_in=>done ttfa=20 jct=29 also.previous_done=@60 server_request_id=speech_ws_a-1
				session turns=2 server_session_id=speech_ws_a dialect=sglang-omni close.by=server close.code=1000`,
		},
		{
			name: "two sentences of one message", path: pathSpeech, script: config + `
				10 #t c input.text {"text":"Hi. Yo. "}
				50 s audio.start {"id":"a-0","sentence_index":0,"sentence_text":"Hi.","format":"pcm","sample_rate":24000}
				50 s bin 480
				60 s audio.done {"id":"a-0","sentence_index":0,"total_bytes":960,"error":false}
				90 s audio.start {"id":"a-1","sentence_index":1,"sentence_text":"Yo.","format":"pcm","sample_rate":24000}
				90 s bin 480
				99 s audio.done {"id":"a-1","sentence_index":1,"total_bytes":960,"error":false}
				100 c input.done
				101 s session.done {"session_id":"a","total_sentences":2}
				101 s close 1000
				101 s fin`,
			want: `
				turn success/done in=@10 offsets.t_in=>t ttfa=40
				turn success/done in=@10 offsets.t_in=>t ttfa=80 also.previous_done=@60
				session turns=2`,
		},
		{
			name: "commit", path: pathSpeech, script: config + `
				10 c input.text {"text":"Yo"}
				20 #k c input.commit
				21 s input.committed {"session_id":"a","segment_index":0,"segment_sentences":1,"total_sentences":1}
				50 s audio.start {"id":"a-0","sentence_index":0,"sentence_text":"Yo","format":"pcm","sample_rate":24000}
				50 s bin 480
				60 s audio.done {"id":"a-0","sentence_index":0,"total_bytes":960,"error":false}
				100 c input.done
				101 s session.done {"session_id":"a","total_sentences":1}
				101 s fin`,
			want: `
				turn success/done src=input.commit in=@20 offsets.t_in=>k ttfa=30
				session turns=1`,
		},
		{ // trap 28: total_bytes is 0 on failure, what came is counted
			name: "failures, ahead of the start and amid the sound", path: pathSpeech, script: config + `
				10 #t c input.text {"text":"Hi. Yo. Oh. "}
				30 #x s error {"message":"boom","error_type":"server_error"}
				31 s audio.done {"id":"a-0","sentence_index":0,"total_bytes":0,"error":true}
				50 s audio.start {"id":"a-1","sentence_index":1,"sentence_text":"Yo.","format":"pcm","sample_rate":24000}
				50 s bin 480
				55 s error {"message":"boom","error_type":"server_error"}
				60 s audio.done {"id":"a-1","sentence_index":1,"total_bytes":0,"error":true}
				70 s audio.start {"id":"a-2","sentence_index":2,"sentence_text":"Oh.","format":"pcm","sample_rate":24000}
				70 s bin 480
				75 s audio.done {"id":"a-2","sentence_index":2,"total_bytes":960,"error":false}
				100 c input.done
				101 s session.done {"session_id":"a","total_sentences":3}
				101 s close 1000
				101 s fin`,
			want: `
				turn server-error/server_error in=@10 offsets.t_in=>t ev.error_offset=>x
				turn server-error/server_error samples=480 in=@10
				turn success/done samples=480 in=@10 offsets.t_in=>t
				session turns=3 states.server-error=2 states.success=1`,
		},
		{ // trap 27: a client that floods is dropped without an error, with code 1000
			name: "client flood", path: pathSpeech, script: config + `
				10 c input.text {"text":"Hi. "}
				50 s audio.start {"id":"a-0","sentence_index":0,"sentence_text":"Hi.","format":"pcm","sample_rate":24000}
				50 s bin 480
				51 c input.text {"text":"a"}
				51 c input.text {"text":"b"}
				60 s close 1000
				60 s fin`,
			want: `
				turn invalid-output/missing_terminal by=server samples=480 ev.close_code=1000
				session turns=1 close.by=server close.code=1000`,
		},
		{
			name: "refused configuration", path: pathSpeech, script: `1 c session.config {"response_format":"wav","stream_audio":true}
				5 s error {"message":"streaming needs pcm","error_type":"invalid_request_error"}
				5 s close 1000
				6 c close 1000
				6 s fin`,
			want: `
				turn invalid-request/invalid_request_error in=@0
				session turns=0 errors=1 flow=speech_ws dialect=sglang-omni close.code=1000`,
		},
		{
			name: "asked and never spoken", path: pathSpeech, script: config + `
				10 #t c input.text {"text":"Hi. "}
				50 s fin`,
			want: `
				turn transport-error/closed_before_answer in=@10 offsets.t_in=>t
				session turns=1`,
		},
		{
			name: "text without a sign, never committed", path: pathSpeech, script: config + `
				10 c input.text {"text":"Hi"}
				50 c close 1000
				50 s close 1000
				50 s fin`,
			want: `session turns=0 close.by=client`,
		},
	})
}
