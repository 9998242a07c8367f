package wire

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
)

// head renders the status line and the fields in the order and case of the
// dialect.
func (p *player) head(now time.Time) []byte {
	a, dialect := p.a, p.Script.Dialect
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", a.Status, http.StatusText(a.Status))
	put := func(name, value string) {
		if dialect == script.DialectOpenAI {
			name = http.CanonicalHeaderKey(name)
		}
		b.WriteString(name + ": " + value + "\r\n")
	}
	put("date", now.UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT"))
	if dialect != script.DialectOpenAI {
		put("server", "uvicorn")
	}
	for _, h := range a.Fields {
		put(h.Name, h.Value)
	}
	if p.framing == "length" {
		put("content-length", fmt.Sprint(a.Size()+a.Short))
	}
	if a.ContentType != "" {
		put("content-type", a.ContentType)
	}
	if a.Gzip {
		put("content-encoding", "gzip")
	}
	if dialect != script.DialectOpenAI {
		put("vary", "Origin")
	}
	if p.framing == "chunked" {
		name := "transfer-encoding"
		if dialect == script.DialectSGLang { // h11 writes its own field so
			name = http.CanonicalHeaderKey(name)
		}
		put(name, "chunked")
	}
	if p.Close || p.framing == "close" {
		put("connection", "close")
	}
	b.WriteString("\r\n")
	return []byte(b.String())
}
