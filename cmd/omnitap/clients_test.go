package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// Real clients and real server stacks: each drive is made directly and through
// the relay, and the client must not be able to tell.

const (
	clientsEnv  = "OMNITAP_CLIENTS" // the Python of the client environment
	clientsDir  = "../../testdata/clients"
	clientLimit = 60 * time.Second // of one client's run
	uploadSize  = 2 << 20
)

// clientPython returns the Python that has the clients and the servers.
func clientPython(t testing.TB) string {
	t.Helper()
	if p := os.Getenv(clientsEnv); p != "" {
		return p
	}
	ctx, cancel := context.WithTimeout(t.Context(), clientLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(clientsDir, "install.sh"), "--path").Output()
	if err != nil {
		why := ""
		if e, ok := errors.AsType[*exec.ExitError](err); ok {
			why = string(e.Stderr)
		}
		t.Fatalf("the test clients are not installed: run `make clients`, or set %s to a Python that has testdata/clients/requirements.txt (%v: %s)", clientsEnv, err, strings.TrimSpace(why))
	}
	return filepath.Join(strings.TrimSpace(string(out)), "bin", "python")
}

// tool makes a command that talks to no proxy, leaves nothing behind and is
// asked to end, then killed, when ctx ends.
func tool(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "NO_PROXY=*", "no_proxy=*", "PYTHONDONTWRITEBYTECODE=1")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// tryTool runs a client to its end and returns what it printed.
func tryTool(t testing.TB, program string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), clientLimit)
	defer cancel()
	cmd := tool(ctx, program, args...)
	var errOut strings.Builder
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s %q: %w\n%s", program, args, err, errOut.String())
	}
	return string(out), nil
}

// runTool runs a client that has to exit with 0.
func runTool(t testing.TB, program string, args ...string) string {
	t.Helper()
	out, err := tryTool(t, program, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// runScript runs a script of testdata/clients and decodes the value it prints.
func runScript[T any](t testing.TB, name string, args ...string) (value T) {
	t.Helper()
	out := runTool(t, clientPython(t), append([]string{filepath.Join(clientsDir, name)}, args...)...)
	if err := json.Unmarshal([]byte(out), &value); err != nil {
		t.Fatalf("%s printed %q: %v", name, out, err)
	}
	return value
}

// curlArgs keep everybody's configuration out.
var curlArgs = []string{"-q", "-sS", "--http1.1", "--noproxy", "*", "--max-time", "30"}

func curl(t testing.TB, args ...string) string {
	t.Helper()
	return runTool(t, "curl", slices.Concat(curlArgs, args)...)
}

// twoWays has drive talk to upstream directly and through a relay, and wants the
// same from both. It returns that, and the relay's records in order.
func twoWays[T any](t testing.TB, upstream string, drive func(base string) T) (T, []*timeline.Record) {
	t.Helper()
	direct := drive(upstream)
	rig := startCaseRig(t, upstream, nil)
	relayed := drive("http://" + rig.addr)
	if d := cmp.Diff(direct, relayed); d != "" {
		t.Errorf("the client sees a difference (-direct +relayed):\n%s", d)
	}
	recs := rig.stop()
	byConnection(recs)
	for _, r := range recs {
		checkNulls(t, r)
		if r.Analysis != "full" {
			t.Errorf("analysis = %s (%v), want full", r.Analysis, r.AnalysisReason)
		}
	}
	return relayed, recs
}

// wantRecords stops the test where the relay made another number of records.
func wantRecords(t testing.TB, recs []*timeline.Record, n int) {
	t.Helper()
	if len(recs) != n {
		t.Fatalf("%d records, want %d", len(recs), n)
	}
}

func hashOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// wantTextOf checks a record's text against what the client read.
func wantTextOf(t testing.TB, rec *timeline.Record, text string) {
	t.Helper()
	wantInt(t, "text_bytes", rec.TextBytes, int64(len(text)))
	if rec.TextSHA256 == nil || *rec.TextSHA256 != hashOf(text) {
		t.Errorf("text_sha256 is not that of the client's %q", text)
	}
}

// chatView is what openai_chat.py says of a chat.
type chatView struct {
	Text       string  `json:"text"`
	AudioBytes int64   `json:"audio_bytes"`
	SHA256     string  `json:"sha256"`
	Chunks     int     `json:"chunks"`
	Finish     string  `json:"finish"`
	ID         string  `json:"id"`
	Error      *string `json:"error"`
}

// speechView is what openai_speech.py says of a speech answer; how its iterator
// cut it is no property of the wire.
type speechView struct {
	Status      int     `json:"status"`
	Bytes       int64   `json:"bytes"`
	SHA256      string  `json:"sha256"`
	ContentType string  `json:"content_type"`
	Error       *string `json:"error"`
}

// stepView is what httpx_stream.py and aiohttp_stream.py say of an exchange.
type stepView struct {
	Status      int     `json:"status"`
	HTTP        string  `json:"http"`
	Bytes       int64   `json:"bytes"`
	SHA256      string  `json:"sha256"`
	ContentType *string `json:"content_type"`
	New         bool    `json:"new_connection"`
	Error       *string `json:"error"`
}

// wantBytes checks what a client got against what was sent.
func wantBytes(t testing.TB, what string, sha string, n int64, want string) {
	t.Helper()
	if sha != hashOf(want) || n != int64(len(want)) {
		t.Errorf("the client got %s of %d bytes with hash %.8s, want %d with %.8s", what, n, sha, len(want), hashOf(want))
	}
}

// wavEach is the payloads of chunks of size samples, each a file of its own.
func wavEach(pcm string, samples int) string {
	var b strings.Builder
	for at := 0; at < len(pcm); at += 2 * samples {
		b.WriteString(wavFile(24000, 1, pcm[at:min(len(pcm), at+2*samples)]))
	}
	return b.String()
}

// The mock's default answer, with a ramp for its sound.
const (
	mockText    = "Hello from the mock omni."
	mockChunks  = 5
	mockSamples = 2400 // of a chunk
)

func mockSound() string { return ramp(0, mockChunks*mockSamples) }

func rampMock(t testing.TB, dialect string) (s *mock.Server, base string) {
	t.Helper()
	return caseMock(t, mock.Config{Seed: 7, Dialect: dialect, Script: mock.Script{Tone: "ramp"}})
}

// TestOpenAIClientChat: streams of three dialects, read by the openai client.
func TestOpenAIClientChat(t *testing.T) {
	t.Parallel()
	pcm := mockSound()
	wavs := wavEach(pcm, mockSamples)
	asPCM := []string{"--extra", `{"audio":{"format":"pcm"}}`}
	for _, c := range []struct {
		name, dialect, payload string
		args                   []string
	}{
		{"vllm-omni text and audio", mock.DialectVLLM, wavs, nil},
		{"vllm-omni text and pcm", mock.DialectVLLM, pcm, asPCM},
		{"vllm-omni text", mock.DialectVLLM, "", []string{"--modalities", "text"}},
		{"sglang-omni text and audio", mock.DialectSGLang, wavs, nil},
		{"sglang-omni text and pcm", mock.DialectSGLang, pcm, asPCM},
		{"sglang-omni text", mock.DialectSGLang, "", []string{"--modalities", "text"}},
		{"openai text and audio", mock.DialectOpenAI, pcm, nil},
		{"openai text", mock.DialectOpenAI, "", []string{"--modalities", "text"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server, base := rampMock(t, c.dialect)
			got, recs := twoWays(t, base, func(base string) chatView {
				server.Reset() // the same ids again
				return runScript[chatView](t, "openai_chat.py", append([]string{"--base", base, "--request-id", "chat-1"}, c.args...)...)
			})
			checkChatView(t, got, c.payload)
			wantRecords(t, recs, 1)
			checkChatRecord(t, recs[0], got, c.payload)
			if recs[0].Dialect != c.dialect || recs[0].RequestID != "chat-1" || recs[0].RequestIDSource != "client" {
				t.Errorf("dialect, id = %s, %s (%s), want %s, chat-1 (client)", recs[0].Dialect, recs[0].RequestID, recs[0].RequestIDSource, c.dialect)
			}
		})
	}
}

// checkChatView checks that a client got the mock's answer.
func checkChatView(t testing.TB, got chatView, payload string) {
	t.Helper()
	if got.Error != nil {
		t.Errorf("the client's error: %s", *got.Error)
	}
	if got.Text != mockText || got.Finish != "stop" || got.ID == "" {
		t.Errorf("the client got %q, finish %q, id %q, want %q, stop and some id", got.Text, got.Finish, got.ID, mockText)
	}
	wantBytes(t, "audio", got.SHA256, got.AudioBytes, payload)
}

// checkChatRecord checks a record of the mock's answer against the client's view.
func checkChatRecord(t testing.TB, rec *timeline.Record, got chatView, payload string) {
	t.Helper()
	wantTerminal(t, rec, timeline.Success, "done")
	wantTextOf(t, rec, got.Text)
	if rec.Flow != timeline.FlowChat || rec.ServerRequestID == nil || *rec.ServerRequestID != got.ID {
		t.Errorf("flow, server_request_id = %s, %v, want chat, %s", rec.Flow, rec.ServerRequestID, got.ID)
	}
	if payload == "" {
		wantNull(t, "audio", rec.Audio)
		return
	}
	wantSamples(t, rec, mockChunks*mockSamples, mockChunks)
	wantSum(t, rec, mockSound())
}

// TestOpenAIClientSpeech: with_streaming_response over raw samples and WAV.
func TestOpenAIClientSpeech(t *testing.T) {
	t.Parallel()
	pcm := mockSound()
	for _, c := range []struct{ name, dialect, format, extra, contentType, body string }{
		{"vllm-omni pcm", mock.DialectVLLM, "pcm", `{"stream_format":"audio"}`, "audio/pcm", pcm},
		{"vllm-omni wav", mock.DialectVLLM, "wav", `{"stream_format":"audio"}`, "audio/wav", wavHead(24000, 1, 0xFFFFFFFF) + pcm},
		{"vllm-omni whole wav", mock.DialectVLLM, "wav", `{}`, "audio/wav", wavFile(24000, 1, pcm)},
		{"sglang-omni pcm", mock.DialectSGLang, "pcm", `{"stream":true}`, "audio/pcm", pcm},
		{"openai pcm", mock.DialectOpenAI, "pcm", `{}`, "audio/pcm", pcm},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server, base := rampMock(t, c.dialect)
			got, recs := twoWays(t, base, func(base string) speechView {
				server.Reset()
				return runScript[speechView](t, "openai_speech.py", "--base", base, "--format", c.format, "--extra", c.extra)
			})
			wantBytes(t, "a body", got.SHA256, got.Bytes, c.body)
			if got.Error != nil || got.Status != http.StatusOK || got.ContentType != c.contentType {
				t.Errorf("the client got status %d, type %q, error %v, want 200, %s, none", got.Status, got.ContentType, got.Error, c.contentType)
			}
			wantRecords(t, recs, 1)
			wantTerminal(t, recs[0], timeline.Success, "done")
			wantInt(t, "audio.samples", audioOf(t, recs[0]).Samples, mockChunks*mockSamples)
			wantSum(t, recs[0], pcm)
			if sum := recs[0].Audio.SHA256; c.format == "pcm" && (sum == nil || *sum != got.SHA256) {
				t.Errorf("audio.sha256 = %v, want the client's %s", sum, got.SHA256)
			}
		})
	}
}

// startUvicorn runs the FastAPI app under uvicorn with one of its HTTP parsers
// until the test ends.
func startUvicorn(t testing.TB, parser string) (base string) {
	t.Helper()
	cmd := tool(t.Context(), clientPython(t), filepath.Join(clientsDir, "uvicorn_server.py"), "--http", parser)
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
	port, err := bufio.NewReader(out).ReadString('\n')
	late.Stop()
	t.Cleanup(func() { _ = cmd.Wait() }) // the test's context has asked it to end
	if err != nil {
		_ = cmd.Process.Kill()
		t.Fatalf("uvicorn did not start: %v\n%s", err, errOut.String())
	}
	return "http://127.0.0.1:" + strings.TrimSpace(port)
}

var uvicornParsers = []string{"h11", "httptools"}

// What uvicorn_server.py answers.
const (
	uvicornText    = "Hello."
	uvicornChunks  = 3
	uvicornSamples = 1200 // of a chunk
)

func uvicornSound() string {
	return pcmOf(uvicornChunks*uvicornSamples, func(i int) int { return i%20001 - 10000 })
}

// checkUvicornRecord checks the sound of a record, and its text if there is one.
func checkUvicornRecord(t testing.TB, rec *timeline.Record, text string) {
	t.Helper()
	wantTerminal(t, rec, timeline.Success, "done")
	wantInt(t, "audio.samples", audioOf(t, rec).Samples, uvicornChunks*uvicornSamples)
	wantSum(t, rec, uvicornSound())
	if text != "" {
		wantTextOf(t, rec, text)
	}
}

// TestClientsKeepTheirConnection: httpx and aiohttp make a streamed chat, a raw
// speech stream, an empty answer and a whole one on one connection.
func TestClientsKeepTheirConnection(t *testing.T) {
	t.Parallel()
	for _, parser := range uvicornParsers {
		t.Run(parser, func(t *testing.T) {
			t.Parallel()
			base := startUvicorn(t, parser)
			for _, script := range []string{"httpx_stream.py", "aiohttp_stream.py"} {
				t.Run(script, func(t *testing.T) {
					got, recs := twoWays(t, base, func(base string) []stepView {
						return runScript[[]stepView](t, script, "--base", base, "--prefix", "step")
					})
					if len(got) != 4 {
						t.Fatalf("%d exchanges, want 4", len(got))
					}
					for i, s := range got {
						if s.Error != nil || s.Status != http.StatusOK || s.HTTP != "HTTP/1.1" || s.New != (i == 0) {
							t.Errorf("exchange %d: %+v, want HTTP/1.1 200 on the first one's connection", i, s)
						}
					}
					wantBytes(t, "speech", got[1].SHA256, got[1].Bytes, uvicornSound())
					wantRecords(t, recs, 4)
					checkKept(t, recs)
				})
			}
		})
	}
}

// checkKept checks the records of four exchanges on one connection.
func checkKept(t testing.TB, recs []*timeline.Record) {
	t.Helper()
	for i, r := range recs {
		if want := fmt.Sprintf("step-%d", i); r.RequestID != want || r.ConnectionID != recs[0].ConnectionID {
			t.Errorf("record %d is of %s on connection %d, want %s on %d", i, r.RequestID, r.ConnectionID, want, recs[0].ConnectionID)
		}
	}
	checkUvicornRecord(t, recs[0], uvicornText)
	checkUvicornRecord(t, recs[1], "")
	wantTerminal(t, recs[2], timeline.Success, "done")
	checkUvicornRecord(t, recs[3], uvicornText)
}

// hostPort finds what differs between a direct and a relayed request.
var hostPort = regexp.MustCompile(`127\.0\.0\.1:\d+`)

func withoutPort(s string) string { return hostPort.ReplaceAllString(s, "HOST") }

// dateLine finds what differs between two answers at different times.
var dateLine = regexp.MustCompile(`(?im)^date: [^\r\n]*`)

func withoutDate(s string) string { return dateLine.ReplaceAllString(s, "date: NOW") }

// TestClientsRequestsPass: the bytes of each client's requests reach the server
// as they do without the relay.
func TestClientsRequestsPass(t *testing.T) {
	t.Parallel()
	answer := lengthAnswer("application/json", `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}`)
	for _, c := range []struct {
		name, script string
		requests     int
		args         []string
	}{
		{"openai", "openai_chat.py", 1, []string{"--no-stream"}},
		{"httpx", "httpx_stream.py", 4, nil},
		{"aiohttp", "aiohttp_stream.py", 4, nil},
		{"curl", "", 1, []string{"-d", caseChatBody}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex // protects seen
			var seen []string
			upstream := caseUpstream(t, func(conn *net.TCPConn, _ int) {
				for {
					request, err := readCaseRequest(conn)
					if err != nil {
						return
					}
					mu.Lock()
					seen = append(seen, withoutPort(request))
					mu.Unlock()
					caseSend(t, conn, answer)
				}
			})
			got, recs := twoWays(t, upstream, func(base string) []string {
				if c.script == "" {
					curl(t, append(c.args, base+"/v1/chat/completions?a=%20b")...)
				} else {
					runScript[any](t, c.script, append(c.args, "--base", base)...)
				}
				mu.Lock()
				defer mu.Unlock()
				out := seen
				seen = nil
				return out
			})
			if len(got) != c.requests {
				t.Errorf("the server saw %d requests, want %d", len(got), c.requests)
			}
			wantRecords(t, recs, c.requests)
		})
	}
}

// unstamped answers without a Date field: two answers are the same bytes.
func unstamped(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Date"] = nil
		h(w, r)
	}
}

// What goServer answers.
const (
	goText    = "Hello wörld"
	goSamples = 2 * 2400
)

func goSound() string { return ramp(0, goSamples) }

func goChat() []string {
	pcm := goSound()
	return []string{
		omniDelta(`"Hello"`, "text"), omniDelta(`" wörld"`, "text"), omniAudio(wavFile(24000, 1, pcm[:goSamples])),
		omniAudio(wavFile(24000, 1, pcm[goSamples:])), chatFinish, chatDone,
	}
}

// startGoServer runs net/http until the test ends.
func startGoServer(t testing.TB) (base string) {
	t.Helper()
	s := httptest.NewServer(goMux())
	t.Cleanup(s.Close)
	return s.URL
}

// goMux answers with a chat (gzipped where accepted) and raw sound with a flush a
// piece, an echo of the request, and a file of known length.
func goMux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", unstamped(goChatHandler))
	mux.HandleFunc("POST /v1/audio/speech", unstamped(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "audio/pcm")
		pcm := goSound()
		for at := 0; at < len(pcm); at += 1000 {
			_, _ = io.WriteString(w, pcm[at:min(len(pcm), at+1000)])
			_ = http.NewResponseController(w).Flush()
		}
	}))
	mux.HandleFunc("/echo", unstamped(goEchoHandler))
	mux.HandleFunc("GET /file", unstamped(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(strings.Repeat("0123456789", 1000)))
	}))
	return mux
}

func goChatHandler(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	var out io.Writer = w
	flush := func() {}
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer func() { _ = z.Close() }()
		out, flush = z, func() { _ = z.Flush() }
	}
	for _, e := range goChat() {
		_, _ = io.WriteString(out, e)
		flush()
		_ = http.NewResponseController(w).Flush()
	}
}

func goEchoHandler(w http.ResponseWriter, r *http.Request) {
	sum := sha256.New()
	n, err := io.Copy(sum, r.Body)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"method": r.Method, "uri": r.RequestURI, "proto": r.Proto, "host": r.Host, "header": r.Header, "length": r.ContentLength,
		"coding": r.TransferEncoding, "body_bytes": n, "body_sha256": hex.EncodeToString(sum.Sum(nil)), "error": err,
	})
}

// uploadFile writes a body of 2 MB and returns its name and bytes.
func uploadFile(t testing.TB) (name, body string) {
	t.Helper()
	body = strings.Repeat("sixteen bytes ok", uploadSize/16)
	name = filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(name, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	return name, body
}

// TestCurl: what curl prints, heads of interim answers included.
func TestCurl(t *testing.T) {
	t.Parallel()
	base := startGoServer(t)
	t.Run("stream", func(t *testing.T) {
		got, recs := twoWays(t, base, func(base string) string {
			return curl(t, "-N", "-i", "-H", "Content-Type: application/json", "-d", caseAudioChat, base+"/v1/chat/completions")
		})
		if want := strings.Join(goChat(), ""); !strings.HasSuffix(got, "\r\n\r\n"+want) {
			t.Errorf("curl got %q, want a head and the events", got)
		}
		wantRecords(t, recs, 1)
		checkGoChat(t, recs[0])
	})
	t.Run("gzip", func(t *testing.T) {
		got, recs := twoWays(t, base, func(base string) string {
			return curl(t, "-N", "-i", "--compressed", "-H", "Content-Type: application/json", "-d", caseAudioChat, base+"/v1/chat/completions")
		})
		if want := strings.Join(goChat(), ""); !strings.HasSuffix(got, "\r\n\r\n"+want) || !strings.Contains(got, "Content-Encoding: gzip\r\n") {
			t.Errorf("curl got %q, want a head that says gzip, and the events", got)
		}
		wantRecords(t, recs, 1)
		checkGoChat(t, recs[0])
	})
	t.Run("two URLs", func(t *testing.T) {
		out := filepath.Join(t.TempDir(), "out")
		got, recs := twoWays(t, base, func(base string) string {
			return curl(t, "-o", out+"1", "-o", out+"2", "-w", "%{http_code} %{num_connects} %{size_download}\n", base+"/file", base+"/file?again")
		})
		if want := "200 1 10000\n200 0 10000\n"; got != want {
			t.Errorf("curl says %q, want %q: one connection", got, want)
		}
		wantRecords(t, recs, 2)
		if recs[0].ConnectionID != recs[1].ConnectionID {
			t.Errorf("connections %d and %d, want one", recs[0].ConnectionID, recs[1].ConnectionID)
		}
		for _, r := range recs {
			wantTerminal(t, r, timeline.Success, "done")
		}
	})
}

func checkGoChat(t testing.TB, rec *timeline.Record) {
	t.Helper()
	wantTerminal(t, rec, timeline.Success, "done")
	wantTextOf(t, rec, goText)
	wantSamples(t, rec, goSamples, 2)
	wantSum(t, rec, goSound())
}

// TestCurlHead: an answer to HEAD has a length and no body.
func TestCurlHead(t *testing.T) {
	t.Parallel()
	got, recs := twoWays(t, startGoServer(t), func(base string) string {
		return curl(t, "-I", base+"/file", "-w", "%{num_connects}\n", "--next", "-q", "-sS", "--noproxy", "*", base+"/file", "-o", os.DevNull, "-w", "%{num_connects}\n")
	})
	if !strings.Contains(got, "\r\nContent-Length: 10000\r\n") || !strings.HasSuffix(got, "\r\n\r\n1\n0\n") {
		t.Errorf("curl got %q, want a head with the length, and the connection used again", got)
	}
	wantRecords(t, recs, 2)
	for i, method := range []string{http.MethodHead, http.MethodGet} {
		wantTerminal(t, recs[i], timeline.Success, "done")
		if m := recs[i].Method; m == nil || *m != method {
			t.Errorf("method %d = %v, want %s", i, m, method)
		}
	}
}

// TestCurlExpect: 2 MB behind a 100 Continue, which comes from the server.
func TestCurlExpect(t *testing.T) {
	t.Parallel()
	name, body := uploadFile(t)
	_, mocked := rampMock(t, mock.DialectVLLM)
	for _, c := range []struct {
		server, base, path, want string
		status                   int
	}{
		{"net/http", startGoServer(t), "/echo", `"body_sha256":"` + hashOf(body) + `"`, http.StatusOK},
		{"uvicorn", startUvicorn(t, "h11"), "/echo", `"body_sha256":"` + hashOf(body) + `"`, http.StatusOK},
		{"mock", mocked, "/v1/upload", `"detail":"Not Found"`, http.StatusNotFound},
	} {
		t.Run(c.server, func(t *testing.T) {
			got, recs := twoWays(t, c.base, func(base string) string {
				return withoutDate(withoutPort(curl(t, "-i", "-H", "Expect: 100-continue", "--data-binary", "@"+name, base+c.path)))
			})
			if !strings.HasPrefix(got, "HTTP/1.1 100 Continue\r\n") || !strings.Contains(got, c.want) {
				t.Errorf("curl got %q, want a 100 first, and %s", got, c.want)
			}
			wantRecords(t, recs, 1)
			if recs[0].BytesUp <= uploadSize || recs[0].Status == nil || *recs[0].Status != c.status {
				t.Errorf("bytes_up = %d, status %v, want all of the body, %d", recs[0].BytesUp, recs[0].Status, c.status)
			}
		})
	}
}

// TestUvicorn: the stack of the real servers, with both of its parsers.
func TestUvicorn(t *testing.T) {
	t.Parallel()
	for _, parser := range uvicornParsers {
		t.Run(parser, func(t *testing.T) {
			t.Parallel()
			base := startUvicorn(t, parser)
			t.Run("chat", func(t *testing.T) {
				got, recs := twoWays(t, base, func(base string) chatView {
					return runScript[chatView](t, "openai_chat.py", "--base", base)
				})
				wantBytes(t, "audio", got.SHA256, got.AudioBytes, wavEach(uvicornSound(), uvicornSamples))
				if got.Error != nil || got.Text != uvicornText || got.Finish != "stop" {
					t.Errorf("the client got %+v, want %q and stop", got, uvicornText)
				}
				wantRecords(t, recs, 1)
				checkUvicornRecord(t, recs[0], got.Text)
			})
			t.Run("speech", func(t *testing.T) {
				got, recs := twoWays(t, base, func(base string) speechView {
					return runScript[speechView](t, "openai_speech.py", "--base", base)
				})
				wantBytes(t, "speech", got.SHA256, got.Bytes, uvicornSound())
				wantRecords(t, recs, 1)
				checkUvicornRecord(t, recs[0], "")
			})
			t.Run("echo", func(t *testing.T) { checkUvicornEcho(t, base) })
			t.Run("refused upload", func(t *testing.T) { checkRefusedUpload(t, base) })
			t.Run("refused upload of curl", func(t *testing.T) { checkRefusedCurl(t, base) })
		})
	}
}

// uvicornEcho is the application's view of a request.
type uvicornEcho struct {
	Method      string      `json:"method"`
	Path        string      `json:"path"`
	Query       string      `json:"query"`
	HTTPVersion string      `json:"http_version"`
	Headers     [][2]string `json:"headers"`
	BodyBytes   int         `json:"body_bytes"`
	BodySHA256  string      `json:"body_sha256"`
}

// oddRequest has fields that a proxy would join, sort, drop or add to, and a body
// in chunks with an extension.
const oddRequest = "PUT /echo?a=%2f&a=2&&b HTTP/1.1\r\nhost: 127.0.0.1:1\r\nX-b: 2\r\nx-B: 1\r\nX-Empty:\r\nX-Pad:   two  words  \r\nAccept: a\r\nAccept: b, c\r\n" +
	"Cookie: a=1\r\nCookie: b=2\r\nTE: trailers\r\nVia: 1.0 other\r\nX-Forwarded-For: 192.0.2.1\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\n" +
	"Max-Forwards: 0\r\nX-High: caf\xe9\r\nTransfer-Encoding: chunked\r\nConnection: close, X-Pad\r\n\r\n4;ext=1\r\nbody\r\n0\r\n\r\n"

// checkUvicornEcho checks that the application sees the same fields directly and
// through the relay.
func checkUvicornEcho(t *testing.T, base string) {
	t.Helper()
	echo := func(answer string) (e uvicornEcho) {
		_, body, _ := strings.Cut(answer, "\r\n\r\n")
		if err := json.Unmarshal([]byte(withoutPort(body)), &e); err != nil {
			t.Errorf("uvicorn answered %q: %v", answer, err)
		}
		return e
	}
	got, recs := twoWays(t, base, func(base string) []uvicornEcho {
		return []uvicornEcho{
			echo(curl(t, "-i", "-H", "X-Twice: 1", "-H", "X-Twice: 2", "-H", "Authorization: Bearer x", "-d", "hello", base+"/echo?q=1")),
			echo(askRaw(t, base, oddRequest)),
		}
	})
	for i, h := range got[1].Headers {
		got[1].Headers[i][1] = strings.TrimRight(h[1], " ") // httptools leaves it on
	}
	want := [][2]string{
		{"host", "HOST"},
		{"x-b", "2"},
		{"x-b", "1"},
		{"x-empty", ""},
		{"x-pad", "two  words"},
		{"accept", "a"},
		{"accept", "b, c"},
		{"cookie", "a=1"},
		{"cookie", "b=2"},
		{"te", "trailers"},
		{"via", "1.0 other"},
		{"x-forwarded-for", "192.0.2.1"},
		{"keep-alive", "timeout=5"},
		{"proxy-connection", "keep-alive"},
		{"max-forwards", "0"},
		{"x-high", "caf\u00e9"},
		{"transfer-encoding", "chunked"},
		{"connection", "close, X-Pad"},
	}
	if d := cmp.Diff(want, got[1].Headers); d != "" {
		t.Errorf("fields of the odd request (-sent +seen):\n%s", d)
	}
	if got[0].BodySHA256 != hashOf("hello") || got[1].BodySHA256 != hashOf("body") || got[1].Query != "a=%2f&a=2&&b" {
		t.Errorf("uvicorn saw bodies %.8s, %.8s, query %q", got[0].BodySHA256, got[1].BodySHA256, got[1].Query)
	}
	wantRecords(t, recs, 2)
	for _, r := range recs {
		wantTerminal(t, r, timeline.Success, "done")
	}
}

// askRaw sends bytes as they are and returns all that comes until the server ends.
func askRaw(t testing.TB, base, request string) string {
	t.Helper()
	c := caseDial(t, strings.TrimPrefix(base, "http://"))
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(clientLimit))
	caseSend(t, c, request)
	got, err := io.ReadAll(c)
	if err != nil {
		t.Errorf("reading behind %q: %v", got, err)
	}
	return string(got)
}

// checkRefusedUpload sends the first 64 KiB of 2 MB and is refused.
func checkRefusedUpload(t *testing.T, base string) {
	t.Helper()
	head := fmt.Sprintf("POST /limited HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", uploadSize)
	got, recs := twoWays(t, base, func(base string) string { return withoutDate(askRaw(t, base, head+strings.Repeat("x", 64<<10))) })
	if !strings.HasPrefix(got, "HTTP/1.1 413 ") || !strings.HasSuffix(got, `{"error":{"message":"too large","code":413}}`) {
		t.Errorf("uvicorn answered %q, want a 413 in full", got)
	}
	wantRecords(t, recs, 1)
	wantTerminal(t, recs[0], timeline.InvalidRequest, "http_413")
	wantFlag(t, recs[0], "early_answer", true)
}

// checkRefusedCurl has curl upload all of 2 MB, and be refused amid it. uvicorn
// closes on what it has not read, so that now and then, also without a relay, curl's
// next write meets the reset ahead of the answer: then it is asked again.
func checkRefusedCurl(t *testing.T, base string) {
	t.Helper()
	name, _ := uploadFile(t)
	got, recs := twoWays(t, base, func(base string) (out string) {
		args := slices.Concat(curlArgs, []string{"-H", "Expect:", "--data-binary", "@" + name, "-w", " %{http_code}", base + "/limited"})
		for range 5 {
			var err error
			if out, err = tryTool(t, "curl", args...); err == nil {
				return out
			}
			t.Log(err)
		}
		return out
	})
	if want := `{"error":{"message":"too large","code":413}} 413`; got != want {
		t.Errorf("curl got %q, want %q", got, want)
	}
	if len(recs) == 0 {
		t.Fatal("no record")
	}
	wantTerminal(t, recs[len(recs)-1], timeline.InvalidRequest, "http_413")
}

// TestGoServer: net/http, which flushes each piece, read by the openai client.
func TestGoServer(t *testing.T) {
	t.Parallel()
	base := startGoServer(t)
	t.Run("chat", func(t *testing.T) {
		t.Parallel()
		got, recs := twoWays(t, base, func(base string) chatView { return runScript[chatView](t, "openai_chat.py", "--base", base) })
		wantBytes(t, "audio", got.SHA256, got.AudioBytes, wavEach(goSound(), goSamples/2))
		if got.Error != nil || got.Text != goText || got.Finish != "stop" {
			t.Errorf("the client got %+v, want %q and stop", got, goText)
		}
		wantRecords(t, recs, 1)
		checkGoChat(t, recs[0])
	})
	t.Run("speech", func(t *testing.T) {
		t.Parallel()
		got, recs := twoWays(t, base, func(base string) speechView { return runScript[speechView](t, "openai_speech.py", "--base", base) })
		wantBytes(t, "speech", got.SHA256, got.Bytes, goSound())
		wantRecords(t, recs, 1)
		wantTerminal(t, recs[0], timeline.Success, "done")
		wantInt(t, "audio.samples", audioOf(t, recs[0]).Samples, goSamples)
		wantSum(t, recs[0], goSound())
	})
	t.Run("echo", func(t *testing.T) {
		t.Parallel()
		got, recs := twoWays(t, base, func(base string) string {
			return withoutPort(askRaw(t, base, oddRequest) + curl(t, "-T", "-", base+"/echo"))
		})
		if !strings.Contains(got, `"body_sha256":"`+hashOf("body")+`"`) || !strings.Contains(got, `"Via":["1.0 other"]`) {
			t.Errorf("net/http answered %q, want the body's hash, and one Via", got)
		}
		wantRecords(t, recs, 2)
	})
}
