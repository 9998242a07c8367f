package twin

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/proxy/wire/jsonscan"
)

// Request is a client's request as it went over the wire.
type Request struct {
	Method string
	// Target is the request line's target: a path with its query, byte for byte. Of an
	// absolute one the host is passed over.
	Target string
	// Header holds name and value of each field in order.
	Header [][2]string
	// Body is the whole body without chunk borders. It is not written to.
	Body []byte
}

// marker is the field that tells a twin, in this server's log and in another
// omnitap on the way.
const marker = "X-Omnitap-Twin"

// mode is what a member of the body becomes.
type mode uint8

const (
	keep mode = iota
	off       // set to false
	drop
)

// members are the body's members that make a stream of the answer, or name the
// request.
//
//   - stream_options: vLLM refuses it without a stream.
//   - stream_format: "audio" and "sse" turn streaming on by themselves, vLLM-Omni's
//     whatever stream says.
//   - request_id: SGLang-Omni refuses one that is under way and takes chunks of one
//     that it saw before for late ones; vLLM-Omni names shared memory by it.
var members = map[string]mode{"stream": off, "stream_options": drop, "stream_format": drop, "request_id": drop}

// unstreamed returns the body with the members that ask for a stream changed, and
// everything else as it stands, byte for byte. An error is ErrBody or ErrNoStream.
func unstreamed(body []byte) ([]byte, error) {
	var d jsonscan.Doc
	body = slices.Clip(body)
	if d.Parse(body) != nil || d.Root().Kind() != jsonscan.Object {
		return nil, ErrBody
	}
	if !streams(d.Root()) {
		return nil, ErrNoStream
	}
	out := make([]byte, 0, len(body)+len("false"))
	last := bytes.IndexByte(body, '{') + 1 // up to where the body was read
	out = append(out, body[:last]...)
	kept := 0
	for m := range d.Root().All() {
		start, end := span(body, m)
		name, from := modeOf(m), last
		last = end
		if name == drop {
			continue
		}
		if kept++; kept == 1 {
			from += behindComma(body[from:start]) // those ahead of it were dropped
		}
		if name == off {
			out = append(append(out, body[from:start]...), "false"...)
			continue
		}
		out = append(out, body[from:end]...)
	}
	return append(out, body[last:]...), nil
}

// behindComma returns the length of white space and comma ahead of a member, 0 for
// the first member, which has none.
func behindComma(b []byte) int {
	if rest := bytes.TrimLeft(b, " \t\r\n"); bytes.HasPrefix(rest, []byte(",")) {
		return len(b) - len(rest) + 1
	}
	return 0
}

func modeOf(m jsonscan.Value) mode { return members[string(m.Key())] }

// span returns where a member's value lies in the body, a string's with its
// quotes. Its raw bytes are a slice of the body, which ends where its capacity does.
func span(body []byte, v jsonscan.Value) (start, end int) {
	raw := v.Raw()
	start = cap(body) - cap(raw)
	end = start + len(raw)
	if v.Kind() == jsonscan.String {
		return start - 1, end + 1
	}
	return start, end
}

// streams reports whether a body asks for a stream, with what servers take for true.
func streams(root jsonscan.Value) bool {
	s := root.Get("stream")
	switch s.Kind() {
	case jsonscan.Bool:
		if s.True() {
			return true
		}
	case jsonscan.Number:
		if n, ok := s.Int(); !ok || n != 0 {
			return true
		}
	case jsonscan.String:
		switch strings.ToLower(s.Str()) {
		case "true", "1", "on", "yes", "t", "y":
			return true
		}
	default:
	}
	return root.Get("stream_format").Str() != ""
}

// twin returns the request's twin for a server, without its context.
func (q *Request) twin(upstream *url.URL) (*http.Request, error) {
	u, err := q.url(upstream)
	if err != nil {
		return nil, err
	}
	h, host, err := q.header()
	if err != nil {
		return nil, err
	}
	body, err := unstreamed(q.Body)
	if err != nil {
		return nil, err
	}
	return &http.Request{
		Method: http.MethodPost, URL: u, Host: host, Header: h, ContentLength: int64(len(body)),
		Body: io.NopCloser(bytes.NewReader(body)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

// url returns the target at the server, its bytes as they stand.
func (q *Request) url(upstream *url.URL) (*url.URL, error) {
	target := q.Target
	if i := strings.Index(target, "://"); i > 0 && !strings.HasPrefix(target, "/") {
		_, path, _ := strings.Cut(target[i+3:], "/")
		target = "/" + path
	}
	if q.Method != http.MethodPost || !strings.HasPrefix(target, "/") || strings.HasPrefix(target, "//") {
		return nil, ErrTarget
	}
	path, query, asks := strings.Cut(target, "?")
	return &url.URL{Scheme: upstream.Scheme, Host: upstream.Host, Opaque: path, RawQuery: query, ForceQuery: asks}, nil
}

// hop names the fields that belong to the client's connection, or to its request
// and not to what is asked: lengths, ids, traces that the client's own spans are in,
// and keys under which a gateway would give the first answer again.
var hop = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Proxy-Authorization": true,
	"Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "Content-Length": true,
	"Expect": true, "Accept-Encoding": true, "X-Request-Id": true, "Idempotency-Key": true,
	"Traceparent": true, "Tracestate": true, "Baggage": true,
}

// header returns the twin's fields and its host, empty for the server's own.
func (q *Request) header() (h http.Header, host string, err error) {
	h = http.Header{}
	for _, f := range q.Header {
		h.Add(f[0], f[1])
	}
	media, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	switch enc := strings.ToLower(h.Get("Content-Encoding")); {
	case h.Get("Upgrade") != "":
		return nil, "", ErrUpgrade
	case h.Get(marker) != "":
		return nil, "", ErrIsTwin
	case strings.HasPrefix(media, "multipart/"):
		return nil, "", ErrForm
	case enc != "" && enc != "identity":
		return nil, "", fmt.Errorf("%w: it is encoded", ErrBody)
	}
	host = h.Get("Host")
	h.Del("Host")
	for _, line := range h.Values("Connection") {
		for name := range strings.SplitSeq(line, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for name := range hop {
		h.Del(name)
	}
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = nil // or net/http adds its own
	}
	h.Set("Accept-Encoding", "identity")
	h.Set(marker, "1")
	return h, host, nil
}
