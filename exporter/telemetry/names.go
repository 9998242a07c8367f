package telemetry

import (
	"strings"
	"sync"
)

// other is what a value is told as that is none of the known ones.
const other = "other"

// maxName bounds a name in metrics, in bytes.
const maxName = 100

// names bounds the values of an attribute of metrics: the first so many are kept, for
// good, and all others are told as other.
type names struct {
	limit int
	mu    sync.RWMutex // protects kept
	kept  map[string]string
}

func newNames(limit int) *names { return &names{limit: limit, kept: make(map[string]string, limit)} }

// of returns what to tell for a name. A new one is kept only where keep is set: what a
// client made up for a request that failed must not take the room of what there is.
func (n *names) of(raw string, keep bool) string {
	n.mu.RLock()
	own, ok := n.kept[raw]
	n.mu.RUnlock()
	if ok {
		return own
	}
	name := clean(raw)
	if name == "" {
		return other
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if own, ok = n.kept[name]; ok {
		return own
	}
	if !keep || len(n.kept) >= n.limit {
		return other
	}
	name = strings.Clone(name) // not the whole request that it was cut from
	n.kept[name] = name
	return name
}

// clean returns a name as metrics may tell it, empty where it is none: of a path or an
// address the last part, no query, nothing but characters of names.
func clean(raw string) string {
	if i := strings.IndexAny(raw, "?#"); i >= 0 {
		raw = raw[:i]
	}
	if strings.HasPrefix(raw, "/") || strings.HasPrefix(raw, ".") || strings.HasPrefix(raw, "~") || strings.Contains(raw, "://") || strings.Count(raw, "/") > 1 {
		raw = strings.TrimRight(raw, "/")
		raw = raw[strings.LastIndexByte(raw, '/')+1:]
	}
	if raw == "" || len(raw) > maxName {
		return ""
	}
	for i := range len(raw) {
		if !named(raw[i]) {
			return ""
		}
	}
	return raw
}

func named(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || strings.IndexByte("-_.:/@+", c) >= 0
}

// pairs are the names of edges, bounded as names are.
type pairs struct {
	mu   sync.RWMutex // protects kept
	kept map[[2]string]string
}

// of returns FROM→TO.
func (p *pairs) of(from, to string) string {
	key := [2]string{from, to}
	p.mu.RLock()
	own, ok := p.kept[key]
	p.mu.RUnlock()
	if ok {
		return own
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.kept) >= maxEdges {
		return other
	}
	p.kept[key] = from + "→" + to
	return p.kept[key]
}
