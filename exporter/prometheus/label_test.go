package prometheus

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/proxy/timeline"
)

func goVersion() string { return version(runtime.Version()) }

func TestName(t *testing.T) {
	for _, tc := range []struct{ raw, want string }{
		{"Qwen/Qwen2.5-Omni-7B", "Qwen/Qwen2.5-Omni-7B"},
		{"gpt-4o-audio-preview", "gpt-4o-audio-preview"},
		{"org/model:rev@1+x", "org/model:rev@1+x"},
		{"/home/ann/models/Qwen2.5-Omni-7B/", "Qwen2.5-Omni-7B"},
		{"./out/tts", "tts"},
		{"~/tts", "tts"},
		{`C:\models\tts`, "tts"},
		{"s3://bucket/tts", "tts"},
		{"a/b/c", "c"},
		{"", ""},
		{"/", ""},
		{"please say: hello", ""},
		{"tts?key=secret", ""},
		{"müller", ""},
		{"a\x00b", ""},
		{"\xff\xfe", ""},
		{"a\nb", ""},
		{`a"b`, ""},
		{"-tts", ""},
		{strings.Repeat("m", maxName), strings.Repeat("m", maxName)},
		{strings.Repeat("m", maxName+1), ""},
	} {
		if got, ok := name(tc.raw); got != tc.want || ok != (tc.want != "") {
			t.Errorf("name(%q) = %q, %v, want %q", tc.raw, got, ok, tc.want)
		}
	}
}

// TestC78Labels: neither ids nor voices, texts or paths come into labels, and the number
// of series does not grow with them.
func TestC78Labels(t *testing.T) {
	s := sinkOf(t, Config{}, Deps{Source: busy()})
	one := func(i int) {
		r := speech()
		id := fmt.Sprintf("secret-%d", i)
		r.RequestID, r.ServerRequestID, r.SessionID, r.ConnectionID = id, new("speech-"+id), new("session-"+id), uint64(i)
		r.Path = new("/v1/audio/speech?voice=secret-" + id)
		r.Terminal.Reason, r.Terminal.Evidence = "voice secret-"+id, map[string]any{"message": "no voice secret-" + id}
		r.Warnings, r.DialectVariant = []string{"secret-" + id}, new("secret-"+id)
		r.Transfers[0].Path = new("/dev/shm/secret-" + id)
		s.Record(r)
		s.Record(failed(timeline.States()[i%len(timeline.States())]))
		s.Event(&timeline.Event{Event: "deadline", RequestID: id, Status: "secret"})
		s.Session(&timeline.Session{Flow: timeline.FlowRealtime, SessionID: id, Close: timeline.Close{By: "client", Reason: &id}})
	}
	for i := range 100 {
		one(i)
	}
	before := len(series(t, s))
	for i := range 10_000 {
		one(i)
	}
	got := series(t, s)
	if len(got) != before || before == 0 {
		t.Errorf("%d series after 100 requests, %d after 10,100", before, len(got))
	}
	absent(t, got, `secret|client-id|\?|/v1/`)
}

// TestBoundedLabels: what a client or a server makes up has its bounded number of values,
// and what is told as other is counted.
func TestBoundedLabels(t *testing.T) {
	s := sinkOf(t, Config{Models: 3}, Deps{})
	for i := range 500 {
		made := fmt.Sprintf("made-up-%d", i)
		r := failed(timeline.InvalidRequest) // the client's text, that no server took
		r.Model = new("refused/" + made)
		s.Record(r)
		r = speech()
		r.Model, r.Flow, r.Dialect, r.Terminal.Phase, r.TInSource = model(i), made, made, made, new(made)
		r.Analysis, r.Quality = made, timeline.Quality{Verdict: made, Failed: []string{made}}
		r.Stages = []timeline.Stage{{Stage: made, WaitMS: new(1.0)}}
		r.Transfers = []timeline.Transfer{{From: made, To: "x" + made, Transport: made, Bytes: new(int64(1))}}
		s.Record(r)
		r.Terminal.State = timeline.State(made)
		s.Record(r)
		s.Session(&timeline.Session{Flow: made, Close: timeline.Close{By: made}})
	}
	got := series(t, s)
	absent(t, got, `refused|state="made|flow="made|dialect="made|quality="made|analysis="made|by="made`)
	values := map[string]map[string]bool{}
	for name := range got {
		_, labels, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
		for l := range strings.SplitSeq(labels, ",") {
			k, v, _ := strings.Cut(l, "=")
			if values[k] == nil {
				values[k] = map[string]bool{}
			}
			values[k][v] = true
		}
	}
	for label, most := range map[string]int{
		"model": 3 + 1, "t_in_source": maxSources + 1, "stage": maxStages + 1, "from": maxStages + 1, "transport": maxTransports + 1, "check": maxChecks + 1, "flow": 3,
	} {
		if n := len(values[label]); n > most || n == 0 {
			t.Errorf("%s has %d values, want at most %d", label, n, most)
		}
	}
	want(t, got, map[string]float64{
		`omnitap_label_overflow_total{label="model"}`:                                                                   500 + 2*497,
		`omnitap_requests_total{attempt="first",dialect="unknown",flow="other",quality="not_measured",state="unknown"}`: 500,
	})
}

// TestBoundedSets: the sets of labels are bounded too, not their values alone.
func TestBoundedSets(t *testing.T) {
	s := sinkOf(t, Config{Models: maxModels}, Deps{})
	for i := range 40 {
		for _, flow := range timeline.Flows() {
			r := speech()
			r.Flow, r.Model, r.Stages = flow, model(i), nil
			r.Transfers = []timeline.Transfer{{From: fmt.Sprintf("a%d", i%16), To: fmt.Sprintf("b%d", i%15), Transport: "shm", Bytes: new(int64(1))}}
			s.Record(r)
		}
	}
	got := series(t, s)
	groups, edges := 0, 0
	for name := range got {
		if strings.HasPrefix(name, "omnitap_ttft_seconds_count") {
			groups++
		}
		if strings.HasPrefix(name, "omnitap_transfer_bytes_total") {
			edges++
		}
	}
	if groups != maxGroups+1 || edges > maxEdges+1 {
		t.Errorf("%d groups and %d edges, want %d and at most %d", groups, edges, maxGroups+1, maxEdges+1)
	}
	want(t, got, map[string]float64{`omnitap_label_overflow_total{label="group"}`: float64(40*len(timeline.Flows()) - maxGroups)})
}
