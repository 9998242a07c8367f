package telemetry

import (
	"sync/atomic"
	"time"
)

// clock turns stamps of one record into wall-clock times.
type clock struct {
	offset int64
	// borrowed says that the record has no pair of clocks and an earlier one's is used.
	borrowed bool
}

func (c clock) at(mono int64) time.Time { return time.Unix(0, mono+c.offset) }

// clocks remembers the pair of the last record that had one. The zero value knows none.
type clocks struct{ last atomic.Pointer[int64] }

// of returns a record's clock: by its own pair, or without one by that of an earlier
// record of the same node. It reports false where there is neither.
func (c *clocks) of(mono, wall *int64) (clock, bool) {
	if mono != nil && wall != nil {
		offset := *wall - *mono
		if last := c.last.Load(); last == nil || *last != offset {
			c.last.Store(&offset)
		}
		return clock{offset: offset}, true
	}
	if last := c.last.Load(); last != nil {
		return clock{offset: *last, borrowed: true}, true
	}
	return clock{}, false
}
