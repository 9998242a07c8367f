package load

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/proxy/tap/capture"
)

const recorded = "../../../../testdata/captures/"

// write writes a capture of what a client sent, each part as one read.
func write(t *testing.T, dir, name string, parts ...string) string {
	t.Helper()
	var b bytes.Buffer
	w, err := capture.NewWriter(&b, capture.Header{Flow: "chat"})
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range parts {
		if err := w.Data(int64(i), 'c', []byte(p)); err != nil {
			t.Fatal(err)
		}
		if err := w.Data(int64(i), 's', []byte("POST /not-this HTTP/1.1\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
	}
	if strings.HasSuffix(name, ".gz") {
		var z bytes.Buffer
		gz := gzip.NewWriter(&z)
		_, _ = gz.Write(b.Bytes())
		if err := gz.Close(); err != nil {
			t.Fatal(err)
		}
		b = z
	}
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func post(path, body string, fields ...string) string {
	return "POST " + path + " HTTP/1.1\r\nHost: h\r\n" + strings.Join(append(fields, ""), "\r\n") + "Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
}

// TestRecorded: every whole request of the recorded connections is there, and what is not
// is named.
func TestRecorded(t *testing.T) {
	set, left, err := Captures{Paths: []string{recorded}}.Read()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range left {
		if l.Why != "a WebSocket" {
			t.Errorf("%s: %s", l.File, l.Why)
		}
	}
	files, err := Captures{Paths: []string{recorded}}.files()
	if err != nil {
		t.Fatal(err)
	}
	// Each other connection has one request at least.
	if whole := len(files) - len(left); len(left) == 0 || whole < 60 || len(set) <= whole {
		t.Errorf("%d requests of %d connections that are no WebSocket, %d that are", len(set), whole, len(left))
	}
	for _, q := range set {
		if q.Header.Get("Authorization") != "" || q.Header.Get("Host") != "" || bytes.Contains(q.Body, []byte(`"request_id"`)) || q.Name == "" {
			t.Errorf("%s %s: %v", q.Method, q.Path, q.Header)
		}
	}
	if _, err := prepare("http://h:1", set); err != nil {
		t.Error(err)
	}
}

// TestPipelined: two requests in one read are two, in their order, and alike but for what
// was asked.
func TestPipelined(t *testing.T) {
	set, err := FromCaptures([]string{recorded + "sglang-omni/chat-pipelined.wire.jsonl"})
	if err != nil || len(set) != 2 {
		t.Fatalf("%d: %v", len(set), err)
	}
	for _, q := range set {
		if q.Name != "chat/completions stream text" || q.Path != "/v1/chat/completions" || q.Method != "POST" || !bytes.HasPrefix(q.Body, []byte("{")) || !bytes.HasSuffix(q.Body, []byte("}")) {
			t.Errorf("%+v", q)
		}
	}
}

// TestReplayed: what was recorded of one client is answered again.
func TestReplayed(t *testing.T) {
	_, base := startMock(t)
	set, err := FromCaptures([]string{recorded + "vllm-omni/chat-sse-text-audio.wire.jsonl", recorded + "vllm-omni/speech-raw-pcm.wire.jsonl"})
	if err != nil || len(set) < 2 {
		t.Fatalf("%d: %v", len(set), err)
	}
	for i := range set { // the recorded server's model is not the mock's
		set[i].Body = bytes.ReplaceAll(set[i].Body, []byte("fake-omni"), []byte("demo-omni"))
	}
	got, err := Run(t.Context(), base, set, Plan{Requests: 4, Concurrency: 2}, "again")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range got.Sent {
		if s.Status != 200 || s.Err != "" || s.Bytes == 0 {
			t.Errorf("%+v", s)
		}
	}
}

// TestKeys: dropped from fields and query, unless asked for; other fields stay.
func TestKeys(t *testing.T) {
	file := write(t, t.TempDir(), "a.wire.jsonl", post("/v1/x?api_key=sk-1&model=m&key=sk-2&n=1;2", "{}",
		"Authorization: Bearer sk-3", "X-Api-Key: sk-4", "Cookie: sk-5", "X-Auth-Token: sk-6", "Ocp-Apim-Subscription-Key: sk-7",
		"X-Author: a", "X-Keyboard: k", "X-Max-Toks: 3", "Content-Type: application/json", "X-Request-Id: old", "Traceparent: 00"))
	set, err := FromCaptures([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	q := set[0]
	names := []string{}
	for name, values := range q.Header {
		names = append(names, name)
		if strings.Contains(strings.Join(values, ""), "sk-") {
			t.Errorf("%s holds a key", name)
		}
	}
	slices.Sort(names)
	// X-Author is taken for a key's: one too many.
	if want := []string{"Content-Type", "X-Keyboard", "X-Max-Toks"}; !slices.Equal(names, want) || q.Path != "/v1/x?model=m&n=1;2" {
		t.Errorf("%s %v, want %v", q.Path, names, want)
	}
	set, _, err = Captures{Paths: []string{file}, Keys: true}.Read()
	if err != nil || set[0].Header.Get("Authorization") != "Bearer sk-3" || !strings.Contains(set[0].Path, "api_key=sk-1") || set[0].Header.Get("X-Request-Id") != "" {
		t.Errorf("with keys: %+v, %v", set, err)
	}
}

// TestFolders: walked in the order of names, gzip or not; other files are passed over.
func TestFolders(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "b/2.wire.jsonl.gz", post("/2", "{}"))
	write(t, dir, "a.wire.jsonl", post("/1", "{}"))
	write(t, dir, "c.wire.jsonl", "POST /3 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab", "c\r\n2;x=y\r\nde\r\n0\r\n\r\nGET /4?x HTTP/1.1\r\nHost: h\r\n\r\n")
	if err := os.WriteFile(filepath.Join(dir, "raw.jsonl"), []byte("no capture"), 0o600); err != nil {
		t.Fatal(err)
	}
	set, left, err := Captures{Paths: []string{dir}}.Read()
	if err != nil || len(left) != 0 {
		t.Fatalf("%v, %v", left, err)
	}
	var got []string
	for _, q := range set {
		got = append(got, q.Name+" "+q.Path+" "+string(q.Body))
	}
	if d := cmp.Diff([]string{"/1 /1 {}", "/2 /2 {}", "/3 /3 abcde", "GET /4 /4?x "}, got); d != "" {
		t.Error(d)
	}
}

// TestOwnID: a body's own id goes, and everything else stays as it is.
func TestOwnID(t *testing.T) {
	for in, want := range map[string]string{
		`{"request_id":"x","a":[1, 2],"b":"\u00e4\n"}`:         `{"a":[1, 2],"b":"\u00e4\n"}`,
		"{\"a\":1.50,\"request_id\":\"x\"}\n":                  `{"a":1.50}`,
		`{"request_id":"x"}`:                                   `{}`,
		`{"a":{"request_id":"y"},"request_id":"x","c":null}`:   `{"a":{"request_id":"y"},"c":null}`,
		`{"request\u005fid":"x","n\"":true}`:                   `{"n\"":true}`,
		`{"request_id":"x","request_id":"y","big":1e400}`:      `{"big":1e400}`,
		`{"request_id":""}`:                                    `{"request_id":""}`,
		`{"a":{"request_id":"y"}}`:                             `{"a":{"request_id":"y"}}`,
		`{"messages":[{"content":"my request_id is \"x\""}] }`: `{"messages":[{"content":"my request_id is \"x\""}] }`,
		`[{"request_id":"x"}]`:                                 `[{"request_id":"x"}]`,
		`{"request_id":"x"`:                                    `{"request_id":"x"`,
	} {
		set, err := FromCaptures([]string{write(t, t.TempDir(), "a.wire.jsonl", post("/x", in, "Content-Type: application/json"))})
		if err != nil || len(set) != 1 || string(set[0].Body) != want {
			t.Errorf("%s: %+v, %v", in, set, err)
		}
	}
}

// TestLeftOut: what cannot be sent is named, and the rest is used.
func TestLeftOut(t *testing.T) {
	dir := t.TempDir()
	socket := "GET /v1/realtime HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x05hello"
	for _, c := range []struct {
		name, sent string
		want       int
		why        string
	}{
		{"socket", socket, 0, "a WebSocket"},
		{"behind", post("/x", "{}") + socket, 1, "a WebSocket"},
		{"h2c", "GET /x HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n" + post("/y", "{}"), 2, ""},
		{"connect", "CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n\x16\x03", 0, "tunnel"},
		{"half", post("/x", "{}") + "POST /y HTTP/1.1\r\nContent-Length: 10\r\n\r\n{", 1, "amid a request"},
		{"half head", post("/x", "{}") + "POST /y HT", 1, "amid a request"},
		{"tls", "\x16\x03\x01\x02", 0, "tls"},
		{"h2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0, "h2"},
		{"bad", post("/x", "{}") + "\x00\x01", 1, "cannot be followed"},
		{"star", "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n" + post("/y", "{}"), 1, "path"},
		{"absolute", "GET http://h:1/z?q HTTP/1.1\r\nHost: h\r\n\r\n", 1, ""},
		{"absolute without a path", "GET http://h:1 HTTP/1.1\r\nHost: h\r\n\r\n", 1, ""},
		{"two slashes", "GET //z HTTP/1.1\r\nHost: h\r\n\r\n", 0, "one slash"},
		{"field", "GET /z HTTP/1.1\r\nX: a\x01b\r\n\r\n", 0, "cannot be sent"},
	} {
		file := write(t, dir, c.name+".wire.jsonl", c.sent)
		set, left, err := Captures{Paths: []string{file}}.Read()
		if err != nil || len(set) != c.want || (c.why == "") != (len(left) == 0) || len(left) > 0 && (left[0].File != file || !strings.Contains(left[0].Why, c.why)) {
			t.Errorf("%s: %d in the set, %v, %v", c.name, len(set), left, err)
		}
		_, err = FromCaptures([]string{file})
		if none, ok := errors.AsType[*NothingError](err); ok != (c.want == 0) || ok && !strings.Contains(none.Error(), c.why) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestNothing(t *testing.T) {
	dir := t.TempDir()
	if _, err := FromCaptures([]string{dir}); err == nil || !strings.Contains(err.Error(), "no captures") {
		t.Errorf("an empty folder: %v", err)
	}
	if _, err := FromCaptures([]string{filepath.Join(dir, "none")}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	for _, name := range []string{"x.wire.jsonl", "x.wire.jsonl.gz"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("{}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := FromCaptures([]string{path}); !errors.Is(err, capture.ErrNoCapture) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	e := &NothingError{slices.Repeat([]LeftOut{{"f", "a WebSocket"}}, 7)}
	if !strings.HasSuffix(e.Error(), "and 2 more") {
		t.Error(e)
	}
}

// TestDamaged: what stands before the damage is used.
func TestDamaged(t *testing.T) {
	file := write(t, t.TempDir(), "a.wire.jsonl", post("/x", "{}"))
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString(`{"t_ns":5,"dir":"c","b6`)
	_ = f.Close()
	set, left, err := Captures{Paths: []string{file}}.Read()
	if err != nil || len(set) != 1 || len(left) != 1 || !strings.Contains(left[0].Why, "line 4 is damaged") {
		t.Errorf("%d, %v, %v", len(set), left, err)
	}
}

// FuzzGather: whatever a client sent, any cut of it gives the same set, which can be sent.
func FuzzGather(f *testing.F) {
	f.Add([]byte(post("/v1/x?key=1", `{"request_id":"a","stream":true}`, "Authorization: b")), 3)
	f.Add([]byte("POST /3 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET http://h/4?x HTTP/1.1\r\nHost: h\r\n\r\n"), 1)
	f.Add([]byte("GET /v1/realtime HTTP/1.1\r\nUpgrade: websocket\r\n\r\n\x81\x05hello"), 7)
	f.Add([]byte("GET /z HTTP/1.1\r\nX(: 1\r\nY(: 1\r\n\r\n"), 5) // which of two bad fields is named must not depend on chance
	f.Fuzz(func(t *testing.T, sent []byte, cut int) {
		gather := func(size int) (Set, []LeftOut) {
			g := &gatherer{}
			g.begin("f")
			for part := range slices.Chunk(sent, size) {
				g.parser.Feed(part)
			}
			g.end()
			return g.set, g.left
		}
		size := max(1, len(sent))
		set, left := gather(size)
		cutSet, cutLeft := gather(1 + int(uint(cut)%uint(size)))
		if d := cmp.Diff(set, cutSet) + cmp.Diff(left, cutLeft); d != "" {
			t.Errorf("another cut: %s", d)
		}
		if len(set) > 0 {
			if _, err := prepare("http://h:1", set); err != nil {
				t.Error(err)
			}
		}
	})
}
