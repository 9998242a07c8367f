package reconcile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/exporter/upstream"
	"github.com/omnitap/omnitap/proxy/timeline"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func readRecords(t testing.TB, name string) (out []*timeline.Record) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var r timeline.Record
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out = append(out, &r)
	}
	if s.Err() != nil || len(out) == 0 {
		t.Fatalf("%s: %d records, %v", name, len(out), s.Err())
	}
	return out
}

func readFile(t testing.TB, name string) *Generator {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	g, err := ReadGenerator(f)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return g
}

// scraped is the difference of two bodies, as a Scraper would have them.
func scraped(t testing.TB, names ...string) *upstream.Difference {
	t.Helper()
	var scrapes []upstream.Scrape
	for i, name := range names {
		body, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		series, err := upstream.Parse(body, "text/plain", 0)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		p := upstream.During
		switch i {
		case 0:
			p = upstream.Before
		case len(names) - 1:
			p = upstream.After
		}
		scrapes = append(scrapes, upstream.Scrape{Schema: upstream.Schema, Phase: p, Whole: true, Series: series})
	}
	d := upstream.Between(scrapes)
	return &d
}

func golden(t *testing.T, name string, r Result) {
	t.Helper()
	var text, js bytes.Buffer
	if err := r.Render(&text); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteJSON(&js); err != nil {
		t.Fatal(err)
	}
	for ext, got := range map[string][]byte{".txt": text.Bytes(), ".json": js.Bytes()} {
		path := filepath.Join("testdata", name+ext)
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), string(got)); d != "" {
			t.Errorf("%s (-want +got; -update rewrites):\n%s", path, d)
		}
	}
}

// TestRealVLLMOmni is six chats of `vllm bench serve --omni` against the real vLLM-Omni
// 0.26.0 on a CPU, with a ready check ahead of them, through omnitap with probes, and the
// server's metrics before and after.
func TestRealVLLMOmni(t *testing.T) {
	dir := "testdata/vllm-omni/"
	r := Table(Input{
		Records:   readRecords(t, dir+"requests.jsonl"),
		Generator: readFile(t, dir+"bench.json"),
		Server:    scraped(t, "../upstream/testdata/vllm-omni-before.txt", "../upstream/testdata/vllm-omni-after.txt"),
	})
	golden(t, "vllm-omni", r)
}

// TestRealAIPerf is six chats, and two of its own warm-up, of AIPerf 0.13.0 against
// `omnitap mock`, which has no metrics: paired by the ids that it sends.
func TestRealAIPerf(t *testing.T) {
	dir := "testdata/aiperf/"
	r := Table(Input{Records: readRecords(t, dir+"requests.jsonl"), Generator: readFile(t, dir+"profile_export.jsonl")})
	golden(t, "aiperf", r)

	// Its summary has the same figures, and no requests.
	sum, one := readFile(t, dir+"profile_export_aiperf.json"), readFile(t, dir+"profile_export.jsonl")
	if *sum.Completed != *one.Completed || *sum.Failed != *one.Failed || one.Warmup != 2 {
		t.Errorf("the summary has %d and %d requests, the records %d and %d, %d of warm-up", *sum.Completed, *sum.Failed, *one.Completed, *one.Failed, one.Warmup)
	}
	mean := 0.0
	for _, x := range one.Requests {
		mean += *x.TTFTMS / float64(len(one.Requests))
	}
	if !near(mean, *sum.Figures[TTFT].Mean) || sum.Figures[TTFT].Percentiles[99] == 0 {
		t.Errorf("TTFT is %.3f ms by the records, %+v by the summary", mean, sum.Figures[TTFT])
	}
	if r := Table(Input{Records: readRecords(t, dir+"requests.jsonl"), Generator: sum}); r.Pairing != Summed || has(r, JCT, Client, WarmupIncluded) {
		t.Errorf("a summary is paired by %s", r.Pairing)
	}
}

// TestRealVLLMPlain is six chats of vLLM's own chat client, which knows no sound.
func TestRealVLLMPlain(t *testing.T) {
	dir := "testdata/vllm-plain/"
	golden(t, "vllm-plain", Table(Input{Records: readRecords(t, dir+"requests.jsonl"), Generator: readFile(t, dir+"bench.json")}))
}

func has(r Result, q Quantity, a View, c Cause) bool {
	for _, f := range r.Findings {
		if f.Quantity == q && f.A == a && f.Cause == c {
			return true
		}
	}
	return false
}
