package mock

import (
	"bufio"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/truth"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/wire"
)

// conn is one client connection: requests in, answers out, in order.
type conn struct {
	*wire.Conn
	srv *Server
	id  int
	in  *io.LimitedReader // under r
	r   *bufio.Reader
}

const maxHead = 1 << 20 // bytes of a request's head

func newConn(s *Server, wc *wire.Conn, id int) *conn {
	c := &conn{Conn: wc, srv: s, id: id, in: &io.LimitedReader{R: wc}}
	c.r = bufio.NewReaderSize(c.in, 16<<10)
	return c
}

func (c *conn) serve() {
	for index := 0; ; index++ {
		c.in.N = maxHead
		if !c.awaitRequest(index) || !c.exchange(index) {
			return
		}
	}
}

// awaitRequest waits for the first byte of a request; an idle connection is
// closed after the fault's time.
func (c *conn) awaitRequest(index int) bool {
	if idle := c.srv.faults.Idle; idle > 0 && index > 0 && c.r.Buffered() == 0 {
		timer := time.AfterFunc(idle, c.Expire)
		defer timer.Stop()
	}
	_, err := c.r.Peek(1)
	if errors.Is(err, wire.ErrIdle) {
		c.Finish()
	}
	return err == nil
}

const badRequest = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n\r\nInvalid HTTP request received."

// exchange reads one request and answers it. It reports whether the
// connection goes on.
func (c *conn) exchange(index int) bool {
	hr, err := http.ReadRequest(c.r)
	if err != nil {
		if c.in.N > 0 && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
			return false // the client left
		}
		if _, err := c.WriteString(badRequest); err == nil {
			c.Finish()
		}
		return false
	}
	c.in.N = maxBody * 2 // chunked framing included
	if hr.Header.Get("Upgrade") != "" {
		c.in.N = math.MaxInt64 // a session has no end in bytes
	}
	x := &exchange{c: c, req: newRequest(hr)}
	if handler, ok := control[x.req.method+" "+x.req.path]; ok {
		return x.readBody(hr) == nil && x.play(handler(x)) && !x.req.close
	}
	if x.rejectEarly(index) {
		return false
	}
	if err := x.readBody(hr); err != nil {
		if errors.Is(err, errTooLarge) && x.play(tooLarge) {
			c.Finish()
		}
		return false
	}
	if err := x.prepare(index); err != nil {
		return x.play(badScript(err)) && !x.req.close
	}
	return x.run() && !x.req.close && !c.Closed()
}

func newRequest(hr *http.Request) *request {
	old := !hr.ProtoAtLeast(1, 1)
	return &request{
		method: hr.Method, path: hr.URL.Path, header: hr.Header, hr: hr, old: old,
		close: hr.Close || (old && !strings.EqualFold(hr.Header.Get("Connection"), "keep-alive")),
	}
}

// rejectEarly is the fault that answers before the body is read.
func (x *exchange) rejectEarly(index int) bool {
	own, err := x.c.srv.cfg.Script.Overlay([]byte(x.req.header.Get("X-Mock-Script")))
	if err != nil {
		return false // told after the body
	}
	if f, err := script.Compile(own.Faults); err != nil || !f.RejectUpload || x.prepare(index) != nil {
		return false
	}
	a := x.refusal(http.StatusRequestEntityTooLarge, "Request body too large.")
	a.End = truth.Rejected
	x.play(a)
	x.c.Reset()
	return true
}
