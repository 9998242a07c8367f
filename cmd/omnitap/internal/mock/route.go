package mock

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/truth"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/wire"
)

// control are the requests that are no inference: they are not recorded, take
// no fault and leave the ids of the others alone.
var control = map[string]func(*exchange) plan.Answer{
	"GET /health":        health,
	"GET /v1/models":     models,
	"GET /mock/requests": func(x *exchange) plan.Answer { return plan.JSON(http.StatusOK, x.c.srv.requestsJSON()) },
	"POST /mock/reset": func(x *exchange) plan.Answer {
		x.c.srv.Reset()
		return plan.JSON(http.StatusOK, `{"reset":true}`)
	},
	"POST /mock/step": step,
}

// routes are the inference endpoints that have a fixed path.
var routes = map[string]struct {
	flow string
	plan func(*exchange) plan.Answer
}{
	"POST /v1/chat/completions":     {"chat", (*exchange).chat},
	"POST /v1/audio/speech":         {"speech", (*exchange).speech},
	"POST /v1/audio/speech/batch":   {"speech_batch", (*exchange).speechBatch},
	"POST /v1/audio/transcriptions": {"transcription", (*exchange).transcription},
	"POST /v1/images/generations":   {"image", (*exchange).image},
	"POST /v1/videos":               {"video", (*exchange).videoJob},
	"POST /v1/videos/sync":          {"video", (*exchange).videoSync},
}

// run answers a prepared request. It reports whether the connection goes on.
func (x *exchange) run() bool {
	if x.f.SendBuffer > 0 {
		x.c.SetSendBuffer(x.f.SendBuffer)
	}
	if len(x.script.Raw) > 0 {
		return wire.Raw(x.call(), x.script.Raw)
	}
	if x.upgrade() {
		return false
	}
	a := x.plan()
	a.Disturb(&x.f)
	return x.play(a)
}

// play sends an answer.
func (x *exchange) play(a plan.Answer) bool {
	if x.rec == nil { // no script of its own
		x.script = x.c.srv.cfg.Script.WithDefaults(x.dialect())
		x.script.HeaderDelayMS, x.script.Dialect = 0, x.dialect()
	}
	if x.over != nil {
		defer x.over()
	}
	return wire.Play(x.call(), a)
}

func (x *exchange) call() wire.Call {
	return wire.Call{
		Conn: x.c.Conn, Script: &x.script, Faults: &x.f, Record: x.rec, Rand: x.rng,
		Comment: x.comment(x.script.Comment), Old: x.req.old, Close: x.req.close,
		Steps: x.c.srv.steps, BeforeEnd: x.after,
	}
}

// plan makes the undisturbed answer.
func (x *exchange) plan() plan.Answer {
	r, known := routes[x.req.method+" "+x.req.path]
	flow := r.flow
	if !known {
		flow, r.plan = x.byPrefix()
	}
	x.rec.Update(func(t *truth.Truth) { t.Flow = flow })
	switch {
	case r.plan == nil:
		return plan.JSON(http.StatusNotFound, `{"detail":"Not Found"}`)
	case x.f.Status > 0:
		a := x.refusal(x.f.Status, "")
		if x.f.RetryAfter > 0 {
			a.Fields = append(a.Fields, plan.Fields("retry-after", strconv.Itoa(x.f.RetryAfter))...)
		}
		return a
	case x.f.ErrorForm == "json":
		a := plan.JSON(http.StatusOK, x.refusalBody(x.script.ErrorCode, x.message(x.script.ErrorCode)))
		a.End = plan.Failed
		x.f.ErrorAt = script.Point{}
		return a
	}
	if m := x.req.str("model"); len(x.script.Models) > 0 && m != "" && !slices.Contains(x.script.Models, m) {
		return x.refusal(http.StatusNotFound, "The model `"+m+"` does not exist.")
	}
	a := r.plan(x)
	x.rec.Update(func(t *truth.Truth) { t.ID = x.id })
	return a
}

// byPrefix finds the endpoints that have an id in the path.
func (x *exchange) byPrefix() (string, func(*exchange) plan.Answer) {
	switch {
	case x.req.method != http.MethodGet:
		return "other", nil
	case strings.HasPrefix(x.req.path, "/v1/videos/"):
		return "video", (*exchange).videoGet
	case strings.HasPrefix(x.req.path, "/v1/audio/speech/"):
		return "speech", (*exchange).outcome
	case x.req.path == "/v1/audio/voices":
		return "other", func(*exchange) plan.Answer { return plan.JSON(http.StatusOK, `{"voices":[],"uploaded_voices":[]}`) }
	}
	return "other", nil
}

// message is what an error says when the script does not.
func (x *exchange) message(code int) string {
	if x.script.ErrorMessage != "" {
		return x.script.ErrorMessage
	}
	switch code {
	case http.StatusTooManyRequests:
		return "Too many requests."
	case http.StatusServiceUnavailable:
		return "The request queue is full."
	}
	return "mock engine fault"
}

// errorTypes are vLLM's; other codes use the status phrase.
var errorTypes = map[int]string{400: "BadRequestError", 404: "NotFoundError", 500: "InternalServerError"}

// refusal is an error answer in the dialect's shape.
func (x *exchange) refusal(code int, message string) plan.Answer {
	if message == "" {
		message = x.message(code)
	}
	return plan.JSON(code, x.refusalBody(code, message))
}

func (x *exchange) refusalBody(code int, message string) string {
	m := quote(message)
	server := code >= 500
	switch {
	case x.script.Dialect == script.DialectVLLM:
		kind, param := errorTypes[code], "null"
		if kind == "" {
			kind = http.StatusText(code)
		}
		if code == http.StatusNotFound {
			param = `"model"`
		}
		return fmt.Sprintf(`{"error":{"message":%s,"type":%q,"param":%s,"code":%d}}`, m, kind, param, code)
	case x.script.Dialect == script.DialectOpenAI:
		kind := "invalid_request_error"
		if server {
			kind = "server_error"
		}
		return fmt.Sprintf(`{"error":{"message":%s,"type":%q,"param":null,"code":null}}`, m, kind)
	case strings.HasPrefix(x.req.path, "/v1/audio/speech") && server:
		return fmt.Sprintf(`{"error":{"message":%s,"type":"server_error","param":null,"code":null}}`, m)
	case strings.HasPrefix(x.req.path, "/v1/audio/speech"):
		return fmt.Sprintf(`{"error":{"message":%s,"type":"BadRequestError","param":null,"code":%d}}`, m, code)
	}
	return `{"detail":` + m + `}`
}

// badBody is the refusal of a body that is no JSON object.
func (x *exchange) badBody() plan.Answer {
	if x.script.Dialect == script.DialectSGLang && x.req.path == "/v1/chat/completions" {
		return plan.JSON(http.StatusUnprocessableEntity, `{"detail":[{"type":"json_invalid","loc":["body",1],"msg":"JSON decode error","input":{},"ctx":{"error":"Expecting value"}}]}`)
	}
	if x.script.Dialect == script.DialectVLLM {
		return plan.JSON(http.StatusBadRequest, `{"error":{"message":"1 validation error:\n  {'type': 'json_invalid', 'loc': ('body', 1), 'msg': 'JSON decode error', 'input': {}, 'ctx': {'error': 'Expecting property name enclosed in double quotes'}}","type":"Bad Request","param":"body.1","code":400}}`)
	}
	return x.refusal(http.StatusBadRequest, "We could not parse the JSON body of your request.")
}

func (x *exchange) dialect() string {
	own, err := x.c.srv.cfg.Script.Overlay([]byte(x.req.header.Get("X-Mock-Script")))
	if err != nil {
		return x.c.srv.cfg.Dialect
	}
	return own.WithDefaults(x.c.srv.cfg.Dialect).Dialect
}

func health(x *exchange) plan.Answer {
	if e := x.c.srv.cfg.Stages; e != nil && e.Err() != nil {
		a := plan.JSON(http.StatusServiceUnavailable, "")
		a.ContentType = ""
		return a
	}
	switch x.dialect() {
	case script.DialectVLLM:
		a := plan.JSON(http.StatusOK, "")
		a.ContentType = ""
		return a
	case script.DialectSGLang:
		return plan.JSON(http.StatusOK, `{"status":"healthy","running":true,"stages":["thinker","talker","code2wav"],"entry_stage":"thinker","total_requests":`+strconv.Itoa(len(x.c.srv.Requests()))+`,"pending_completions":0,"request_states":{}}`)
	}
	return plan.JSON(http.StatusOK, `{"status":"ok"}`)
}

func models(x *exchange) plan.Answer {
	owner := map[string]string{script.DialectVLLM: "vllm", script.DialectSGLang: "sglang-omni", script.DialectOpenAI: "openai"}[x.dialect()]
	names := x.c.srv.cfg.Script.Models
	if len(names) == 0 {
		names = []string{"mock-omni"}
	}
	list := make([]string, 0, len(names))
	for _, n := range names {
		list = append(list, fmt.Sprintf(`{"id":%s,"object":"model","created":0,"owned_by":%q,"root":%s,"permission":[]}`, quote(n), owner, quote(n)))
	}
	return plan.JSON(http.StatusOK, `{"object":"list","data":[`+strings.Join(list, ",")+`]}`)
}

// step hands out permits to the fault gate: {"n": N}, by default one.
func step(x *exchange) plan.Answer {
	n := field[int](x.req, "n")
	n = cmp.Or(n, 1)
	for range min(n, maxSteps) {
		select {
		case x.c.srv.steps <- struct{}{}:
		default:
		}
	}
	return plan.JSON(http.StatusOK, `{"steps":`+strconv.Itoa(n)+`}`)
}

func (s *Server) requestsJSON() string {
	b, err := json.Marshal(s.Requests())
	if err != nil { // no field of Truth can fail
		return "[]"
	}
	return string(b)
}
