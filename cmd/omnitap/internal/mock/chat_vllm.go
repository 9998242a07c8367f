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
	base := fmt.Sprintf(`{"id":%s,"object":"chat.completion.chunk","created":%d,"model":%s,"choices":[`,
		quote(x.id), call.created, quote(call.model))
	text := func(it plan.Item, last bool) string {
		finish, stop, metrics := "null", "", "{}"
		if last {
			stop, metrics = `"stop_reason":null,`, "null"
			if call.gen.Items[call.lastOutput].Kind == plan.Text {
				finish = x.finish()
			}
		}
		return join(base, `{"index":0,"delta":{"content":`, quote(it.Text), `},"logprobs":null,"finish_reason":`, finish, `,`, stop,
			`"token_ids":null}],"metrics":`, metrics, `,"modality":"text"}`)
	}
	render := func(i int, it plan.Item) string {
		switch it.Kind {
		case plan.Role:
			return base + `{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null,"modality":"text"}`
		case plan.Text:
			return text(it, i == call.lastText)
		default:
		}
		finish, metrics := "null", "{}"
		if i > call.lastText {
			metrics = "null"
		}
		if i == call.lastOutput {
			finish = x.finish()
		}
		return join(base, `{"index":0,"delta":{"role":"assistant","content":`, x.payload(it, call.format), `},"logprobs":null,"finish_reason":`, finish,
			`,"stop_reason":null,"token_ids":null`, x.audioMetadata(it, call.format), `}],"usage":`, x.usage(call.prompt, 0), `,"metrics":`, metrics, `,"modality":"audio"}`)
	}
	a := plan.Answer{Status: 200, ContentType: sseType, SSE: true, Form: "sse", End: plan.Complete}
	a.Pieces = x.stream(call, render)
	if call.usage {
		a.Pieces = append(a.Pieces, plan.Piece{Data: x.event("", base+`],"usage":`+x.usage(call.prompt, call.completions)+`}`), Raw: plan.NotRaw})
	}
	a.Pieces = append(a.Pieces, x.ending(x.done(), func() plan.Piece {
		return plan.Piece{Kind: plan.Text, Data: x.event("", text(plan.Item{Text: " late"}, false)), Texts: []string{" late"}, Raw: plan.NotRaw}
	})...)
	a.Fail = func() []plan.Piece {
		native := fmt.Sprintf(`{"error": {"message": %s, "type": "InternalServerError", "param": null, "code": %d}}`,
			quoteASCII(x.message(x.script.ErrorCode)), x.script.ErrorCode)
		return append([]plan.Piece{x.failing(native)}, x.ending(x.done(), func() plan.Piece { return x.failing(native) })...)
	}
	return a
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
