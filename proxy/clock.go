package proxy

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/omnitap/omnitap/proxy/tap"
)

// clock gives CLOCK_MONOTONIC nanoseconds and turns the kernel's wall-clock
// receive stamps into them. The offset between the two clocks is sampled tightly
// and again every second, or at once when a stamp does not fit: then the wall
// clock was set.
type clock struct {
	start  time.Time
	mono0  int64
	offset atomic.Int64 // wall − monotonic
	next   atomic.Int64 // when to sample again
	steps  atomic.Int64
	lag    atomic.Int64 // the longest time from a receive stamp to its read since it was asked for
}

// lagged notes how long bytes had waited to be read; none is 0.
func (c *clock) lagged(ns int64) {
	if ns = max(ns, 1); ns > c.lag.Load() {
		c.lag.Store(ns) // of two at once one counts
	}
}

// sampleEvery is how long an offset is trusted.
const sampleEvery = int64(time.Second)

// stepNS is the change of the offset that counts as a step of the wall clock:
// slewing moves both clocks alike.
const stepNS = int64(time.Millisecond)

// staleNS is the age up to which a receive stamp is believed at once. An older
// one may be of bytes that waited, or the wall clock was set back: the offset is
// measured again to tell.
const staleNS = int64(200 * time.Microsecond)

func newClock() *clock {
	c := &clock{}
	best := int64(math.MaxInt64)
	for range 16 {
		t0 := time.Now()
		m := tap.Monotonic()
		if d := int64(time.Since(t0)); d < best {
			best, c.start, c.mono0 = d, t0, m-d/2
		}
	}
	c.sample(c.now())
	return c
}

// now returns CLOCK_MONOTONIC nanoseconds: Go's own monotonic reading is of the
// same clock, and needs no system call.
func (c *clock) now() int64 { return c.mono0 + int64(time.Since(c.start)) }

// sample measures the offset and returns it.
func (c *clock) sample(now int64) int64 {
	best, off := int64(math.MaxInt64), int64(0)
	for range 5 {
		a := c.now()
		w := time.Now().UnixNano()
		if b := c.now(); b-a < best {
			best, off = b-a, w-(a+b)/2
		}
	}
	if old := c.offset.Swap(off); old != 0 && (off-old > stepNS || old-off > stepNS) {
		c.steps.Add(1)
	}
	c.next.Store(now + sampleEvery)
	return off
}

// wallOffset returns what to add to a monotonic stamp for the wall clock.
func (c *clock) wallOffset() int64 { return c.offset.Load() }

// received turns a receive stamp of the wall clock into a monotonic one, given
// the moment now at which the read returned. ok is false for a stamp that cannot
// be right.
func (c *clock) received(wall, now int64) (mono int64, ok bool) {
	off := c.offset.Load()
	if now >= c.next.Load() {
		off = c.sample(now)
	}
	mono = wall - off
	if mono > now || now-mono > staleNS {
		mono = wall - c.sample(now)
	}
	if mono > now && mono-now < int64(20*time.Microsecond) {
		return now, true // within the error of the offset
	}
	return mono, mono <= now && mono > 0
}
