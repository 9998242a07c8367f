package drive

import "fmt"

const (
	sglang = `{"dialect":"sglang-omni"}`
	vllm   = `{"dialect":"vllm-omni"}`
)

var both = []string{"text", "audio"}

var plans = []plan{
	{name: "vLLM-Omni speech over WebSocket", flow: "speech", path: "/v1/audio/speech/stream", script: vllm, turns: 2, play: speech},
	{name: "vLLM-Omni realtime, turns", flow: "realtime", path: "/v1/realtime", script: vllm, turns: 2, play: turns},
	{name: "realtime, OpenAI style", flow: "realtime-openai", path: "/v1/realtime", script: `{"dialect":"openai"}`, turns: 2, play: openAI},
	{name: "vLLM-Omni duplex, a response cancelled", flow: "duplex", path: "/v1/realtime?duplex=1", script: `{"dialect":"vllm-omni","chunks":8}`, turns: 2, play: duplex},
	{name: "vLLM-Omni duplex, model-native", flow: "duplex", path: "/v1/realtime?duplex=1&minicpmo45_native_duplex=1", script: `{"dialect":"vllm-omni","unit_ms":200}`, turns: 1, play: nativeDuplex},
	{name: "vLLM-Omni duplex, own vocabulary", flow: "duplex-native", path: "/v1/duplex", script: vllm, turns: 2, play: plainDuplex},
	{name: "vLLM-Omni video chat", flow: "video-chat", path: "/v1/video/chat/stream", script: vllm, turns: 2, play: videoChat},
	{name: "vLLM-Omni video out", flow: "video-out", path: "/v1/realtime/video", script: vllm, turns: 1, play: videoOut},
	{name: "SGLang-Omni speech over WebSocket", flow: "speech-sglang", path: "/v1/audio/speech/stream", script: sglang, turns: 2, play: sglangSpeech},
	{name: "SGLang-Omni conversation, an answer interrupted", flow: "realtime-sglang", path: "/v1/realtime", script: `{"dialect":"sglang-omni","chunks":8}`, turns: 2, play: conversation},
	{name: "SGLang-Omni duplex", flow: "duplex-sglang", path: "/v1/realtime", script: `{"dialect":"sglang-omni","realtime":"shared","chunks":2,"text":["Yes","."]}`, turns: 1, play: sharedDuplex},
	{name: "SGLang-Omni live transcription", flow: "realtime-transcription", path: "/v1/realtime?intent=transcription", script: sglang, turns: 1, play: transcription},
}

func speech(c *client) {
	c.send("session.config", fields{"response_format": "pcm", "stream_audio": true})
	for i := range 2 {
		c.send("input.text", fields{"text": fmt.Sprintf("Sentence number %d.", i)})
		c.send("input.done", nil)
		c.expect("session.done")
		c.needAudio()
	}
	c.need("audio.start", "audio.done")
	c.send("session.close", nil)
	c.end(1000)
}

func turns(c *client) {
	c.expect("session.created")
	c.send("session.update", fields{"model": "demo"})
	for range 2 {
		c.send("input_audio_buffer.commit", fields{"final": false})
		c.speak(200, "speech-like", nil)
		c.send("input_audio_buffer.commit", fields{"final": true})
		c.expect("response.audio.done")
		c.needAudio()
	}
	c.need("transcription.delta", "transcription.done")
	c.leave()
}

func openAI(c *client) {
	c.expect("conversation.created")
	for range 2 {
		c.speak(200, "speech-like", nil)
		c.send("input_audio_buffer.commit", nil)
		c.send("response.create", nil)
		c.expect("response.done")
		c.needAudio()
	}
	c.need("input_audio_buffer.committed", "response.output_audio_transcript.delta")
	c.leave()
}

func message(text string) fields {
	return fields{"item": fields{"type": "message", "role": "user", "content": []fields{{"type": "input_text", "text": text}}}}
}

func duplex(c *client) {
	c.send("session.update", fields{"session": fields{"model": "demo", "modalities": both}})
	c.expect("session.updated")
	c.send("conversation.item.create", message("Tell me something long."))
	c.send("response.create", nil)
	c.expect("response.audio.delta")
	c.needAudio()
	c.send("response.cancel", nil)
	c.expect("response.done")
	c.send("conversation.item.create", message("And something short."))
	c.send("response.create", nil)
	c.audio = 0
	c.expect("response.done")
	c.needAudio()
	c.send("session.close", nil)
	c.expect("session.closed")
	c.end(dropped)
}

func nativeDuplex(c *client) {
	c.send("session.update", fields{"session": fields{"model": "demo", "modalities": both}})
	c.expect("session.updated")
	c.speak(400, "speech-like", nil)
	c.expect("response.done")
	c.needAudio()
	c.need("response.listen", "response.speak", "response.audio_transcript.delta")
	c.send("session.close", nil)
	c.expect("session.closed")
	c.end(dropped)
}

func plainDuplex(c *client) {
	c.send("session.create", fields{"session": fields{"model": "demo", "modalities": both}})
	c.expect("session.created")
	for range 2 {
		c.send("input.text.append", fields{"text": "Hello?"})
		c.send("input.commit", nil)
		c.expect("response.done")
		c.needAudio()
	}
	c.need("response.text.delta")
	c.send("session.close", nil)
	c.expect("session.closed")
	c.end(dropped)
}

// jpeg is the start and the end of a picture, which is all that is looked at.
var jpeg = []byte{0xFF, 0xD8, 0xFF, 0xD9}

func videoChat(c *client) {
	c.send("session.config", fields{"modalities": both})
	for i := range 2 {
		c.send("video.frame", fields{"data": jpeg, "frame_id": fmt.Sprint("f", i), "pts_ms": 40 * i})
		c.expect("video.frame.ack")
	}
	for range 2 {
		c.send("video.query", fields{"text": "What do you see?"})
		c.expect("response.audio.done")
		c.needAudio()
	}
	c.need("response.start", "response.text.delta", "response.text.done", "video.frames.consumed")
	c.send("video.done", nil)
	c.expect("session.done")
	c.end(dropped)
}

func videoOut(c *client) {
	c.send("session.start", fields{"prompt": "a relay", "model": "demo", "format": "m4s", "width": 64, "height": 64, "fps": 8, "num_frames": 16})
	c.expect("session.done")
	c.needAudio() // any binary message
	c.need("video.start", "video.chunk_metadata")
	c.end(dropped)
}

func sglangSpeech(c *client) {
	c.send("session.config", fields{"model": "demo", "stream_audio": true})
	c.expect("session.configured")
	c.send("input.text", fields{"text": "The first sentence. And"})
	c.expect("audio.done")
	c.needAudio()
	c.send("input.text", fields{"text": " a second one"})
	c.send("input.commit", nil)
	c.expect("input.committed")
	c.needAudio()
	c.send("input.done", nil)
	c.expect("session.done")
	c.end(1000)
}

func conversation(c *client) {
	c.expect("session.created")
	c.send("session.update", fields{"session": fields{"modalities": both, "turn_detection": fields{"type": "server_vad", "silence_duration_ms": 200}}})
	c.expect("session.updated")
	c.say()
	c.expect("response.audio.delta")
	c.needAudio()
	c.say() // a barge-in
	c.expect("response.done")
	c.audio = 0
	c.expect("response.done")
	c.needAudio()
	c.expect("conversation.item.input_audio_transcription.completed")
	c.need("input_audio_buffer.speech_stopped", "input_audio_buffer.committed", "response.text.delta")
	c.leave()
}

// say is speech and the silence that ends it.
func (c *client) say() {
	c.speak(300, "chirp", nil)
	c.speak(300, "silence", nil)
}

func sharedDuplex(c *client) {
	c.expect("session.created")
	c.send("session.update", fields{"event_id": "u1", "session": fields{"type": "realtime", "model": "demo", "output_modalities": both}})
	c.expect("session.updated")
	c.speak(600, "speech-like", func(i int) fields {
		return fields{"event_id": fmt.Sprint("c", i), "sglang": fields{"seq": i}}
	})
	c.expect("response.done")
	c.needAudio()
	c.send("sglang.input_audio.end", fields{"event_id": "e1"})
	c.expect("sglang.input_audio.drained")
	c.need("sglang.input_audio.accepted", "sglang.unit.done", "response.output_text.delta")
	c.send("session.close", fields{"event_id": "x1"})
	c.expect("session.closed")
	c.end(1000)
}

func transcription(c *client) {
	c.expect("session.created")
	c.speak(700, "chirp", nil)
	c.speak(600, "silence", nil)
	c.send("transcription.done", nil)
	c.expect("transcription.completed")
	c.need("input_audio_buffer.speech_started", "transcription.segment")
	c.leave()
}
