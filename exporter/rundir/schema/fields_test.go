package schema_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/exporter/rundir/schema"
)

// The names of requests.jsonl, as the project's page on files and records gives
// them: this list is the promise to those who read the files. A name behind `?`
// may be null (not measured) and one behind `~` may be missing (replay leaves it
// out). `[]` goes into the items of a list. Fields may be added, never renamed
// and never given another meaning.
const promised = `
schema ~run_id ~node
request_id request_id_source ?server_request_id
connection_id ?session_id ?turn attempt
flow dialect ?dialect_variant
?method ?path ?status ?model ?modalities ?stream
?t_in_wall_ns ?t_in_source stamp
points
?points.t_in ?points.t_body ?points.t_up ?points.t_hdr ?points.t_text ?points.t_audio_event
?points.t_audio ?points.t_audible ?points.t_term ?points.t_close
offsets
?offsets.t_in ?offsets.t_body ?offsets.t_up ?offsets.t_hdr ?offsets.t_text ?offsets.t_audio_event
?offsets.t_audio ?offsets.t_audible ?offsets.t_term ?offsets.t_close
?ttft_ms ?ttfa_ms ?ttfaudible_ms ?jct_ms ?rtf ?xrt ?tpot_ms ?audio_s
?reasoning ?reasoning.first_ms reasoning.units reasoning.chars
?text_units ?text_unit ?text_bytes ?text_sha256
?audio ?audio.container ?audio.encoding ?audio.sample_rate ?audio.sample_rate_source
?audio.assumed_sample_rate ?audio.channels ?audio.samples audio.chunks audio.empty_events
?audio.chunk_unit audio.bytes ?audio.declared_samples ?audio.declared_source ?audio.sha256
?audio_gap_ms audio_gap_ms.p50 audio_gap_ms.p95 audio_gap_ms.p99 audio_gap_ms.max audio_gap_ms.cv
audio_gap_ms.n
?playback playback.underruns playback.stall_ms playback.longest_stall_ms playback.min_prebuffer_ms
?playback.continuity
terminal terminal.state terminal.reason terminal.phase ?terminal.evidence terminal.by
quality quality.verdict ?quality.failed ?quality.not_measured
?flags analysis ?analysis_reason
?own_delay_us own_delay_us.p50 own_delay_us.p99 own_delay_us.max own_delay_us.n
bytes_up bytes_down
?stages stages[].stage stages[].pid ?stages[].wait_ms ?stages[].service_ms ?stages[].cpu_ms
?stages[].runq_ms ?stages[].gpu stages[].match stages[].confidence
?transfers transfers[].from transfers[].to transfers[].transport ?transfers[].bytes
transfers[].start_ns ?transfers[].end_ns transfers[].match
?critical_path critical_path[].gap critical_path[].ms
?cancel_quiesce_ms ?retry_of ?client_wait_ms ?warnings ?unmeasured
`

// promisedSessions are the names of sessions.jsonl, in the same way.
const promisedSessions = `
session_id connection_id flow dialect ?opened_wall_ns duration_ms turns ?input_audio_s
close close.by ?close.code ?close.reason ?ping_rtt_ms messages_up messages_down ?flags
`

// promisedQuality are the names of quality.jsonl, in the same way.
const promisedQuality = `
request_id ?checks checks[].name checks[].verdict checks[].reason ?checks[].chunk ?checks[].sample
?checks[].measured ?checks[].threshold
`

// promisedEvents are the names of events.jsonl, in the same way.
const promisedEvents = `
?run_id request_id ?session_id ?stage attempt ?chunk_id event mono_ns ?wall_ns ?node ?device ?bytes ?batch ?status
~?offset ~?samples ~?sample_rate ~?channels ~?transport ~?peer ~?match
~?chars ~?wire_bytes ~?count ~?wait_ns ~?transfer ~?empty_polls ~?cpu_ns ~?runq_ns ~?blocked_ns
`

// node is the part of JSON Schema that the generator writes.
type node struct {
	Ref        string          `json:"$ref"`
	Defs       map[string]node `json:"$defs"`
	Type       any             `json:"type"`
	AnyOf      []node          `json:"anyOf"`
	Properties map[string]node `json:"properties"`
	Required   []string        `json:"required"`
	Items      *node           `json:"items"`
}

// resolve follows a reference, and the alternative that is not null.
func (n node) resolve(root node) (resolved node, nullable bool) {
	for _, option := range n.AnyOf {
		if option.Type == "null" {
			nullable = true
			continue
		}
		n = option
	}
	if types, ok := n.Type.([]any); ok && slices.Contains(types, any("null")) {
		nullable = true
	}
	if name, ok := strings.CutPrefix(n.Ref, "#/$defs/"); ok {
		n = root.Defs[name]
	}
	return n, nullable
}

// collect lists every member below n as the list above does.
func collect(root, n node, prefix string, into map[string]bool) {
	n, _ = n.resolve(root)
	if n.Items != nil {
		collect(root, *n.Items, strings.TrimSuffix(prefix, ".")+"[].", into)
	}
	for name, property := range n.Properties {
		mark := ""
		if !slices.Contains(n.Required, name) {
			mark = "~"
		}
		if _, nullable := property.resolve(root); nullable {
			mark += "?"
		}
		into[mark+prefix+name] = true
		collect(root, property, prefix+name+".", into)
	}
}

func TestPromisedFields(t *testing.T) {
	t.Run("requests", func(t *testing.T) { hasPromised(t, schema.Requests, promised) })
	t.Run("sessions", func(t *testing.T) { hasPromised(t, schema.Sessions, promisedSessions) })
	t.Run("quality", func(t *testing.T) { hasPromised(t, schema.Quality, promisedQuality) })
	t.Run("events", func(t *testing.T) { hasPromised(t, schema.Events, promisedEvents) })
}

func hasPromised(t *testing.T, text []byte, promised string) {
	t.Helper()
	var root node
	if err := json.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	collect(root, root, "", has)
	for field := range strings.FieldsSeq(promised) {
		if !has[field] {
			t.Errorf("the schema has no %q; near it: %q", field, near(has, field))
		}
		delete(has, field)
	}
	t.Logf("fields beyond the promised ones: %q", slices.Sorted(maps.Keys(has)))
}

// near finds the same name with other marks.
func near(has map[string]bool, field string) string {
	for name := range has {
		if strings.TrimLeft(name, "~?") == strings.TrimLeft(field, "~?") {
			return name
		}
	}
	return ""
}
