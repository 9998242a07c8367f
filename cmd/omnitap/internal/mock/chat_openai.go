package mock

import (
	"fmt"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
)

// chatOpenAI is the chat of OpenAI's own API: text in delta.content, or, when
// audio is asked for, transcript and pcm16 in delta.audio.
func (x *exchange) chatOpenAI(call *chatCall) plan.Answer {
	audio := call.audio && !x.f.NoAudio
	usage := fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, call.prompt, call.completions, call.prompt+call.completions)
	if !call.stream {
		message := `"content":` + quote(call.gen.Text()) + `,"refusal":null`
		if audio {
			message = fmt.Sprintf(`"content":null,"refusal":null,"audio":{"id":"audio_%s","data":%s,"expires_at":%d,"transcript":%s}`,
				call.id, x.wholeAudio(&call.gen, call.format), call.created+3600, quote(call.gen.Text()))
		}
		return x.whole(&call.gen, fmt.Sprintf(`{"id":%s,"object":"chat.completion","created":%d,"model":%s,"choices":[{"index":0,"message":{"role":"assistant",%s},"logprobs":null,"finish_reason":%s}],"usage":%s,"service_tier":"default","system_fingerprint":null}`,
			quote(x.id), call.created, quote(call.model), message, x.finish(), usage))
	}
	tail := `}]}`
	if call.usage {
		tail = `}],"usage":null}`
	}
	base := fmt.Sprintf(`{"id":%s,"object":"chat.completion.chunk","created":%d,"model":%s,"service_tier":"default","system_fingerprint":null,"choices":`,
		quote(x.id), call.created, quote(call.model))
	delta := func(d, finish string) string {
		return join(base, `[{"index":0,"delta":{`, d, `},"logprobs":null,"finish_reason":`, finish, tail)
	}
	render := func(_ int, it plan.Item) string {
		switch {
		case it.Kind == plan.Role && audio:
			return delta(fmt.Sprintf(`"role":"assistant","refusal":null,"audio":{"id":"audio_%s","transcript":""}`, call.id), "null")
		case it.Kind == plan.Role:
			return delta(`"role":"assistant","content":"","refusal":null`, "null")
		case it.Kind == plan.Text && audio:
			return delta(`"audio":{"transcript":`+quote(it.Text)+`}`, "null")
		case it.Kind == plan.Text:
			return delta(`"content":`+quote(it.Text), "null")
		}
		return delta(`"audio":{"data":`+x.payload(it, call.format)+`}`, "null")
	}
	a := plan.Answer{Status: 200, ContentType: sseType, SSE: true, Form: "sse", End: plan.Complete}
	a.Fields = plan.Fields("x-request-id", "req_"+x.hex(32))
	a.Pieces = x.stream(call, render)
	if audio {
		a.Pieces = append(a.Pieces, plan.Piece{Data: x.event("", delta(fmt.Sprintf(`"audio":{"expires_at":%d}`, call.created+3600), "null")), Raw: plan.NotRaw})
	}
	a.Pieces = append(a.Pieces, plan.Piece{Data: x.event("", delta("", x.finish())), Raw: plan.NotRaw})
	if call.usage {
		a.Pieces = append(a.Pieces, plan.Piece{Data: x.event("", base+`[],"usage":`+usage+`}`), Raw: plan.NotRaw})
	}
	a.Pieces = append(a.Pieces, x.ending(x.done(), func() plan.Piece {
		return plan.Piece{Kind: plan.Text, Data: x.event("", render(0, plan.Item{Kind: plan.Text, Text: " late"})), Texts: []string{" late"}, Raw: plan.NotRaw}
	})...)
	a.Fail = func() []plan.Piece {
		native := fmt.Sprintf(`{"error":{"message":%s,"type":"server_error","param":null,"code":null}}`, quote(x.message(x.script.ErrorCode)))
		return append([]plan.Piece{x.failing(native)}, x.ending(x.done(), func() plan.Piece { return x.failing(native) })...)
	}
	return a
}
