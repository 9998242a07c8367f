package load

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/omnitap/omnitap/proxy/wire/dialect"
	"github.com/omnitap/omnitap/proxy/wire/http1"
	"github.com/omnitap/omnitap/proxy/wire/jsonscan"
)

// gatherer takes the requests from the client's bytes of one connection after the other.
type gatherer struct {
	keys bool
	set  Set
	left []LeftOut
	size int // bytes of bodies, in all

	name   string // of the file at hand
	parser http1.Parser
	head   *http1.Head // of the request at hand, nil between two
	body   []byte
	over   bool // the connection says nothing more of use
	reader dialect.Reader
}

func (g *gatherer) begin(name string) {
	g.name, g.parser, g.head, g.body, g.over = name, http1.Parser{H: g}, nil, nil, false
}

// end is the end of a connection.
func (g *gatherer) end() {
	if !g.over && !g.parser.Close() {
		g.leave("it ends amid a request")
	}
}

func (g *gatherer) leave(why string) { g.left = append(g.left, LeftOut{g.name, why}) }

// MessageStart does nothing: a request begins with its head.
func (g *gatherer) MessageStart(int64) {}

// Head takes a request's head.
func (g *gatherer) Head(h *http1.Head, _ int64) http1.Expect {
	switch {
	case h.Has("Upgrade", "websocket"):
		return g.stop("a WebSocket")
	case h.Method == http.MethodConnect:
		return g.stop("a tunnel (CONNECT)")
	}
	g.head, g.body = h, nil
	return http1.ByHead
}

// stop leaves out what follows on the connection.
func (g *gatherer) stop(why string) http1.Expect {
	g.leave(why)
	g.over = true
	return http1.Upgraded
}

// Body takes a part of a request's body.
func (g *gatherer) Body(p []byte, _ int64) {
	g.body = append(g.body, p...)
	g.size += len(p)
}

// MessageEnd is the end of a whole request.
func (g *gatherer) MessageEnd(int64) {
	h := g.head
	if h == nil {
		return
	}
	g.head = nil
	target := h.Target
	if i := strings.Index(target, "://"); i > 0 && !strings.HasPrefix(target, "/") { // absolute form
		_, path, _ := strings.Cut(target[i+3:], "/")
		target = "/" + path
	}
	q := Request{Method: h.Method, Path: target, Header: http.Header{}, Body: g.body}
	for _, f := range h.Fields {
		q.Header.Add(f.Name, f.Value)
	}
	q.Header = clean(q.Header)
	if !g.keys {
		dropKeys(&q)
	}
	if _, err := makeReady(&url.URL{}, &q); err != nil {
		g.leave("a request that is not sent: " + err.Error())
		return
	}
	asked := g.reader.ReadRequest(q.Header.Get("Content-Type"), q.Body)
	if asked.ID != "" {
		q.Body = withoutID(q.Body)
	}
	q.Name = kind(&q, asked)
	g.set = append(g.set, q)
	g.size += len(target) + headSize*len(h.Fields) // requests without a body take room too
}

// headSize stands for a field of a head.
const headSize = 128

// Lost is a connection that cannot be followed any further.
func (g *gatherer) Lost(err error, _ int64) {
	g.leave("it cannot be followed: " + err.Error())
	g.over = true
}

// ChunkStart does nothing: chunk borders are not sent again.
func (g *gatherer) ChunkStart(int64) {}

// ChunkEnd does nothing.
func (g *gatherer) ChunkEnd(int64) {}

// Tunnel passes over what is no HTTP.
func (g *gatherer) Tunnel([]byte, int64) {}

// kind names what a request asks for: its path, whether as a stream, and the modalities.
func kind(q *Request, asked dialect.Request) string {
	name, _, _ := strings.Cut(q.Path, "?")
	name = strings.TrimPrefix(name, "/v1/")
	if q.Method != http.MethodPost {
		name = q.Method + " " + name
	}
	if asked.Stream {
		name += " stream"
	}
	if len(asked.Modalities) > 0 {
		name += " " + strings.Join(asked.Modalities, "+")
	}
	return name
}

// keyWord tells names of fields and parameters that hold a key. It rather takes one too
// many: an answer that lacks it says so with a 401.
var keyWord = regexp.MustCompile(`(?i)auth|cookie|token|secret|passw|credential|signature|(^|[^a-z]|api|access)(key|sig)s?([^a-z]|$)`)

// dropKeys takes a client's keys out of a request.
func dropKeys(q *Request) {
	for name := range q.Header {
		if keyWord.MatchString(name) {
			delete(q.Header, name)
		}
	}
	path, query, ok := strings.Cut(q.Path, "?")
	if !ok {
		return
	}
	var kept []string
	for pair := range strings.SplitSeq(query, "&") {
		if name, _, _ := strings.Cut(pair, "="); !keyWord.MatchString(name) {
			kept = append(kept, pair)
		}
	}
	if q.Path = path; len(kept) > 0 {
		q.Path += "?" + strings.Join(kept, "&")
	}
}

// withoutID is a JSON object without its member request_id; the others stand in their
// order, their values byte for byte.
func withoutID(body []byte) []byte {
	var d jsonscan.Doc
	if d.Parse(bytes.TrimSpace(body)) != nil || d.Root().Kind() != jsonscan.Object {
		return body
	}
	out := []byte{'{'}
	for m := range d.Root().All() {
		if m.KeyIs("request_id") {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		name, err := json.Marshal(string(m.Key()))
		if err != nil {
			return body
		}
		out = append(append(out, name...), ':')
		if m.Kind() == jsonscan.String {
			out = append(append(append(out, '"'), m.Raw()...), '"') // its text as it is escaped
		} else {
			out = append(out, m.Raw()...)
		}
	}
	return append(out, '}')
}
