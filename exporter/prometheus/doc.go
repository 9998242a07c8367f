// Package prometheus keeps metrics of finished records and serves them to Prometheus.
//
//	sink, err := prometheus.New(prometheus.Config{}, prometheus.Deps{Source: service, Version: "v1.2.3"})
//	...
//	mux.Handle("GET /metrics", sink.Handler())
//
// A Sink is a timeline.Sink. It is called where records are made, behind the forward
// path, by any number of goroutines: it takes no lock but for the first record of its
// kind, keeps no record, and costs about a microsecond. What no record tells, such as open
// connections and the state of the probes, it asks its Source for when it is scraped.
//
// # What a histogram holds
//
// Initial attempts that succeeded, and of these the values that were measured: neither a
// failure nor a null enters as 0 (contract section 3 and case C37). Failures are counted
// beside them, by state. Bounds are explicit and in seconds, close enough for a
// percentile that is reckoned from them to lie within 10 % where it matters: from 50 ms to
// 2 s up to first output, from 1 s to 300 s to its end (case C78).
//
// # Labels
//
// No label holds an id, a voice, a text or a path, and each has a bounded number of
// values: words of the contract, and the first so many names of models, stages and
// transports. What comes beyond is told as `other`, and counted by
// omnitap_label_overflow_total. A model's name must come with a success to be kept, since
// what a refused request asks for is the client's text alone. Of a model that is a path
// the last part is kept.
//
// Out of scope: deriving a metric (the records hold them), pushing, storing, and who may
// scrape: that is the admin listener's.
package prometheus
