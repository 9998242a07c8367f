package twin

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/omnitap/omnitap/proxy/timeline/waveform"
)

func upstream(t *testing.T, h http.HandlerFunc) *url.URL {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func speechRequest() Request {
	return Request{Method: "POST", Target: "/v1/audio/speech?key=secret", Body: []byte(`{"input":"secret","stream":true,"response_format":"pcm"}`), Header: [][2]string{
		{"Host", "front"}, {"Authorization", "Bearer secret"}, {"Content-Type", "application/json"}, {"X-Request-Id", "r"},
	}}
}

func verdicts(t *testing.T, fs []waveform.Finding) string {
	t.Helper()
	var out []string
	for i, f := range fs {
		if f.Name != Names()[i] || strings.Contains(f.Reason, "secret") {
			t.Errorf("finding %+v", f)
		}
		out = append(out, string(f.Verdict))
	}
	return strings.Join(out, " ") + ": " + fs[len(fs)-1].Reason
}

// TestTwinIsTheClientsRequest looks at what the server gets.
func TestTwinIsTheClientsRequest(t *testing.T) {
	x := s16(speech(seeded(1), 2*testRate, testRate), testRate)
	u := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.RequestURI != "/v1/audio/speech?key=secret" || r.Host != "front" || string(body) != `{"input":"secret","stream":false,"response_format":"pcm"}` {
			t.Errorf("%s %s %s", r.Host, r.RequestURI, body)
		}
		if got := fmt.Sprint(r.Header); got != "map[Accept-Encoding:[identity] Authorization:[Bearer secret] Connection:[close] Content-Length:[57] Content-Type:[application/json] X-Omnitap-Twin:[1]]" {
			t.Error(got)
		}
		w.Header().Set("Content-Type", "audio/pcm")
		_, _ = w.Write(x.Samples)
	})
	got := verdicts(t, New(Config{}, u, nil).Compare(t.Context(), speechRequest(), x))
	if got != "passed passed: " {
		t.Error(got)
	}
}

func TestVerdictsOverTheWire(t *testing.T) {
	x := speech(seeded(1), 4*testRate, testRate)
	twin := s16(x, testRate)
	lost := s16(append(x[:40000:40000], x[45000:]...), testRate)
	pcm := func(w http.ResponseWriter, p []byte) {
		w.Header().Set("Content-Type", "audio/pcm")
		_, _ = w.Write(p)
	}
	for _, v := range []struct {
		name   string
		came   Take
		answer http.HandlerFunc
		want   string
	}{
		{"lost", lost, func(w http.ResponseWriter, _ *http.Request) { pcm(w, twin.Samples) }, "failed failed: 5000 samples missing at frame 40000"},
		{"chat", twin, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"object":"chat.completion","choices":[{"message":{"audio":{"data":%q}}}]}`, base64.StdEncoding.EncodeToString(wav(twin.Samples, testRate, 1, -1)))
		}, "passed passed: "},
		{"refused", twin, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "secret", http.StatusServiceUnavailable) }, "not_measured not_measured: the server answered the twin with 503"},
		{"redirected", twin, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, "not_measured not_measured: the server answered the twin with 307"},
		{"cut", twin, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100000")
			pcm(w, twin.Samples[:50000])
		}, "not_measured not_measured: sending the twin: unexpected EOF"},
		{"too long", twin, func(w http.ResponseWriter, _ *http.Request) { pcm(w, make([]byte, 1<<20+2)) }, "not_measured not_measured: the twin's answer is too long: over 1048576 bytes"},
		{"no HTTP", twin, hijack("nonsense secret\r\n\r\n"), "not_measured not_measured: sending the twin: request or answer is no valid HTTP"},
		{"gone", twin, hijack(""), "not_measured not_measured: sending the twin: EOF"},
	} {
		t.Run(v.name, func(t *testing.T) {
			var n atomic.Int32
			u := upstream(t, func(w http.ResponseWriter, r *http.Request) { n.Add(1); v.answer(w, r) })
			got := verdicts(t, New(Config{MaxBytes: 1 << 20}, u, nil).Compare(t.Context(), speechRequest(), v.came))
			if got != v.want {
				t.Errorf("%s\nwant %s", got, v.want)
			}
			if n.Load() != 1 {
				t.Errorf("%d requests were sent", n.Load())
			}
		})
	}
}

// hijack answers with bytes and an end.
func hijack(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(c, text)
		_ = c.Close()
	}
}

func TestTimeoutAndCancel(t *testing.T) {
	u := upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then is the client's end noticed
		<-r.Context().Done()
	})
	x := s16(make([]int16, 100), testRate)
	got := verdicts(t, New(Config{Timeout: 20 * time.Millisecond}, u, nil).Compare(t.Context(), speechRequest(), x))
	if got != "not_measured not_measured: the twin's answer took too long: over 20ms" {
		t.Error(got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got = verdicts(t, New(Config{}, u, nil).Compare(ctx, speechRequest(), x))
	if got != "not_measured not_measured: sending the twin: context canceled" {
		t.Error(got)
	}
}

func TestServerIsNotThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &url.URL{Scheme: "http", Host: l.Addr().String()}
	_ = l.Close()
	got := verdicts(t, New(Config{}, u, nil).Compare(t.Context(), speechRequest(), s16(make([]int16, 100), testRate)))
	if !strings.HasPrefix(got, "not_measured not_measured: sending the twin: dial tcp ") {
		t.Error(got)
	}
}

// TestSecondTwinIsHeldBack while the first is under way.
func TestSecondTwinIsHeldBack(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	x := s16(make([]int16, 100), testRate)
	u := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		close(started)
		<-release
		w.Header().Set("Content-Type", "audio/pcm")
		_, _ = w.Write(bytes.Clone(x.Samples))
	})
	r := New(Config{Sample: 1}, u, nil)
	first := make(chan []waveform.Finding, 1)
	go compareInto(t.Context(), r, x, first)
	<-started
	if got := verdicts(t, r.Compare(t.Context(), speechRequest(), x)); got != "not_measured not_measured: 1 twins under way" {
		t.Error(got)
	}
	close(release)
	if got := verdicts(t, <-first); got != "passed passed: " {
		t.Error(got)
	}
}

func compareInto(ctx context.Context, r *Runner, x Take, to chan<- []waveform.Finding) {
	to <- r.Compare(ctx, speechRequest(), x)
}

func TestNilRunnerWantsNone(t *testing.T) {
	if (*Runner)(nil).Wants("a") {
		t.Error("wanted")
	}
}
