package dialect

import (
	"bytes"
	"strconv"

	"github.com/omnitap/omnitap/proxy/wire/jsonscan"
)

// Whole reads an answer that is one JSON text. An error is one of jsonscan's.
func (r *Reader) Whole(body []byte) (Event, error) {
	if err := r.doc.Parse(bytes.TrimSpace(body)); err != nil {
		return Event{}, err
	}
	ev := Event{Tokens: -1}
	r.parts = r.parts[:0]
	root := r.doc.Root()
	kind := root.Get("object").Str()
	has := func(name string) bool { return root.Get(name).Kind() != jsonscan.Missing }
	switch {
	case root.Get("error").There():
		ev.Err = failure(root)
	case kind == "chat.completion":
		r.chatWhole(&ev, root)
	case kind == "text_completion":
		r.completion(&ev, root)
	case has("results") && (has("succeeded") || has("failed")):
		r.speechBatch(&ev, root)
	case root.Get("data").Index(0).Get("b64_json").There():
		ev.Family = Images
	case kind == "video" || root.Get("id").There() && root.Get("status").There() && kind != "":
		ev.Family = VideoJob
		ev.ID = root.Get("id").Str()
	case root.Get("text").Kind() == jsonscan.String:
		ev.Family = TranscriptionWhole
		ev.Text = r.text(root.Get("text"))
	default:
		ev.Unknown = true
	}
	ev.Parts = r.parts
	return ev, nil
}

// Refusal reads the body of an answer with an error status: OpenAI's shape, a
// bare string, or FastAPI's detail.
func (r *Reader) Refusal(body []byte) *Failure {
	if r.doc.Parse(bytes.TrimSpace(body)) != nil {
		return nil
	}
	root := r.doc.Root()
	if d := root.Get("detail"); d.There() && !root.Get("error").There() {
		return &Failure{Message: string(d.Raw())}
	}
	if !root.Get("error").There() && !root.Get("message").There() {
		return nil
	}
	return failure(root)
}

// failure reads an error object: nested, flat or a string.
func failure(root jsonscan.Value) *Failure {
	e := root.Get("error")
	f := &Failure{}
	src := root
	switch e.Kind() {
	case jsonscan.Object:
		src = e
	case jsonscan.String:
		f.Message = e.Str()
	default:
	}
	if f.Message == "" {
		f.Message = src.Get("message").Str()
	}
	if f.Message == "" {
		f.Message = src.Get("detail").Str()
	}
	f.Type = src.Get("type").Str()
	if t := src.Get("error_type"); t.There() {
		f.Type = t.Str()
	}
	code := src.Get("code")
	if !code.There() {
		code = root.Get("code")
	}
	if n, ok := code.Int(); ok {
		f.Code = int(n)
	} else if n, err := strconv.Atoi(code.Str()); err == nil {
		f.Code = n
	} else {
		f.Word = code.Str()
	}
	return f
}
