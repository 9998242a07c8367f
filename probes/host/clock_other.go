//go:build !linux

package host

import "time"

var started = time.Now()

// SystemClocks are Go's own: the monotonic one counts from the start of the process,
// and sleep is not seen.
func SystemClocks() Clocks {
	mono := func() int64 { return int64(time.Since(started)) }
	return Clocks{Wall: func() int64 { return time.Now().UnixNano() }, Mono: mono, Boot: mono}
}
