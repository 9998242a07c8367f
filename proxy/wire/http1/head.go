package http1

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
)

// Field is one header field as it came: name and value in their own case and
// order, optional white space around the value taken off.
type Field struct {
	Name, Value string
}

// Head is a parsed request or response head.
type Head struct {
	// Method and Target are set on requests, Status and Reason on responses.
	Method, Target string
	Status         int
	Reason         string
	// Minor is the HTTP/1 minor version: 0 or 1.
	Minor  int
	Fields []Field
}

// Errors that end the reading of a connection. The bytes flow on all the same.
var (
	ErrNotHTTP   = errors.New("not http/1")
	ErrHTTP2     = errors.New("h2")
	ErrTLS       = errors.New("tls")
	ErrHead      = errors.New("malformed head")
	ErrHeadSize  = errors.New("head over the bound")
	ErrChunk     = errors.New("malformed chunk")
	ErrAmbiguous = errors.New("ambiguous framing")
)

// Get returns the value of the first field of that name and whether there is one.
func (h *Head) Get(name string) (string, bool) {
	for i := range h.Fields {
		if strings.EqualFold(h.Fields[i].Name, name) {
			return h.Fields[i].Value, true
		}
	}
	return "", false
}

// Value is Get without the second result.
func (h *Head) Value(name string) string {
	v, _ := h.Get(name)
	return v
}

// Has reports whether a comma-separated field of that name lists the token,
// over all lines of that name (RFC 9110 section 5.3).
func (h *Head) Has(name, token string) bool {
	for i := range h.Fields {
		if !strings.EqualFold(h.Fields[i].Name, name) {
			continue
		}
		for t := range strings.SplitSeq(h.Fields[i].Value, ",") {
			if strings.EqualFold(strings.TrimSpace(t), token) {
				return true
			}
		}
	}
	return false
}

// Length returns the declared length of the body, -1 for none or a malformed one.
func (h *Head) Length() int64 {
	n, err := h.contentLength()
	if err != nil {
		return -1
	}
	return n
}

// chunkedLast reports whether chunked is the final transfer coding: only then
// does it delimit the body (RFC 9112 section 6.3).
func (h *Head) chunkedLast() bool {
	last := ""
	for i := range h.Fields {
		if !strings.EqualFold(h.Fields[i].Name, "Transfer-Encoding") {
			continue
		}
		for t := range strings.SplitSeq(h.Fields[i].Value, ",") {
			if t = strings.TrimSpace(t); t != "" {
				last = t
			}
		}
	}
	return strings.EqualFold(last, "chunked")
}

// KeepsAlive reports whether the sender means the connection to go on
// (RFC 9112 section 9.3).
func (h *Head) KeepsAlive() bool {
	if h.Has("Connection", "close") {
		return false
	}
	return h.Minor >= 1 || h.Has("Connection", "keep-alive")
}

// contentLength returns the declared length, -1 for none. Two differing
// lengths, or one that is no number, are ambiguous (RFC 9112 section 6.3).
func (h *Head) contentLength() (int64, error) {
	n := int64(-1)
	for i := range h.Fields {
		if !strings.EqualFold(h.Fields[i].Name, "Content-Length") {
			continue
		}
		for t := range strings.SplitSeq(h.Fields[i].Value, ",") {
			v, err := strconv.ParseUint(strings.TrimSpace(t), 10, 62)
			if err != nil || n >= 0 && n != int64(v) {
				return 0, ErrAmbiguous
			}
			n = int64(v)
		}
	}
	return n, nil
}

// parseHead reads a whole head, first line to the blank one, without it.
func parseHead(b []byte, response bool) (*Head, error) {
	h := &Head{}
	line, rest := cutLine(b)
	var err error
	if response {
		err = h.statusLine(string(line))
	} else {
		err = h.requestLine(string(line))
	}
	if err != nil {
		return nil, err
	}
	h.Fields = make([]Field, 0, bytes.Count(rest, []byte{'\n'}))
	for len(rest) > 0 {
		line, rest = cutLine(rest)
		if len(line) == 0 {
			continue
		}
		if line[0] == ' ' || line[0] == '\t' { // obsolete folding: part of the value before
			if n := len(h.Fields); n > 0 {
				h.Fields[n-1].Value += " " + string(bytes.TrimSpace(line))
				continue
			}
			return nil, ErrHead
		}
		name, value, ok := bytes.Cut(line, []byte{':'})
		if !ok || len(name) == 0 {
			return nil, ErrHead
		}
		if c := name[len(name)-1]; c == ' ' || c == '\t' { // smuggling: RFC 9112 section 5.1
			return nil, ErrHead
		}
		h.Fields = append(h.Fields, Field{string(name), string(bytes.TrimSpace(value))})
	}
	return h, nil
}

func (h *Head) requestLine(s string) error {
	method, rest, ok := strings.Cut(s, " ")
	if !ok || !isToken(method) {
		return ErrNotHTTP
	}
	i := strings.LastIndexByte(rest, ' ')
	if i < 0 {
		return ErrNotHTTP
	}
	target, proto := rest[:i], rest[i+1:]
	if method == "PRI" && target == "*" && strings.HasPrefix(proto, "HTTP/2") {
		return ErrHTTP2
	}
	if target == "" {
		return ErrHead
	}
	h.Method, h.Target = method, target
	return h.version(proto)
}

func (h *Head) statusLine(s string) error {
	proto, rest, ok := strings.Cut(s, " ")
	if !ok {
		return ErrNotHTTP
	}
	if err := h.version(proto); err != nil {
		return err
	}
	code, reason, _ := strings.Cut(rest, " ")
	n, err := strconv.Atoi(code)
	if err != nil || len(code) != 3 || n < 100 {
		return ErrHead
	}
	h.Status, h.Reason = n, reason
	return nil
}

func (h *Head) version(s string) error {
	switch s {
	case "HTTP/1.1":
		h.Minor = 1
	case "HTTP/1.0":
		h.Minor = 0
	default:
		return ErrNotHTTP
	}
	return nil
}

func cutLine(b []byte) (line, rest []byte) {
	before, after, ok := bytes.Cut(b, []byte{'\n'})
	if !ok {
		return b, nil
	}
	line, rest = before, after
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line, rest
}

// tokenByte tells the bytes of a token (RFC 9110 section 5.6.2).
func tokenByte(c byte) bool {
	switch {
	case '0' <= c && c <= '9', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		return true
	}
	return strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

func isToken(s string) bool {
	for i := range len(s) {
		if !tokenByte(s[i]) {
			return false
		}
	}
	return s != ""
}
