package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	coder "github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	gorilla "github.com/gorilla/websocket"

	"github.com/omnitap/omnitap/proxy"
	"github.com/omnitap/omnitap/proxy/tap"
)

// Real WebSocket clients and servers: each plan is carried out directly and
// through omnitap serve. What the client says, what the server saw, and the bytes
// on either side of the relay have to be the same.

// wsStep is a session of a plan; testdata/clients/ws_steps.py tells of the fields.
type wsStep struct {
	Name      string   `json:"name"`
	Path      string   `json:"path"`
	Protocols []string `json:"protocols,omitempty"`
	Deflate   any      `json:"deflate,omitempty"`
	Send      [][2]any `json:"send,omitempty"`
	Ping      string   `json:"ping,omitempty"`
	Pieces    []int    `json:"pieces,omitempty"`
	Close     *wsClose `json:"close,omitempty"`
}

type wsClose struct {
	Code   int    `json:"code,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// wsResult is what a client says of a step.
type wsResult struct {
	Name       string   `json:"name"`
	Status     int      `json:"status"`
	Protocol   string   `json:"protocol"`
	Extensions string   `json:"extensions"`
	Got        []string `json:"got"`
	Pong       string   `json:"pong"`
	Close      wsClose  `json:"close"`
	Error      string   `json:"error"`
}

// wsDeflate is an offer of compression: window bits (nil: not said) and no takeover.
type wsDeflate struct {
	ClientBits  any  `json:"client_bits,omitempty"`
	ServerBits  any  `json:"server_bits,omitempty"`
	ClientReset bool `json:"client_reset,omitempty"`
	ServerReset bool `json:"server_reset,omitempty"`
}

// wsClient carries out a plan against base.
type wsClient struct {
	name     string
	deflates []any // the offers of compression; nil: what it does by itself
	pings    bool
	pieces   bool // it can send fragments
	drive    func(t testing.TB, base string, plan []wsStep) []wsResult
}

// wsReason is a reason of 123 bytes, the longest there may be.
var wsReason = strings.Repeat("é", 61) + "x"

// The close codes of the plans.
const (
	closeNormal = 1000
	closeOwn    = 4001
)

func wsSizes(sizes ...int) (send [][2]any) {
	for _, n := range sizes {
		send = append(send, [2]any{"text", n}, [2]any{"binary", n})
	}
	return send
}

// wsPlan is what a client does with every server.
func wsPlan(c wsClient) (plan []wsStep) {
	ping := ""
	if c.pings {
		ping = "are you there?"
	}
	sizes := []int{0, 1, 125, 126, 65535, 65536, 1 << 20}
	for i, d := range c.deflates {
		plan = append(plan, wsStep{
			Name: fmt.Sprintf("messages %d", i), Path: "/ws/echo", Protocols: []string{"other", "realtime"}, Deflate: d,
			Send: wsSizes(sizes...), Ping: ping, Close: &wsClose{closeNormal, "done"},
		})
		sizes = []int{0, 200, 70000}
	}
	if c.pieces {
		plan = append(plan, wsStep{Name: "pieces", Path: "/ws/echo", Pieces: []int{5, 0, 126, 70000, 1}, Ping: ping, Close: &wsClose{closeNormal, ""}})
	}
	ask := wsSizes(1)
	closing := func(name, query string) wsStep {
		return wsStep{Name: name, Path: "/ws/close" + query, Send: ask[:1]}
	}
	return append(
		plan,
		wsStep{Name: "own close", Path: "/ws/echo", Send: ask, Close: &wsClose{closeOwn, "bye"}},
		wsStep{Name: "empty close", Path: "/ws/echo", Send: ask, Close: &wsClose{}},
		wsStep{Name: "long close", Path: "/ws/echo", Send: ask, Close: &wsClose{closeOwn + 1, wsReason}},
		closing("server's close", "?code=1000"),
		closing("server's own close", "?code=4001&reason=bye"),
		closing("server's long close", "?code=4002&reason="+strings.ReplaceAll(wsReason, "é", "%C3%A9")),
		closing("server's plain close", ""),
		wsStep{Name: "403", Path: "/ws/refuse?status=403"},
		wsStep{Name: "200", Path: "/ws/refuse?status=200"},
	)
}

// keyed names the sessions of a plan to the server.
func keyed(plan []wsStep, key string) []wsStep {
	plan = slices.Clone(plan)
	for i, s := range plan {
		sep := "?"
		if strings.Contains(s.Path, "?") {
			sep = "&"
		}
		plan[i].Path += sep + "key=" + key
	}
	return plan
}

// nodeModules is where the packages of Node.js lie, for NODE_PATH.
func nodeModules(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(filepath.Dir(filepath.Dir(clientPython(t))), "node_modules")
	if _, err := os.Stat(filepath.Join(dir, "ws")); err != nil {
		t.Fatalf("the Node.js client is not installed beside the Python ones: run `make clients` (%v)", err)
	}
	return dir
}

func planText(t testing.TB, plan []wsStep) string {
	t.Helper()
	b, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// pythonDrive carries a plan out with a script of testdata/clients.
func pythonDrive(script string) func(testing.TB, string, []wsStep) []wsResult {
	return func(t testing.TB, base string, plan []wsStep) []wsResult {
		t.Helper()
		return runScript[[]wsResult](t, script, "--base", base, "--plan", planText(t, plan))
	}
}

func nodeDrive(t testing.TB, base string, plan []wsStep) (results []wsResult) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), clientLimit)
	defer cancel()
	cmd := tool(ctx, "node", filepath.Join(clientsDir, "ws_client.js"), "--base", base, "--plan", planText(t, plan))
	cmd.Env = append(cmd.Env, "NODE_PATH="+nodeModules(t))
	var errOut strings.Builder
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &results)
	}
	if err != nil {
		t.Fatalf("ws_client.js: %v\n%s%s", err, out, errOut.String())
	}
	return results
}

// chromium finds the browser.
func chromium(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium-headless-shell", "chromium"} {
		if bin, err := exec.LookPath(name); err == nil {
			return bin
		}
	}
	t.Fatal("the browser's test needs chromium-headless-shell (package chromium-headless-shell) or chromium")
	return ""
}

// chromiumArgs keep the browser from talking to anybody else.
var chromiumArgs = []string{
	"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
	"--disable-component-update", "--disable-sync", "--no-proxy-server", "--disable-dev-shm-usage", "--remote-debugging-port=0",
}

// chromiumDrive serves the page that carries the plan out, and waits for what it posts.
func chromiumDrive(t testing.TB, base string, plan []wsStep) []wsResult {
	t.Helper()
	results := make(chan []wsResult, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, filepath.Join(clientsDir, "ws_page.html"))
	})
	mux.HandleFunc("GET /plan", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"base": base, "steps": plan})
	})
	mux.HandleFunc("POST /result", func(_ http.ResponseWriter, r *http.Request) {
		var got []wsResult
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Errorf("the page's result: %v", err)
		}
		results <- got
	})
	page := httptest.NewServer(mux)
	defer page.Close()
	ctx, cancel := context.WithTimeout(t.Context(), clientLimit)
	defer cancel()
	cmd := tool(ctx, chromium(t), append(slices.Clone(chromiumArgs), "--user-data-dir="+t.TempDir(), page.URL+"/")...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it has children, and does not heed SIGTERM
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var errOut strings.Builder
	cmd.Stderr = &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case got := <-results:
		cancel()
		<-ended
		return got
	case err := <-ended:
		t.Fatalf("the browser ended ahead of its result: %v\n%s", err, errOut.String())
	}
	return nil
}

func wsText(n int) string      { return strings.Repeat("aé€😀", n/10) + strings.Repeat("x", n%10) }
func wsBinary(n int) string    { return cycle(251, n) }
func wsURL(base string) string { return "ws" + strings.TrimPrefix(base, "http") }

// cycle is n bytes that count from 0 to period and again.
func cycle(period, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i % period)
	}
	return string(b)
}

func wsMessage(m [2]any) (kind, data string) {
	if m[0] == "text" {
		return "text", wsText(m[1].(int))
	}
	return "binary", wsBinary(m[1].(int))
}

func sameness(kind, sent, gotKind, got string) string {
	word := "differs"
	if kind == gotKind && sent == got {
		word = "same"
	}
	return fmt.Sprintf("%s %d %s", gotKind, len(got), word)
}

// eachStep calls drive for each step of a plan.
func eachStep(plan []wsStep, drive func(s wsStep, r *wsResult) error) []wsResult {
	results := make([]wsResult, len(plan))
	for i, s := range plan {
		results[i].Name = s.Name
		if err := drive(s, &results[i]); err != nil {
			results[i].Error = withoutPort(err.Error())
		}
	}
	return results
}

// noted fills a result in with the answer to the handshake.
func (r *wsResult) noted(res *http.Response) {
	if res != nil {
		r.Status, r.Extensions = res.StatusCode, res.Header.Get("Sec-WebSocket-Extensions")
	}
}

// gorillaDrive carries a plan out with gorilla/websocket.
func gorillaDrive(cfg *tls.Config) func(testing.TB, string, []wsStep) []wsResult {
	return func(_ testing.TB, base string, plan []wsStep) []wsResult {
		return eachStep(plan, func(s wsStep, r *wsResult) error { return gorillaStep(cfg, base, s, r) })
	}
}

func gorillaStep(cfg *tls.Config, base string, s wsStep, r *wsResult) error {
	d := gorilla.Dialer{
		Subprotocols: s.Protocols, EnableCompression: s.Deflate == true, WriteBufferSize: 16 << 10,
		TLSClientConfig: cfg, HandshakeTimeout: clientLimit,
	}
	c, res, err := d.Dial(wsURL(base)+s.Path, nil)
	r.noted(res)
	closeBody(res)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(clientLimit))
	r.Protocol = c.Subprotocol()
	c.SetPongHandler(func(p string) error { r.Pong = p; return nil })
	kinds := map[string]int{"text": gorilla.TextMessage, "binary": gorilla.BinaryMessage}
	ping := func() {
		if s.Ping != "" {
			_ = c.WriteControl(gorilla.PingMessage, []byte(s.Ping), time.Now().Add(clientLimit))
		}
	}
	echoed := func(kind, sent string) error {
		k, got, err := c.ReadMessage()
		if err == nil {
			r.Got = append(r.Got, sameness(kind, sent, map[int]string{gorilla.TextMessage: "text", gorilla.BinaryMessage: "binary"}[k], string(got)))
		}
		return err
	}
	ping()
	for _, m := range s.Send {
		kind, data := wsMessage(m)
		if err := c.WriteMessage(kinds[kind], []byte(data)); err != nil {
			return err
		}
		if strings.HasPrefix(s.Path, "/ws/echo") {
			if err := echoed(kind, data); err != nil {
				return err
			}
		}
	}
	if len(s.Pieces) > 0 { // frames of its buffer's size
		w, err := c.NextWriter(gorilla.TextMessage)
		if err != nil {
			return err
		}
		whole := ""
		for i, n := range s.Pieces {
			if i > 0 {
				ping()
			}
			whole += strings.Repeat("x", n)
			if _, err := io.WriteString(w, strings.Repeat("x", n)); err != nil {
				return err
			}
		}
		if err := errors.Join(w.Close(), echoed("text", whole)); err != nil {
			return err
		}
	}
	if s.Close != nil {
		code := s.Close.Code
		if code == 0 {
			code = gorilla.CloseNoStatusReceived // makes an empty one
		}
		_ = c.WriteControl(gorilla.CloseMessage, gorilla.FormatCloseMessage(code, s.Close.Reason), time.Now().Add(clientLimit))
	}
	_, _, err = c.ReadMessage()
	if e, ok := errors.AsType[*gorilla.CloseError](err); ok {
		r.Close = wsClose{e.Code, e.Text}
		return nil
	}
	return err
}

// coderDrive carries a plan out with coder/websocket; a step's deflate is its CompressionMode.
func coderDrive(client *http.Client) func(testing.TB, string, []wsStep) []wsResult {
	return func(t testing.TB, base string, plan []wsStep) []wsResult {
		t.Helper()
		return eachStep(plan, func(s wsStep, r *wsResult) error {
			ctx, cancel := context.WithTimeout(t.Context(), clientLimit)
			defer cancel()
			return coderStep(ctx, client, base, s, r)
		})
	}
}

func coderStep(ctx context.Context, client *http.Client, base string, s wsStep, r *wsResult) error {
	o := &coder.DialOptions{HTTPClient: client, Subprotocols: s.Protocols}
	if mode, ok := s.Deflate.(coder.CompressionMode); ok {
		o.CompressionMode, o.CompressionThreshold = mode, 1
	}
	c, res, err := coder.Dial(ctx, wsURL(base)+s.Path, o)
	r.noted(res)
	closeBody(res)
	if err != nil {
		return err
	}
	defer c.CloseNow()
	c.SetReadLimit(-1)
	r.Protocol = c.Subprotocol()
	kinds := map[string]coder.MessageType{"text": coder.MessageText, "binary": coder.MessageBinary}
	echoed := func(kind, sent string) error {
		k, got, err := c.Read(ctx)
		if err == nil {
			r.Got = append(r.Got, sameness(kind, sent, map[coder.MessageType]string{coder.MessageText: "text", coder.MessageBinary: "binary"}[k], string(got)))
		}
		return err
	}
	ponged := make(chan error, 1)
	if s.Ping != "" {
		go func() { ponged <- c.Ping(ctx) }() // answered while something is read
	}
	for _, m := range s.Send {
		kind, data := wsMessage(m)
		if err := c.Write(ctx, kinds[kind], []byte(data)); err != nil {
			return err
		}
		if strings.HasPrefix(s.Path, "/ws/echo") {
			if err := echoed(kind, data); err != nil {
				return err
			}
		}
	}
	if len(s.Pieces) > 0 {
		w, err := c.Writer(ctx, coder.MessageText)
		if err != nil {
			return err
		}
		whole := ""
		for _, n := range s.Pieces {
			whole += strings.Repeat("x", n)
			if _, err := io.WriteString(w, strings.Repeat("x", n)); err != nil {
				return err
			}
		}
		if err := errors.Join(w.Close(), echoed("text", whole)); err != nil {
			return err
		}
	}
	if s.Close != nil {
		code := coder.StatusCode(s.Close.Code)
		if code == 0 {
			code = coder.StatusNoStatusRcvd // makes an empty one
		}
		return c.Close(code, s.Close.Reason)
	}
	_, _, err = c.Read(ctx)
	if e, ok := errors.AsType[coder.CloseError](err); ok {
		r.Close = wsClose{int(e.Code), e.Reason}
		return nil
	}
	return err
}

// wsLog keeps what a server of the tests saw, by the key of the sessions.
type wsLog struct {
	mu    sync.Mutex // protects seen
	ended *sync.Cond
	seen  map[string][]*wsSession
}

type wsSession struct {
	Header   http.Header
	Messages []string
	Close    string
}

func newWSLog() *wsLog {
	l := &wsLog{seen: map[string][]*wsSession{}}
	l.ended = sync.NewCond(&l.mu)
	return l
}

func (l *wsLog) note(r *http.Request, s *wsSession) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.Header = r.Header
	key := r.FormValue("key")
	l.seen[key] = append(l.seen[key], s)
	l.ended.Broadcast()
}

// serve is GET /ws/log.
func (l *wsLog) serve(w http.ResponseWriter, r *http.Request) {
	n, _ := strconv.Atoi(r.FormValue("n"))
	key := r.FormValue("key")
	stop := context.AfterFunc(r.Context(), l.ended.Broadcast)
	defer stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.seen[key]) < n && r.Context().Err() == nil {
		l.ended.Wait()
	}
	_ = json.NewEncoder(w).Encode(l.seen[key])
	delete(l.seen, key)
}

func (s *wsSession) got(kind string, data []byte) {
	sum := sha256.Sum256(data)
	s.Messages = append(s.Messages, fmt.Sprintf("%s %d %s", kind, len(data), hex.EncodeToString(sum[:])))
}

// wsMux has the paths of testdata/clients/ws_uvicorn.py; session serves one that is not refused.
func wsMux(session func(w http.ResponseWriter, r *http.Request, s *wsSession)) http.Handler {
	l := newWSLog()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ws/log", l.serve)
	mux.HandleFunc("GET /ws/refuse", func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.FormValue("status"))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "refused")
	})
	mux.HandleFunc("GET /ws/", func(w http.ResponseWriter, r *http.Request) {
		s := &wsSession{}
		session(w, r, s)
		l.note(r, s)
	})
	return mux
}

func startGorillaWS(t testing.TB) (base string) {
	t.Helper()
	return startHandler(t, gorillaServer())
}

func startCoderWS(t testing.TB) (base string) {
	t.Helper()
	return startHandler(t, coderServer())
}

func gorillaServer() http.Handler {
	up := gorilla.Upgrader{ReadBufferSize: 64 << 10, Subprotocols: []string{"realtime"}, EnableCompression: true, CheckOrigin: func(*http.Request) bool { return true }}
	return wsMux(func(w http.ResponseWriter, r *http.Request, s *wsSession) {
		c, err := up.Upgrade(w, r, nil)
		if err != nil {
			s.Close = err.Error()
			return
		}
		defer c.Close()
		for {
			kind, data, err := c.ReadMessage()
			if err != nil {
				s.Close = withoutPort(err.Error())
				return
			}
			s.got(strconv.Itoa(kind), data)
			if r.URL.Path == "/ws/echo" {
				err = c.WriteMessage(kind, data)
			} else {
				code, _ := strconv.Atoi(r.FormValue("code"))
				if code == 0 {
					code = gorilla.CloseNoStatusReceived
				}
				err = c.WriteControl(gorilla.CloseMessage, gorilla.FormatCloseMessage(code, r.FormValue("reason")), time.Now().Add(clientLimit))
			}
			if err != nil {
				s.Close = withoutPort(err.Error())
				return
			}
		}
	})
}

func coderServer() http.Handler {
	return wsMux(func(w http.ResponseWriter, r *http.Request, s *wsSession) {
		c, err := coder.Accept(w, r, &coder.AcceptOptions{Subprotocols: []string{"realtime"}, CompressionMode: coder.CompressionContextTakeover, CompressionThreshold: 1, InsecureSkipVerify: true})
		if err != nil {
			s.Close = err.Error()
			return
		}
		defer c.CloseNow()
		c.SetReadLimit(-1)
		ctx := context.WithoutCancel(r.Context())
		for {
			kind, data, err := c.Read(ctx)
			if err == nil {
				s.got(kind.String(), data)
				if r.URL.Path == "/ws/echo" {
					err = c.Write(ctx, kind, data)
				} else {
					code, _ := strconv.Atoi(r.FormValue("code"))
					if code == 0 {
						code = int(coder.StatusNoStatusRcvd)
					}
					s.Close = fmt.Sprint("closed: ", c.Close(coder.StatusCode(code), r.FormValue("reason")))
					return
				}
			}
			if err != nil {
				s.Close = withoutPort(err.Error())
				return
			}
		}
	})
}

// startHandler runs a handler of WebSockets until the test ends.
func startHandler(t testing.TB, h http.Handler) (base string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// startPrinter runs a server that prints its port, until the test ends.
func startPrinter(t testing.TB, program string, env []string, args ...string) (base string) {
	t.Helper()
	cmd := tool(t.Context(), program, args...)
	cmd.Env = append(cmd.Env, env...)
	var errOut strings.Builder
	cmd.Stderr = &errOut
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(clientLimit, func() { _ = cmd.Process.Kill() })
	var port int
	_, err = fmt.Fscanln(out, &port)
	late.Stop()
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatalf("%s %q did not start: %v\n%s", program, args, err, errOut.String())
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // the test's context has asked it to end
	return fmt.Sprintf("http://127.0.0.1:%d", port)
}

// uvicornWS starts uvicorn with one of its implementations of WebSocket.
func uvicornWS(impl string) func(t testing.TB) (base string) {
	return func(t testing.TB) string {
		t.Helper()
		return startPrinter(t, clientPython(t), nil, filepath.Join(clientsDir, "ws_uvicorn.py"), "--ws", impl)
	}
}

func startNodeWS(t testing.TB) (base string) {
	t.Helper()
	return startPrinter(t, "node", []string{"NODE_PATH=" + nodeModules(t)}, filepath.Join(clientsDir, "ws_server.js"))
}

// wsServers are the servers of the plans.
var wsServers = []struct {
	name  string
	start func(t testing.TB) string
}{
	{"uvicorn websockets", uvicornWS("websockets")},
	{"uvicorn websockets-sansio", uvicornWS("websockets-sansio")},
	{"uvicorn wsproto", uvicornWS("wsproto")},
	{"node ws", startNodeWS},
	{"gorilla", startGorillaWS},
	{"coder", startCoderWS},
}

// wsClients are the clients of the plans.
var wsClients = []wsClient{
	{"websockets", []any{nil, false, wsDeflate{ClientBits: 10, ServerBits: 11}, wsDeflate{ClientReset: true, ServerReset: true}}, true, true, pythonDrive("ws_websockets.py")},
	{"aiohttp", []any{15, 0, 9}, true, false, pythonDrive("ws_aiohttp.py")},
	{"node", []any{nil, false, wsDeflate{ClientBits: 9}, wsDeflate{ClientBits: 12}, wsDeflate{ClientReset: true}}, true, true, nodeDrive},
	{"chromium", []any{nil}, false, false, chromiumDrive},
	{"gorilla", []any{true, false}, true, true, gorillaDrive(nil)},
	{"coder", []any{coder.CompressionContextTakeover, coder.CompressionNoContextTakeover, coder.CompressionDisabled}, true, true, coderDrive(nil)},
}

// wsFailures are sessions that fail without a relay as well: server, client and step,
// and what the client then says.
var wsFailures = map[string]string{
	"gorilla/websockets/messages 2":     "NegotiationError",                // it grants no window sizes
	"uvicorn wsproto/websockets/pieces": "no close frame received or sent", // wsproto fails on a ping between compressed frames
	"uvicorn wsproto/node/pieces":       "Error: closed ahead of pong",     // so does it here
}

// TestWebSocketClients: every client with every server, through the program itself.
// The clients of a server run at once.
func TestWebSocketClients(t *testing.T) {
	t.Parallel()
	bin := buildOmnitap(t)
	for _, s := range wsServers {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			base := s.start(t)
			inner := startOnlooker(t, base)
			relay := startServe(t, bin, "http://"+inner.addr)
			outer := startOnlooker(t, "http://"+relay.addr)
			t.Run("clients", func(t *testing.T) {
				for _, c := range wsClients {
					t.Run(c.name, func(t *testing.T) {
						t.Parallel()
						plan := keyed(wsPlan(c), c.name)
						got, log := wsTwoWays(t, base, "http://"+outer.addr, c.name, func(base string) []wsResult { return c.drive(t, base, plan) })
						checkWSResults(t, s.name+"/"+c.name, plan, got)
						checkWSLog(t, log)
					})
				}
			})
			relay.stop(t)
			if d := cmp.Diff(outer.end(), inner.end()); d != "" {
				t.Errorf("what passed differs (-client's side +server's side):\n%s", d)
			}
		})
	}
}

// checkWSResults checks what has to be so with any client and server.
func checkWSResults(t testing.TB, pair string, plan []wsStep, got []wsResult) {
	t.Helper()
	if len(got) != len(plan) {
		t.Fatalf("%d results, want %d", len(got), len(plan))
	}
	byName := map[string]wsResult{}
	for i, r := range got {
		byName[r.Name] = r
		if refused := strings.HasPrefix(plan[i].Path, "/ws/refuse"); refused {
			if r.Error == "" || r.Status == http.StatusSwitchingProtocols {
				t.Errorf("%s: %+v, want a refusal", r.Name, r)
			}
			continue
		}
		if want, ok := wsFailures[pair+"/"+r.Name]; ok {
			if !strings.Contains(r.Error, want) {
				t.Errorf("%s: %+v, want an error with %q", r.Name, r, want)
			}
			continue
		}
		want := len(plan[i].Send) + min(1, len(plan[i].Pieces))
		if !strings.HasPrefix(plan[i].Path, "/ws/echo") {
			want = 0
		}
		if r.Status != http.StatusSwitchingProtocols || r.Error != "" || len(r.Got) != want || slices.ContainsFunc(r.Got, func(s string) bool { return !strings.HasSuffix(s, " same") }) {
			t.Errorf("%s: %+v, want %d equal echoes", r.Name, r, want)
		}
		if len(plan[i].Protocols) > 0 && r.Protocol != "realtime" {
			t.Errorf("%s: subprotocol %q, want realtime", r.Name, r.Protocol)
		}
	}
	for name, want := range map[string]wsClose{
		"server's close": {closeNormal, ""}, "server's own close": {closeOwn, "bye"}, "server's long close": {closeOwn + 1, wsReason},
	} {
		if got := byName[name].Close; got != want {
			t.Errorf("%s: the client sees %+v, want %+v", name, got, want)
		}
	}
}

// checkWSLog checks that the client's close codes and reasons came to the server.
func checkWSLog(t testing.TB, log []string) {
	t.Helper()
	for _, want := range []string{strconv.Itoa(closeOwn), "bye", strconv.Itoa(closeOwn + 1), wsReason} {
		if !slices.ContainsFunc(log, func(e string) bool { return strings.Contains(e, want) }) {
			t.Errorf("the server saw nothing of %q: %q", want, log)
		}
	}
}

// webSocketKey finds the one random value of a handshake.
var webSocketKey = regexp.MustCompile(`[A-Za-z0-9+/]{22}==`)

// sessionLog asks the server what it saw of the sessions that the results tell of,
// in an order that does not depend on when they ended.
func sessionLog(t testing.TB, base, key string, results []wsResult) (seen []string) {
	t.Helper()
	n := 0
	for _, r := range results {
		if r.Status == http.StatusSwitchingProtocols {
			n++
		}
	}
	text := curl(t, fmt.Sprintf("%s/ws/log?key=%s&n=%d", base, key, n))
	var entries []json.RawMessage
	if err := json.Unmarshal([]byte(text), &entries); err != nil {
		t.Fatalf("the server's log is %q: %v", text, err)
	}
	for _, e := range entries {
		seen = append(seen, webSocketKey.ReplaceAllString(withoutPort(string(e)), "KEY"))
	}
	slices.Sort(seen)
	return seen
}

// wsTwoWays has drive talk to upstream directly, then to relayed, and wants the same
// of the client and of the server.
func wsTwoWays(t testing.TB, upstream, relayed, key string, drive func(base string) []wsResult) (got []wsResult, log []string) {
	t.Helper()
	var results [2][]wsResult
	var logs [2][]string
	for i, base := range []string{upstream, relayed} {
		results[i] = drive(base)
		logs[i] = sessionLog(t, upstream, key, results[i])
		for k := range results[i] {
			results[i][k].Error = withoutPort(results[i][k].Error)
		}
	}
	if d := cmp.Diff(results[0], results[1]); d != "" {
		t.Errorf("the client sees a difference (-direct +relayed):\n%s", d)
	}
	if d := cmp.Diff(logs[0], logs[1]); d != "" {
		t.Errorf("the server sees a difference (-direct +relayed):\n%s", d)
	}
	return results[1], logs[1]
}

// onlooker forwards TCP connections and keeps a digest of what passed.
type onlooker struct {
	addr string
	stop func()
	wg   sync.WaitGroup

	mu     sync.Mutex // protects passed
	passed []*[2]digest
}

// digest is of what passed one way.
type digest struct {
	n   int64
	sum hash.Hash
}

func startOnlooker(t testing.TB, upstream string) *onlooker {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &onlooker{addr: ln.Addr().String(), stop: func() { _ = ln.Close() }}
	o.wg.Go(func() { o.accept(ln, strings.TrimPrefix(upstream, "http://")) })
	t.Cleanup(func() { o.end() })
	return o
}

func (o *onlooker) accept(ln net.Listener, upstream string) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		up, err := net.Dial("tcp", upstream)
		if err != nil {
			_ = c.Close()
			continue
		}
		d := &[2]digest{{sum: sha256.New()}, {sum: sha256.New()}}
		o.mu.Lock()
		o.passed = append(o.passed, d)
		o.mu.Unlock()
		o.wg.Go(func() {
			var both sync.WaitGroup
			both.Go(func() { d[0].pump(up.(*net.TCPConn), c.(*net.TCPConn)) })
			both.Go(func() { d[1].pump(c.(*net.TCPConn), up.(*net.TCPConn)) })
			both.Wait()
			_ = c.Close()
			_ = up.Close()
		})
	}
}

// pump passes bytes on, FIN as FIN and RST as RST.
func (d *digest) pump(dst, src *net.TCPConn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		d.sum.Write(buf[:n])
		d.n += int64(n)
		if n > 0 {
			if _, werr := dst.Write(buf[:n]); werr != nil {
				err = werr
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			_ = dst.CloseWrite()
			return
		case err != nil:
			for _, c := range []*net.TCPConn{dst, src} {
				_ = c.SetLinger(0)
				_ = c.Close()
			}
			return
		}
	}
}

// end waits for the end of all connections and tells what passed on each, in an
// order that does not depend on theirs.
func (o *onlooker) end() (passed []string) {
	o.stop()
	o.wg.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, d := range o.passed {
		passed = append(passed, fmt.Sprintf("%d bytes up %x, %d bytes down %x", d[0].n, d[0].sum.Sum(nil), d[1].n, d[1].sum.Sum(nil)))
	}
	slices.Sort(passed)
	return passed
}

// TestWebSocketOverTLS: wss on both sides; neither gets HTTP/2, in which an upgrade
// would not work (case C52).
func TestWebSocketOverTLS(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(gorillaServer())
	s.EnableHTTP2 = true // offers h2 first
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(s.Close)
	cert, key := selfSigned(t, 1)
	serverTLS, err := proxy.ServerTLS(writeFile(t, "cert.pem", cert), writeFile(t, "key.pem", key))
	if err != nil {
		t.Fatal(err)
	}
	rig := startCaseRig(t, s.URL, func(p *proxy.Config, _ *tap.Config) {
		p.TLS, p.UpstreamTLS = serverTLS, &tls.Config{RootCAs: s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
	})
	for _, c := range []wsClient{
		{name: "gorilla", deflates: []any{true}, pings: true, pieces: true, drive: gorillaDrive(trusting(t, cert))},
		{name: "coder", deflates: []any{coder.CompressionContextTakeover}, pings: true, pieces: true, drive: coderDrive(&http.Client{
			Transport: &http.Transport{TLSClientConfig: trusting(t, cert), DisableKeepAlives: true},
		})},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := keyed(wsPlan(c), c.name)
			checkWSResults(t, "TLS", plan, c.drive(t, "https://"+rig.addr, plan))
		})
	}
	for _, c := range []struct {
		offer []string
		want  string // "" for a refusal
	}{
		{[]string{"h2", "http/1.1"}, "http/1.1"},
		{[]string{"http/1.1"}, "http/1.1"},
		{[]string{"h2"}, ""},
	} {
		cfg := trusting(t, cert)
		cfg.NextProtos = c.offer
		conn, err := tls.Dial("tcp", rig.addr, cfg)
		if err != nil {
			if c.want != "" || !strings.Contains(err.Error(), "no application protocol") {
				t.Errorf("offering %q: %v, want %q", c.offer, err, c.want)
			}
			continue
		}
		if got := conn.ConnectionState().NegotiatedProtocol; got != c.want {
			t.Errorf("offering %q: got %q, want %q", c.offer, got, c.want)
		}
		_ = conn.Close()
	}
}

// TestC52PriorKnowledge: a client that speaks HTTP/2 without asking gets through to a
// server that understands it.
func TestC52PriorKnowledge(t *testing.T) {
	t.Parallel()
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto+" ")
		_, _ = io.Copy(w, r.Body)
	}))
	s.Config.Protocols = &protocols
	s.Start()
	t.Cleanup(s.Close)
	rig := startCaseRig(t, s.URL, nil)
	tr := &http.Transport{Protocols: &protocols}
	defer tr.CloseIdleConnections()
	body := wsBinary(1 << 20)
	for range 3 {
		res, err := (&http.Client{Transport: tr}).Post("http://"+rig.addr+"/", "application/octet-stream", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || string(got) != "HTTP/2.0 "+body {
			t.Errorf("got %d bytes %.20q, %v, want HTTP/2.0 and the body", len(got), got, err)
		}
	}
}
