package upstream

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var inf = math.Inf(1)

// serve starts a server with a handler of /metrics.
func serve(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", h)
	mux.HandleFunc("/elsewhere", func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") })
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

func TestScraper(t *testing.T) {
	var n atomic.Int64
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.Header.Get("Accept"), "text/plain") {
			t.Errorf("Accept is %q", r.Header.Get("Accept"))
		}
		fmt.Fprintf(w, "# TYPE c_total counter\nc_total %d\n", 10*n.Add(1))
	})
	var file bytes.Buffer
	s := New(Config{}, base, &file, Options{Clock: func() (int64, int64) { return n.Load(), 7 }})
	for _, f := range []func() error{func() error { return s.Before(t.Context()) }, func() error { return s.scrape(t.Context(), During) }, func() error { return s.After(t.Context()) }} {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
	scrapes, problems, err := Read(&file)
	if err != nil || len(problems) != 0 || len(scrapes) != 3 {
		t.Fatal(len(scrapes), problems, err)
	}
	if d := Between(scrapes); *delta(t, d, "c_total").Increase != 20 || d.FromNS != 1 || d.ToNS != 3 || d.Incomplete != "" {
		t.Errorf("the difference is %+v", d)
	}
	if scrapes[0].Bytes == 0 || scrapes[0].TookMS <= 0 || scrapes[0].WallNS != 7 {
		t.Errorf("the first line is %+v", scrapes[0])
	}
}

// TestBadServers: each is named in its line, in bounded time and memory, and the run goes on.
func TestBadServers(t *testing.T) {
	hung := make(chan struct{})
	defer close(hung)
	for _, c := range []struct {
		name   string
		h      http.HandlerFunc
		want   string
		absent bool
	}{
		// Those that hang are given up after 300 ms, the others have all the time of a slow machine.
		{"404", func(w http.ResponseWriter, _ *http.Request) { http.NotFound(w, nil) }, "answered 404", true},
		{"500", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, "answered 500", false},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://other.example/elsewhere?key=s3cret", http.StatusFound)
		}, "answered 302, to other.example: not followed", true},
		{"hang", func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-hung:
			case <-r.Context().Done():
			}
		}, "Timeout", false},
		{"hang in the body", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "c_total 1\n")
			w.(http.Flusher).Flush()
			select {
			case <-hung:
			case <-r.Context().Done():
			}
		}, "Timeout", false},
		{"too long", func(w http.ResponseWriter, _ *http.Request) {
			for range 100 {
				if _, err := w.Write(bytes.Repeat([]byte("# x\n"), 32<<10)); err != nil {
					return
				}
			}
		}, "too long: over 65536 bytes", false},
		{"too long, unpacked", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = z.Write(bytes.Repeat([]byte("# x\n"), 256<<10))
			_ = z.Close()
		}, "too long: over 65536 bytes", false},
		{"garbage", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>\x00\xff")) }, "reading metrics", false},
		{"too many series", func(w http.ResponseWriter, _ *http.Request) {
			for i := range 200 {
				fmt.Fprintf(w, "m%d 1\n", i)
			}
		}, "too many series", false},
		{"cut off", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte("c 1\n"))
		}, "unexpected EOF", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var file bytes.Buffer
			timeout := time.Minute
			if strings.HasPrefix(c.name, "hang") {
				timeout = 300 * time.Millisecond
			}
			s := New(Config{Timeout: timeout, MaxBytes: 64 << 10, MaxSeries: 100}, serve(t, c.h), &file, Options{})
			err := s.Before(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want %q", err, c.want)
			}
			if strings.Contains(fmt.Sprint(err), "s3cret") || strings.Contains(file.String(), "s3cret") {
				t.Error("the redirect's query is told")
			}
			if s.absent != c.absent {
				t.Errorf("absent is %v", s.absent)
			}
			scrapes, _, _ := Read(&file)
			if d := Between(scrapes); d.Failed != 1 || d.Incomplete == "" {
				t.Errorf("the difference is %+v", d)
			}
		})
	}
	t.Run("nobody there", func(t *testing.T) {
		gone := httptest.NewServer(nil)
		gone.Close()
		s := New(Config{}, strings.Replace(gone.URL, "http://", "http://user:pass@", 1), io.Discard, Options{})
		if err := s.Before(t.Context()); err == nil || strings.Contains(err.Error(), "pass") {
			t.Errorf("the error is %v", err)
		}
	})
}

// roundTrip answers without a network, so that time can be made up.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answering(n *int, status int) roundTrip {
	return func(*http.Request) (*http.Response, error) {
		*n++
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("c 1\n"))}, nil
	}
}

func TestRunIsBounded(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		config Config
		want   int
	}{
		{"every interval", 200, Config{}, 40},
		{"no more than MaxScrapes", 200, Config{MaxScrapes: 3}, 3},
		{"not again where there is none", 404, Config{}, 1},
		{"again where it only fails", 500, Config{}, 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				s := New(c.config, "http://x", io.Discard, Options{})
				s.client.Transport = answering(&n, c.status)
				ctx, cancel := context.WithTimeout(t.Context(), 40*15*time.Second+time.Second)
				defer cancel()
				s.Run(ctx)
				if n != c.want {
					t.Errorf("%d scrapes in 40 intervals, want %d", n, c.want)
				}
			})
		})
	}
}

func TestFileIsBounded(t *testing.T) {
	n := 0
	var file bytes.Buffer
	s := New(Config{MaxFileBytes: 600}, "http://x", &file, Options{})
	s.client.Transport = answering(&n, 200)
	_ = s.Before(t.Context())
	for range 50 {
		_ = s.scrape(t.Context(), During)
	}
	if err := s.After(t.Context()); err != nil {
		t.Fatal(err)
	}
	scrapes, problems, _ := Read(&file)
	if len(problems) > 0 || len(scrapes) >= 20 || s.Dropped() != 52-len(scrapes) || scrapes[len(scrapes)-1].Phase != After {
		t.Errorf("%d lines, %d dropped, problems %v", len(scrapes), s.Dropped(), problems)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestNothingToDo(t *testing.T) {
	s := New(Config{Disabled: true}, "http://x", io.Discard, Options{})
	if s != nil || s.Before(t.Context()) != nil || s.After(t.Context()) != nil || s.Dropped() != 0 {
		t.Error("a disabled one does something")
	}
	s.Run(t.Context())
	n := 0
	s = New(Config{}, "http://x", failing{}, Options{})
	s.client.Transport = answering(&n, 200)
	if err := s.Before(t.Context()); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("a full disk gives %v", err)
	}
	for c, want := range map[*Config]bool{{}: true, {Path: "metrics"}: false, {Interval: time.Millisecond}: false, {MaxBytes: -1}: false} {
		if err := c.Validate(); (err == nil) != want {
			t.Errorf("%+v: %v", *c, err)
		}
	}
}

func TestKnown(t *testing.T) {
	for _, name := range []string{"vllm_omni:audio_ttfp", "vllm_omni:audio_ttfp_ms", "other:time_to_first_token_seconds", ""} {
		if m, ok := Known(name); ok {
			t.Errorf("%q is taken for %+v", name, m)
		}
	}
	for name, m := range known {
		if m.Name != name || m.Quantity == "" || (m.Zero == "") != (m.End == "") || (m.Label == "") != (m.Failing == nil) {
			t.Errorf("%s: %+v", name, m)
		}
	}
	if m, _ := Known("vllm_omni:audio_ttfp_s"); m.Zero != ZeroHandler || m.Quantity != TTFA {
		t.Errorf("audio_ttfp_s is %+v", m)
	}
}
