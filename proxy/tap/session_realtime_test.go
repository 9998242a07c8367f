package tap_test

import "testing"

// TestSessionsTurnRealtime: vLLM-Omni's turn-based realtime, which has no ids.
func TestSessionsTurnRealtime(t *testing.T) {
	const opened = `1 s session.created {"id":"sess-1","created":1}
		2 c session.update {"model":"m"}` + "\n"
	runSessions(t, []sessionCase{
		{ // traps 20, 22: two moments to start from; 16 kHz in, 24 kHz out
			name: "two generations", path: pathRealtime, script: opened + `
				10 #k c input_audio_buffer.commit {"final":false}
				20 c input_audio_buffer.append {"audio":"@zero:1600"}
				120 c input_audio_buffer.append {"audio":"@zero:1600"}
				220 c input_audio_buffer.append {"audio":"@zero:1600"}
				230 c input_audio_buffer.commit {"final":false}
				250 #f c input_audio_buffer.commit {"final":true}
				300 s transcription.delta {"delta":""}
				310 #x s transcription.delta {"delta":"Sure"}
				330 #e0 s text {"type": "response.audio.delta", "audio": "", "format": "pcm16", "sample_rate_hz": 24000}
				340 #a s text {"type": "response.audio.delta", "audio": "@480", "format": "pcm16", "sample_rate_hz": 24000}
				350 s transcription.done {"text":"Sure","usage":{"prompt_tokens":4,"total_tokens":5,"completion_tokens":1}}
				360 #e s text {"type": "response.audio.done", "has_audio": true}
				400 #k2 c input_audio_buffer.commit {"final":false}
				410 c input_audio_buffer.append {"audio":"@zero:1600"}
				420 c input_audio_buffer.commit {"final":true}
				500 s transcription.delta {"delta":"Yes"}
				510 s response.output_audio.delta {"audio":"@480","format":"pcm16","sample_rate_hz":24000}
				520 s response.audio.done {"has_audio":true}
				530 c close 1000 bye
				531 s close 1000 bye
				531 s fin`,
			want: `
				turn success/done src=commit in=@10 offsets.t_in=>k points.t_body=@250 offsets.t_body=>f also.commit_final=@250 ttft=300 ttfa=330 jct=350 ` +
				`offsets.t_text=>x offsets.t_audio_event=>e0 offsets.t_audio=>a offsets.t_term=>e text=4 text_units=1 declared_tokens=1 samples=480 rate=24000 ` +
				`input.sample_rate=16000 input.audio_s=0.3 input.messages=3 input.pace=1 audio.empty_events=1 flow=realtime dialect=vllm-omni dialect_variant=realtime_turn
				turn success/done in=@400 offsets.t_in=>k2 ttft=100 ttfa=110 input.messages=1 input.pace?
				session turns=2 server_session_id=sess-1 model=m input_audio_s=0.4 input_sample_rate=16000 close.by=client close.code=1000 close.reason=bye +mixed_event_names`,
		},
		{
			name: "validation errors", path: pathRealtime, script: `1 s session.created {"id":"sess-1","created":1}
				10 c input_audio_buffer.commit {"final":false}
				12 s error {"error":"validate first","code":"model_not_validated"}
				20 c session.update {"model":"n"}
				22 s error {"error":"no such model","code":"model_not_found"}
				30 c session.update {"model":"m"}
				40 #k c input_audio_buffer.commit {"final":false}
				50 s error {"error":"no such event","code":"unknown_event"}
				60 s transcription.delta {"delta":"Sure"}
				61 s error {"error":"bad audio","code":"invalid_audio"}
				70 s response.audio.delta {"audio":"@480","format":"pcm16","sample_rate_hz":24000}
				80 s response.audio.done {"has_audio":true}
				90 s fin`,
			want: `
				turn invalid-request/model_not_validated by=server in=@10
				turn success/done in=@40 ttft=20 ttfa=30
				session turns=2 states.invalid-request=1 states.success=1 errors=3 +errors`,
		},
		{
			name: "errors then done", path: pathRealtime, script: opened + `
				10 c input_audio_buffer.commit {"final":false}
				20 s transcription.delta {"delta":"Su"}
				30 #x s error {"error":"CUDA out of memory. Tried to allocate","code":"processing_error"}
				40 s response.audio.done {"has_audio":false}
				50 c input_audio_buffer.commit {"final":false}
				60 s error {"error":"boom","code":"processing_error"}
				70 s response.audio.done {"has_audio":false}
				110 c input_audio_buffer.commit {"final":false}
				120 s error {"error":"EngineCore encountered an issue. See stack trace","code":"processing_error"}
				121 s fin`,
			want: `
				turn oom/out_of_memory ev.error_offset=>x text=2
				turn server-error/server_error
				turn worker-lost/engine_dead
				session turns=3`,
		},
		{
			name: "text alone", path: pathRealtime, script: opened + `
				10 c input_audio_buffer.commit {"final":false}
				20 s transcription.delta {"delta":"Su"}
				30 s transcription.done {"text":"Su","usage":{"completion_tokens":1}}
				40 s response.audio.done {"has_audio":false}
				50 s fin`,
			want: `
				turn success/done ttft=10 ttfa? audio?
				session turns=1`,
		},
		{
			name: "neither text nor sound", path: pathRealtime, script: opened + `
				10 c input_audio_buffer.commit {"final":false}
				40 s response.audio.done {"has_audio":false}
				50 s fin`,
			want: `
				turn invalid-output/no_output jct=30 ttft? ttfa?
				session turns=1`,
		},
		{
			name: "sound behind the end belongs to nobody", path: pathRealtime, script: opened + `
				10 c input_audio_buffer.commit {"final":false}
				20 s response.audio.delta {"audio":"@480","format":"pcm16","sample_rate_hz":24000}
				40 s response.audio.done {"has_audio":true}
				50 s response.audio.delta {"audio":"@480","format":"pcm16","sample_rate_hz":24000}
				60 c input_audio_buffer.commit {"final":false}
				70 s response.audio.delta {"audio":"@480","format":"pcm16","sample_rate_hz":24000}
				80 s response.audio.done {"has_audio":true}
				90 s fin`,
			want: `
				turn success/done samples=480 jct=30
				turn success/done samples=480 in=@60 ttfa=10
				session turns=2 unattributed_samples=480 +unattributed_audio`,
		},
		{
			name: "not available", path: pathRealtime, script: `
				5 s error {"error":"realtime is not available","code":"unsupported"}
				6 s close 1008
				6 s fin`,
			want: `
				turn invalid-request/unsupported in=@0
				session turns=0 errors=1 +errors close.code=1008 flow=realtime`,
		},
	})
}

// TestSessionsResponses: OpenAI's style, with response ids and response.create.
func TestSessionsResponses(t *testing.T) {
	const (
		opened = `1 s session.created {"event_id":"e1","session":{"id":"sess_1","model":"m"}}` + "\n"
		sound  = `s response.output_audio.delta {"response_id":"`
	)
	runSessions(t, []sessionCase{
		{
			name: "commit and create", path: pathRealtime, script: opened + `
				5 c session.update {"session":{"output_modalities":["audio","text"]}}
				10 c input_audio_buffer.append {"audio":"@zero:2400"}
				20 c input_audio_buffer.commit
				25 s input_audio_buffer.committed {"item_id":"i1"}
				30 #k c response.create
				35 s response.created {"response":{"id":"resp_1","status":"in_progress"}}
				36 s response.output_item.added {"response_id":"resp_1"}
				37 s response.content_part.added {"response_id":"resp_1"}
				40 #x s response.output_audio_transcript.delta {"response_id":"resp_1","delta":"Ok"}
				60 #a s response.output_audio.delta {"response_id":"resp_1","delta":"@480"}
				80 s response.output_audio.delta {"response_id":"resp_1","delta":"@480"}
				81 s response.output_audio.done {"response_id":"resp_1"}
				82 s response.output_audio_transcript.done {"response_id":"resp_1","transcript":"Ok"}
				90 #e s response.done {"response":{"id":"resp_1","status":"completed","usage":{"output_tokens":7}}}
				95 c close
				96 s close
				96 s fin`,
			want: `
				turn success/done src=response.create in=@30 offsets.t_in=>k also.commit=@20 also.response_created=@35 server_request_id=resp_1 ttft=10 ttfa=30 jct=60 ` +
				`offsets.t_text=>x offsets.t_audio_event=>a offsets.t_audio=>a offsets.t_term=>e rate=24000 audio.sample_rate_source=dialect -rate_assumed declared_tokens=7 ` +
				`input.sample_rate=24000 input.audio_s=0.1 modalities=["audio","text"] dialect=openai flow=realtime
				session turns=1 close_seen_up=0 close_seen_down=0 close.by=client close.code=0 -no_close_frame`,
		},
		{
			name: "voice activity decides", path: pathRealtime, script: opened + `
				10 c input_audio_buffer.append {"audio":"@zero:2400"}
				20 s input_audio_buffer.speech_started {"audio_start_ms":0}
				40 #v s input_audio_buffer.speech_stopped {"audio_end_ms":100}
				45 s input_audio_buffer.committed {"item_id":"i1"}
				50 s response.created {"response":{"id":"resp_1"}}
				51 s conversation.item.input_audio_transcription.delta {"delta":"user"}
				60 s response.output_text.delta {"response_id":"resp_1","delta":""}
				70 s response.output_text.delta {"response_id":"resp_1","delta":"Ok"}
				80 s response.output_audio.delta {"response_id":"resp_1","delta":"@480"}
				90 s response.done {"response":{"id":"resp_1","status":"completed"}}
				91 s fin`,
			want: `
				turn success/done src=server_vad in=@40 offsets.t_in?no%byte t_in_server_offset=>v also.committed=@45 also.response_created=@50 ttft=30 ttfa=40 text=2 jct=50
				session turns=1`,
		},
		{
			name: "refused by event id", path: pathRealtime, script: opened + `
				10 #k c response.create {"event_id":"c1"}
				20 s error {"error":{"type":"invalid_request_error","code":"bad_field","message":"no","event_id":"c1"}}
				30 c response.create {"event_id":"c2"}
				40 s response.created {"response":{"id":"resp_1"}}
				45 s error {"error":{"type":"invalid_request_error","code":"bad_audio","message":"no","event_id":"c9"}}
				60 s response.output_audio.delta {"response_id":"resp_1","delta":"@480"}
				70 s response.done {"response":{"id":"resp_1","status":"completed"}}
				71 s fin`,
			want: `
				turn invalid-request/invalid_request_error in=@10 offsets.t_in=>k
				turn success/done in=@30 ttfa=30 jct=40
				session turns=2`,
		},
		{
			name: "refused while another runs, by event id", path: pathRealtime, script: opened + `
				10 c response.create {"event_id":"c1"}
				20 s response.created {"response":{"id":"resp_1"}}
				30 c response.create {"event_id":"c2"}
				40 s error {"error":{"type":"invalid_request_error","code":"conversation_already_has_active_response","message":"no","event_id":"c2"}}
				60 s response.output_audio.delta {"response_id":"resp_1","delta":"@480"}
				70 s response.done {"response":{"id":"resp_1","status":"completed"}}
				80 c response.create {"event_id":"c3"}
				90 s response.created {"response":{"id":"resp_2"}}
				95 s response.output_audio.delta {"response_id":"resp_2","delta":"@480"}
				99 s response.done {"response":{"id":"resp_2","status":"completed"}}
				99 s fin`,
			want: `
				turn success/done in=@10 ttfa=50
				turn invalid-request/invalid_request_error in=@30
				turn success/done in=@80 ttfa=15
				session turns=3`,
		},
		{
			name: "refused while another runs, without event id", path: pathRealtime, script: opened + `
				10 c response.create
				20 s response.created {"response":{"id":"resp_1"}}
				30 c response.create
				40 s error {"error":{"type":"invalid_request_error","code":"conversation_already_has_active_response","message":"no"}}
				60 s response.output_audio.delta {"response_id":"resp_1","delta":"@480"}
				70 s response.done {"response":{"id":"resp_1","status":"completed"}}
				80 c response.create
				90 s response.created {"response":{"id":"resp_2"}}
				95 s response.output_audio.delta {"response_id":"resp_2","delta":"@480"}
				99 s response.done {"response":{"id":"resp_2","status":"completed"}}
				99 s fin`,
			want: `
				turn success/done in=@10 ttfa=50
				turn invalid-request/invalid_request_error in=@30
				turn success/done in=@80 ttfa=15
				session turns=3`,
		},
		{
			name: "refused alone, without event id", path: pathRealtime, script: opened + `
				10 c response.create
				20 s error {"error":{"type":"invalid_request_error","message":"no"}}
				30 c response.create
				40 s response.created {"response":{"id":"resp_1"}}
				60 s response.output_audio.delta {"response_id":"resp_1","delta":"@480"}
				70 s response.done {"response":{"id":"resp_1","status":"completed"}}
				71 s fin`,
			want: `
				turn invalid-request/invalid_request_error in=@10
				turn success/done in=@30 ttfa=30
				session turns=2`,
		},
		{
			name: "ends of a response", path: pathRealtime, script: opened + `
				10 c response.create
				11 s response.created {"response":{"id":"a"}}
				12 s response.output_text.delta {"response_id":"a","delta":"Ok"}
				20 s response.done {"response":{"id":"a","status":"incomplete","status_details":{"type":"incomplete","reason":"max_output_tokens"}}}
				30 c response.create
				31 s response.created {"response":{"id":"b"}}
				35 s error {"error":{"type":"server_error","message":"Dead stage process(es) detected: talker (pid=4, exit=-9)"}}
				40 s response.done {"response":{"id":"b","status":"failed","status_details":{"type":"failed","reason":"error"}}}
				50 c response.create
				51 s response.created {"response":{"id":"d"}}
				60 s response.done {"response":{"id":"d","status":"failed","status_details":{"type":"failed","error":{"type":"server_error","message":"The request queue is full."}}}}
				70 c response.create
				71 s response.created {"response":{"id":"e"}}
				72 s response.done {"response":{"id":"e","status":"failed"}}
				80 c response.create
				81 s response.created {"response":{"id":"f"}}
				82 s response.function_call_arguments.delta {"response_id":"f","delta":"{}"}
				83 s response.done {"response":{"id":"f","status":"completed"}}
				90 c response.create
				91 s response.created {"response":{"id":"g"}}
				92 s response.done {"response":{"id":"g","status":"completed"}}
				99 s fin`,
			want: `
				turn success/done +incomplete ttft=2 ttfa?
				turn worker-lost/engine_dead
				turn admission-rejected/error_event
				turn server-error/response_failed
				turn success/done
				turn invalid-output/no_output
				session turns=6`,
		},
		{
			name: "sound was asked for", path: pathRealtime, script: opened + `
				10 c response.create {"response":{"modalities":["text","audio"]}}
				11 s response.created {"response":{"id":"a"}}
				12 s response.output_text.delta {"response_id":"a","delta":"Ok"}
				20 s response.done {"response":{"id":"a","status":"completed"}}
				30 c response.create {"response":{"modalities":["text"]}}
				31 s response.created {"response":{"id":"b"}}
				32 s response.output_text.delta {"response_id":"b","delta":"Ok"}
				40 s response.done {"response":{"id":"b","status":"completed"}}
				50 c response.create {"response":{"output_modalities":["audio"]}}
				51 s response.created {"response":{"id":"d"}}
				52 s response.output_text.delta {"response_id":"d","delta":"Ok"}
				60 s response.done {"response":{"id":"d","status":"completed"}}
				99 s fin`,
			want: `
				turn invalid-output/no_audio modalities=["text","audio"]
				turn success/done modalities=["text"]
				turn invalid-output/no_audio modalities=["audio"]
				session turns=3`,
		},
		{ // the user speaks over the answer
			name: "barge-in", path: pathRealtime, script: opened + `
				10 s input_audio_buffer.speech_stopped {"audio_end_ms":100}
				20 s response.created {"response":{"id":"a"}}
				30 ` + sound + `a","delta":"@480"}
				50 s input_audio_buffer.speech_started {"audio_start_ms":0}
				60 ` + sound + `a","delta":"@480"}
				70 ` + sound + `a","delta":"@240"}
				75 s response.done {"response":{"id":"a","status":"cancelled","status_details":{"type":"cancelled","reason":"turn_detected"}}}
				80 #late ` + sound + `a","delta":"@480"}
				90 s input_audio_buffer.speech_stopped {"audio_end_ms":200}
				95 s response.created {"response":{"id":"b"}}
				100 ` + sound + `b","delta":"@480"}
				110 s response.done {"response":{"id":"b","status":"completed"}}
				120 s fin`,
			want: `
				turn client-cancelled/interrupted by=client ev.interrupted_by=turn_detected cancel.by=speech cancel.at_ns=@50 cancel.to_silence_ms=20 cancel.chunks_after=2 ` +
				`cancel.samples_after=720 samples=1200 points.t_term=@75 ttfa=20
				turn success/done in=@90 ttfa=10 samples=480
				session turns=2 unattributed_chunks=1 unattributed_samples=480 +output_after_done`,
		},
		{
			name: "cancelled ahead of any sound", path: pathRealtime, script: opened + `
				10 c response.create
				20 s response.created {"response":{"id":"a"}}
				30 c response.cancel
				35 s response.done {"response":{"id":"a","status":"cancelled","status_details":{"reason":"client_cancelled"}}}
				40 s fin`,
			want: `
				turn client-cancelled/interrupted cancel.by=client cancel.to_silence_ms?no%sound cancel.chunks_after=0 ttfa?
				session turns=1`,
		},
		{
			name: "cancel comes too late", path: pathRealtime, script: opened + `
				10 c response.create
				20 s response.created {"response":{"id":"a"}}
				25 ` + sound + `a","delta":"@480"}
				30 c response.cancel
				35 s response.done {"response":{"id":"a","status":"completed"}}
				40 s fin`,
			want: `
				turn success/done cancel.by=client cancel.chunks_after=0
				session turns=1`,
		},
		{
			name: "two at once", path: pathRealtime, script: opened + `
				10 c response.create {"event_id":"c1"}
				11 c response.create {"event_id":"c2"}
				20 s response.created {"response":{"id":"a"}}
				21 s response.created {"response":{"id":"b"}}
				30 ` + sound + `b","delta":"@480"}
				40 ` + sound + `a","delta":"@480"}
				50 s response.done {"response":{"id":"b","status":"completed"}}
				60 s response.done {"response":{"id":"a","status":"completed"}}
				70 s fin`,
			want: `
				turn success/done in=@10 server_request_id=a ttfa=30
				turn success/done in=@11 server_request_id=b ttfa=19
				session turns=2`,
		},
		{
			name: "never answered", path: pathRealtime, script: opened + `
				10 c input_audio_buffer.commit
				20 c response.create
				30 s fin`,
			want: `
				turn transport-error/closed_before_answer in=@20 phase=before_headers
				session turns=1 states.transport-error=1`,
		},
		{
			name: "a commit alone asks for nothing", path: pathRealtime, script: opened + `
				10 c input_audio_buffer.commit
				20 s input_audio_buffer.committed {"item_id":"i1"}
				30 c close 1000
				31 s close 1000
				31 s fin`,
			want: `session turns=0 flow=realtime dialect=openai`,
		},
		{
			name: "zero turns", path: pathRealtime, script: `30 c close 1000
				31 s close 1000
				31 s fin`,
			want: `session turns=0 flow=realtime dialect=unknown messages_up=0 messages_down=0 analysis=full close.by=client`,
		},
	})
}

// TestC51AudioAfterCancel: late sound is the cancelled turn's own, or nobody's.
func TestC51AudioAfterCancel(t *testing.T) {
	script := func(late string) string {
		s := `1 s session.created {"session":{"id":"sess_1","model":"m"}}
			5 c response.create
			10 s response.created {"response":{"id":"a"}}
			500 s response.output_audio.delta {"response_id":"a","delta":"@480"}
			1000 c response.cancel
			1100 c response.create
			1100 s response.created {"response":{"id":"b"}}` + "\n"
		for _, ms := range []string{"1110", "1200", "1300"} {
			s += ms + ` s response.output_audio.delta {` + late + `"delta":"@480"}` + "\n"
		}
		return s + `1320 s response.done {"response":{"id":"a","status":"cancelled","status_details":{"reason":"turn_detected"}}}
			1700 s response.output_audio.delta {"response_id":"b","delta":"@480"}
			1800 s response.done {"response":{"id":"b","status":"completed"}}
			1900 s fin`
	}
	const next = "\nturn success/done in=@1100 ttfa=600 samples=480\n"
	runSessions(t, []sessionCase{
		{
			name: "with its id", path: pathRealtime, script: script(`"response_id":"a",`),
			want: `turn client-cancelled/interrupted ev.interrupted_by=turn_detected cancel.by=client cancel.to_silence_ms=300 cancel.chunks_after=3 cancel.samples_after=1440 samples=1920 points.t_term=@1320` +
				next + `session turns=2 unattributed_samples=0`,
		},
		{
			name: "without an id", path: pathRealtime, script: script(``),
			want: `turn client-cancelled/interrupted cancel.by=client cancel.to_silence_ms?no%sound cancel.chunks_after=0 samples=480` +
				next + `session turns=2 unattributed_chunks=3 unattributed_samples=1440 +unattributed_audio`,
		},
	})
}

// TestSessionsConversation: SGLang-Omni's conversation, whose server decides.
func TestSessionsConversation(t *testing.T) {
	const (
		opened = `1 s session.created {"event_id":"evt_1","session":{"id":"s1","model":"m","modalities":["text","audio"],"capabilities":{"turn_detection":["server_vad"]}}}
			2 c session.update {"session":{"modalities":["text","audio"]}}` + "\n"
		spoken = `c input_audio_buffer.append {"audio":"@zero:1600"}
			s input_audio_buffer.speech_started {"audio_start_ms":0,"item_id":"item_1"}` + "\n"
	)
	runSessions(t, []sessionCase{
		{ // traps 6, 7, 20
			name: "a turn", path: pathRealtime, script: opened + spoken + `
				40 #v s input_audio_buffer.speech_stopped {"audio_end_ms":100}
				45 s input_audio_buffer.committed {"item_id":"item_1"}
				55 s response.created {"response":{"id":"resp_1","status":"in_progress"}}
				70 s response.text.delta {"response_id":"resp_1","content_index":0,"delta":"Ah"}
				80 s response.audio.delta {"response_id":"resp_1","content_index":1,"delta":"@480"}
				85 s response.text.done {"response_id":"resp_1","text":"Ah"}
				86 s response.audio.done {"response_id":"resp_1"}
				90 s response.done {"response":{"id":"resp_1","status":"completed","status_details":{"reason":"stop"}}}
				95 s conversation.item.input_audio_transcription.delta {"delta":"user"}
				96 s conversation.item.input_audio_transcription.completed {"transcript":"user"}
				99 s fin`,
			want: `
				turn success/done src=server_vad in=@40 t_in_server_offset=>v also.committed=@45 also.response_created=@55 ttft=30 ttfa=40 jct=50 text=2 text_units=1 ` +
				`rate=24000 +rate_assumed input.sample_rate=16000 input.audio_s=0.1 dialect=sglang-omni dialect_variant=conversation flow=realtime -after_terminal
				session turns=1 input_audio_s=0.1 dialect=sglang-omni unknown_events=0`,
		},
		{ // trap 10
			name: "barge-in", path: pathRealtime, script: opened + spoken + `
				40 s input_audio_buffer.speech_stopped {"audio_end_ms":100}
				55 s response.created {"response":{"id":"resp_1"}}
				80 s response.audio.delta {"response_id":"resp_1","delta":"@480"}
				90 s input_audio_buffer.speech_started {"audio_start_ms":200}
				91 s response.audio.done {"response_id":"resp_1"}
				92 s response.done {"response":{"id":"resp_1","status":"cancelled","status_details":{"reason":"turn_detected"}}}
				95 s conversation.item.input_audio_transcription.completed {"transcript":"user"}
				140 s input_audio_buffer.speech_stopped {"audio_end_ms":300}
				155 s response.created {"response":{"id":"resp_2"}}
				180 s response.audio.delta {"response_id":"resp_2","delta":"@480"}
				190 s response.done {"response":{"id":"resp_2","status":"completed"}}
				199 s fin`,
			want: `
				turn client-cancelled/interrupted cancel.by=speech cancel.at_ns=@90 cancel.chunks_after=0 cancel.to_silence_ms?no%sound jct=52 ev.interrupted_by=turn_detected
				turn success/done in=@140 ttfa=40
				session turns=2`,
		},
		{
			name: "failures", path: pathRealtime, script: opened + spoken + `
				40 s input_audio_buffer.speech_stopped {"audio_end_ms":100}
				55 s response.created {"response":{"id":"resp_1"}}
				70 s response.text.delta {"response_id":"resp_1","delta":"Ah"}
				80 s error {"error":{"type":"server_error","code":"internal","message":"boom"}}
				90 s response.done {"response":{"id":"resp_1","status":"failed","status_details":{"reason":"error"}}}
				140 s input_audio_buffer.speech_stopped {"audio_end_ms":100}
				155 s response.created {"response":{"id":"resp_2"}}
				170 s response.text.delta {"response_id":"resp_2","delta":"Ah"}
				190 s response.done {"response":{"id":"resp_2","status":"failed","status_details":{"reason":"audio_output_missing"}}}
				199 s fin`,
			want: `
				turn server-error/server_error text=2
				turn server-error/audio_output_missing
				session turns=2`,
		},
		{ // trap 27: an event that the session does not know kills it with code 1000
			name: "killed by an unknown event", path: pathRealtime, script: opened + spoken + `
				40 s input_audio_buffer.speech_stopped {"audio_end_ms":100}
				55 s response.created {"response":{"id":"resp_1"}}
				70 s response.text.delta {"response_id":"resp_1","delta":"Ah"}
				75 c response.create
				80 s close 1000
				81 s fin`,
			want: `
				turn invalid-output/missing_terminal by=server in=@40 ev.close_code=1000
				turn invalid-output/no_output src=response.create in=@75
				session close.by=server close.code=1000`,
		},
	})
}

// TestSessionsShared: SGLang-Omni's shared session.
func TestSessionsShared(t *testing.T) {
	const opened = `1 s session.created {"event_id":"evt_0","session":{"id":"sess_1","sglang":{"granted":null}}}
		2 c session.update {"event_id":"c0","session":{"model":"m","output_modalities":["audio"]}}
		3 s session.updated {"event_id":"evt_1","session":{"id":"sess_1","model":"m","output_modalities":["audio"],"sglang":{"granted":{"interaction":"native",` +
		`"input_audio_format":{"type":"audio/pcm","rate":16000},"output_audio_format":{"type":"audio/pcm","rate":48000}}}}}` + "\n"
	runSessions(t, []sessionCase{
		{
			name: "native: nothing asks", path: pathRealtime, script: opened + `
				10 c input_audio_buffer.append {"event_id":"c1","audio":"@zero:320","sglang":{"seq":0}}
				11 s sglang.input_audio.accepted {"seq":0,"accepted_end_ms":20,"client_event_id":"c1"}
				20 s response.created {"response":{"id":"r","status":"in_progress"}}
				25 s response.output_audio_transcript.delta {"response_id":"r","delta":"Ah"}
				30 #a s response.output_audio.delta {"response_id":"r","delta":"@960","sglang":{"unit_id":"u1"}}
				31 s sglang.unit.done {"unit_id":"u1"}
				40 s response.done {"response":{"id":"r","status":"completed"}}
				45 c session.close {"event_id":"c2"}
				46 s session.closed {"reason":"client"}
				46 s close 1000
				46 s fin`,
			want: `
				turn success/done in?nothing%asked src?nothing%asked ttft?nothing%asked ttfa?nothing%asked jct?nothing%asked offsets.t_audio=>a rate=48000 ` +
				`audio.sample_rate_source=session samples=960 also.response_created=@20 dialect=sglang-omni flow=duplex rtf? t_in_wall_ns?
				session turns=1 input_audio_s=0.02 input_sample_rate=16000 server_session_id=sess_1 flow=duplex close.by=server unknown_events=0`,
		},
		{
			name: "turn based, an empty turn, a cut one", path: pathRealtime, script: opened + `
				10 s input_audio_buffer.speech_stopped {"audio_end_ms":100}
				20 s response.created {"response":{"id":"resp_0"}}
				30 s response.done {"response":{"id":"resp_0","status":"completed","status_details":{"reason":"empty_turn"}}}
				110 s input_audio_buffer.speech_stopped {"audio_end_ms":200}
				120 s response.created {"response":{"id":"resp_1"}}
				130 s response.output_audio.delta {"response_id":"resp_1","delta":"@960"}
				131 s sglang.response.progress {"text_end":1,"audio_ms":20}
				132 s error {"error":{"type":"invalid_request_error","code":"bad_seq","message":"no"},"sglang":{"fatal":false}}
				140 s response.done {"response":{"id":"resp_1","status":"completed","status_details":{"reason":"stop"}}}
				210 s input_audio_buffer.speech_stopped {"audio_end_ms":200}
				220 s response.created {"response":{"id":"resp_2"}}
				240 s response.done {"response":{"id":"resp_2","status":"cancelled","status_details":{"reason":"interrupted"}}}
				250 c close 1000
				251 s fin`,
			want: `
				turn success/done in=@10 jct=20 audio?
				turn success/done in=@110 ttfa=20
				turn client-cancelled/interrupted ev.interrupted_by=interrupted
				session turns=3`,
		},
		{ // the error comes ahead of the response's end
			name: "fatal error", path: pathRealtime, script: opened + `
				10 s input_audio_buffer.speech_stopped {"audio_end_ms":100}
				20 s response.created {"response":{"id":"resp_0"}}
				30 s response.output_audio.delta {"response_id":"resp_0","delta":"@960"}
				40 s error {"error":{"type":"server_error","code":"internal","message":"boom"},"sglang":{"fatal":true}}
				41 s response.output_audio.done {"response_id":"resp_0"}
				42 s response.done {"response":{"id":"resp_0","status":"failed","status_details":{"reason":"error"}}}
				43 s session.closed {"reason":"error"}
				43 s close 1000
				43 s fin`,
			want: `
				turn server-error/server_error samples=960 jct=32
				session turns=1 close.code=1000`,
		},
		{
			name: "fatal error without a response", path: pathRealtime, script: opened + `
				40 s error {"error":{"type":"server_error","code":"budget","message":"outbound event budget exhausted"},"sglang":{"fatal":true}}
				43 s session.closed {"reason":"error"}
				43 s close 1000
				43 s fin`,
			want: `session turns=0 errors=1 +errors`,
		},
	})
}

// TestSessionsTranscription: SGLang-Omni's transcription session, a turn a segment.
func TestSessionsTranscription(t *testing.T) {
	const opened = `1 s session.created {"event_id":"e1","event_index":1,"session":{"id":"t1","intent":"transcription"}}` + "\n"
	runSessions(t, []sessionCase{
		{
			name: "segments", path: pathRealtime, script: opened + `
				5 c input_audio_buffer.append {"audio":"@zero:1600"}
				10 s input_audio_buffer.speech_started {"segment_id":0,"event_index":2}
				15 c input_audio_buffer.append {"audio":"@zero:1600"}
				40 #v s input_audio_buffer.speech_stopped {"segment_id":0,"event_index":3}
				41 s input_audio_buffer.committed {"segment_id":0,"event_index":4}
				50 s transcription.segment {"segment_id":0,"text":"","is_final":false,"event_index":5}
				60 #x s transcription.segment {"segment_id":0,"text":"oh","is_final":false,"event_index":6}
				70 #e s transcription.segment {"segment_id":0,"text":"oh no","is_final":true,"event_index":7}
				80 c input_audio_buffer.append {"audio":"@zero:1600"}
				90 #k c input_audio_buffer.commit
				95 s input_audio_buffer.committed {"segment_id":1,"event_index":8}
				99 s transcription.segment {"segment_id":1,"text":"","is_final":true,"event_index":9}
				100 s transcription.completed {"text":"oh no","event_index":10}
				100 s close 1000
				100 s fin`,
			want: `
				turn success/done src=server_vad in=@40 t_in_server_offset=>v also.speech_started=@10 also.committed=@41 ttft=20 offsets.t_text=>x jct=30 offsets.t_term=>e text=5 ` +
				`text_sha256=` + sha256Of("oh no") + ` input.audio_s=0.2 flow=transcription dialect=sglang-omni
				turn success/done src=commit in=@90 offsets.t_in=>k jct=9 ttft?no%text text=0 also.committed=@95 input.audio_s=0.1
				session turns=2 flow=transcription -events_missing input_audio_s=0.3`,
		},
		{
			name: "an event is missing", path: pathRealtime, script: opened + `
				10 s input_audio_buffer.speech_started {"segment_id":0,"event_index":2}
				40 s input_audio_buffer.speech_stopped {"segment_id":0,"event_index":3}
				70 s transcription.segment {"segment_id":0,"text":"oh","is_final":true,"event_index":5}
				80 s fin`,
			want: `
				turn success/done ttft=30
				session turns=1 +events_missing`,
		},
		{
			name: "a hypothesis ahead of the end of speech, taken back", path: pathRealtime, script: opened + `
				10 s input_audio_buffer.speech_started {"segment_id":0,"event_index":2}
				30 s transcription.segment {"segment_id":0,"text":"oh","is_final":false,"event_index":3}
				40 s input_audio_buffer.speech_stopped {"segment_id":0,"event_index":4}
				70 s transcription.segment {"segment_id":0,"text":"","is_final":true,"event_index":5}
				80 s fin`,
			want: `
				turn success/done in=@40 points.t_text=@30 ttft?ahead jct=30 text=0
				session turns=1`,
		},
		{
			name: "bad input does not end it", path: pathRealtime, script: opened + `
				10 s error {"error":{"type":"invalid_request_error","message":"bad audio"},"event_index":2}
				20 s input_audio_buffer.speech_stopped {"segment_id":0,"event_index":3}
				25 s error {"error":{"type":"invalid_request_error","message":"bad audio"},"event_index":4}
				30 s transcription.segment {"segment_id":0,"text":"oh","is_final":true,"event_index":5}
				80 s fin`,
			want: `
				turn success/done in=@20
				session turns=1 errors=1 -events_missing`,
		},
		{
			name: "cut amid a segment", path: pathRealtime, script: opened + `
				20 s input_audio_buffer.speech_stopped {"segment_id":0,"event_index":2}
				30 s transcription.segment {"segment_id":0,"text":"oh","is_final":false,"event_index":3}
				80 s rst`,
			want: `
				turn transport-error/reset in=@20 text=2
				session turns=1 close.transport=rst`,
		},
	})
}
