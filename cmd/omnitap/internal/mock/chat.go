package mock

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/truth"
)

// chatCall is a chat request, understood.
type chatCall struct {
	model, format        string
	stream, usage        bool
	text, audio          bool
	prompt, completions  int // tokens
	created              int64
	gen                  plan.Generation
	id                   string // without prefix
	lastText, lastOutput int    // indexes of items
}

// chat answers POST /v1/chat/completions in the request's dialect.
func (x *exchange) chat() plan.Answer {
	if x.req.bad != nil || x.req.fields == nil {
		return x.badBody()
	}
	call := chatCall{
		model:  x.req.str("model"),
		stream: x.req.flag("stream"),
		usage: field[struct {
			Include bool `json:"include_usage"`
		}](x.req, "stream_options").Include,
		prompt:  7 + len(x.req.body)/16,
		created: time.Now().Unix(),
	}
	call.model = cmp.Or(call.model, "mock-omni")
	modalities := field[[]string](x.req, "modalities")
	for _, m := range modalities {
		if m != "text" && m != "audio" {
			return x.refusal(http.StatusBadRequest, "Unsupported output modalities "+m+" for this model. Supported modalities: audio, text")
		}
	}
	call.text = len(modalities) == 0 || slices.Contains(modalities, "text")
	call.audio = slices.Contains(modalities, "audio") || (len(modalities) == 0 && x.script.Dialect == script.DialectVLLM)
	call.format = field[struct{ Format string }](x.req, "audio").Format
	if bad := x.chatFormat(&call); bad != "" {
		return x.refusal(http.StatusBadRequest, bad)
	}
	role := x.script.Dialect == script.DialectOpenAI || (x.script.Dialect == script.DialectVLLM && call.text)
	call.gen = plan.Generate(x.script, x.f, plan.Wish{Text: call.text, Audio: call.audio, Role: role && call.stream}, x.seed)
	x.rec.Update(func(t *truth.Truth) { t.CleanSamples = call.gen.Clean })
	call.completions = call.gen.Count(plan.Text)
	call.lastText, call.lastOutput = -1, -1
	for i, it := range call.gen.Items {
		switch it.Kind {
		case plan.Text:
			call.lastText, call.lastOutput = i, i
		case plan.Audio, plan.Empty:
			call.lastOutput = i
		default:
		}
	}
	call.id = x.chatID()
	x.id = "chatcmpl-" + call.id
	if x.staged() && call.stream && call.text {
		return x.chatStages(&call)
	}
	switch x.script.Dialect {
	case script.DialectSGLang:
		return x.chatSGLang(&call)
	case script.DialectOpenAI:
		return x.chatOpenAI(&call)
	}
	return x.chatVLLM(&call)
}

// chatFormat settles the audio format, or says what is wrong with it.
func (x *exchange) chatFormat(call *chatCall) string {
	call.format = cmp.Or(call.format, "wav")
	if x.script.Dialect == script.DialectOpenAI {
		call.format = "pcm"
	}
	if x.script.Format != "" {
		call.format = x.script.Format
	}
	switch call.format {
	case "wav", "pcm":
	case "pcm16":
		call.format = "pcm"
		if x.script.Dialect == script.DialectSGLang && x.script.Format == "" {
			call.format = "wav" // falls back in silence, as the real one
		}
	default:
		if call.audio {
			return fmt.Sprintf("audio format %s is not made by this mock, only wav and pcm", call.format)
		}
	}
	return ""
}

// chatID is the request id as the dialect takes it from the request.
func (x *exchange) chatID() string {
	if x.script.Dialect == script.DialectVLLM {
		if id := x.req.header.Get("X-Request-Id"); id != "" {
			return id
		}
	}
	if id := x.req.str("request_id"); id != "" && x.script.Dialect != script.DialectOpenAI {
		return id
	}
	if x.script.Dialect == script.DialectSGLang {
		return x.uuid()
	}
	return x.hex(16)
}

// stream turns the items of a chat into pieces: render is called for each
// item that the dialect shapes.
func (x *exchange) stream(call *chatCall, render func(i int, it plan.Item) string) []plan.Piece {
	out := make([]plan.Piece, 0, len(call.gen.Items)+3)
	for i, it := range call.gen.Items {
		if it.Kind == plan.Comment || it.Kind == plan.Body {
			out = append(out, x.plain(it))
			continue
		}
		p := plan.Piece{Kind: it.Kind, Wait: it.Wait, Data: x.event("", render(i, it)), PCM: it.Audio.PCM, Raw: plan.NotRaw}
		if it.Kind == plan.Text {
			p.Texts = []string{it.Text}
		}
		out = append(out, p)
	}
	return out
}

// failing is the error event in the form that the fault names.
func (x *exchange) failing(native string) plan.Piece {
	name, data := "", native
	switch x.f.ErrorForm {
	case "event":
		name = "error"
	case "string":
		data = `{"error":` + quote(x.message(x.script.ErrorCode)) + `}`
	}
	return plan.Piece{Data: x.event(name, data), Raw: plan.NotRaw}
}

func (x *exchange) done() []byte { return x.event("", "[DONE]") }

// wholeAudio is the base64 of all samples as one file.
func (x *exchange) wholeAudio(g *plan.Generation, format string) string {
	c := plan.Shape(x.script, x.f, 1)
	c.PCM = g.PCM()
	return x.payload(plan.Item{Kind: plan.Audio, Audio: c}, format)
}

// whole is a JSON answer that comes when the generation is over.
func (x *exchange) whole(g *plan.Generation, body string) plan.Answer {
	a := plan.JSON(http.StatusOK, body)
	a.Late = true
	a.Pieces[0].Wait = g.Total()
	a.Pieces[0].PCM = g.PCM()
	if text := g.Text(); text != "" {
		a.Pieces[0].Texts = []string{text}
	}
	return a
}

func join(parts ...string) string { return strings.Join(parts, "") }
