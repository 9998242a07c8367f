package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Request is one request of a set. Body is sent as it is, and not written to. Name groups
// requests of one kind; it must tell nothing of what is asked.
type Request struct {
	Name, Method string
	// Path is the request's target: a path, with its query where it has one.
	Path string
	// Header is sent but for the fields that belong to one connection or one request:
	// Host, lengths, ids, traces.
	Header http.Header
	Body   []byte
}

// Set is what is sent, in turns.
type Set []Request

// Demo is the set of the fake server (omnitap mock): streaming chat with text and sound,
// the same each time, and answered by its stage processes where it has some.
func Demo() Set {
	return Set{{
		Name: "chat stream text+audio", Method: http.MethodPost, Path: "/v1/chat/completions",
		Header: http.Header{"Content-Type": {"application/json"}},
		Body:   []byte(`{"model":"demo-omni","messages":[{"role":"user","content":"Say hello."}],"stream":true,"modalities":["text","audio"],"max_tokens":6}`),
	}}
}

// agent is the User-Agent of requests that have none.
const agent = "omnitap-load"

// notSent are fields that are made anew, or that belong to another request: its length,
// its id, the spans of its client, a key under which a gateway would answer once more.
var notSent = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings",
	"Host", "Content-Length", "Expect", "X-Request-Id", "Idempotency-Key", "X-Idempotency-Key", "Traceparent", "Tracestate", "Baggage",
}

// clean is a header without what is not sent.
func clean(h http.Header) http.Header {
	out := http.Header{}
	for name, values := range h {
		name = http.CanonicalHeaderKey(name)
		out[name] = append(out[name], values...)
	}
	for _, line := range out.Values("Connection") {
		for name := range strings.SplitSeq(line, ",") {
			out.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range notSent {
		out.Del(name)
	}
	return out
}

// ready is a request that is made ready once and sent many times.
type ready struct {
	name, method string
	url          *url.URL
	header       http.Header
	body         []byte
}

// token is a method or the name of a field (RFC 9110 section 5.6.2).
var token = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// blank tells what ends a request's target, or a line.
func blank(c rune) bool { return c <= ' ' || c == 0x7f }

// unfit names the first field that net/http would refuse.
func unfit(h http.Header) (string, bool) {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		values := h[name]
		if !token.MatchString(name) {
			return name, true
		}
		for _, v := range values {
			if strings.ContainsFunc(v, func(c rune) bool { return c != '\t' && c != ' ' && blank(c) }) {
				return name, true
			}
		}
	}
	return "", false
}

// idForm is what the servers make names of shared memory from.
var idForm = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)

// prepare makes a set ready for the server at base. An error names the request by its
// place and its name alone.
func prepare(base string, set Set) ([]ready, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" || u.Host == "" || u.User != nil || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the server's address must be http://HOST:PORT")
	}
	if len(set) == 0 {
		return nil, errors.New("the set has no request")
	}
	out := make([]ready, len(set))
	for i := range set {
		if out[i], err = makeReady(u, &set[i]); err != nil {
			return nil, fmt.Errorf("request %d of the set (%s): %w", i, set[i].Name, err)
		}
	}
	return out, nil
}

// makeReady makes a request ready for a server.
func makeReady(server *url.URL, q *Request) (ready, error) {
	r := ready{name: q.Name, method: q.Method, header: clean(q.Header), body: q.Body}
	path, query, asks := strings.Cut(q.Path, "?")
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") {
		return r, errors.New("its path does not begin with one slash")
	}
	if strings.ContainsFunc(q.Path, blank) {
		return r, errors.New("its path holds white space or control characters")
	}
	if !token.MatchString(q.Method) || q.Method == http.MethodConnect {
		return r, errors.New("its method cannot be sent")
	}
	if name, ok := unfit(r.header); ok {
		return r, fmt.Errorf("its field %q cannot be sent", name)
	}
	if r.header.Get("User-Agent") == "" {
		r.header.Set("User-Agent", agent)
	}
	// Opaque: the path goes out byte for byte.
	r.url = &url.URL{Scheme: server.Scheme, Host: server.Host, Opaque: path, RawQuery: query, ForceQuery: asks && query == ""}
	return r, nil
}

// request is the request under an id, for http.Transport.
func (r *ready) request(ctx context.Context, id string) *http.Request {
	h := maps.Clone(r.header)
	h["X-Request-Id"] = []string{id}
	q := &http.Request{
		Method: r.method, URL: r.url, Host: r.url.Host, Header: h, ContentLength: int64(len(r.body)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody,
	}
	if len(r.body) > 0 {
		q.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(r.body)), nil }
		q.Body, _ = q.GetBody()
	}
	return q.WithContext(ctx)
}
