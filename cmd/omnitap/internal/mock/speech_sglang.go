package mock

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/truth"
)

// speechG3 is the event stream of SGLang-Omni 0.1.8 and later: the type is in
// the JSON, there is no [DONE].
func (x *exchange) speechG3(call *speechCall) plan.Answer {
	a := plan.Answer{Status: 200, ContentType: sseType, SSE: true, Form: "sse", End: plan.Complete, Late: true, Fields: x.rateFields(false)}
	delta := func(payload string) []byte {
		return x.event("", `{"type": "speech.audio.delta", "audio": `+payload+`}`)
	}
	for _, it := range call.gen.Items {
		if it.Kind == plan.Audio || it.Kind == plan.Empty {
			a.Pieces = append(a.Pieces, plan.Piece{Kind: it.Kind, Wait: it.Wait, Data: delta(x.payload(it, "pcm")), PCM: it.Audio.PCM, Raw: plan.NotRaw})
		}
		if it.Kind == plan.Comment || it.Kind == plan.Body {
			a.Pieces = append(a.Pieces, x.plain(it))
		}
	}
	n := call.gen.Count(plan.Audio)
	done := fmt.Sprintf(`{"type": "speech.audio.done", "usage": {"input_tokens": %d, "output_tokens": %d, "total_tokens": %d}, "finish_reason": %s}`, call.tokens, n, call.tokens+n, x.finish())
	a.Pieces = append(a.Pieces, x.ending(x.event("", done), func() plan.Piece { return x.lateAudio(delta) })...)
	a.Fail = func() []plan.Piece {
		return []plan.Piece{x.failing(fmt.Sprintf(`{"type": "error", "error": {"message": %s, "type": "server_error", "param": null, "code": null}}`, quoteASCII(x.message(x.script.ErrorCode))))}
	}
	return a
}

// speechOld is the event stream of sources before 0.1.1: a WAV (g0) or bare
// samples (g1) an event, and [DONE].
func (x *exchange) speechOld(call *speechCall) plan.Answer {
	a := plan.Answer{Status: 200, ContentType: sseType, SSE: true, Form: "sse", End: plan.Complete}
	format := "pcm"
	if x.script.Variant == "g0" {
		format = call.format
	}
	index := 0
	chunk := func(it plan.Item) []byte {
		payload := "null"
		if it.Kind != plan.Empty || it.Text != "null" {
			payload = fmt.Sprintf(`{"data": %s, "format": %q, "mime_type": %q, "sample_rate": %d}`, x.payload(it, format), format, audioType(format), it.Audio.Rate)
		}
		index++
		return x.event("", fmt.Sprintf(`{"id": %s, "object": "audio.speech.chunk", "index": %d, "audio": %s, "finish_reason": null}`, quoteASCII(x.id), index-1, payload))
	}
	for _, it := range call.gen.Items {
		if it.Kind == plan.Audio || it.Kind == plan.Empty {
			a.Pieces = append(a.Pieces, plan.Piece{Kind: it.Kind, Wait: it.Wait, Data: chunk(it), PCM: it.Audio.PCM, Raw: plan.NotRaw})
		}
		if it.Kind == plan.Comment || it.Kind == plan.Body {
			a.Pieces = append(a.Pieces, x.plain(it))
		}
	}
	n := call.gen.Count(plan.Audio)
	last := fmt.Sprintf(`{"id": %s, "object": "audio.speech.chunk", "index": %d, "audio": null, "finish_reason": %s, "usage": {"prompt_tokens": %d, "completion_tokens": %d, "total_tokens": %d}}`,
		quoteASCII(x.id), index, x.finish(), call.tokens, n, call.tokens+n)
	a.Pieces = append(a.Pieces, plan.Piece{Data: x.event("", last), Raw: plan.NotRaw})
	a.Pieces = append(a.Pieces, x.ending(x.done(), func() plan.Piece {
		return x.lateAudio(func(payload string) []byte {
			return x.event("", `{"object": "audio.speech.chunk", "audio": {"data": `+payload+`}, "finish_reason": null}`)
		})
	})...)
	return a
}

const maxOutcomes = 1024 // as the real server

func (x *exchange) storeOutcome(body string) {
	s := x.c.srv
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.outcomes) >= maxOutcomes {
		clear(s.outcomes)
	}
	s.outcomes[x.id] = []byte(body)
}

// outcome answers GET /v1/audio/speech/{id}.
func (x *exchange) outcome() plan.Answer {
	id := strings.TrimPrefix(x.req.path, "/v1/audio/speech/")
	s := x.c.srv
	s.mu.Lock()
	body, ok := s.outcomes[id]
	s.mu.Unlock()
	if !ok {
		return plan.JSON(http.StatusNotFound, `{"detail":`+quote("unknown speech request "+id)+`}`)
	}
	return plan.JSON(http.StatusOK, string(body))
}

const maxBatch = 32 // items of a batch

// speechBatch answers POST /v1/audio/speech/batch: a whole file an item.
func (x *exchange) speechBatch() plan.Answer {
	items := field[[]struct {
		Input  string `json:"input"`
		Format string `json:"response_format"`
	}](x.req, "items")
	if len(items) == 0 || len(items) > maxBatch {
		return x.refusal(http.StatusBadRequest, fmt.Sprintf("items must hold 1 to %d entries", maxBatch))
	}
	x.id = "speech-batch-" + x.uuid()
	var results []string
	var all plan.Generation
	failed := 0
	for i, it := range items {
		format := it.Format
		format = cmp.Or(format, "wav")
		if it.Input == "" || (format != "wav" && format != "pcm") {
			failed++
			results = append(results, fmt.Sprintf(`{"index":%d,"status":"error","error":"input or response_format not supported by this mock"}`, i))
			continue
		}
		g := plan.Generate(x.script, x.f, plan.Wish{Text: false, Audio: true, Role: false}, x.seed+uint64(i))
		all.Items = append(all.Items, g.Items...)
		all.Clean += g.Clean
		kind := fmt.Sprintf(`"media_type":%q,"usage":{"input_tokens":7,"output_tokens":%d,"total_tokens":%d}`, audioType(format), len(g.Items), 7+len(g.Items))
		if x.script.Dialect == script.DialectSGLang {
			kind = fmt.Sprintf(`"format":%q,"media_type":%q,"finish_reason":"stop"`, format, audioType(format))
		}
		results = append(results, fmt.Sprintf(`{"index":%d,"status":"success","audio_data":%s,%s}`, i, x.wholeAudio(&g, format), kind))
	}
	x.rec.Update(func(t *truth.Truth) { t.CleanSamples = all.Clean })
	return x.whole(&all, fmt.Sprintf(`{"id":%q,"results":[%s],"total":%d,"succeeded":%d,"failed":%d}`, x.id, strings.Join(results, ","), len(items), len(items)-failed, failed))
}
