package mock

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
)

// transcription answers POST /v1/audio/transcriptions: the text deltas of the
// script, whatever the upload says.
func (x *exchange) transcription() plan.Answer {
	if _, ok := x.req.form["file"]; !ok || x.req.bad != nil {
		return plan.JSON(http.StatusUnprocessableEntity, `{"detail":[{"type":"missing","loc":["body","file"],"msg":"Field required","input":null}]}`)
	}
	format := x.req.str("response_format")
	format = cmp.Or(format, "json")
	if format != "json" && format != "text" {
		return x.refusal(http.StatusBadRequest, "response_format "+format+" is not made by this mock, only json and text")
	}
	g := plan.Generate(x.script, x.f, plan.Wish{Text: true, Audio: false, Role: false}, x.seed)
	x.id = "transcription-" + x.uuid()
	text := quote(g.Text())
	usage := fmt.Sprintf(`"usage":{"type":"duration","seconds":%d}`, max(1, len(x.req.form["file"])/32000))
	if !x.req.flag("stream") {
		if format == "text" {
			a := x.whole(&g, g.Text())
			a.ContentType = "text/plain; charset=utf-8"
			return a
		}
		return x.whole(&g, `{"text":`+text+`,`+usage+`}`)
	}
	a := plan.Answer{
		Status: 200, ContentType: sseType, SSE: true, Form: "sse", End: plan.Complete, Late: true,
		Fields: plan.Fields("cache-control", "no-cache", "x-request-id", x.id),
	}
	delta := func(it plan.Item) plan.Piece {
		return plan.Piece{Kind: plan.Text, Wait: it.Wait, Texts: []string{it.Text}, Raw: plan.NotRaw, Data: x.event("", `{"type":"transcript.text.delta","delta":`+quote(it.Text)+`}`)}
	}
	for _, it := range g.Items {
		if it.Kind == plan.Text {
			a.Pieces = append(a.Pieces, delta(it))
			continue
		}
		if it.Kind == plan.Comment || it.Kind == plan.Body {
			a.Pieces = append(a.Pieces, x.plain(it))
		}
	}
	a.Pieces = append(a.Pieces, plan.Piece{Data: x.event("", `{"type":"transcript.text.done","text":`+text+`,`+usage+`}`), Raw: plan.NotRaw})
	a.Pieces = append(a.Pieces, x.ending(x.done(), func() plan.Piece { return delta(plan.Item{Text: " late"}) })...)
	a.Fail = func() []plan.Piece {
		return []plan.Piece{x.failing(`{"type":"error","error":{"message":` + quote(x.message(x.script.ErrorCode)) + `}}`)}
	}
	return a
}
