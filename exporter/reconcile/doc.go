// Package reconcile puts three views of one run into one table: what a load generator says,
// what was on the wire, and what the server's own metrics say; and names each difference
// with its cause, where the data show it.
//
//	g, err := reconcile.ReadGenerator(file)       // vllm bench serve, AIPerf
//	scrapes, problems, err := upstream.Read(f)
//	d := upstream.Between(scrapes)
//	r := reconcile.Table(reconcile.Input{Records: records, Generator: g, Server: &d})
//	err = r.Render(os.Stdout)
//
// The three do not measure the same thing. A generator's clock starts before the request is
// on the wire, and stops when it has got round to reading; what it takes for a first token
// may hold none. A server's clock starts behind its own queue, its counters hold warm-up and
// the requests of others, and it counts an audio event without sound as sound. Each of these
// is a Cause, and is named only where numbers of this run show it: an instant that lies ahead
// of what it is said to be, requests told apart one by one, a sum that comes out. What is
// left is not explained, and says so; nothing is guessed.
//
// Requests are paired one by one where the file has them: by X-Request-Id, else by start
// times, if the generator's clock is this node's. Otherwise only sums are compared.
//
// Both wire columns hold every request that reached a point, failed ones as well: this is
// what the other two count. The figures of a run are those of exporter/report, over
// successes alone.
//
// Out of scope: reading run directories, and judging a run.
package reconcile
