package join

// Fork is what a stage's hand-overs look like where the way of a request divides, or
// comes together (contract section 6).
type Fork struct {
	// FanOut is how many stages it handed on to, 0 for none seen. Copied is the bytes
	// that went to those beyond the first one, -1 where there is no other, or where a
	// hand-over to one states no bytes.
	FanOut int
	Copied int64
	// JoinWaitNS is from the first input of the stage that it had first to the first of
	// the one that it had last, -1 where one stage alone feeds it.
	JoinWaitNS int64
}

// forkOf looks at all transfers of a request, in order of their start, from one stage's
// place. What the API process forwards is no copy of the stage's.
func forkOf(name string, transfers []Transfer) Fork {
	f := Fork{Copied: -1, JoinWaitNS: -1}
	var to []string
	had := map[string]int64{}
	copied, unknown := int64(0), false
	for i := range transfers {
		t := &transfers[i]
		if t.From == name && t.To != "" && t.To != roleAPI && !t.Unread {
			if at := place(&to, t.To); at > 0 {
				copied, unknown = copied+max(t.Bytes, 0), unknown || t.Bytes < 0
			}
		}
		if got := t.Received(); t.To == name && t.From != "" && t.From != roleAPI && got > 0 {
			if first, there := had[t.From]; !there || got < first {
				had[t.From] = got
			}
		}
	}
	if f.FanOut = len(to); f.FanOut > 1 && !unknown {
		f.Copied = copied
	}
	if len(had) > 1 {
		f.JoinWaitNS = spread(had)
	}
	return f
}

// place is the index of a name in a list, which gets it if it is new.
func place(list *[]string, name string) int {
	for i, n := range *list {
		if n == name {
			return i
		}
	}
	*list = append(*list, name)
	return len(*list) - 1
}

// spread is from the earliest to the latest.
func spread(at map[string]int64) int64 {
	var first, last int64
	for _, t := range at {
		if first == 0 || t < first {
			first = t
		}
		last = max(last, t)
	}
	return last - first
}
