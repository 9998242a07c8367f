package dialect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

var kindNames = [...]string{
	"passing", "opened", "started", "output", "text_done", "audio_done", "unit_done", "turn_done", "failed", "speech_start", "speech_stop",
	"committed", "listening", "over", "cleared", "segment", "config", "input_text", "input_audio", "ask", "input_end", "cancel", "resume", "leave",
}

// meant gives a message in a line, with only what is set.
func meant(m *Message) string {
	var b strings.Builder
	b.WriteString(kindNames[m.Kind])
	add := func(format string, there bool, v any) {
		if there {
			fmt.Fprintf(&b, " "+format, v)
		}
	}
	add("form=%d", m.Form != NoForm, m.Form)
	add("key=%s", len(m.Key) > 0, m.Key)
	add("unit=%d", m.Unit >= 0, m.Unit)
	add("session=%s", m.Session != "", m.Session)
	add("event_id=%s", m.EventID != "", m.EventID)
	add("status=%s", m.Status != "", m.Status)
	add("reason=%s", m.Reason != "", m.Reason)
	add("bytes=%d", m.Bytes >= 0, m.Bytes)
	add("total=%d", m.Total >= 0, m.Total)
	add("rate=%d", m.Rate != 0, m.Rate)
	add("in=%d", m.InputRate != 0, m.InputRate)
	add("split=%s", m.Split != "", m.Split)
	add("format=%s", m.Format != "", m.Format)
	add("model=%s", m.Model != "", m.Model)
	add("modes=%v", len(m.Modalities) > 0, m.Modalities)
	add("seq=%d", m.Seq >= 0, m.Seq)
	add("flag=%v", m.Flag, m.Flag)
	add("%s", m.OldName, "old")
	add("%s", m.NewName, "new")
	ev := m.Event
	if m.Kind == TextDone { // TestTextOfDoneEvents looks at it
		ev.Text, ev.Final = nil, false
	}
	if e := told(ev); e != "" {
		b.WriteString(" | " + e)
	}
	if m.Err != nil && m.Err.Word != "" {
		b.WriteString(" word=" + m.Err.Word)
	}
	return b.String()
}

// The messages are those of the captures, long ids and sound cut short.
const (
	vDuplex  = `"session":{"id":"duplex-16","state":"open","turn_state":"idle","epoch":0,"turn_id":0,"active_request_id":null,"model":"fake-omni","modalities":["text","audio"],"response_format":"wav","capabilities":{"chunk_period_ms":1000}}`
	sShared  = `"session": {"id": "sess_42", "object": "realtime.session", "type": "realtime", "model": "toy-omni", "sglang": {"granted": null}}`
	sGranted = `"session": {"type": "realtime", "model": "toy-omni", "output_modalities": ["text", "audio"], "audio": {"input": {"format": {"type": "audio/pcm", "rate": 16000}}, "output": {"format": {"type": "audio/pcm", "rate": 24000}}}, "sglang": {"granted": {"interaction": "native", "input_modalities": ["audio"], "output_modalities": ["text", "audio"], "input_audio_format": {"type": "audio/pcm", "rate": 16000}, "output_audio_format": {"type": "audio/pcm", "rate": 22050}}}}`
	sConv    = `"session": {"id": "sess_e9", "object": "realtime.session", "model": "toy-omni", "capabilities": {"turn_detection": ["server_vad"]}, "modalities": ["text"], "input_audio_format": "pcm16", "output_audio_format": "pcm16", "temperature": 0.8}`
	sSegs    = `"session": {"id": "sess_81", "object": "realtime.session", "model": "toy-omni", "intent": "transcription", "input_audio_format": "pcm16", "language": null, "decode_interval_ms": 600, "turn_detection": {"type": "server_vad"}}`
)

var serverMessages = []struct{ name, data, want string }{
	// vLLM-Omni, /v1/audio/speech/stream
	{"v speech start", `{"type":"audio.start","utterance_index":0,"sentence_index":0,"sentence_text":"Hi \"you\"","format":"pcm","sample_rate":24000}`, `started form=1 key=0 unit=0 rate=24000 format=pcm | text="Hi \"you\""`},
	{"v speech start, file", `{"type":"audio.start","utterance_index":3,"sentence_index":1,"sentence_text":"A","format":"wav"}`, `started form=1 key=3 unit=1 format=wav | text="A"`},
	{"v speech chunk", `{"type":"audio.chunk","utterance_index":0,"sentence_index":0,"chunk_id":0,"chunk_start_ms":0,"chunk_end_ms":40,"sample_rate":16000,"audio_b64":"AAAB","timestamps":null}`, `output form=1 key=0 unit=0 | audio part(AAAB pcm 16000 0 -1)`},
	{"v speech chunk, last", `{"type":"audio.chunk","utterance_index":0,"sentence_index":0,"chunk_id":1,"sample_rate":16000,"audio_b64":"","timestamps":[{"w":"a"}]}`, `output form=1 key=0 unit=0 | audio`},
	{"v speech unit done", `{"type":"audio.done","utterance_index":0,"sentence_index":0,"total_bytes":5280,"error":false}`, `unit_done form=1 key=0 unit=0 bytes=5280`},
	{"v speech unit failed", `{"type":"audio.done","utterance_index":0,"sentence_index":0,"total_bytes":9600,"error":true}`, `unit_done form=1 key=0 unit=0 bytes=9600 flag=true`},
	{"v speech error", `{"type":"error","message":"Generation failed for utterance 0, sentence 0: fake engine fault"}`, `failed | error(Generation failed for utterance 0, sentence 0: fake engine fault|error|0)`},
	{"v speech done", `{"type":"session.done","utterance_index":0,"total_sentences":1}`, `turn_done form=1 key=0 total=1`},
	{"v speech done, nothing", `{"type":"session.done","utterance_index":4,"total_sentences":0}`, `turn_done form=1 key=4 total=0`},
	// SGLang-Omni, the same path
	{"s speech configured", `{"type": "session.configured", "session_id": "speech_ws_ee", "response_format": "pcm", "stream_audio": true, "split_granularity": "sentence"}`, `opened form=2 session=speech_ws_ee split=sentence format=pcm`},
	{"s speech start", `{"type": "audio.start", "id": "speech_ws_ee-0", "sentence_index": 0, "sentence_text": "It breaks.", "format": "pcm", "sample_rate": 24000}`, `started form=2 unit=0 rate=24000 format=pcm | id=speech_ws_ee-0 text="It breaks."`},
	{"s speech error", `{"type": "error", "message": "toy fault in code2wav at 1", "error_type": "server_error"}`, `failed form=2 | error(toy fault in code2wav at 1|server_error|0)`},
	{"s speech done", `{"type": "audio.done", "id": "speech_ws_ee-0", "sentence_index": 0, "total_bytes": 0, "error": true}`, `unit_done form=2 unit=0 bytes=0 flag=true`},
	{"s speech committed", `{"type": "input.committed", "session_id": "speech_ws_8a", "segment_index": 0, "segment_sentences": 2, "total_sentences": 2}`, `committed`},
	{"s speech over", `{"type": "session.done", "session_id": "speech_ws_ee", "total_sentences": 3}`, `turn_done form=2 total=3`},
	// vLLM-Omni, turn based realtime: two ways of spacing in one stream
	{"v turn created", `{"type":"session.created","id":"sess-ad","created":1795979668}`, `opened form=3 session=sess-ad`},
	{"v turn text", `{"type":"transcription.delta","delta":"Sure"}`, `output form=3 | text="Sure"`},
	{"v turn text, empty", `{"type":"transcription.delta","delta":""}`, `output form=3`},
	{"v turn audio", `{"type": "response.audio.delta", "audio": "AAA0AmgE", "format": "pcm16", "sample_rate_hz": 24000}`, `output old | audio part(AAA0AmgE pcm16 24000 0 -1)`},
	{"v turn audio of 0.30", `{"type": "response.output_audio.delta", "audio": "AAA0AmgE", "format": "pcm16", "sample_rate_hz": 24000}`, `output new | audio part(AAA0AmgE pcm16 24000 0 -1)`},
	{"v turn text done", `{"type":"transcription.done","text":"Sure, here.","usage":{"prompt_tokens":1,"total_tokens":4,"completion_tokens":3,"prompt_tokens_details":null}}`, `text_done form=3 | tokens=3`},
	{"v turn done", `{"type": "response.audio.done", "has_audio": true}`, `audio_done flag=true`},
	{"v turn done, mute", `{"type": "response.audio.done", "has_audio": false}`, `audio_done`},
	{"v turn error", `{"type":"error","error":"fake engine fault","code":"processing_error"}`, `failed | error(fake engine fault|error|0) word=processing_error`},
	// OpenAI-style realtime
	{"r created", `{"type":"session.created","event_id":"evt_0","session":{"id":"sess_1","object":"realtime.session","model":"m","output_modalities":["audio"]}}`, `opened form=4 session=sess_1 model=m modes=[audio]`},
	{"r conversation", `{"type":"conversation.created","event_id":"evt_1","conversation":{"id":"conv_1"}}`, `passing`},
	{"r response created", `{"event_id":"evt_1","type":"response.created","response":{"id":"resp_1","status":"in_progress"}}`, `started form=4 key=resp_1 | id=resp_1`},
	{"r text", `{"event_id":"evt_2","type":"response.output_audio_transcript.delta","response_id":"resp_1","delta":"Ok"}`, `output key=resp_1 | text="Ok"`},
	{"r audio", `{"event_id":"evt_3","type":"response.output_audio.delta","response_id":"resp_1","delta":"AAABAP//AAA="}`, `output key=resp_1 new | audio part(AAABAP//AAA=  0 0 -1)`},
	{"r tool", `{"type":"response.function_call_arguments.delta","response_id":"resp_1","delta":"{"}`, `output key=resp_1 | tool`},
	{"r tool done", `{"type":"response.function_call_arguments.done","response_id":"resp_1","arguments":"{}"}`, `output key=resp_1 | tool`},
	{"r reasoning", `{"type":"response.reasoning_text.delta","response_id":"resp_1","delta":"hm"}`, `output key=resp_1 | reasoning="hm"`},
	{"r done", `{"event_id":"evt_9","type":"response.done","response":{"id":"resp_1","status":"completed","usage":{"total_tokens":9,"input_tokens":2,"output_tokens":7}}}`, `turn_done key=resp_1 status=completed | tokens=7`},
	{"r incomplete", `{"type":"response.done","response":{"id":"resp_1","status":"incomplete","status_details":{"type":"incomplete","reason":"max_output_tokens"}}}`, `turn_done key=resp_1 status=incomplete reason=max_output_tokens`},
	{"r cancelled", `{"type":"response.cancelled","response_id":"resp_1"}`, `turn_done key=resp_1 status=cancelled`},
	{"r failed, details", `{"type":"response.done","response":{"id":"resp_1","status":"failed","status_details":{"type":"failed","error":{"type":"server_error","code":"c","message":"m"}}}}`, `turn_done key=resp_1 status=failed | error(m|server_error|0) word=c`},
	{"r error", `{"type":"error","event_id":"evt_5","error":{"type":"invalid_request_error","code":"unsupported_audio_format","message":"no","event_id":"c3"}}`, `failed event_id=c3 | error(no|invalid_request_error|0) word=unsupported_audio_format`},
	{"r speech", `{"type":"input_audio_buffer.speech_started","audio_start_ms":0,"item_id":"i"}`, `speech_start`},
	{"r speech over", `{"type":"input_audio_buffer.speech_stopped","audio_end_ms":320,"item_id":"i"}`, `speech_stop`},
	{"r committed", `{"type":"input_audio_buffer.committed","item_id":"i"}`, `committed`},
	{"r cleared", `{"type":"input_audio_buffer.cleared"}`, `cleared`},
	{"r item", `{"type":"response.output_item.added","response_id":"resp_1","item":{"id":"i"}}`, `passing key=resp_1`},
	{"r limits", `{"type":"rate_limits.updated","rate_limits":[],"event_id":"event_215"}`, `passing`},
	// vLLM-Omni, duplex: native and projected
	{"v duplex created", `{"type":"session.created",` + vDuplex + `,"resume_token":"t"}`, `opened form=5 session=duplex-16 model=fake-omni modes=[text audio]`},
	{"v duplex updated", `{"type":"session.updated",` + vDuplex + `,"server_event_seq":1}`, `opened form=5 session=duplex-16 model=fake-omni modes=[text audio] seq=1`},
	{"v native committed", `{"type":"input.committed","session_id":"duplex-16","turn_id":0,"epoch":0,"history_len":1,"message":{"role":"user","content":"One."},"server_event_seq":1}`, `committed form=5 seq=1`},
	{"v native begins", `{"type":"response.created","session_id":"duplex-16","response_id":"resp-d-0","epoch":0,"modalities":["text","audio"],"request_id":"chatcmpl-d","server_event_seq":2}`, `started form=5 key=resp-d-0 seq=2 | id=resp-d-0`},
	{"v native text", `{"type":"response.text.delta","session_id":"duplex-16","response_id":"resp-d-0","epoch":0,"delta":"Hel","server_event_seq":3}`, `output form=5 key=resp-d-0 seq=3 | text="Hel"`},
	{"v native audio", `{"type":"response.output_audio.delta","session_id":"duplex-16","response_id":"resp-d-0","epoch":0,"audio":"UklGRoQJ","format":"wav","server_event_seq":7}`, `output form=5 key=resp-d-0 seq=7 new | audio part(UklGRoQJ wav 0 0 -1)`},
	{"v native done", `{"type":"response.done","session_id":"duplex-16","response_id":"resp-d-0","epoch":0,"committed":true,"playback":{"generated_ms":0},"server_event_seq":11}`, `turn_done form=5 key=resp-d-0 seq=11`},
	{"v native closed", `{"type":"session.closed","session_id":"duplex-16","server_event_seq":22}`, `over form=5 seq=22`},
	{"v duplex begins", `{"type":"response.created","response_id":"resp-d-0","response":{"id":"resp-d-0","object":"realtime.response","status":"in_progress","status_details":null,"output":[],"modalities":["text","audio"],"metadata":{"duplex_event":{"type":"response.created","session_id":"d"}}},"event_id":"event_88","server_event_seq":5}`, `started form=5 key=resp-d-0 seq=5 | id=resp-d-0`},
	{"v duplex listens", `{"type":"response.listen","session_id":"duplex-16","epoch":0,"response":{"object":"realtime.response","status":"listening","metadata":{"reason":"model_listen"}},"event_id":"event_e7","server_event_seq":3}`, `listening form=5 reason=model_listen seq=3`},
	{"v duplex speaks", `{"type":"response.speak","response_id":"resp-d-0","item_id":"i","metadata":{"model_speak":true},"server_event_seq":9}`, `passing form=5 key=resp-d-0 seq=9`},
	{"v duplex audio, g711", `{"type":"response.audio.delta","response_id":"resp-d-0","item_id":"i","output_index":0,"content_index":0,"delta":"/8O0rKah","format":"g711_ulaw","sample_rate_hz":8000,"metadata":{"session_id":"d"},"server_event_seq":10}`, `output form=5 key=resp-d-0 seq=10 old | audio part(/8O0rKah g711_ulaw 8000 0 -1)`},
	{"v duplex text, empty", `{"type":"response.audio_transcript.delta","response_id":"resp-d-0","item_id":"i","delta":"","server_event_seq":14}`, `output form=5 key=resp-d-0 seq=14`},
	{"v duplex audio done", `{"type":"response.audio.done","response_id":"resp-d-0","server_event_seq":16}`, `audio_done form=5 key=resp-d-0 seq=16`},
	{"v duplex cancelled", `{"type":"response.done","response_id":"resp-d-0","response":{"id":"resp-d-0","status":"cancelled","status_details":{"type":"cancelled","reason":"barge_in"}},"server_event_seq":22}`, `turn_done form=5 key=resp-d-0 status=cancelled reason=barge_in seq=22`},
	{"v duplex truncated item", `{"type":"conversation.item.truncated","item_id":"i","content_index":0,"audio_end_ms":0,"event":{"type":"audio.cancelled","reason":"barge_in"},"server_event_seq":15}`, `passing form=5 seq=15`},
	{"v duplex busy", `{"type":"error","error":"no session is free","code":"resource_exhausted"}`, `failed | error(no session is free|error|0) word=resource_exhausted`},
	{"v duplex expired", `{"type":"session.expired","session_id":"duplex-16"}`, `over reason=expired`},
	{"v duplex overlap", `{"type":"overlap.decision","decision":"listen"}`, `passing`},
	// SGLang-Omni, conversation
	{"s conv created", `{"type": "session.created", ` + sConv + `, "event_id": "evt_76"}`, `opened form=6 session=sess_e9 format=pcm16 model=toy-omni modes=[text]`},
	{"s conv text", `{"type": "response.text.delta", "response_id": "resp_52", "item_id": "item_05", "output_index": 0, "content_index": 0, "delta": " na\u00efve", "event_id": "evt_db"}`, `output key=resp_52 | text=" naïve"`},
	{"s conv audio", `{"type": "response.audio.delta", "response_id": "resp_52", "item_id": "item_05", "output_index": 0, "content_index": 1, "delta": "8Njx2PLY", "event_id": "evt_3d"}`, `output key=resp_52 old | audio part(8Njx2PLY  0 0 -1)`},
	{"s conv text done", `{"type": "response.text.done", "response_id": "resp_52", "item_id": "i", "text": "The", "event_id": "evt_6e"}`, `text_done key=resp_52`},
	{"s conv error", `{"type": "error", "error": {"type": "server_error", "code": "response_generation_failed", "message": "Realtime response generation failed."}, "event_id": "evt_3b"}`, `failed | error(Realtime response generation failed.|server_error|0) word=response_generation_failed`},
	{"s conv transcript of the user", `{"type": "conversation.item.input_audio_transcription.delta", "item_id": "item_0d", "content_index": 0, "delta": "The", "event_id": "evt_67"}`, `passing`},
	// SGLang-Omni, shared session
	{"s shared created", `{"type": "session.created", ` + sShared + `, "event_id": "evt_77"}`, `opened form=7 session=sess_42 model=toy-omni`},
	{"s shared granted", `{"type": "session.updated", "client_event_id": "u1", ` + sGranted + `}`, `opened form=7 rate=22050 in=16000 model=toy-omni modes=[text audio]`},
	{"s shared accepted", `{"type": "sglang.input_audio.accepted", "seq": 0, "accepted_end_ms": 100.0, "client_event_id": "c0", "event_id": "evt_ef"}`, `passing`},
	{"s shared begins", `{"type": "response.created", "response": {"id": "resp_toy0", "object": "realtime.response", "status": "in_progress", "output": []}, "event_id": "evt_4f", "sglang": {"unit_id": "unit_0"}}`, `started form=4 key=resp_toy0 | id=resp_toy0`},
	{"s shared text", `{"type": "response.output_text.delta", "response_id": "resp_toy0", "delta": "The", "event_id": "evt_4f", "sglang": {"unit_id": "unit_0", "chunk_seq": 1}}`, `output key=resp_toy0 | text="The"`},
	{"s shared unit", `{"type": "sglang.unit.done", "unit_id": "unit_0", "event_id": "evt_75"}`, `passing`},
	{"s shared done", `{"type": "response.done", "response": {"id": "resp_toy0", "status": "failed", "status_details": {"reason": "internal"}, "usage": null}, "event_id": "evt_a6"}`, `turn_done key=resp_toy0 status=failed reason=internal`},
	{"s shared closed", `{"type": "session.closed", "reason": "client_closed", "client_event_id": "x1", "event_id": "evt_4e"}`, `over reason=client_closed`},
	// SGLang-Omni, transcription
	{"s segs created", `{"type": "session.created", ` + sSegs + `, "event_id": "evt_ba", "event_index": 1}`, `opened form=8 session=sess_81 model=toy-omni seq=1`},
	{"s segs speech", `{"type": "input_audio_buffer.speech_started", "audio_start_ms": 0, "segment_id": 0, "event_id": "evt_64", "event_index": 2}`, `speech_start key=0 seq=2`},
	{"s segs segment", `{"type": "transcription.segment", "segment_id": 0, "audio_start_ms": 0, "audio_end_ms": 600, "text": "The quick", "is_final": false, "event_id": "evt_0d", "event_index": 3}`, `segment form=8 key=0 seq=3 | text="The quick"`},
	{"s segs final", `{"type": "transcription.segment", "segment_id": 12, "text": "", "is_final": true, "event_index": 7}`, `segment form=8 key=12 seq=7 flag=true`},
	{"s segs committed", `{"type": "input_audio_buffer.committed", "segment_id": 0, "event_id": "evt_76", "event_index": 6}`, `committed key=0 seq=6`},
	{"s segs completed", `{"type": "transcription.completed", "text": "The quick", "event_id": "evt_47", "event_index": 13}`, `over seq=13`},
	// vLLM-Omni, video chat
	{"v chat start", `{"type":"response.start"}`, `started form=9`},
	{"v chat text", `{"type":"response.text.delta","delta":"Hel"}`, `output | text="Hel"`},
	{"v chat audio", `{"type":"response.audio.delta","data":"UklGRqQW","format":"wav"}`, `output old | audio part(UklGRqQW wav 0 0 -1)`},
	{"v chat audio of 0.30", `{"type":"response.output_audio.delta","data":"UklGRqQW","format":"wav"}`, `output new | audio part(UklGRqQW wav 0 0 -1)`},
	{"v chat audio done", `{"type":"response.audio.done"}`, `audio_done`},
	{"v chat frame", `{"type":"video.frame.ack","frame_id":"f0","pts_ms":0,"accepted":true,"server_receive_ts_ms":2447836.75}`, `passing form=9`},
	{"v chat frames", `{"type":"video.frames.consumed","request_id":"video-38a8f3fe828a","model_selected_ts_ms":2447856.15,"frame_ids":["f0","f1"]}`, `passing form=9 | id=video-38a8f3fe828a`},
	{"v chat over", `{"type":"session.done"}`, `turn_done`},
	{"v chat pong", `{"type":"pong"}`, `passing`},
	// vLLM-Omni, video out
	{"v video start", `{"type":"video.start","request_id":"video_stream-1","format":"m4s","config":{}}`, `started form=10 | id=video_stream-1`},
	{"v video chunk", `{"type":"video.chunk_metadata","request_id":"video_stream-1","kind":"media","byte_length":5}`, `passing`},
	{"v video done", `{"type":"session.done","request_id":"video_stream-1","chunks":1,"stopped":false}`, `turn_done`},
	// what nobody knows
	{"unknown", `{"type":"some.thing","x":1}`, `passing | unknown`},
	{"unknown of a known family", `{"type":"response.new_thing","response_id":"r"}`, `passing key=r | unknown`},
	{"unknown with sound in it", `{"type":"response.blob.delta","response_id":"r","blob":"` + strings.Repeat("QUJD", 80) + `"}`, `passing key=r | unknown audiolike`},
	{"unknown unit", `{"type":"audio.level","level":3}`, `passing | unknown`},
	{"unknown transcription", `{"type":"transcription.hint"}`, `passing | unknown`},
	{"no type", `{"a":1}`, `passing | unknown`},
	{"no object", `[1,2]`, `passing | unknown`},
	{"a number", `7`, `passing | unknown`},
	// hostile values
	{"type is a number", `{"type":5}`, `passing | unknown`},
	{"type is null", `{"type":null}`, `passing | unknown`},
	{"type nested", `{"type":{"type":"response.done"}}`, `passing | unknown`},
	{"type twice, the last counts", `{"type":"response.done","type":"response.start"}`, `started form=9`},
	{"members twice", `{"type":"response.text.delta","response_id":"a","delta":"x","response_id":"b","delta":"y"}`, `output key=b | text="y"`},
	{"numbers as strings", `{"type":"audio.start","utterance_index":"0","sentence_index":"7","sample_rate":"24000","format":3}`, `started form=1 key=0`},
	{"numbers that are none", `{"type":"audio.done","utterance_index":1,"sentence_index":1.5,"total_bytes":1e3,"error":"true"}`, `unit_done form=1 key=1`},
	{"numbers too large", `{"type":"audio.done","utterance_index":99999999999999999999,"total_bytes":99999999999999999999,"server_event_seq":99999999999999999999}`, `unit_done form=1 key=99999999999999999999`},
	{"nulls", `{"type":"response.audio.delta","response_id":null,"delta":null,"format":null,"sample_rate_hz":null}`, `output old | audio`},
	{"delta is an object", `{"type":"response.text.delta","response_id":"r","delta":{"text":"x"}}`, `output key=r`},
	{"delta is a list", `{"type":"response.output_audio.delta","response_id":"r","delta":["AAAA"]}`, `output key=r new | audio`},
	{"response is a string", `{"type":"response.done","response":"r","status":"failed"}`, `turn_done status=failed`},
	{"session is a string", `{"type":"session.created","session":"x"}`, `opened form=3`},
	{"session is null", `{"type":"session.created","session":null,"id":"sess-1"}`, `opened form=3 session=sess-1`},
	{"error is null", `{"type":"error","error":null}`, `failed | error(|error|0)`},
	{"error is a list", `{"type":"error","error":[1]}`, `failed | error(|error|0)`},
	{"error code as a string of digits", `{"type":"error","error":{"code":"503","message":"m"}}`, `failed | error(m||503)`},
	{"escaped sound", `{"type":"response.audio.delta","response_id":"r","delta":"\/8O0\u002B"}`, `output key=r old | audio part(/8O0+  0 0 -1)`},
	{"escaped names of members", `{"\u0074ype":"response.text.delta","\u0064elta":"x"}`, `output | text="x"`},
}

func TestServerMessages(t *testing.T) {
	for _, v := range serverMessages {
		t.Run(v.name, func(t *testing.T) {
			var r Reader
			m, err := r.Server([]byte(v.data))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(v.want, meant(m)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if got := plainType(v.data); got != string(m.Type) {
				t.Errorf("Type %q, want %q", m.Type, got)
			}
		})
	}
}

// plainType is the type member as encoding/json has it, empty for none.
func plainType(data string) string {
	var m map[string]any
	_ = json.Unmarshal([]byte(data), &m)
	s, _ := m["type"].(string)
	return s
}

var clientMessages = []struct{ name, data, want string }{
	{"v speech config", `{"type": "session.config", "response_format": "pcm", "stream_audio": true}`, `config format=pcm`},
	{"v speech config, split", `{"type":"session.config","response_format":"pcm","split_granularity":"clause"}`, `config split=clause format=pcm`},
	{"v speech config, not split", `{"type":"session.config","split_granularity":"none"}`, `config split=none`},
	{"v speech text", `{"type": "input.text", "text": "First. #fake{\"samples"}`, `input_text | text="First. #fake{\"samples"`},
	{"v speech done", `{"type": "input.done"}`, `ask`},
	{"v speech close", `{"type": "session.close"}`, `leave`},
	{"s speech config", `{"type": "session.config", "session": {"response_format": "wav", "model": "toy-omni", "voice": "default", "split_granularity": "clause"}}`, `config split=clause format=wav model=toy-omni`},
	{"s speech commit", `{"type": "input.commit"}`, `ask`},
	{"v turn update", `{"type": "session.update", "model": "fake-omni"}`, `config model=fake-omni`},
	{"v turn begins", `{"type": "input_audio_buffer.commit", "final": false}`, `ask`},
	{"v turn ends", `{"type": "input_audio_buffer.commit", "final": true}`, `input_end flag=true`},
	{"v turn sound", `{"type": "input_audio_buffer.append", "audio": "kOiQ6JDo"}`, `input_audio bytes=6`},
	{"sound, padded", `{"type":"input_audio_buffer.append","audio":"AAABAP//AAA="}`, `input_audio bytes=8`},
	{"sound, none", `{"type":"input_audio_buffer.append","audio":""}`, `input_audio bytes=0`},
	{"sound, no string", `{"type":"input_audio_buffer.append","audio":7}`, `input_audio`},
	{"r update", `{"type":"session.update","session":{"model":"m","output_modalities":["audio"],"modalities":["text"]}}`, `config model=m modes=[audio]`},
	{"r commit", `{"type":"input_audio_buffer.commit","event_id":"c7"}`, `ask event_id=c7`},
	{"r create", `{"type":"response.create","event_id":"c8","response":{"modalities":["text"]}}`, `ask event_id=c8 modes=[text]`},
	{"r cancel", `{"type":"response.cancel","response_id":"resp_1"}`, `cancel key=resp_1`},
	{"r cancel, any", `{"type": "response.cancel"}`, `cancel`},
	{"r item", `{"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "One."}]}}`, `input_text`},
	{"v native create", `{"type": "session.create", "session": {"model": "fake-omni", "modalities": ["text", "audio"]}}`, `config model=fake-omni modes=[text audio]`},
	{"v native text", `{"type": "input.text.append", "text": "One."}`, `input_text | text="One."`},
	{"v duplex resume", `{"type":"session.resume","session_id":"duplex-16","resume_token":"t"}`, `resume session=duplex-16`},
	{"s shared sound", `{"type": "input_audio_buffer.append", "audio": "PPY89jz2", "event_id": "c0", "sglang": {"seq": 0}}`, `input_audio event_id=c0 bytes=6`},
	{"s shared end", `{"type": "sglang.input_audio.end", "event_id": "e1"}`, `input_end event_id=e1`},
	{"s segs end", `{"type": "transcription.done"}`, `input_end`},
	{"v chat query", `{"type": "video.query", "text": "What?"}`, `ask`},
	{"v chat query, spoken", `{"type":"video.query","audio_data":"AAAA"}`, `ask bytes=3`},
	{"v chat sound", `{"type":"audio.chunk","data":"AAAAAAAA"}`, `input_audio bytes=6`},
	{"v chat frame", `{"type": "video.frame", "data": "/9j/4AAQ", "frame_id": "f0", "pts_ms": 0}`, `passing`},
	{"v chat done", `{"type": "video.done"}`, `leave`},
	{"v chat ping", `{"type":"ping"}`, `passing`},
	{"v video start", `{"type":"session.start","prompt":"p","model":"m","format":"m4s"}`, `ask model=m`},
	{"v video stop", `{"type":"session.stop"}`, `leave`},
	{"unknown", `{"type":"x"}`, `passing`},
	{"no object", `"x"`, `passing`},
	{"final as a string", `{"type":"input_audio_buffer.commit","final":"true"}`, `ask`},
	{"event id as a number", `{"type":"response.create","event_id":5}`, `ask`},
	{"escaped event id", `{"type":"response.create","event_id":"a\u0062"}`, `ask event_id=ab`},
	{"modalities are no list", `{"type":"session.update","session":{"modalities":"text"}}`, `config`},
	{"modalities of all kinds", `{"type":"session.update","session":{"modalities":[1,null,"text"]}}`, `config modes=[  text]`},
}

func TestClientMessages(t *testing.T) {
	for _, v := range clientMessages {
		t.Run(v.name, func(t *testing.T) {
			var r Reader
			m, err := r.Client([]byte(v.data))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(v.want, meant(m)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestSpacingDoesNotMatter: servers space their JSON differently, some within one
// stream (wire/vllm-omni.md section 14, trap 33).
func TestSpacingDoesNotMatter(t *testing.T) {
	var r Reader
	for _, v := range serverMessages {
		var compact, wide bytes.Buffer
		if json.Compact(&compact, []byte(v.data)) != nil || json.Indent(&wide, []byte(v.data), "\t", "  ") != nil {
			t.Fatal(v.name)
		}
		for _, data := range [][]byte{compact.Bytes(), wide.Bytes()} {
			if m, err := r.Server(data); err != nil || meant(m) != v.want {
				t.Errorf("%s as %s: %s (%v), want %s", v.name, data, meant(m), err, v.want)
			}
		}
	}
	for _, v := range clientMessages {
		var compact, wide bytes.Buffer
		if json.Compact(&compact, []byte(v.data)) != nil || json.Indent(&wide, []byte(v.data), "", "\t") != nil {
			t.Fatal(v.name)
		}
		for _, data := range [][]byte{compact.Bytes(), wide.Bytes()} {
			if m, err := r.Client(data); err != nil || meant(m) != v.want {
				t.Errorf("%s as %s: %s (%v), want %s", v.name, data, meant(m), err, v.want)
			}
		}
	}
}

func TestMalformedMessages(t *testing.T) {
	var r Reader
	for _, data := range []string{"", " ", "{", `{"type":"response.done"`, `{"type":}`, `{"type":"a"}x`, "\xff", `{"type":"a\x"}`, "null}"} {
		if m, err := r.Server([]byte(data)); err == nil {
			t.Errorf("the server's %q was read: %s", data, meant(m))
		}
		if m, err := r.Client([]byte(data)); err == nil {
			t.Errorf("the client's %q was read: %s", data, meant(m))
		}
	}
	if m, err := r.Server([]byte(serverMessages[0].data)); err != nil || meant(m) != serverMessages[0].want {
		t.Errorf("after them: %s, %v", meant(m), err)
	}
}

// TestPartsAreOfOneMessage: a reader that is used again keeps nothing of the last
// message but its scratch.
func TestPartsAreOfOneMessage(t *testing.T) {
	var r Reader
	if m, err := r.Server([]byte(`{"type":"response.audio.delta","delta":"AAAA"}`)); err != nil || len(m.Parts) != 1 {
		t.Fatal(m.Parts, err)
	}
	if m, err := r.Server([]byte(`{"type":"response.audio.delta","delta":""}`)); err != nil || len(m.Parts) != 0 || !m.AudioTyped {
		t.Error(m.Parts, err)
	}
	if m, err := r.Client([]byte(`{"type":"input_audio_buffer.append","audio":"AAAA"}`)); err != nil || len(m.Parts) != 0 {
		t.Error(m.Parts, err)
	}
}

// TestEarlySpeechStreamOfVLLMHasNoUtterances: vLLM-Omni 0.24 sends no
// utterance_index (wire/vllm-omni.md section 0), SGLang-Omni always an id.
func TestEarlySpeechStreamOfVLLMHasNoUtterances(t *testing.T) {
	var r Reader
	m, err := r.Server([]byte(`{"type":"audio.start","sentence_index":0,"sentence_text":"Hi.","format":"pcm","sample_rate":24000}`))
	if err != nil || m.Form != SpeechVLLM {
		t.Errorf("form %d (%v), want %d", m.Form, err, SpeechVLLM)
	}
}

// TestTextOfDoneEvents: where no delta came the text of the done event is the
// text (wire/vllm-omni.md section 13: "or non-empty text.done").
func TestTextOfDoneEvents(t *testing.T) {
	for _, v := range []struct{ data, want string }{
		{`{"type":"response.text.done","text":"Hello"}`, "Hello"},
		{`{"type":"transcription.done","text":"Hello"}`, "Hello"},
		{`{"type":"response.output_text.done","response_id":"r","text":"Hello"}`, "Hello"},
		{`{"type":"response.audio_transcript.done","response_id":"r","transcript":"Hello"}`, "Hello"},
	} {
		var r Reader
		m, err := r.Server([]byte(v.data))
		if err != nil || string(m.Text) != v.want || !m.Final {
			t.Errorf("%s: text %q, final %v (%v), want %q as final", v.data, m.Text, m.Final, err, v.want)
		}
	}
}

// TestNativeAudioCarriesText: a unit of /v1/duplex has its text beside its sound
// (wire/vllm-omni.md section 8: {audio, text?, format, sample_rate_hz?}).
func TestNativeAudioCarriesText(t *testing.T) {
	var r Reader
	m, err := r.Server([]byte(`{"type":"response.output_audio.delta","session_id":"d","response_id":"r","epoch":0,"audio":"AAAA","text":"Good","format":"pcm16","sample_rate_hz":24000}`))
	if err != nil || string(m.Text) != "Good" || len(m.Parts) != 1 {
		t.Errorf("text %q, %d parts (%v)", m.Text, len(m.Parts), err)
	}
}

// TestNativeCancel: /v1/duplex says audio.cancelled where the projection says
// response.done (capture duplex-cancelled holds it as the inner event).
func TestNativeCancel(t *testing.T) {
	var r Reader
	m, err := r.Server([]byte(`{"type":"audio.cancelled","session_id":"duplex-5d","response_id":"resp-0","reason":"barge_in","cancelled_epoch":0,"epoch":1,"committed_ms":0,"playback":{"generated_ms":0},"server_event_seq":15}`))
	if err != nil || m.Unknown || m.Kind != TurnDone || m.Status != "cancelled" || m.Reason != "barge_in" {
		t.Errorf("%s (%v)", meant(m), err)
	}
}

// TestTokensOfAConversation: SGLang-Omni counts completion_tokens (capture
// realtime-barge-in).
func TestTokensOfAConversation(t *testing.T) {
	var r Reader
	m, err := r.Server([]byte(`{"type": "response.done", "response": {"id": "resp_52", "status": "completed", "status_details": {"reason": "stop"}, "usage": {"prompt_tokens": 7, "completion_tokens": 8, "total_tokens": 15, "engine_time_s": null}}}`))
	if err != nil || m.Tokens != 8 {
		t.Errorf("%d tokens (%v), want 8", m.Tokens, err)
	}
}

// TestErrorsThatAreNotFatal: Message.Flag is that the session goes on, where the
// server says so.
func TestErrorsThatAreNotFatal(t *testing.T) {
	var r Reader
	for member, want := range map[string]bool{`"sglang": {"fatal": true}, `: false, `"sglang": {"fatal": false}, `: true, `"sglang": {"fatal": "no"}, `: false, ``: false} {
		m, err := r.Server([]byte(`{"type": "error", ` + member + `"error": {"type": "server_error", "code": "internal", "message": "toy duplex fault"}}`))
		if err != nil || m.Flag != want {
			t.Errorf("%s: flag %v (%v)", member, m.Flag, err)
		}
	}
}

// TestEscapesInIDs: an id is the same however it is escaped.
func TestEscapesInIDs(t *testing.T) {
	var r Reader
	m, err := r.Server([]byte(`{"type":"response.created","response":{"id":"resp\/1\u0041"}}`))
	if err != nil || string(m.Key) != "resp/1A" || m.ID != "resp/1A" {
		t.Errorf("key %q, id %q (%v), want resp/1A", m.Key, m.ID, err)
	}
}

// TestEscapedSoundOfTheClient: encoders of PHP and .NET escape the slash and
// the plus sign.
func TestEscapedSoundOfTheClient(t *testing.T) {
	var r Reader
	m, err := r.Client([]byte(`{"type":"input_audio_buffer.append","audio":"\/\/\/\u002B"}`))
	if err != nil || m.Bytes != 3 {
		t.Errorf("%d bytes (%v), want 3", m.Bytes, err)
	}
}

// TestKeysAreShort: what is kept of a turn that is over is no larger than an id.
func TestKeysAreShort(t *testing.T) {
	var r Reader
	for _, id := range []string{`{"a":[1,2,3]}`, `["x"]`, `true`} {
		m, err := r.Server([]byte(`{"type":"response.text.delta","response_id":` + id + `,"delta":"x"}`))
		if err != nil || len(m.Key) > 0 {
			t.Errorf("response_id %s: key %q (%v), want none", id, m.Key, err)
		}
	}
}

// within reports whether p lies in b, or is memory of its own.
func within(p, b []byte) bool {
	if len(p) == 0 || len(b) == 0 {
		return true
	}
	at, from := uintptr(unsafe.Pointer(&p[0])), uintptr(unsafe.Pointer(&b[0]))
	if at < from || at >= from+uintptr(cap(b)) {
		return true
	}
	return at+uintptr(len(p)) <= from+uintptr(len(b))
}

func fuzzMessage(t *testing.T, read func(*Reader, []byte) (*Message, error), data []byte) {
	t.Helper()
	var r Reader
	keep := bytes.Clone(data)
	m, err := read(&r, data)
	if !bytes.Equal(keep, data) {
		t.Fatal("the input was written to")
	}
	if err == nil != json.Valid(data) && validUTF8(data) {
		t.Errorf("%q: %v, encoding/json says valid %v", data, err, json.Valid(data))
	}
	if err != nil {
		return
	}
	if int(m.Kind) >= len(kindNames) || int(m.Form) >= len(formNames) {
		t.Fatalf("kind %d, form %d", m.Kind, m.Form)
	}
	_, _ = m.Form.String(), m.Form.Server()
	for _, p := range [][]byte{m.Type, m.Key, m.Text, m.Reasoning, m.Refusal} {
		if !within(p, data) {
			t.Fatal("a slice runs over the input's end")
		}
	}
	for _, p := range m.Parts {
		if !within(p.Base64, data) {
			t.Fatal("a part runs over the input's end")
		}
	}
	if m.Kind == Failed && m.Err == nil {
		t.Error("an error without a failure")
	}
	before := meant(m)
	for range 2 { // a reader that was used reads the same
		again, err := read(&r, data)
		if err != nil || meant(again) != before {
			t.Fatalf("%q reads as %s, then as %s (%v)", data, before, meant(again), err)
		}
	}
	var wide bytes.Buffer
	if validUTF8(data) && json.Indent(&wide, data, " ", "\t") == nil {
		if m, err := read(&r, wide.Bytes()); err != nil || meantBare(m) != bare(before) {
			t.Fatalf("%q reads as %s, spaced out as %s (%v)", data, before, meant(m), err)
		}
	}
}

func validUTF8(p []byte) bool { return bytes.Equal(bytes.ToValidUTF8(p, []byte{'?'}), p) }

// bare is a description without the key, which may be raw JSON, or an error's
// detail.
func bare(s string) string {
	s, _, _ = strings.Cut(s, " key=")
	s, _, _ = strings.Cut(s, " | ")
	return s
}

func meantBare(m *Message) string { return bare(meant(m)) }

func FuzzServerMessage(f *testing.F) {
	for _, v := range serverMessages {
		f.Add([]byte(v.data))
	}
	f.Fuzz(func(t *testing.T, data []byte) { fuzzMessage(t, (*Reader).Server, data) })
}

func FuzzClientMessage(f *testing.F) {
	for _, v := range clientMessages {
		f.Add([]byte(v.data))
	}
	f.Fuzz(func(t *testing.T, data []byte) { fuzzMessage(t, (*Reader).Client, data) })
}

func BenchmarkServerMessage(b *testing.B) {
	sound := `{"type":"response.audio.delta","response_id":"resp-duplex-0123456789abcdef-0-12bd48ce","item_id":"item_resp-duplex-0","output_index":0,"content_index":0,"delta":"` + strings.Repeat("AAECAwQF", 800) + `","format":"pcm16","sample_rate_hz":24000,"event_id":"event_846b1e777d2241f4ab7f4a6c8351dc02","server_event_seq":16}`
	text := `{"type":"response.output_text.delta","response_id":"resp-duplex-09e8d9297357413b9844be8c13384bb1-0-12bd48ce","item_id":"item_resp-duplex-09e8d9297357413b9844be8c13384bb1-0-12bd48ce","output_index":0,"content_index":1,"delta":"Hel","event_id":"event_e43763d3eec54287b180ded3da5f9eca","server_event_seq":11}`
	for _, v := range []struct{ name, data string }{{"audio6400", sound}, {"text300", text}} {
		b.Run(v.name, func(b *testing.B) {
			var r Reader
			data := []byte(v.data)
			b.ReportAllocs()
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if _, err := r.Server(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
