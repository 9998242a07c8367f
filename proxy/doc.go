// Package proxy relays TCP connections to one upstream and lets somebody else
// look at a copy of the bytes.
//
// One upstream connection a client connection; bytes move as they come, both
// ways; FIN is passed on as FIN, RST as RST; nothing is retried, nothing
// repaired, nothing added but, where asked for, a request id in a request's
// head. The only answer it ever writes itself is a 502 when the upstream cannot
// be reached.
//
//	client ── read, stamp ── hand over (never waits) ── write ── upstream
//
// Each read carries the kernel's receive stamp where there is one. The forward
// path allocates nothing per read, and a connection holds a buffer only while
// there is something to read.
//
// Plain connections are moved by a few loops of their own (loop), which no
// goroutine has to be woken for; goroutines help where a write would block, where
// a transfer is in bulk, and at the ends. With TLS on a side, a goroutine a
// direction moves the bytes (flow.run). What is read, stamped, handed over and
// written is the same code both ways.
//
// It knows no HTTP beyond a request's head, no JSON and no sound: reading is the
// tap's (proxy/tap), which gets the bytes with their stamps.
package proxy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"time"

	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// Correlation says whether requests get an id in their head.
type Correlation string

// Correlations.
const (
	// Auto injects while stage probes need it, else is passive.
	Auto Correlation = "auto"
	// Inject gives a request without X-Request-Id one, unless its body is seen to
	// hold a request_id.
	Inject Correlation = "inject"
	// Passive changes nothing at all.
	Passive Correlation = "passive"
)

// Config says what to relay and how.
type Config struct {
	// Upstream is http://host:port or https://host:port.
	Upstream string
	// Correlation: Auto when empty.
	Correlation Correlation
	// Drain bounds how long open exchanges may take to end after Run's context
	// ended: 30s when 0.
	Drain time.Duration
	// AbortAfter cuts a connection, by a reset to both sides, when the deadline of an
	// exchange on it passes, and bounds the dialling: it is the deadline that the
	// Analyzer's configuration has; 0 cuts nothing.
	AbortAfter time.Duration
	// linger is lingerLimit but in tests.
	linger time.Duration
	// noLoops lets goroutines move the bytes, as where TLS is spoken; tests alone set it.
	noLoops bool
	// lingered, if set, is told of each look at a client that lingers.
	lingered chan<- struct{}
	// TLS, if set, is spoken to clients; ALPN is http/1.1 alone.
	TLS *tls.Config
	// UpstreamTLS configures TLS towards an https upstream; nil means defaults.
	UpstreamTLS *tls.Config
	// RunID and Node go into every record.
	RunID, Node string
	// Analyzer reads the copies; nil relays alone.
	Analyzer *tap.Analyzer
	// Log gets one line a change of state; nil discards.
	Log *slog.Logger
}

// target is a parsed upstream.
type target struct {
	addr, host string
	tls        bool
	text       string // without user info, for messages
}

func parseUpstream(s string) (target, error) {
	u, err := url.Parse(s)
	if err != nil {
		return target{}, fmt.Errorf("parsing the upstream: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return target{}, errors.New("upstream must be http://HOST[:PORT] or https://HOST[:PORT]")
	}
	if u.Path != "" && u.Path != "/" || u.RawQuery != "" {
		return target{}, errors.New("upstream takes no path: requests pass unchanged")
	}
	t := target{host: u.Hostname(), tls: u.Scheme == "https"}
	port := u.Port()
	if port == "" {
		port = map[bool]string{false: "80", true: "443"}[t.tls]
	}
	t.addr = net.JoinHostPort(t.host, port)
	t.text = u.Scheme + "://" + t.addr
	return t, nil
}

// ends of sides, in the words of the timeline.
const (
	fin = timeline.FIN
	rst = timeline.RST
)
