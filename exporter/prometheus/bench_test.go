package prometheus

import (
	"fmt"
	"testing"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// BenchmarkRecord is what a record costs whoever hands it over: the target is under 2 µs.
func BenchmarkRecord(b *testing.B) {
	text := speech()
	text.TTFAMS, text.TTFAudibleMS, text.RTF, text.AudioS, text.Audio, text.AudioGapMS, text.Playback, text.Stages, text.Transfers = nil, nil, nil, nil, nil, nil, nil, nil, nil
	sound := speech()
	sound.Stages, sound.Transfers = nil, nil
	streamed := speech()
	for i := range 60 {
		t := &streamed.Transfers[i%2]
		streamed.Transfers = append(streamed.Transfers, *t)
	}
	trace := Deps{TraceID: func(*timeline.Record) string { return "0af7651916cd43dd8448eb211c80319c" }}
	for _, tc := range []struct {
		name   string
		record *timeline.Record
		c      Config
		d      Deps
	}{
		{"failure", failed(timeline.AdmissionRejected), Config{}, Deps{}},
		{"text", text, Config{}, Deps{}},
		{"sound", sound, Config{}, Deps{}},
		{"stages", speech(), Config{}, Deps{}},
		{"stages and 62 transfers", streamed, Config{}, Deps{}},
		{"stages, exemplars", speech(), Config{}, trace},
		{"stages, native", speech(), Config{Native: true}, Deps{}},
		{"stages, native, exemplars", speech(), Config{Native: true}, trace},
	} {
		b.Run(tc.name, func(b *testing.B) {
			s := sinkOf(b, tc.c, tc.d)
			b.ReportAllocs()
			for b.Loop() {
				s.Record(tc.record)
			}
		})
	}
}

// BenchmarkRecordContended is the same by all processors at once.
func BenchmarkRecordContended(b *testing.B) {
	s, r := sinkOf(b, Config{}, Deps{}), speech()
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			s.Record(r)
		}
	})
}

// BenchmarkScrape is what a scrape costs with three flows of two models.
func BenchmarkScrape(b *testing.B) {
	s := sinkOf(b, Config{}, Deps{Source: busy()})
	for i := range 600 {
		r := speech()
		r.Flow, r.Model = timeline.Flows()[i%3], model(i%2)
		s.Record(r)
	}
	for _, accept := range []string{"text/plain", openMetrics} {
		b.Run(fmt.Sprintf("%.20s", accept), func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				n = len(scrape(b, s, accept))
			}
			b.ReportMetric(float64(n), "bytes/scrape")
		})
	}
}
