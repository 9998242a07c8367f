package telemetry

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// sent has records and sessions exported and returns the spans by their names.
func sent(t *testing.T, cfg Config, records []*timeline.Record, sessions ...*timeline.Session) (map[string]*tracepb.Span, Stats) {
	t.Helper()
	c := newCollector(good)
	environ(t, c.byHTTP(t), "http/protobuf")
	x, said := start(t, cfg, tracesOnly)
	for _, r := range records {
		x.Record(r)
	}
	for _, s := range sessions {
		x.Session(s)
	}
	flush(t, x)
	if said.String() != "" {
		t.Errorf("it says: %s", said)
	}
	out := map[string]*tracepb.Span{}
	for _, s := range c.spans() {
		name := s.Name
		for i := 2; out[name] != nil; i++ {
			name = fmt.Sprintf("%s %d", s.Name, i)
		}
		out[name] = s
	}
	return out, x.Stats()
}

// value is an attribute as text, empty where it is missing.
func value(s *tracepb.Span, key attribute.Key) string {
	for _, a := range s.Attributes {
		if a.Key != string(key) {
			continue
		}
		switch v := a.Value.Value.(type) {
		case *commonpb.AnyValue_StringValue:
			return v.StringValue
		case *commonpb.AnyValue_IntValue:
			return fmt.Sprint(v.IntValue)
		case *commonpb.AnyValue_DoubleValue:
			return fmt.Sprint(v.DoubleValue)
		case *commonpb.AnyValue_BoolValue:
			return fmt.Sprint(v.BoolValue)
		case *commonpb.AnyValue_ArrayValue:
			var all []string
			for _, e := range v.ArrayValue.Values {
				all = append(all, e.GetStringValue())
			}
			return strings.Join(all, "; ")
		}
	}
	return ""
}

// TestTree has a request with stages, edges and events as one tree in wall time.
func TestTree(t *testing.T) {
	r := sample(3, 3)
	for i := range 50 { // a hand-over a chunk makes no span a chunk
		r.Transfers = append(r.Transfers, timeline.Transfer{
			From: "talker", To: "code2wav", Transport: "shm", Bytes: new(int64(100)), StartNS: *r.Points.TIn + int64(i+1)*1e8, EndNS: new(*r.Points.TIn + int64(i+1)*1e8 + 5e6), Confidence: 0.5,
		})
	}
	got, stats := sent(t, Config{}, []*timeline.Record{r})
	if len(got) != 6 || stats.Spans.Exported != 6 {
		t.Fatalf("%d spans, want 6: %v", len(got), got)
	}
	own := got["chat"]
	wall := uint64(*r.TInWallNS)
	if own.Kind != tracepb.Span_SPAN_KIND_SERVER || own.StartTimeUnixNano != wall || own.EndTimeUnixNano != wall+2e9 || len(own.ParentSpanId) != 0 {
		t.Errorf("%v", own)
	}
	var events []string
	for _, e := range own.Events {
		events = append(events, fmt.Sprint(e.Name, " ", time.Duration(e.TimeUnixNano-wall)))
	}
	if want := []string{eventText + " 100ms", eventAudio + " 200ms", eventAudible + " 300ms"}; !slices.Equal(events, want) {
		t.Errorf("events %v, want %v", events, want)
	}
	for name, s := range got {
		if name != "chat" && (string(s.ParentSpanId) != string(own.SpanId) || string(s.TraceId) != string(own.TraceId) || s.Kind != tracepb.Span_SPAN_KIND_INTERNAL) {
			t.Errorf("%s is no child of the request: %v", name, s)
		}
	}
	edge := got["transfer talker → code2wav"]
	if value(edge, keyTransfers) != "51" || value(edge, keyBytes) != "70536" || value(edge, keyLongest) != "0.005" || value(edge, keyConfidence) != "0.5" ||
		edge.StartTimeUnixNano != wall+60e6 || edge.EndTimeUnixNano != wall+5005e6 {
		t.Errorf("edge %v", edge)
	}
	stage := got["stage talker"]
	if stage.StartTimeUnixNano != wall+21e6 || stage.EndTimeUnixNano != wall+901e6 || value(stage, keyWait) != "0.002" || value(stage, keyStage) != "talker" {
		t.Errorf("stage %v", stage)
	}
}

// TestUnknownHasNoSpanAndAReason leaves out what has an end that nobody saw.
func TestUnknownHasNoSpanAndAReason(t *testing.T) {
	r := sample(1, 3)
	r.Unmeasured = map[string]string{"points.t_audio": "no audio came", "points.t_audible": "no audio came", "offsets.t_audio": "none"}
	r.Stages[1].FinishNS = nil
	r.Stages[1].Unmeasured = map[string]string{"finish_ns": "events were lost"}
	r.Stages[2].QueueMS, r.Stages[2].Unmeasured = nil, map[string]string{"queue_ms": "its scheduler told no times"}
	r.Transfers[0].EndNS, r.Transfers[0].Unread, r.Transfers[0].Bytes = nil, true, nil
	r.Transfers = append(r.Transfers, timeline.Transfer{From: "talker", To: "code2wav", Transport: "shm", StartNS: *r.Points.TIn, Unread: true})
	got, _ := sent(t, Config{}, []*timeline.Record{r})
	if got["stage talker"] != nil || got["transfer thinker → talker"] != nil || len(got) != 4 {
		t.Errorf("spans %v", got)
	}
	want := "stage talker finish_ns: events were lost; transfer thinker→talker: no end was seen; t_audio: no audio came; t_audible: no audio came"
	if why := value(got["chat"], keyUnmeasured); why != want {
		t.Errorf("%s, want %s", why, want)
	}
	if why := value(got["stage code2wav"], keyUnmeasured); why != "queue_ms: its scheduler told no times" {
		t.Errorf("stage %q", why)
	}
	edge := got["transfer talker → code2wav"]
	if why := value(edge, keyUnmeasured); why != "bytes: not stated by 1; ends: not seen of 1" || value(edge, keyUnread) != "1" || value(edge, keyBytes) != "65536" {
		t.Errorf("edge %q, %v", why, edge)
	}
	if n := len(got["chat"].Events); n != 1 {
		t.Errorf("%d events, want first_text alone", n)
	}
}

// TestStatus has each terminal state as the schema says, whatever the status of HTTP.
func TestStatus(t *testing.T) {
	for _, state := range timeline.States() {
		r := sample(1, 0)
		r.Terminal.State, r.Terminal.Reason = state, "why"
		got, _ := sent(t, Config{}, []*timeline.Record{r})
		s := got["chat"]
		wrong := !slices.ContainsFunc(statuses, func(x Status) bool { return x.State == string(state) && x.Status == "unset" })
		code, kind := tracepb.Status_STATUS_CODE_UNSET, ""
		if wrong {
			code, kind = tracepb.Status_STATUS_CODE_ERROR, string(state)
		}
		if s.Status.GetCode() != code || value(s, "error.type") != kind || value(s, keyState) != string(state) || value(s, "http.response.status_code") != "200" {
			t.Errorf("%s: status %v, error.type %q", state, s.Status, value(s, "error.type"))
		}
	}
}

// headers are the trace context of every request.
type headers struct{ parent, state string }

func (h headers) OfRecord(*timeline.Record) (parent, state string)   { return h.parent, h.state }
func (h headers) OfSession(*timeline.Session) (parent, state string) { return h.parent, h.state }

const (
	clientTrace = "0af7651916cd43dd8448eb211c80319c"
	clientSpan  = "b7ad6b7169203331"
)

// TestParentIsTheClients has the client's traceparent decide of trace, parent and sampling.
func TestParentIsTheClients(t *testing.T) {
	for _, c := range []struct {
		name, parent string
		trace        string
		spans        int
	}{
		{"sampled", "00-" + clientTrace + "-" + clientSpan + "-01", clientTrace, 6},
		{"not sampled", "00-" + clientTrace + "-" + clientSpan + "-00", "", 0},
		{"nonsense", "00-zz-" + clientSpan + "-01", "", 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, stats := sent(t, Config{Parents: headers{c.parent, "v=1"}}, []*timeline.Record{sample(3, 3)})
			if len(got) != c.spans || stats.Records.Unsampled != int64(1-min(c.spans, 1)) {
				t.Fatalf("spans %v, %+v", got, stats.Records)
			}
			if c.trace == "" {
				if s := got["chat"]; s != nil && len(s.ParentSpanId) != 0 {
					t.Errorf("parent of nonsense: %v", s)
				}
				return
			}
			if s := got["chat"]; hex.EncodeToString(s.TraceId) != c.trace || hex.EncodeToString(s.ParentSpanId) != clientSpan || s.TraceState != "v=1" {
				t.Errorf("%v", s)
			}
			for name, s := range got {
				const sampled, hasRemote, remote = 1, 0x100, 0x200 // opentelemetry/proto/trace/v1
				flags, parent := uint32(sampled|hasRemote), got["chat"].SpanId
				if name == "chat" {
					flags, parent = flags|remote, s.ParentSpanId
				}
				if s.Flags != flags || !bytes.Equal(s.ParentSpanId, parent) || hex.EncodeToString(s.TraceId) != c.trace || s.TraceState != "v=1" {
					t.Errorf("%s: flags %x, %v", name, s.Flags, s)
				}
			}
		})
	}
}

// TestTextThatIsNoUTF8 goes out without what is none: else a collector gets nothing of all
// that is in a batch with it.
func TestTextThatIsNoUTF8(t *testing.T) {
	bad, good := sample(3, 3), sample(3, 0)
	bad.Model, bad.Path, bad.RequestID, bad.Terminal.Reason = new("m\xff"), new("/v1/\xfe"), "r\xc3", "\xff"
	bad.Stages[0].Stage, bad.Transfers[0].From, bad.ServerRequestID = "thinker\xff", "thinker\xff", new("\xff\xfe")
	bad.Unmeasured["stages"] = "\xff"
	good.Flow = timeline.FlowSpeech
	got, stats := sent(t, Config{}, []*timeline.Record{bad, good})
	if got["chat"] == nil || got["speech"] == nil || got["stage thinker"] == nil || stats.Records.Exported != 2 {
		t.Errorf("spans %v, %+v", slices.Sorted(maps.Keys(got)), stats.Records)
	}
}

func turns(n int, connection uint64) (out []*timeline.Record, ses *timeline.Session) {
	for i := range n {
		r := sample(3, 0)
		r.Flow, r.SessionID, r.Turn, r.ConnectionID = timeline.FlowRealtime, new("s-1"), &i, connection
		out = append(out, r)
	}
	return out, &timeline.Session{
		SessionID: "s-1", ConnectionID: connection, Flow: timeline.FlowRealtime, Dialect: "vllm-omni", OpenedWallNS: new(int64(1.7e18)), OpenedMonoNS: 5e9,
		DurationMS: 4000, Turns: n, States: map[timeline.State]int{timeline.Success: n}, Close: timeline.Close{By: "client", Code: new(1000), Transport: "fin"},
	}
}

// TestSessionAndTurnsLinkToEachOther, also where a turn's record comes after the session's.
func TestSessionAndTurnsLinkToEachOther(t *testing.T) {
	for _, parent := range []string{"", "00-" + clientTrace + "-" + clientSpan + "-01"} {
		records, ses := turns(2, 9)
		got, stats := sent(t, Config{Parents: headers{parent, ""}}, records, ses)
		own, first, second := got["realtime session"], got["realtime turn"], got["realtime turn 2"]
		if len(got) != 3 || stats.Records.Exported != 3 {
			t.Fatalf("%v", got)
		}
		for i, turn := range []*tracepb.Span{first, second} {
			if l := turn.Links; len(l) != 1 || string(l[0].SpanId) != string(own.SpanId) || string(l[0].TraceId) != string(own.TraceId) {
				t.Errorf("turn %d links to %v, want %v", i, l, own)
			}
			if l := own.Links[i]; string(l.SpanId) != string(turn.SpanId) || string(l.TraceId) != string(turn.TraceId) {
				t.Errorf("link %d of the session is %v, want %v", i, l, turn)
			}
		}
		if same := string(first.TraceId) == string(second.TraceId); same != (parent != "") {
			t.Errorf("turns in one trace: %t, with parent %q", same, parent)
		}
		if own.EndTimeUnixNano-own.StartTimeUnixNano != 4e9 || value(own, keyStates) != "success=2" || value(own, keyCode) != "1000" {
			t.Errorf("session %v", own)
		}
	}
}

// TestSessionsAreSampledAsAWhole has the sampler say the same of a session and its turns.
func TestSessionsAreSampledAsAWhole(t *testing.T) {
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", "0.3")
	c := newCollector(good)
	environ(t, c.byHTTP(t), "http/protobuf")
	x, _ := start(t, Config{}, tracesOnly)
	const sessions, each = 200, 3
	for n := range sessions {
		records, ses := turns(each, uint64(n))
		for _, r := range records {
			x.Record(r)
		}
		x.Session(ses)
	}
	flush(t, x)
	by := map[string]int{}
	for _, s := range c.spans() {
		by[value(s, keyConnection)]++
	}
	for n, spans := range by {
		if spans != each+1 {
			t.Errorf("session %s has %d spans, want %d or none", n, spans, each+1)
		}
	}
	if len(by) < sessions/10 || len(by) > sessions/2 {
		t.Errorf("%d of %d sessions are sampled, want about 3 of 10", len(by), sessions)
	}
	s := x.Stats()
	balanced(t, s, sessions*(each+1))
	if s.Records.Unsampled != int64((sessions-len(by))*(each+1)) {
		t.Errorf("%+v", s.Records)
	}
}

// TestRecordsWithoutATime of their own borrow a clock, or are dropped and counted.
func TestRecordsWithoutATime(t *testing.T) {
	unasked := sample(3, 0)
	unasked.Points.TIn, unasked.TInWallNS = nil, nil
	unasked.Unmeasured["points.t_in"] = "nothing asked for it"
	nothing := &timeline.Record{Flow: "other"}
	got, stats := sent(t, Config{}, []*timeline.Record{unasked, sample(3, 0), unasked, nothing})
	balanced(t, stats, 4)
	if stats.Records.Dropped[NoClock] != 2 || len(got) != 2 {
		t.Fatalf("%+v", stats.Records)
	}
	s := got["chat 2"]
	if value(s, keyBorrowed) != "true" || s.StartTimeUnixNano != 1.7e18+1e8 || value(s, keyUnmeasured) != "t_in: nothing asked for it" {
		t.Errorf("%v", s)
	}
}

// TestBigRequestHasFewSpans bounds the children and says how many are missing.
func TestBigRequestHasFewSpans(t *testing.T) {
	r := sample(3, 100)
	got, _ := sent(t, Config{}, []*timeline.Record{r})
	if len(got) != maxChildren+1 || value(got["chat"], keyOmitted) == "" {
		t.Errorf("%d spans, omitted %q", len(got), value(got["chat"], keyOmitted))
	}
}
