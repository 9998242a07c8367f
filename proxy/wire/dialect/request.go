package dialect

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"unicode/utf8"

	"github.com/omnitap/omnitap/proxy/wire/jsonscan"
)

// Request is what a request's body asks for, as far as it was read.
type Request struct {
	Model      string
	Modalities []string
	// Stream says that a stream was asked for by the `stream` field or by a
	// `stream_format` of sse or audio.
	Stream bool
	// Format is the sound format asked for, empty for none.
	Format string
	// ID is a request id that the server honours (SGLang-Omni, vLLM-Omni chat).
	ID string
	// InputChars is how many characters a speech request's `input` has, 0 where it
	// has none.
	InputChars int
	// Read says that the body could be read.
	Read bool
}

// ReadRequest reads a JSON or multipart body. It takes no decision on how the
// answer is read.
func (r *Reader) ReadRequest(contentType string, body []byte) Request {
	media, params, _ := mime.ParseMediaType(contentType)
	if media == "multipart/form-data" {
		return readForm(body, params["boundary"])
	}
	if r.doc.Parse(bytes.TrimSpace(body)) != nil {
		return Request{}
	}
	root := r.doc.Root()
	if root.Kind() != jsonscan.Object {
		return Request{}
	}
	q := Request{Read: true, Model: root.Get("model").Str(), ID: root.Get("request_id").Str(), Stream: root.Get("stream").True()}
	for m := range root.Get("modalities").All() {
		q.Modalities = append(q.Modalities, m.Str())
	}
	if f := root.Get("stream_format").Str(); f == "sse" || f == "audio" && !q.Stream {
		q.Stream = q.Stream || f == "sse"
	}
	if in := root.Get("input"); in.Kind() == jsonscan.String {
		q.InputChars = utf8.RuneCountInString(in.Str())
	}
	q.Format = root.Get("audio").Get("format").Str()
	if q.Format == "" {
		q.Format = root.Get("response_format").Str()
	}
	return q
}

// maxField bounds a form field that is kept.
const maxField = 4096

// readForm reads the small fields of a form and passes over its files.
func readForm(body []byte, boundary string) Request {
	q := Request{}
	mr := multipart.NewReader(bytes.NewReader(body), boundary)
	for boundary != "" {
		part, err := mr.NextPart()
		if err != nil {
			q.Read = errors.Is(err, io.EOF)
			return q
		}
		if part.FileName() != "" {
			continue
		}
		v, err := io.ReadAll(io.LimitReader(part, maxField))
		if err != nil {
			return q
		}
		switch part.FormName() {
		case "model":
			q.Model = string(v)
		case "stream":
			q.Stream = string(v) == "true" || string(v) == "1" || string(v) == "True"
		case "response_format":
			q.Format = string(v)
		}
	}
	return q
}
