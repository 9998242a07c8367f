package mock

import (
	"fmt"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
)

// chatSGLang is the chat of SGLang-Omni 0.1.9: JSON as json.dumps writes it,
// a file an audio delta, usage in the finish event.
func (x *exchange) chatSGLang(call *chatCall) plan.Answer {
	audioID := quoteASCII("audio-" + call.id)
	usage := fmt.Sprintf(`"prompt_tokens": %d, "completion_tokens": %d, "total_tokens": %d`, call.prompt, call.completions, call.prompt+call.completions)
	if !call.stream {
		return x.wholeSGLang(call)
	}
	base := fmt.Sprintf(`{"id": %s, "object": "chat.completion.chunk", "created": %d, "model": %s, "choices": [{"index": 0, "delta": {`,
		quoteASCII(x.id), call.created, quoteASCII(call.model))
	roleSent := false
	render := func(_ int, it plan.Item) string {
		role, sep := "", ""
		if !roleSent {
			role, sep = `"role": "assistant"`, ", "
			roleSent = true
		}
		switch it.Kind {
		case plan.Role:
			return join(base, `"role": "assistant"}, "finish_reason": null}]}`)
		case plan.Text:
			return join(base, role, sep, `"content": `, quoteASCII(it.Text), `}, "finish_reason": null}]}`)
		default:
		}
		return join(base, role, sep, `"audio": {"id": `, audioID, `, "data": `, x.payload(it, call.format), `}}, "finish_reason": null}]}`)
	}
	a := plan.Answer{Status: 200, ContentType: sseType, SSE: true, Form: "sse", End: plan.Complete}
	a.Pieces = x.stream(call, render)
	a.Pieces = append(a.Pieces, plan.Piece{Data: x.event("", join(base, `}, "finish_reason": `, x.finish(), `}], "usage": {`, usage, `}}`)), Raw: plan.NotRaw})
	a.Pieces = append(a.Pieces, x.ending(x.done(), func() plan.Piece {
		return plan.Piece{Kind: plan.Text, Data: x.event("", render(0, plan.Item{Kind: plan.Text, Text: " late"})), Texts: []string{" late"}, Raw: plan.NotRaw}
	})...)
	a.Fail = func() []plan.Piece {
		kind := "server_error"
		if x.script.ErrorCode < 500 {
			kind = "invalid_request_error"
		}
		native := fmt.Sprintf(`{"error": {"message": %s, "type": %q, "code": %d}}`, quoteASCII(x.message(x.script.ErrorCode)), kind, x.script.ErrorCode)
		return append([]plan.Piece{x.failing(native)}, x.ending(x.done(), func() plan.Piece { return x.failing(native) })...)
	}
	return a
}

func (x *exchange) wholeSGLang(call *chatCall) plan.Answer {
	text := quote(call.gen.Text())
	message := `{"role":"assistant"`
	audio := call.gen.Count(plan.Audio) > 0
	if call.text || !audio {
		message += `,"content":` + text
	}
	if audio {
		message += fmt.Sprintf(`,"audio":{"id":%s,"data":%s,"transcript":%s}`, quote("audio-"+call.id), x.wholeAudio(&call.gen, call.format), text)
	}
	return x.whole(&call.gen, fmt.Sprintf(`{"id":%s,"object":"chat.completion","created":%d,"model":%s,"choices":[{"index":0,"message":%s},"finish_reason":%s}],`+
		`"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`,
		quote(x.id), call.created, quote(call.model), message, x.finish(), call.prompt, call.completions, call.prompt+call.completions))
}
