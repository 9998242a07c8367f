package perfetto_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/omnitap/omnitap/exporter/convert/internal/perfetto"
	"github.com/omnitap/omnitap/exporter/convert/internal/perfetto/reader"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// Whatever a run's lines say, the trace can be read strictly.
func FuzzTrace(f *testing.F) {
	f.Add(`{"request_id":"a","attempt":1,"session_id":"s","points":{"t_in":5,"t_audio":7,"t_term":9},"critical_path":[{"gap":"x","ms":-1e300},{"gap":"y","ms":1e300}],"own_delay_us":{"p50":1}}`,
		`{"request_id":"a","attempt":1,"event":"output_chunk","mono_ns":9,"chunk_id":0}`, `{"request_id":"a","attempt":1,"event":"output_chunk","mono_ns":4}`, `{"session_id":"s","opened_mono_ns":1,"duration_ms":2}`)
	f.Add(`{"request_id":"a","points":{},"stages":[{"stage":"s","pid":3,"ready_ns":1,"start_ns":3,"finish_ns":9,"steps":2,"batch":{"mean":1}}],"transfers":[{"from":"s","to":"t","start_ns":8,"end_ns":9,"chunk":1},{"from":"t","to":"s","start_ns":8}]}`,
		`{"request_id":"b","event":"terminal","mono_ns":9}`, `{"request_id":"s","event":"ingress","mono_ns":4}`, `{"session_id":"","duration_ms":1e308}`)
	f.Fuzz(func(t *testing.T, record, first, second, session string) {
		var r timeline.Record
		var a, b timeline.Event
		var s timeline.Session
		for text, v := range map[string]any{record: &r, first: &a, second: &b, session: &s} {
			if json.Unmarshal([]byte(text), v) != nil {
				return
			}
		}
		var out bytes.Buffer
		tr := perfetto.New(&out)
		for _, step := range []func() error{
			func() error { return tr.Run(perfetto.Run{}) },
			func() error { return tr.Session(&s) },
			func() error { return tr.Record(0, &r) },
			func() error { return tr.Record(1, &r) },
			func() error { return tr.Event(&a) },
			func() error { return tr.Event(&b) },
			func() error { return tr.Event(&a) },
			tr.Close,
		} {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := reader.Read(&out); err != nil {
			t.Error(err)
		}
	})
}
