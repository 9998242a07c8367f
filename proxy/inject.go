package proxy

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/wire/http1"
)

// injector puts an X-Request-Id into heads of requests that have none. It
// follows the framing of the client's bytes only to find the heads; where it
// loses the thread, and behind an upgrade, bytes pass unchanged.
type injector struct {
	p    http1.Parser
	ids  *idSource
	read int64 // bytes passed so far
	puts []put
	out  []byte
}

// put is an id and the end of the head that it goes into.
type put struct {
	end int64
	id  string
}

func newInjector(ids *idSource) *injector {
	i := &injector{ids: ids}
	i.p.H = i
	return i
}

// pass returns p with ids inserted ahead of the blank lines of its heads, and
// tells the tap of each. The result is valid until the next call.
func (i *injector) pass(p []byte, h *tap.Handle) []byte {
	base := i.read
	i.read += int64(len(p))
	i.puts = i.puts[:0]
	i.p.Feed(p)
	if len(i.puts) == 0 {
		return p
	}
	i.out = i.out[:0]
	from := 0
	for _, w := range i.puts {
		end := int(w.end - base) // the byte behind the head
		at := end - 1            // its last line feed
		if at > 0 && p[at-1] == '\r' {
			at--
		} else if at == 0 && p[0] == '\n' {
			continue // the line's CR has gone out already: too late
		}
		if bytes.Contains(p[end:], []byte(`"request_id"`)) {
			continue // the header would override the client's own choice
		}
		i.out = append(i.out, p[from:at]...)
		i.out = append(i.out, "X-Request-Id: "...)
		i.out = append(i.out, w.id...)
		i.out = append(i.out, "\r\n"...)
		from = at
		h.Injected(w.id, w.end)
	}
	return append(i.out, p[from:]...)
}

// MessageStart is part of http1.Handler.
func (i *injector) MessageStart(int64) {}

// Head is part of http1.Handler.
func (i *injector) Head(h *http1.Head, end int64) http1.Expect {
	if _, ok := h.Get("X-Request-Id"); !ok {
		i.puts = append(i.puts, put{end, i.ids.next()})
	}
	if h.Method == http.MethodConnect || h.Has("Connection", "upgrade") {
		return http1.Upgraded
	}
	return http1.ByHead
}

// Body is part of http1.Handler.
func (i *injector) Body([]byte, int64) {}

// ChunkStart is part of http1.Handler.
func (i *injector) ChunkStart(int64) {}

// ChunkEnd is part of http1.Handler.
func (i *injector) ChunkEnd(int64) {}

// MessageEnd is part of http1.Handler.
func (i *injector) MessageEnd(int64) {}

// Tunnel is part of http1.Handler.
func (i *injector) Tunnel([]byte, int64) {}

// Lost is part of http1.Handler.
func (i *injector) Lost(error, int64) {}

// idSource makes request ids: unique over runs and processes, of letters and
// digits, and never ending like the tail that vLLM-Omni adds (`-` and 8 hex
// digits).
type idSource struct {
	prefix string
	n      atomic.Uint64
}

func newIDSource() *idSource {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return &idSource{prefix: "ot" + strconv.FormatUint(binary.BigEndian.Uint64(b[:])%1e12, 36) + "z"}
}

func (s *idSource) next() string { return s.prefix + strconv.FormatUint(s.n.Add(1), 36) + "z" }

var _ http1.Handler = (*injector)(nil)
