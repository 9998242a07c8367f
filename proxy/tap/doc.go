// Package tap reads a copy of what passes one connection and turns it into
// records: it drives the parsers of proxy/wire and feeds proxy/timeline.
//
//	relay (proxy) ── Handle: bytes, stamps, ends ──▶ queue ──▶ Conn ──▶ Builder ──▶ Sink
//
// A Conn is the reading itself: single-threaded, without a clock, the same live
// and from a capture (Replay). An Analyzer puts a bounded queue and a few
// workers between the relay and the Conns, so that the relay never waits: what
// does not fit is dropped, counted, and named in the record it concerns.
//
// It changes no byte, opens no connection and judges nothing itself.
package tap

import (
	"time"

	"github.com/omnitap/omnitap/proxy/timeline"
	"github.com/omnitap/omnitap/proxy/timeline/session"
	"github.com/omnitap/omnitap/proxy/wire/http1"
	"github.com/omnitap/omnitap/proxy/wire/sse"
)

// Config bounds the analysis. The zero value of each field means its default.
type Config struct {
	Timeline timeline.Config `yaml:"timeline"`
	// MaxHead bounds a message head in bytes: 64 KiB.
	MaxHead int `yaml:"max_head"`
	// MaxEvent bounds one server-sent event or one whole JSON answer in bytes:
	// 16 MiB. What is over it is forwarded all the same, and the record says
	// truncated.
	MaxEvent int `yaml:"max_event"`
	// MaxRequest bounds how much of a request's body is kept to learn what it
	// asks for, in bytes: 4 MiB.
	MaxRequest int `yaml:"max_request"`
	// MaxQueue bounds the bytes that one connection hands over between two looks
	// of its worker: 32 MiB.
	MaxQueue int64 `yaml:"max_queue"`
	// MaxMemory bounds the bytes waiting for analysis in all: 256 MiB.
	MaxMemory int64 `yaml:"max_memory"`
	// Workers is how many goroutines analyse: one for four cores, at least one and
	// at most 4. Each wakes once a Latency while there is traffic, and waking costs.
	Workers int `yaml:"workers"`
	// Off takes bytes over and looks at none of them: it measures what the
	// hand-over alone costs.
	Off bool `yaml:"off"`
	// Latency is how long bytes may wait before they are looked at: 30ms.
	// With the run directory's own 20 ms, a kill loses less than the last 100 ms, but on a
	// machine that has no time to spare.
	Latency time.Duration `yaml:"latency"`

	// sessions is what WebSocket sessions of one server share.
	sessions *session.Memory
}

// WithDefaults returns the configuration with defaults filled in.
func (c Config) WithDefaults() Config {
	c.Timeline = c.Timeline.WithDefaults()
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&c.MaxHead, http1.DefaultMaxHead)
	def(&c.MaxEvent, sse.DefaultMaxEvent)
	def(&c.MaxRequest, 4<<20)
	if c.MaxQueue == 0 {
		c.MaxQueue = 32 << 20
	}
	if c.MaxMemory == 0 {
		c.MaxMemory = 256 << 20
	}
	if c.sessions == nil {
		c.sessions = &session.Memory{}
	}
	if c.Latency == 0 {
		c.Latency = 30 * time.Millisecond
	}
	return c
}
