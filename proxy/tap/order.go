package tap

import (
	"cmp"
	"slices"
)

// placed is an item with the moment that it happened at.
type placed struct {
	mono int64
	item int32
}

// order lists a connection's items by their receive stamps. Its two directions
// are read by goroutines of their own: who hands over first is the scheduler's
// choice, what came first the kernel's stamps tell, and on a WebSocket, where
// both sides speak at any time, it matters. In HTTP an answer is read behind what
// asked for it anyway. What has no stamp of its own stays behind all that it came
// behind; a direction's own bytes stay in order whatever their stamps say.
type order []placed

func (o *order) of(b *batch, i int32, socket bool) []placed {
	list, latest, last, crossed := (*o)[:0], int64(0), [2]int64{}, false
	for ; i != 0; i = b.items[i].next {
		it := &b.items[i]
		at := latest
		switch it.kind {
		case kData, kGap:
			at = max(it.mono, last[it.dir])
			last[it.dir] = at
			crossed = crossed || at < latest
			latest = max(latest, at)
		case kWrote: // of bytes of an earlier batch: ahead of what came since
			at = last[it.dir]
		case kNote:
		}
		list = append(list, placed{at, i})
	}
	if crossed && socket {
		slices.SortStableFunc(list, func(a, b placed) int { return cmp.Compare(a.mono, b.mono) })
	}
	*o = list[:0]
	return list
}
