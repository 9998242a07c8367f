package prometheus

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
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

	"go.yaml.in/yaml/v3"

	"github.com/omnitap/omnitap/exporter/stats"
	"github.com/omnitap/omnitap/proxy/timeline"
)

const (
	configs = "../../configs/prometheus"
	traceID = "0af7651916cd43dd8448eb211c80319c"
)

// tool finds a program of Debian's package prometheus. Where REQUIRE_PROMETHEUS is 1 its
// absence is a failure.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
	case os.Getenv("REQUIRE_PROMETHEUS") == "1":
		t.Fatalf("REQUIRE_PROMETHEUS is set and there is no %s (package prometheus): %v", name, err)
	default:
		t.Skipf("NOT TESTED without %s (package prometheus)", name)
	}
	return path
}

// fed is a Sink behind a server that feeds it more of everything at each of its first
// scrapes: rates need values that grow between two of them.
type fed struct {
	sink *Sink
	mu   sync.Mutex // protects what follows
	n    int
	draw *rand.Rand
	ttfa []float64 // of the speech requests, seconds
	done chan struct{}
}

const feedings = 6

func newFed(t *testing.T, c Config) *fed {
	t.Helper()
	f := &fed{draw: rand.New(rand.NewPCG(3, 4)), done: make(chan struct{})}
	f.sink = sinkOf(t, c, Deps{Source: f, Version: "v1.2.3", Revision: "abc", TraceID: func(*timeline.Record) string { return traceID }})
	return f
}

// State is part of Source; what counts grows with each scrape.
func (f *fed) State() State {
	f.mu.Lock()
	n := f.n
	f.mu.Unlock()
	s := State(busy())
	s.AnalysisDropped *= int64(n)
	s.ReaderFaults, s.ClockSteps = int64(n), int64(n)
	s.Exporters = []Exporter{{Name: "otlp", Dropped: uint64(n), Queued: new(5)}}
	s.Probes[0].Hits, s.Probes[0].Lost, s.Probes[0].Skipped = uint64(1000*n), uint64(n), uint64(n)
	return s
}

func (f *fed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	if f.n < feedings {
		if f.n++; f.n == feedings {
			close(f.done)
		}
		f.feed()
	}
	f.mu.Unlock()
	f.sink.Handler().ServeHTTP(w, r)
}

// feed hands a batch of records over that breaks every limit of the alerts.
func (f *fed) feed() {
	for range 100 {
		r := speech()
		v := 0.05 * math.Pow(40, f.draw.Float64())
		f.ttfa = append(f.ttfa, v)
		r.TTFAMS = new(1e3 * v)
		r.OwnDelayUS = &timeline.Delay{P50: 8000, Max: 90_000, N: 1}
		f.sink.Record(r)
		r = speech()
		r.Flow, r.Turn, r.TInSource, r.TTFAMS = timeline.FlowRealtime, new(0), new("server_vad"), new(4000.0)
		r.Playback = &timeline.Playback{Underruns: 2, StallMS: 700}
		f.sink.Record(r)
	}
	for i, state := range timeline.States() {
		r := speech()
		r.Terminal.State, r.Quality = state, timeline.Quality{Verdict: "failed", Failed: []string{"dropout"}}
		r.Audio.Samples = new(int64(110_000))
		r.Analysis = []string{"full", "truncated", "lost"}[i%3]
		r.Transfers[i%2].Unread = true
		r.Model = new("not a name")
		f.sink.Record(r)
		f.sink.Record(failed(timeline.HarnessError))
		f.sink.Event(&timeline.Event{Event: "audio_stall"})
		f.sink.Session(&timeline.Session{Flow: timeline.FlowRealtime, Close: timeline.Close{By: "server"}, UnattributedSamples: 480})
	}
}

// prometheus is a running Prometheus.
type prometheus struct {
	t     *testing.T
	base  string
	until time.Time // for all that is waited for together
}

var listening = regexp.MustCompile(`msg="Listening on" address=(\S+)`)

// start runs a real Prometheus on a free port of loopback, with the configuration of
// configs, which scrapes the target, and one that is not there.
func start(t *testing.T, target string, flags ...string) *prometheus {
	t.Helper()
	bin, dir := tool(t, "prometheus"), t.TempDir()
	args := append([]string{
		"--config.file=" + write(t, dir, target), "--storage.tsdb.path=" + filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0",
	}, flags...)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	addr, said := make(chan string, 1), make(chan string, 1)
	go follow(stderr, addr, said)
	t.Cleanup(func() {
		cancel()
		text := <-said // the pipe is at its end: only now may Wait close it
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("prometheus: %s", text)
		}
	})
	limit, done := context.WithTimeout(t.Context(), patience)
	defer done()
	select {
	case a, ok := <-addr:
		if ok {
			return &prometheus{t: t, base: "http://" + a, until: time.Now().Add(2 * patience)}
		}
	case <-limit.Done():
	}
	t.Fatal("prometheus does not listen")
	return nil
}

// patience is how long a real Prometheus may take for a step.
const patience = 30 * time.Second

// follow reads what a Prometheus says, tells its address, and all of it at the end.
func follow(from io.Reader, addr, said chan<- string) {
	defer close(addr)
	var all strings.Builder
	for in := bufio.NewScanner(from); in.Scan(); {
		fmt.Fprintln(&all, in.Text())
		if m := listening.FindStringSubmatch(in.Text()); m != nil {
			addr <- m[1] // it has room for one, and it is said once
		}
	}
	said <- all.String()
}

// write writes the configuration of configs with other targets and shorter intervals.
func write(t *testing.T, dir, target string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(configs, "prometheus.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	rules, err := filepath.Abs(filepath.Join(configs, "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	if got := doc["rule_files"]; fmt.Sprint(got) != "[alerts.yml]" {
		t.Fatalf("rule_files is %v", got)
	}
	doc["rule_files"] = []string{rules}
	doc["global"] = map[string]string{"scrape_interval": "200ms", "evaluation_interval": "200ms"}
	job := doc["scrape_configs"].([]any)[0].(map[string]any)
	job["static_configs"] = []any{map[string]any{"targets": []string{target, nobody(t)}}}
	if text, err = yaml.Marshal(doc); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// nobody is an address that nobody listens on.
func nobody(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	return ln.Addr().String()
}

// get asks the API.
func (p *prometheus) get(path string, q url.Values, data any) {
	p.t.Helper()
	resp, err := http.Get(p.base + "/api/v1/" + path + "?" + q.Encode())
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		p.t.Fatalf("%s: %v", path, err)
	}
	if answer.Status != "success" {
		p.t.Fatalf("%s %v: %s", path, q, answer.Error)
	}
	if err := json.Unmarshal(answer.Data, data); err != nil {
		p.t.Fatalf("%s: %v", path, err)
	}
}

// query gives the finite values of an instant query.
func (p *prometheus) query(expr string) (out []float64) {
	p.t.Helper()
	var data struct {
		Result []struct{ Value [2]any }
	}
	p.get("query", url.Values{"query": {expr}}, &data)
	for _, r := range data.Result {
		text, _ := r.Value[1].(string)
		if v, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(v) && !math.IsInf(v, 0) {
			out = append(out, v)
		}
	}
	return out
}

// wait waits until something holds.
func (p *prometheus) wait(what string, cond func() bool) {
	p.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ; !cond(); <-tick.C {
		if time.Now().After(p.until) {
			p.t.Errorf("waited in vain for %s", what)
			return
		}
	}
}

// has waits until an expression gives data.
func (p *prometheus) has(what, expr string) {
	p.t.Helper()
	p.wait(fmt.Sprintf("data of %s: %s", what, expr), func() bool { return len(p.query(expr)) > 0 })
}

// settled waits until all that was fed has been scraped, and returns the TTFAs.
func (p *prometheus) settled(f *fed, count string) []float64 {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	select {
	case <-f.done:
	case <-ctx.Done():
		p.t.Fatal("nobody scrapes")
	}
	f.mu.Lock()
	values := slices.Clone(f.ttfa)
	f.mu.Unlock()
	p.wait("the last scrape", func() bool {
		n := p.query(count)
		return len(n) == 1 && n[0] == float64(len(values)+feedings) // one of the states is success
	})
	p.until = time.Now().Add(patience / 2)
	return values
}

// TestRealPrometheus: a real Prometheus scrapes the handler; every expression of the board
// and of the alerts gives data there, labels have values, exemplars arrive, and p95 lies
// within 10 % of the records' (case C78).
func TestRealPrometheus(t *testing.T) {
	f := newFed(t, Config{})
	srv := httptest.NewServer(f)
	defer srv.Close()
	p := start(t, srv.Listener.Addr().String(), "--enable-feature=exemplar-storage")
	values := p.settled(f, `sum(omnitap_ttfa_seconds_count{flow="speech"})`)

	b := readBoard(t)
	for _, x := range b.expressions() {
		p.has(x.panel, substitute(x.expr))
	}
	for _, v := range b.Templating.List {
		if m := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`).FindStringSubmatch(v.Definition); m != nil {
			var got []string
			p.get("label/"+m[2]+"/values", url.Values{"match[]": {substitute(m[1])}}, &got)
			if len(got) == 0 {
				t.Errorf("variable %s has no value", v.Name)
			}
		}
	}
	for _, r := range readRules(t) {
		p.has(r.Alert, r.Expr)
	}
	p.wait("all rules to be evaluated", func() bool { return p.rulesWell() })

	got := p.query(`histogram_quantile(0.95, sum by (le) (omnitap_ttfa_seconds_bucket{flow="speech", model!="other"}))`)
	exact := stats.Summarize(values).P95
	if len(got) != 1 || math.Abs(got[0]-exact) > 0.1*exact {
		t.Errorf("p95 is %v in Prometheus, %v of the records", got, exact)
	}
	bounds, cumulative := histogramOf(t, f.sink, "omnitap_own_delay_p50_seconds")
	got = p.query(`histogram_quantile(0.95, omnitap_own_delay_p50_seconds_bucket)`)
	if own := fromBuckets(bounds, cumulative, 0.95); len(got) != 1 || math.Abs(got[0]-own) > 1e-6 {
		t.Errorf("p95 is %v in Prometheus, %v by the tests' own reckoning", got, own)
	}
	p.exemplars()
}

// rulesWell reports whether all rules were evaluated without an error.
func (p *prometheus) rulesWell() bool {
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Health, State string }
		}
	}
	p.get("rules", nil, &data)
	n := 0
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			if r.Health == "ok" && r.State != "inactive" {
				n++
			}
		}
	}
	return n == len(readRules(p.t)) && n > 0
}

// exemplars checks that the trace id arrives beside the buckets.
func (p *prometheus) exemplars() {
	p.t.Helper()
	var data []struct {
		Exemplars []struct{ Labels map[string]string }
	}
	now := time.Now()
	p.get("query_exemplars", url.Values{
		"query": {`omnitap_ttfa_seconds_bucket`}, "start": {now.Add(-time.Hour).Format(time.RFC3339)}, "end": {now.Add(time.Hour).Format(time.RFC3339)},
	}, &data)
	for _, d := range data {
		for _, e := range d.Exemplars {
			if e.Labels["trace_id"] == traceID {
				return
			}
		}
	}
	p.t.Errorf("no exemplar has the trace id: %v", data)
}

// TestRealNativeHistograms: the same with native histograms, which need no bounds.
func TestRealNativeHistograms(t *testing.T) {
	f := newFed(t, Config{Native: true})
	srv := httptest.NewServer(f)
	defer srv.Close()
	p := start(t, srv.Listener.Addr().String(), "--enable-feature=native-histograms")
	values := p.settled(f, `histogram_count(sum(omnitap_ttfa_seconds{flow="speech"}))`)
	got := p.query(`histogram_quantile(0.95, sum(omnitap_ttfa_seconds{flow="speech", model!="other"}))`)
	exact := stats.Summarize(values).P95
	if len(got) != 1 || math.Abs(got[0]-exact) > 0.1*exact {
		t.Errorf("p95 is %v in Prometheus, %v of the records", got, exact)
	}
}

// TestPromtool: Prometheus' own checks of the configuration, the rules, their unit tests
// and the metrics pass.
func TestPromtool(t *testing.T) {
	bin := tool(t, "promtool")
	for _, args := range [][]string{
		{"check", "config", filepath.Join(configs, "prometheus.yml")},
		{"check", "rules", filepath.Join(configs, "alerts.yml")},
		{"test", "rules", "testdata/alerts_test.yml"},
	} {
		if out, err := exec.CommandContext(t.Context(), bin, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	f := newFed(t, Config{})
	f.feed()
	cmd := exec.CommandContext(t.Context(), bin, "check", "metrics")
	cmd.Stdin = strings.NewReader(scrape(t, f.sink, "text/plain"))
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}
