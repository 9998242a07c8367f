//go:build !linux

package truth

import "time"

var started = time.Now()

// Mono counts from the start of the process where the system has no
// CLOCK_MONOTONIC that others could be compared with.
func Mono() int64 { return int64(time.Since(started)) }
