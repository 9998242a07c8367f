package mock

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/truth"
)

const maxBody = 256 << 20 // of a request, held in memory

// request is one request, read whole.
type request struct {
	method, path string
	header       http.Header
	hr           *http.Request // without its body
	old, close   bool          // HTTP/1.0; no request follows
	body         []byte
	form         map[string]string // of a multipart body
	fields       map[string]json.RawMessage
	bad          error // the body is no JSON object
}

// exchange is one request under way.
type exchange struct {
	c      *conn
	req    *request
	own    script.Script // before defaults
	script script.Script
	f      script.Set
	rec    *truth.Record
	rng    *rand.Rand
	seed   uint64
	id     string
	events int    // SSE events rendered so far
	after  func() // runs when the body is out whole, before its end
	over   func() // runs when the answer is over, in whatever way; nil for nothing
}

var tooLarge = plan.JSON(http.StatusRequestEntityTooLarge, `{"detail":"request body too large"}`)

func badScript(err error) plan.Answer {
	return plan.JSON(http.StatusBadRequest, `{"error":{"message":`+quote("mock: "+err.Error())+`,"type":"BadRequestError","param":"mock","code":400}}`)
}

var errTooLarge = fmt.Errorf("body over %d bytes", maxBody)

// readBody reads the body whole, after a 100 if the client waits for one.
func (x *exchange) readBody(hr *http.Request) error {
	if strings.EqualFold(hr.Header.Get("Expect"), "100-continue") && hr.ContentLength != 0 {
		if _, err := x.c.WriteString("HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return fmt.Errorf("writing 100: %w", err)
		}
	}
	body, err := io.ReadAll(io.LimitReader(hr.Body, maxBody+1))
	if err != nil {
		return fmt.Errorf("reading the body: %w", err)
	}
	if len(body) > maxBody {
		return errTooLarge
	}
	x.req.body = body
	x.req.parse()
	return nil
}

// parse takes the body apart: a multipart form or a JSON object.
func (r *request) parse() {
	if len(r.body) == 0 {
		return
	}
	kind, params, _ := mime.ParseMediaType(r.header.Get("Content-Type"))
	if kind != "multipart/form-data" {
		r.bad = json.Unmarshal(r.body, &r.fields)
		return
	}
	r.form = map[string]string{}
	parts := multipart.NewReader(bytes.NewReader(r.body), params["boundary"])
	for {
		part, err := parts.NextPart()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				r.bad = err
			}
			return
		}
		value, err := io.ReadAll(part)
		if err != nil {
			r.bad = err
			return
		}
		r.form[part.FormName()] = string(value)
	}
}

// str, flag and list read one field of either kind of body; absent and of
// another type is the zero value.
func (r *request) str(name string) string {
	if v, ok := r.form[name]; ok {
		return v
	}
	return field[string](r, name)
}

func (r *request) flag(name string) bool {
	return r.form[name] == "true" || r.form[name] == "1" || field[bool](r, name)
}

func field[T any](r *request, name string) T {
	var v T
	if json.Unmarshal(r.fields[name], &v) != nil {
		var zero T
		return zero
	}
	return v
}

// prepare finds the script of the request and registers it.
func (x *exchange) prepare(index int) error {
	srv := x.c.srv
	object := []byte(x.req.header.Get("X-Mock-Script"))
	if len(object) == 0 {
		object = x.req.fields["mock"]
	}
	if v := x.req.form["mock"]; len(object) == 0 && v != "" {
		object = []byte(v)
	}
	if v := x.req.hr.URL.Query().Get("mock"); len(object) == 0 {
		object = []byte(v)
	}
	own, err := srv.cfg.Script.Overlay(object)
	if err != nil {
		return err
	}
	x.own, x.script = own, own.WithDefaults(srv.cfg.Dialect)
	if err := x.script.Validate(); err != nil {
		return err
	}
	if x.f, err = script.Compile(x.script.Faults); err != nil {
		return err
	}
	x.rec = srv.log.Register(Truth{
		Connection: x.c.id, Index: index, Method: x.req.method, Path: x.req.path,
		Script: x.script, Dialect: x.script.Dialect, Rate: x.script.Rate, Channels: x.script.Channels,
		Stamps: truth.Stamps{RequestNS: truth.Mono()},
	})
	x.seed = srv.cfg.Seed
	x.rng = rand.New(rand.NewPCG(x.seed, uint64(x.rec.Seq())))
	x.seed ^= x.rng.Uint64()
	return nil
}

// hex returns n seeded hex digits, uuid a seeded UUID.
func (x *exchange) hex(n int) string {
	const digits = "0123456789abcdef"
	b := make([]byte, n)
	for i := range b {
		b[i] = digits[x.rng.IntN(16)]
	}
	return string(b)
}

func (x *exchange) uuid() string {
	h := x.hex(30)
	return h[:8] + "-" + h[8:12] + "-4" + h[12:15] + "-a" + h[15:18] + "-" + h[18:30]
}
