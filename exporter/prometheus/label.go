package prometheus

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
)

// The values of labels for what is none of the known ones, and for what is not known.
const (
	other   = "other"
	unknown = "unknown"
)

// words are the known values of a label. A value is always one of its own strings: one
// of a record's may be a part of a whole request.
type words map[string]string

func known[S ~string](list ...S) words {
	m := make(words, len(list))
	for _, w := range list {
		m[string(w)] = string(w)
	}
	return m
}

// of returns v where it is one of the words.
func (w words) of(v, otherwise string) string {
	if own, ok := w[v]; ok {
		return own
	}
	return otherwise
}

// maxName bounds a name's length in bytes. Those of models are up to 96 long on the hub.
const maxName = 100

// name cleans a name for a label: of a path, which tells of the machine it lies on, the
// last part is left. What is too long or has other characters than names have is no name.
func name(v string) (string, bool) {
	if local(v) {
		v = strings.TrimRight(v, `/\`)
		v = v[strings.LastIndexAny(v, `/\`)+1:]
	}
	if v == "" || len(v) > maxName {
		return "", false
	}
	for i := range len(v) {
		if c := v[i]; !alphanumeric(c) && (i == 0 || !strings.ContainsRune("-_.:/@+", rune(c))) {
			return "", false
		}
	}
	return v, true
}

// local reports whether a model's name is a path or an address: OWNER/MODEL is neither.
func local(v string) bool {
	return strings.HasPrefix(v, "/") || strings.HasPrefix(v, ".") || strings.HasPrefix(v, "~") || strings.Contains(v, `\`) ||
		strings.Contains(v, "://") || strings.Count(v, "/") > 1
}

func alphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// names bounds the values of a label: the first so many names are kept, for good.
type names struct {
	limit int
	over  func() // counts what was told as other
	mu    sync.Mutex
	// kept is replaced as a whole, with mu held: readers take no lock.
	kept atomic.Pointer[words]
}

func newNames(limit int, over func()) *names {
	n := &names{limit: limit, over: over}
	n.kept.Store(&words{})
	return n
}

// of returns the label's value for a name. One that is new is kept where keep is set and
// there is room.
func (n *names) of(raw string, keep bool) string {
	kept := *n.kept.Load()
	if own, ok := kept[raw]; ok {
		return own
	}
	if v, ok := name(raw); ok {
		if own, ok := kept[v]; ok {
			return own
		}
		if own, ok := n.add(v, keep); ok {
			return own
		}
	}
	n.over()
	return other
}

// add keeps a name, and reports whether there was room for it.
func (n *names) add(v string, keep bool) (own string, ok bool) {
	if !keep {
		return "", false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	old := *n.kept.Load()
	if own, ok = old[v]; ok {
		return own, true
	}
	if len(old) >= n.limit {
		return "", false
	}
	grown, own := maps.Clone(old), strings.Clone(v)
	grown[own] = own
	n.kept.Store(&grown)
	return own, true
}
