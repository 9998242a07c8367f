// Package probes watches the stage processes of a server from outside: it keeps the
// table of watched processes up to date (probes/find says which they are), attaches
// the probe families to what those processes really map and open, reads their rings,
// proves that they are alive, counts what was lost, and keeps their cost under a
// budget. What the events mean is exporter/join's business; requests, connections and
// audio are unknown here.
//
// It only reads. Nothing is ever written to a watched process, and Close leaves no
// trap in any text page.
package probes
