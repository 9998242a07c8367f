// Package upstream reads what a server says of itself: its own /metrics before, during and
// after a run.
//
//	s := upstream.New(upstream.Config{}, "http://127.0.0.1:8091", file, log)
//	s.Before(ctx)
//	go s.Run(ctx)      // a scrape every Config.Interval, until ctx ends
//	...                // the load
//	s.After(ctx)
//
// and later upstream.Read(file), and Between of what it gives: the increase of each counter
// and histogram from the first scrape to the last. Both Prometheus text and OpenMetrics are
// read. A name that is not in the table of Known names is kept as it is, and means nothing
// here.
//
// Everything is bounded: the time and bytes of an answer, its series, the scrapes, the bytes
// of the file. A server that answers 404, hangs, sends garbage or too much costs the run
// nothing; the scrape's line says what was wrong. A redirect is an answer, and is not
// followed: the figures are to be this server's.
//
// A counter that fell, or whose time of creation changed, belongs to a server that was
// started anew: what it had counted since the scrape before is lost. The increase is then
// what is left of it, and says so.
//
// Out of scope: comparing the server's figures with anything (exporter/reconcile), and
// percentiles: a histogram gives bounds for them, and nothing in between.
package upstream
