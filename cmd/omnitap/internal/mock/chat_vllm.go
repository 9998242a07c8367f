package mock

import (
	"fmt"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
)

// chatVLLM is the chat of vLLM-Omni 0.26: compact JSON, audio as base64 in
// delta.content told apart by the modality behind it.
func (x *exchange) chatVLLM(call *chatCall) plan.Answer {
	if !call.stream {
		return x.wholeVLLM(call)
	}
	a := x.streamVLLM()
	a.Pieces = x.stream(call, func(i int, it plan.Item) string {
		return x.itemVLLM(call, it, place{lastText: i == call.lastText, afterText: i > call.lastText, last: i == call.lastOutput})
	})
	a.Pieces = append(a.Pieces, x.tailVLLM(call)...)
	return a
}

// place is where an item of a chat stands: whether it is the last text, or behind all
// text, and whether it is the last of all.
type place struct{ lastText, afterText, last bool }

// streamVLLM is the frame of a streaming answer.
func (x *exchange) streamVLLM() plan.Answer {
	a := plan.Answer{Status: 200, ContentType: sseType, SSE: true, Form: "sse", End: plan.Complete}
	a.Fail = func() []plan.Piece {
		native := fmt.Sprintf(`{"error": {"message": %s, "type": "InternalServerError", "param": null, "code": %d}}`,
			quoteASCII(x.message(x.script.ErrorCode)), x.script.ErrorCode)
		return append([]plan.Piece{x.failing(native)}, x.ending(x.done(), func() plan.Piece { return x.failing(native) })...)
	}
	return a
}

// baseVLLM is the beginning of every event.
func (x *exchange) baseVLLM(call *chatCall) string {
	return fmt.Sprintf(`{"id":%s,"object":"chat.completion.chunk","created":%d,"model":%s,"choices":[`,
		quote(x.id), call.created, quote(call.model))
}

// textVLLM is a text event.
func (x *exchange) textVLLM(call *chatCall, text string, at place) string {
	finish, stop, metrics := "null", "", "{}"
	if at.lastText {
		stop, metrics = `"stop_reason":null,`, "null"
		if at.last {
			finish = x.finish()
		}
	}
	return join(x.baseVLLM(call), `{"index":0,"delta":{"content":`, quote(text), `},"logprobs":null,"finish_reason":`, finish, `,`, stop,
		`"token_ids":null}],"metrics":`, metrics, `,"modality":"text"}`)
}

// itemVLLM is the event of an item.
func (x *exchange) itemVLLM(call *chatCall, it plan.Item, at place) string {
	switch it.Kind {
	case plan.Role:
		return x.baseVLLM(call) + `{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null,"modality":"text"}`
	case plan.Text:
		return x.textVLLM(call, it.Text, at)
	default:
	}
	finish, metrics := "null", "{}"
	if at.afterText {
		metrics = "null"
	}
	if at.last {
		finish = x.finish()
	}
	return join(x.baseVLLM(call), `{"index":0,"delta":{"role":"assistant","content":`, x.payload(it, call.format), `},"logprobs":null,"finish_reason":`, finish,
		`,"stop_reason":null,"token_ids":null`, x.audioMetadata(it, call.format), `}],"usage":`, x.usage(call.prompt, 0), `,"metrics":`, metrics, `,"modality":"audio"}`)
}

// tailVLLM is what comes behind the last output.
func (x *exchange) tailVLLM(call *chatCall) (out []plan.Piece) {
	if call.usage {
		out = append(out, plan.Piece{Data: x.event("", x.baseVLLM(call)+`],"usage":`+x.usage(call.prompt, call.completions)+`}`), Raw: plan.NotRaw})
	}
	return append(out, x.ending(x.done(), func() plan.Piece {
		return plan.Piece{Kind: plan.Text, Data: x.event("", x.textVLLM(call, " late", place{})), Texts: []string{" late"}, Raw: plan.NotRaw}
	})...)
}

// audioMetadata is what 0.30 adds to audio choices.
func (x *exchange) audioMetadata(it plan.Item, format string) string {
	if x.script.Variant != "0.30" || it.Kind != plan.Audio {
		return ""
	}
	c := it.Audio
	return fmt.Sprintf(`,"audio_metadata":{"format":%q,"sample_rate_hz":%d,"frame_count":%d,"channels":%d}`,
		format, c.Rate, len(c.PCM)/2/max(1, c.Channels), c.Channels)
}

func (x *exchange) usage(prompt, completion int) string {
	return fmt.Sprintf(`{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}`, prompt, prompt+completion, completion)
}

// wholeVLLM is the answer without streaming: text and audio are two choices,
// both of index 0, in 0.30 one.
func (x *exchange) wholeVLLM(call *chatCall) plan.Answer {
	const nulls = `"refusal":null,"annotations":null,"audio":`
	const tail = `,"function_call":null,"reasoning":null},"logprobs":null,"finish_reason":`
	choice := func(content, audio string) string {
		return join(`{"index":0,"message":{"role":"assistant","content":`, content, `,`, nulls, audio, tail, x.finish(),
			`,"stop_reason":null,"token_ids":null,"routed_experts":null}`)
	}
	audio := ""
	if call.gen.Count(plan.Audio) > 0 {
		audio = fmt.Sprintf(`{"id":"audio-%s","data":%s,"expires_at":%d,"transcript":""}`, x.hex(16), x.wholeAudio(&call.gen, call.format), call.created+86400)
	}
	text := quote(call.gen.Text())
	choices := ""
	switch {
	case audio == "":
		choices = choice(text, "null")
	case !call.text:
		choices = choice("null", audio)
	case x.script.Variant == "0.30":
		choices = choice(text, audio)
	default:
		choices = choice(text, "null") + "," + choice("null", audio)
	}
	return x.whole(&call.gen, fmt.Sprintf(`{"id":%s,"object":"chat.completion","created":%d,"model":%s,"choices":[%s],"service_tier":null,"system_fingerprint":null,`+
		`"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":null},"prompt_logprobs":null,"prompt_token_ids":null,"prompt_text":null,"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}`,
		quote(x.id), call.created, quote(call.model), choices, call.prompt, call.prompt+call.completions, call.completions))
}
