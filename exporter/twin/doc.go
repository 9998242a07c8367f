// Package twin asks a server for the same sound once more, not as a stream, and
// compares the two (contract section 4: the same request sent again).
//
//	client's request ── Wants ──▶ Compare: edit ─▶ send ─▶ decode ─┐
//	stream's samples ─────────────────────────────────────────────┴▶ compare ─▶ findings
//
//	r := twin.New(cfg, upstream, nil)
//	if r.Wants(id) { // keep the request's bytes and the stream's samples
//		findings := r.Compare(ctx, request, came)
//	}
//
// A twin is a request that no client made: it costs the server a whole generation
// and goes out only where the configuration's sample says so, on a connection of
// its own, off the client's path. It carries the client's keys to the server that
// the client sent them to; neither they nor any text of request or answer appear
// in a finding or an error.
//
// Servers draw their sound at random unless they are asked not to: two takes that
// do not agree prove nothing but for their lengths. Samples are judged only where
// the two are one take.
//
// Compressed sound, forms (multipart) and WebSockets have no twin here.
package twin
