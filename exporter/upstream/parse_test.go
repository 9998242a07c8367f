package upstream

import (
	"bytes"
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func find(t testing.TB, series []Series, name string, labels map[string]string) *Series {
	t.Helper()
	for i := range series {
		if series[i].Name == name && cmp.Equal(series[i].Labels, labels) {
			return &series[i]
		}
	}
	t.Fatalf("no series %s%v among %d", name, labels, len(series))
	return nil
}

func parse(t testing.TB, body string, contentType string) []Series {
	t.Helper()
	s, err := Parse([]byte(body), contentType, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestParseReal is a body of the real vLLM-Omni 0.26.0.
func TestParseReal(t *testing.T) {
	body, err := os.ReadFile("testdata/vllm-omni-after.txt")
	if err != nil {
		t.Fatal(err)
	}
	series := parse(t, string(body), "text/plain; version=0.0.4")
	h := find(t, series, "vllm_omni:audio_ttfp_s", map[string]string{"model_name": "/models/omni", "stage": "2", "replica": "0"})
	if h.Type != Histogram || *h.Count != 7 || *h.Sum != 9.379029750823975 || len(h.Buckets) != 14 {
		t.Errorf("audio_ttfp_s is %+v", h)
	}
	if c := find(t, series, "vllm_omni:requests_success_total", map[string]string{"model_name": "/models/omni", "finished_reason": "stop"}); c.Type != Counter || *c.Value != 7 {
		t.Errorf("requests_success_total is %+v", c)
	}
	for i := 1; i < len(series); i++ {
		if a, b := series[i-1].Name, series[i].Name; a > b {
			t.Fatalf("%s stands before %s", a, b)
		}
	}
}

const openMetrics = `# HELP x:req Requests.
# TYPE x:req counter
x:req_total{m="a } b",q="say \"}\""} 7.0 1796057445.5 # {trace_id="x y"} 1.0 1796057445.4
x:req_created{m="a } b",q="say \"}\""} 1796057440.1
# TYPE x:t histogram
# UNIT x:t seconds
x:t_bucket{le="0.1"} 1 # {id="7"} 0.05
x:t_bucket{le="+Inf"} 3
x:t_count 3
x:t_sum 4.5
# TYPE v info
v_info{version="1"} 1
# TYPE s stateset
s{s="on"} 1
# TYPE g unknown
g 3 1796057445
# TYPE gh gaugehistogram
gh_bucket{le="+Inf"} 2
gh_gcount 2
# EOF
what follows the end is nothing
`

func TestParseOpenMetrics(t *testing.T) {
	for _, contentType := range []string{"application/openmetrics-text; version=1.0.0; charset=utf-8", ""} {
		body := openMetrics
		if contentType == "" { // told by its end
			body, _, _ = strings.Cut(body, "what follows")
		}
		s := parse(t, body, contentType)
		if c := find(t, s, "x:req_total", map[string]string{"m": "a } b", "q": `say "}"`}); c.Type != Counter || *c.Value != 7 {
			t.Errorf("the counter is %+v", c)
		}
		h := find(t, s, "x:t", nil)
		if h.Type != Histogram || *h.Count != 3 || *h.Sum != 4.5 || len(h.Buckets) != 2 || h.Buckets[0] != (Bucket{0.1, 1}) {
			t.Errorf("the histogram is %+v", h)
		}
		if g := find(t, s, "g", nil); g.Type != Untyped || *g.Value != 3 {
			t.Errorf("the unknown is %+v", g)
		}
		if g := find(t, s, "v_info", map[string]string{"version": "1"}); g.Type != Gauge {
			t.Errorf("the info is %+v", g)
		}
		find(t, s, "gh_gcount", nil)
	}
}

// TestParsePython is OpenMetrics as Python's prometheus_client writes it, with exemplars.
func TestParsePython(t *testing.T) {
	body, err := os.ReadFile("testdata/python-openmetrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	s := parse(t, string(body), "application/openmetrics-text; version=1.0.0; charset=utf-8")
	if c := find(t, s, "vllm_omni:requests_success_total", map[string]string{"model_name": `a "b" {c}\d`, "finished_reason": "stop"}); c.Type != Counter || *c.Value != 5 {
		t.Errorf("the counter is %+v", c)
	}
	h := find(t, s, "vllm_omni:e2e_request_latency_s", nil)
	if *h.Count != 3 || *h.Sum != 4 || len(h.Buckets) != 3 || h.Buckets[1] != (Bucket{1, 2}) {
		t.Errorf("the histogram is %+v", h)
	}
	if x := find(t, s, "s", nil); x.Type != Summary || *x.Count != 1 || *x.Sum != 2 {
		t.Errorf("the summary is %+v", x)
	}
	find(t, s, "state", map[string]string{"state": "down"})
	find(t, s, "build_info", map[string]string{"version": "1"})
}

func TestParseBad(t *testing.T) {
	for name, body := range map[string]string{
		"html":         "<html><body>404</body></html>",
		"json":         `{"error":"no"}`,
		"cut short":    "# TYPE a counter\na_total{x=\"1",
		"no value":     "a{x=\"1\"}\n",
		"bytes":        "\xff\xfe\x00",
		"bad type":     "# TYPE a rocket\na 1\n",
		"twice a type": "# TYPE a counter\n# TYPE a gauge\na 1\n",
	} {
		if s, err := Parse([]byte(body), "", 0); err == nil || s != nil {
			t.Errorf("%s: %d series, error %v", name, len(s), err)
		}
	}
	for _, body := range []string{"", "\n", "# a comment\n"} {
		if s, err := Parse([]byte(body), "", 0); err != nil || len(s) != 0 {
			t.Errorf("%q: %d series, error %v", body, len(s), err)
		}
	}
	if _, err := Parse([]byte("a 1\nb 2\nc 3\n"), "", 2); !errors.Is(err, ErrTooMany) {
		t.Errorf("three series where two are allowed: %v", err)
	}
	if s := parse(t, "a 1", ""); *find(t, s, "a", nil).Value != 1 {
		t.Error("a last line without its end is lost")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(openMetrics), "application/openmetrics-text")
	f.Add([]byte("# TYPE a histogram\na_bucket{le=\"+Inf\"} 1\na_count 1\na_sum NaN\n"), "")
	f.Add([]byte("# TYPE a summary\na{quantile=\"0.5\"} 1\na_count 1\na_sum 1\n"), "text/plain")
	f.Fuzz(func(t *testing.T, body []byte, contentType string) {
		before := bytes.Clone(body)
		series, err := Parse(body, contentType, 1000)
		if !bytes.Equal(before, body) {
			t.Fatal("the body was changed")
		}
		if err != nil {
			if series != nil {
				t.Fatal("series beside an error")
			}
			return
		}
		// The series survive the file, and nothing happened between a scrape and itself.
		s := Scrape{Schema: Schema, Phase: Before, Whole: true, Series: series}
		s2 := s
		s2.Phase = After
		d := Between([]Scrape{s, s2})
		for _, x := range d.Deltas {
			if x.Increase != nil && *x.Increase != 0 && !math.IsNaN(float64(*x.Increase)) {
				t.Fatalf("%s grew by %v", x, *x.Increase)
			}
		}
	})
}

// BenchmarkParse is a whole answer of the real server, 164 kB.
func BenchmarkParse(b *testing.B) {
	body, err := os.ReadFile("testdata/vllm-omni-after.txt")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(body, "text/plain", 0); err != nil {
			b.Fatal(err)
		}
	}
}
