package telemetry

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/omnitap/omnitap/proxy/timeline"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestGoldenOTLP sends what `omnitap replay` makes of recorded traffic to a collector, and
// compares all that arrives. Ids are drawn from a counter.
func TestGoldenOTLP(t *testing.T) {
	for _, capture := range []string{
		"vllm-omni/chat-sse-text-audio", "vllm-omni/chat-sse-error-mid", "sglang-omni/speech-pcm-lost-samples",
		"vllm-omni/duplex-cancelled", "sglang-omni/realtime-two-turns", "vllm-omni/speech-raw-pcm", "vllm-omni-cpu/speech-cancel",
	} {
		t.Run(capture, func(t *testing.T) {
			records, sessions := replayed(t, capture)
			c := newCollector(good)
			environ(t, c.byHTTP(t), "http/protobuf")
			setenv(t, "OTEL_RESOURCE_ATTRIBUTES", "host.name=node")
			n := uint64(0)
			x, _ := start(t, Config{Version: "golden", key: &key{1}, draw: func() uint64 {
				n++
				return n * 0x0101010101010101
			}}, Asked{Traces: true, Metrics: true})
			for _, r := range records {
				r.RunID, r.Node = "", ""
				x.Record(r)
			}
			for _, s := range sessions {
				x.Session(s)
			}
			flush(t, x)
			name := strings.ReplaceAll(capture, "/", "-")
			for _, r := range c.traces {
				unversioned(r.Resource)
			}
			for _, r := range c.metrics {
				unversioned(r.Resource)
			}
			compare(t, name+".traces.json", one(t, c.traces))
			c.settle()
			compare(t, name+".metrics.json", one(t, c.metrics))
			if int(x.Stats().Records.Exported) != len(records)+len(sessions) {
				t.Errorf("%d records and %d sessions, %+v", len(records), len(sessions), x.Stats())
			}
		})
	}
}

// replayed has a capture replayed by the program, with a wall clock: recordings have none.
func replayed(t *testing.T, capture string) (records []*timeline.Record, sessions []*timeline.Session) {
	t.Helper()
	in := filepath.Join(t.TempDir(), filepath.Base(capture)+".wire.jsonl")
	lines := bytes.SplitN(recording(t, capture), []byte{'\n'}, 2)
	var head map[string]any
	if err := json.Unmarshal(lines[0], &head); err != nil {
		t.Fatal(err)
	}
	head["t0_mono_ns"], head["t0_wall_ns"] = int64(1e9), int64(1_700_000_000e9)
	first, err := json.Marshal(head)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(in, append(append(first, '\n'), lines[1]...), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "run")
	if err := program(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), built, "replay", "--format", "jsonl", "--out", out, in)
	if b, err := cmd.CombinedOutput(); err != nil {
		if _, serr := os.Stat(filepath.Join(out, "requests.jsonl")); serr != nil { // what could not be read in full exits 1
			t.Fatalf("replay: %v\n%s", err, b)
		}
	}
	return decode[timeline.Record](t, filepath.Join(out, "requests.jsonl")), decode[timeline.Session](t, filepath.Join(out, "sessions.jsonl"))
}

// program builds omnitap, once; where it lies is in built.
var (
	program = sync.OnceValue(build)
	built   string
)

func build() error {
	dir, err := os.MkdirTemp("", "omnitap")
	if err != nil {
		return err
	}
	built = filepath.Join(dir, "omnitap")
	if b, err := exec.Command("go", "build", "-o", built, "../../cmd/omnitap").CombinedOutput(); err != nil {
		return fmt.Errorf("building omnitap: %w\n%s", err, b)
	}
	return nil
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(filepath.Dir(built))
	}
	os.Exit(code)
}

func recording(t *testing.T, capture string) []byte {
	t.Helper()
	name := filepath.Join("../../testdata/captures", capture+".wire.jsonl")
	if b, err := os.ReadFile(name); err == nil {
		return b
	}
	f, err := os.Open(name + ".gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func decode[T any](t *testing.T, name string) (out []*T) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		v := new(T)
		if err := json.Unmarshal(lines.Bytes(), v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

// settle takes out of metrics what is the moment's: times, and the order of series. Other
// tests hold buckets.
func (c *collector) settle() {
	order := func(a, b []*commonpb.KeyValue) int { return strings.Compare(spell(a), spell(b)) }
	for _, r := range c.metrics {
		for _, s := range r.ScopeMetrics {
			slices.SortFunc(s.Metrics, func(a, b *metricspb.Metric) int { return strings.Compare(a.Name, b.Name) })
			for _, m := range s.Metrics {
				for _, p := range slices.Concat(m.GetSum().GetDataPoints(), m.GetGauge().GetDataPoints()) {
					p.StartTimeUnixNano, p.TimeUnixNano, p.Exemplars = 0, 0, nil
				}
				for _, p := range m.GetHistogram().GetDataPoints() {
					p.StartTimeUnixNano, p.TimeUnixNano, p.ExplicitBounds, p.BucketCounts = 0, 0, nil, nil
					if p.Count > 1 { // which of them is drawn
						p.Exemplars = nil
					}
					for _, e := range p.Exemplars {
						e.TimeUnixNano = 0
					}
				}
				slices.SortFunc(m.GetSum().GetDataPoints(), func(a, b *metricspb.NumberDataPoint) int { return order(a.Attributes, b.Attributes) })
				slices.SortFunc(m.GetHistogram().GetDataPoints(), func(a, b *metricspb.HistogramDataPoint) int { return order(a.Attributes, b.Attributes) })
			}
		}
	}
}

func spell(list []*commonpb.KeyValue) (out string) {
	for _, a := range list {
		out += fmt.Sprint(a.Key, a.Value.GetStringValue(), a.Value.GetBoolValue(), " ")
	}
	return out
}

// unversioned takes the SDK's version out of a resource.
func unversioned(r *resourcepb.Resource) {
	r.Attributes = slices.DeleteFunc(r.Attributes, func(a *commonpb.KeyValue) bool { return a.Key == "telemetry.sdk.version" })
}

// one is a list of messages as JSON, indented the same each time.
func one[T proto.Message](t *testing.T, list []T) string {
	t.Helper()
	var all []any
	for _, m := range list {
		b, err := protojson.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal(b, &v); err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	b, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + "\n"
}

func compare(t *testing.T, name, got string) {
	t.Helper()
	name = filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s differs (-want +got):\n%s", name, d)
	}
}
