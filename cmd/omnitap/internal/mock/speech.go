package mock

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/tone"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/truth"
)

// speechCall is a speech request, understood.
type speechCall struct {
	format, mode string // wav or pcm; raw, sse or whole
	tokens       int
	gen          plan.Generation
}

// speech answers POST /v1/audio/speech in the request's dialect.
func (x *exchange) speech() plan.Answer {
	if x.req.bad != nil || x.req.fields == nil {
		return x.badBody()
	}
	call := speechCall{format: x.req.str("response_format"), tokens: 7 + len(x.req.str("input"))/16}
	if x.req.str("input") == "" {
		return x.refusal(http.StatusBadRequest, "input must be a non-empty string")
	}
	call.format = cmp.Or(call.format, "wav")
	if x.script.Format != "" {
		call.format = strings.TrimSuffix(x.script.Format, "16")
	}
	switch format, stream := x.req.str("stream_format"), x.req.flag("stream"); {
	case format == "sse", stream && format == "" && x.script.Dialect == script.DialectVLLM:
		call.mode = "sse"
	case x.script.Dialect == script.DialectOpenAI, stream, format == "audio" && x.script.Dialect == script.DialectVLLM:
		call.mode = "raw"
	default:
		call.mode = "whole"
	}
	if v := x.script.Variant; v == "raw" || v == "sse" || v == "whole" {
		call.mode = v
	}
	if call.mode != "whole" && call.format != "pcm" && x.script.Dialect == script.DialectSGLang && x.script.Variant != "g0" {
		a := x.refusal(http.StatusBadRequest, "")
		a.Pieces[0].Data = []byte(`{"error":{"message":"stream=true requires response_format='pcm'","type":"BadRequestError","param":"response_format","code":400}}`)
		return a
	}
	if call.format != "wav" && call.format != "pcm" {
		return x.refusal(http.StatusBadRequest, "response_format "+call.format+" is not made by this mock, only wav and pcm")
	}
	call.gen = plan.Generate(x.script, x.f, plan.Wish{Text: false, Audio: true, Role: false}, x.seed)
	x.rec.Update(func(t *truth.Truth) { t.CleanSamples = call.gen.Clean })
	if x.staged() && call.mode != "whole" {
		return x.speechStages(&call)
	}
	x.id = "speech-" + x.uuid()
	switch call.mode {
	case "raw":
		return x.speechRaw(&call)
	case "sse":
		return x.speechSSE(&call)
	}
	return x.speechWhole(&call)
}

// audioType is the Content-Type of a format.
func audioType(format string) string { return "audio/" + format }

// speechWhole is one file with a Content-Length.
func (x *exchange) speechWhole(call *speechCall) plan.Answer {
	c := plan.Shape(x.script, x.f, 1)
	c.PCM = call.gen.PCM()
	p := plan.Piece{Kind: plan.Audio, Wait: call.gen.Total(), Data: c.PCM, PCM: c.PCM}
	if call.format == "wav" {
		p.Data, p.Raw = x.file(c), tone.HeaderSize
	}
	a := plan.Answer{Status: 200, ContentType: audioType(call.format), Whole: true, Late: true, Form: "whole", End: plan.Complete, Pieces: []plan.Piece{p}}
	if x.script.Dialect == script.DialectSGLang {
		out := call.gen.Count(plan.Audio)
		a.Fields = plan.Fields(
			"content-disposition", `attachment; filename="speech.`+call.format+`"`,
			"x-request-id", x.id,
			"x-finish-reason", x.script.FinishReason,
			"x-prompt-tokens", fmt.Sprint(call.tokens),
			"x-completion-tokens", fmt.Sprint(out),
			"x-sglang-omni-input-tokens", fmt.Sprint(call.tokens),
			"x-sglang-omni-output-tokens", fmt.Sprint(out),
			"x-sglang-omni-total-tokens", fmt.Sprint(call.tokens+out),
			"x-engine-time", "0.125",
		)
	}
	return a
}

// rateFields are the fields of SGLang-Omni's speech streams.
func (x *exchange) rateFields(raw bool) []plan.Field {
	c := plan.Shape(x.script, x.f, 1)
	fields := plan.Fields(
		"x-request-id", x.id,
		"x-sample-rate", fmt.Sprint(c.Rate),
		"x-channels", fmt.Sprint(c.Channels),
		"x-bit-depth", "16",
	)
	if raw {
		fields = append(fields, plan.Fields("x-sglang-omni-speech-id", x.id)...)
	}
	return fields
}

// speechRaw is a body of bare samples; as WAV with one header of unknown size
// first, in a chunk of its own.
func (x *exchange) speechRaw(call *speechCall) plan.Answer {
	a := plan.Answer{Status: 200, ContentType: audioType(call.format), Form: "raw", End: plan.Complete}
	if x.script.Dialect == script.DialectSGLang {
		a.Late, a.Fields = true, x.rateFields(true)
		x.after = func() {
			x.storeOutcome(fmt.Sprintf(`{"request_id":%s,"finish_reason":%s,"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"engine_time_s":0.125}}`,
				quote(x.id), quote(x.script.FinishReason), call.tokens, len(call.gen.Items), call.tokens+len(call.gen.Items)))
		}
	}
	each := x.rawPieces(call)
	for _, it := range call.gen.Items {
		a.Pieces = append(a.Pieces, each(it)...)
	}
	return a
}

// rawPieces returns what makes the pieces of a raw body, item by item.
func (x *exchange) rawPieces(call *speechCall) func(plan.Item) []plan.Piece {
	headed := call.format != "wav" || x.f.HeaderEach
	return func(it plan.Item) (out []plan.Piece) {
		p := plan.Piece{Kind: it.Kind, Wait: it.Wait, Data: it.Audio.PCM, PCM: it.Audio.PCM}
		if it.Kind == plan.Body {
			out = append(out, x.plain(it))
		}
		if it.Kind != plan.Audio && it.Kind != plan.Empty {
			return out
		}
		if !headed {
			headed = true
			headers := x.streamHeader(it.Audio)
			headers[0].Wait, p.Wait = p.Wait, 0
			out = append(out, headers...)
		}
		if x.f.HeaderEach && it.Kind == plan.Audio {
			p.Data, p.Raw = x.file(it.Audio), tone.HeaderSize
		}
		if it.Kind == plan.Audio {
			out = append(out, p)
		}
		return out
	}
}

// streamHeader is the WAV header of a raw stream, in two parts if split.
func (x *exchange) streamHeader(c plan.Chunk) []plan.Piece {
	h := x.wavHeader(c, tone.SizeUnknown)
	if n := x.f.SplitHeader; n > 0 && n < len(h) {
		return []plan.Piece{{Data: h[:n], Raw: plan.NotRaw}, {Data: h[n:], Raw: plan.NotRaw}}
	}
	return []plan.Piece{{Data: h, Raw: plan.NotRaw}}
}

// speechSSE is the event stream of vLLM-Omni and OpenAI, or hands over to
// SGLang-Omni's.
func (x *exchange) speechSSE(call *speechCall) plan.Answer {
	switch {
	case x.script.Dialect == script.DialectSGLang && strings.HasPrefix(x.script.Variant, "g"):
		return x.speechOld(call)
	case x.script.Dialect == script.DialectSGLang:
		return x.speechG3(call)
	}
	a := x.frameSSE()
	each := x.ssePieces(call)
	for _, it := range call.gen.Items {
		a.Pieces = append(a.Pieces, each(it)...)
	}
	a.Pieces = append(a.Pieces, x.tailSSE(call, call.gen.Count(plan.Audio))...)
	return a
}

// frameSSE is the frame of a speech stream of events.
func (x *exchange) frameSSE() plan.Answer {
	a := plan.Answer{Status: 200, ContentType: sseType, SSE: true, Form: "sse", End: plan.Complete}
	a.Fail = func() []plan.Piece {
		native := fmt.Sprintf(`{"type":"speech.audio.error","error":{"message":%s,"type":"server_error","param":null,"code":%d}}`, quote(x.message(x.script.ErrorCode)), x.script.ErrorCode)
		p := x.failing(native)
		if cmp.Or(x.f.ErrorForm, "native") == "native" {
			p.Data = x.event("speech.audio.error", native)
		}
		return []plan.Piece{p}
	}
	return a
}

// speechEvent is one event of a speech stream.
func (x *exchange) speechEvent(kind, fields string) []byte {
	name := kind
	if x.script.Dialect == script.DialectOpenAI {
		name = ""
	}
	return x.event(name, `{"type":"`+kind+`"`+fields+`}`)
}

// speechDelta returns what makes an audio event.
func (x *exchange) speechDelta(call *speechCall) func(payload string) []byte {
	extra := ""
	if x.script.Dialect == script.DialectVLLM {
		extra = `,"response_format":"` + call.format + `"`
	}
	return func(payload string) []byte { return x.speechEvent("speech.audio.delta", `,"audio":`+payload+extra) }
}

// ssePieces returns what makes the pieces of a stream of events, item by item.
func (x *exchange) ssePieces(call *speechCall) func(plan.Item) []plan.Piece {
	delta := x.speechDelta(call)
	headed := call.format != "wav" || x.f.HeaderEach
	return func(it plan.Item) (out []plan.Piece) {
		if it.Kind == plan.Comment || it.Kind == plan.Body {
			out = append(out, x.plain(it))
		}
		if it.Kind != plan.Audio && it.Kind != plan.Empty {
			return out
		}
		if !headed && it.Kind == plan.Audio {
			headed = true
			h := plan.Piece{Kind: plan.Empty, Wait: it.Wait, Data: delta(`"` + encode(x.wavHeader(it.Audio, tone.SizeUnknown)) + `"`), Raw: plan.NotRaw}
			out = append(out, h)
			it.Wait = 0
		}
		return append(out, plan.Piece{Kind: it.Kind, Wait: it.Wait, Data: delta(x.payload(it, "pcm")), PCM: it.Audio.PCM, Raw: plan.NotRaw})
	}
}

// tailSSE is what comes behind the last audio event; n is the number of tokens out.
func (x *exchange) tailSSE(call *speechCall, n int) []plan.Piece {
	done := fmt.Sprintf(`,"usage":{"input_tokens":%d,"output_tokens":%d,"total_tokens":%d,"input_token_details":{"text_tokens":%d,"audio_tokens":0}}`, call.tokens, n, call.tokens+n, call.tokens)
	return x.ending(x.speechEvent("speech.audio.done", done), func() plan.Piece { return x.lateAudio(x.speechDelta(call)) })
}

// lateAudio is an audio event behind the end: ten samples of value 1.
func (x *exchange) lateAudio(delta func(string) []byte) plan.Piece {
	c := plan.Shape(x.script, x.f, 1)
	for range 10 * x.script.Channels {
		c.PCM = append(c.PCM, 1, 0)
	}
	c.N = -1
	return plan.Piece{Kind: plan.Audio, Data: delta(x.payload(plan.Item{Kind: plan.Audio, Audio: c}, "pcm")), PCM: c.PCM, Raw: plan.NotRaw}
}
