package ws_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	coder "github.com/coder/websocket"
	gorilla "github.com/gorilla/websocket"

	"github.com/omnitap/omnitap/proxy/wire/ws"
)

// tee is a client's connection of which both directions are kept.
type tee struct {
	net.Conn
	mu     sync.Mutex // protects what follows
	up, dn bytes.Buffer
}

func (c *tee) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.Conn.Write(p)
	c.up.Write(p[:n])
	return n, err
}

func (c *tee) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dn.Write(p[:n])
	return n, err
}

func (c *tee) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	c.Conn = conn
	return c, err
}

// said is a message as its sender wrote it.
type said struct {
	op   ws.Opcode
	body string
}

// dialogue is what is said to a server that repeats it.
func dialogue() []said {
	long := string(noise(70000, 4))
	return []said{
		{ws.Text, `{"type":"session.update"}`},
		{ws.Text, ""},
		{ws.Binary, long[:3840]},
		{ws.Text, strings.Repeat(`{"type":"input_audio_buffer.append"}`, 500)},
		{ws.Text, long},
		{ws.Binary, long + long},
		{ws.Text, long[:300]},
		{ws.Binary, ""},
	}
}

// heard is a Handler that keeps the messages whole.
type heard struct {
	silent
	all    []said
	body   []byte
	packed int // compressed messages
	err    error
}

func (h *heard) Payload(p []byte, _ int64, _ bool) { h.body = append(h.body, p...) }
func (h *heard) Lost(err error, _ int64)           { h.err = err }

func (h *heard) Message(m ws.Message) {
	if m.Op == ws.Text {
		h.body = m.Data
	}
	h.all = append(h.all, said{m.Op, string(h.body)})
	h.body = nil
	if m.Compressed {
		h.packed++
	}
	if m.Err != nil {
		h.err = m.Err
	}
}

// check reads both directions of c and compares them with the dialogue.
func (c *tee) check(t *testing.T, compressed bool) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	client, server := negotiated(t, [][]byte{c.dn.Bytes()})
	for _, d := range []struct {
		name   string
		client bool
		in     []byte
		z      *ws.Deflate
	}{{"client", true, c.up.Bytes(), client}, {"server", false, c.dn.Bytes(), server}} {
		h := &heard{}
		s := ws.Scanner{H: h, FromClient: d.client}
		if d.z != nil {
			s.Compress(*d.z)
		}
		head := bytes.Index(d.in, []byte("\r\n\r\n")) + 4
		s.Start(int64(head))
		for p, cut := d.in[head:], random(9); len(p) > 0; {
			n := min(cut(len(p)), len(p))
			s.Feed(p[:n])
			p = p[n:]
		}
		want := dialogue()
		same := len(h.all) == len(want)
		for i := 0; same && i < len(want); i++ {
			same = h.all[i] == want[i]
		}
		if h.err != nil || !same || h.controls != 1 || !s.Idle() || (h.packed > 0) != compressed {
			t.Errorf("%s: %v, %d messages, same=%t, %d control frames, idle=%t, %d compressed", d.name, h.err, len(h.all), same, h.controls, s.Idle(), h.packed)
		}
	}
}

// TestGorilla: both sides of a connection of gorilla/websocket.
func TestGorilla(t *testing.T) {
	for _, compressed := range []bool{false, true} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			up := gorilla.Upgrader{EnableCompression: compressed}
			c, err := up.Upgrade(w, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			for {
				op, p, err := c.ReadMessage()
				if err != nil {
					return // the close handler has answered
				}
				_ = c.WriteMessage(op, p)
			}
		}))
		rec := &tee{}
		d := gorilla.Dialer{EnableCompression: compressed, NetDialContext: rec.dial}
		c, _, err := d.Dial("ws"+strings.TrimPrefix(srv.URL, "http"), nil) //nolint:bodyclose // an answer of 101 has no body
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range dialogue() {
			_ = c.WriteMessage(int(m.op), []byte(m.body))
			if _, p, err := c.ReadMessage(); err != nil || string(p) != m.body {
				t.Fatalf("%d bytes, %v", len(p), err)
			}
		}
		_ = c.WriteMessage(gorilla.CloseMessage, gorilla.FormatCloseMessage(1000, "bye"))
		if _, _, err = c.ReadMessage(); !gorilla.IsCloseError(err, 1000) {
			t.Fatal(err)
		}
		_ = c.Close()
		srv.Close()
		rec.check(t, compressed)
	}
}

// TestCoder: both sides of a connection of coder/websocket, which takes context over.
func TestCoder(t *testing.T) {
	for _, mode := range []coder.CompressionMode{coder.CompressionDisabled, coder.CompressionContextTakeover, coder.CompressionNoContextTakeover} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c, err := coder.Accept(w, r, &coder.AcceptOptions{CompressionMode: mode, CompressionThreshold: 1})
			if err != nil {
				t.Error(err)
				return
			}
			defer c.CloseNow()
			c.SetReadLimit(1 << 20)
			for {
				op, p, err := c.Read(r.Context())
				if err != nil {
					return
				}
				_ = c.Write(r.Context(), op, p)
			}
		}))
		rec := &tee{}
		c, _, err := coder.Dial(t.Context(), srv.URL, &coder.DialOptions{ //nolint:bodyclose // the body is the connection
			HTTPClient:      &http.Client{Transport: &http.Transport{DialContext: rec.dial}},
			CompressionMode: mode, CompressionThreshold: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		c.SetReadLimit(1 << 20)
		for _, m := range dialogue() {
			_ = c.Write(t.Context(), coder.MessageType(m.op), []byte(m.body))
			if _, p, err := c.Read(t.Context()); err != nil || string(p) != m.body {
				t.Fatalf("%d bytes, %v", len(p), err)
			}
		}
		if err := c.Close(coder.StatusNormalClosure, "bye"); err != nil {
			t.Fatal(err)
		}
		srv.Close()
		rec.check(t, mode != coder.CompressionDisabled)
	}
}
