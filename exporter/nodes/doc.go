// Package nodes puts the parts of one run together that were seen on several machines:
// how far apart their clocks are, and events of one machine told in the time of another.
//
// Every machine keeps its raw CLOCK_MONOTONIC. What lies between two of them is asked
// for in exchanges of four stamps over HTTP (as RFC 5905 section 8 does it) and kept with
// its uncertainty; nothing is corrected before the parts meet. Two processes of one
// machine, which the kernel's boot id tells, share a clock: the offset is 0 and sure.
//
//	http.Handle("GET /clock", nodes.Handler(node))           // the relay
//	s, err := nodes.Ask(ctx, client, url)                    // an agent, now and then
//	c := nodes.NewClock(samples)
//	offset, uncertainty, ok := c.At(mono)                    // mono + offset is the relay's
//
// Out of scope: setting clocks, and wall time, which steps.
package nodes
