package compare

import "testing"

// BenchmarkLoad reads a run of 2000 requests with stages.
func BenchmarkLoad(b *testing.B) {
	w := usual()
	w.requests = 2000
	dir := w.seeded(1).written(b, 0, false, nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Load(dir); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2000, "ns/request")
}

// BenchmarkCompare compares eight runs of 2000 requests.
func BenchmarkCompare(b *testing.B) {
	w := usual()
	w.requests = 2000
	as, bs := w.seeded(1).series("ABBAABBA")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compare(as, bs, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
