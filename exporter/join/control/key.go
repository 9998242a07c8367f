package control

import "strings"

// KeyKind is what a name of shared memory or of a connector is.
type KeyKind uint8

// The kinds of names.
const (
	KeyUnknown KeyKind = iota
	// KeyChunk is a request's chunk of a stage: REQUEST_FROM_CHUNK.
	KeyChunk
	// KeyPayload is a request's data without a chunk's number: REQUEST/FROM_to_TO, as
	// the first generation named them in a store.
	KeyPayload
	// KeyKV is a request's key-value cache: omni_FROM_to_TO_kv_cache_REQUEST.
	KeyKV
	// KeyLock is the lock file of another name: shm_NAME_lockfile.lock. The other
	// parts are those of NAME, where it is one of these.
	KeyLock
	// KeyRandom is Python's random name, psm_ and 8 hex digits: it says nothing.
	KeyRandom
	// KeySemaphore is a POSIX semaphore, sem.NAME: no data.
	KeySemaphore
)

// None is the stage or chunk that a name does not tell.
const None = -1

// KeyParts is what a name tells. Its strings are parts of the name.
type KeyParts struct {
	Kind KeyKind
	// Name is the name without lock and network suffix: the one that a writer and a
	// reader share.
	Name string
	// Request is the id as the stages use it, with its tail: see External.
	Request string
	// From and To are the numbers of the stages, Chunk the number of the chunk, each
	// None where the name does not tell it.
	From, To, Chunk int64
}

// Key takes a name apart: that of a segment below /dev/shm (without the directory),
// or a connector's key. It says false for a name of none of the known forms.
// Ids may hold any sign, also _ and digits, so the forms are matched from the end.
func Key(name string) (KeyParts, bool) {
	k := KeyParts{Name: name, From: None, To: None, Chunk: None}
	if strings.HasPrefix(name, "sem.") {
		k.Kind = KeySemaphore
		return k, true
	}
	if inner, ok := strings.CutPrefix(name, "shm_"); ok {
		if inner, ok = strings.CutSuffix(inner, "_lockfile.lock"); ok && inner != "" {
			k.Name = inner
			k.data()
			k.Kind = KeyLock
			return k, true
		}
	}
	if isRandom(name) {
		k.Kind = KeyRandom
		return k, true
	}
	return k, k.data()
}

// data takes the names of data apart.
func (k *KeyParts) data() bool {
	from, to, rest, suffixed := cutEdge(k.Name)
	if suffixed {
		k.Name, k.From, k.To = rest, from, to
	}
	switch {
	case k.cache():
		k.Kind = KeyKV
	case k.chunk():
		k.Kind = KeyChunk
	case suffixed:
		k.Kind, k.Request = KeyPayload, k.Name
	default:
		return false
	}
	return true
}

// cache matches omni_FROM_to_TO_kv_cache_REQUEST.
func (k *KeyParts) cache() bool {
	s, ok := strings.CutPrefix(k.Name, "omni_")
	if !ok {
		return false
	}
	edge, request, ok := strings.Cut(s, "_kv_cache_")
	if !ok || request == "" {
		return false
	}
	a, b, _ := strings.Cut(edge, "_to_")
	from, okFrom := digits(a)
	to, okTo := digits(b)
	if okFrom && okTo {
		k.From, k.To, k.Request = from, to, request
	}
	return okFrom && okTo
}

// chunk matches REQUEST_FROM_CHUNK.
func (k *KeyParts) chunk() bool {
	rest, chunk, ok := cutNumber(k.Name)
	if !ok || !strings.HasSuffix(rest, "_") {
		return false
	}
	rest, from, ok := cutNumber(rest[:len(rest)-1])
	if !ok || len(rest) < 2 || !strings.HasSuffix(rest, "_") {
		return false
	}
	k.Request, k.Chunk, k.From = rest[:len(rest)-1], chunk, from
	return true
}

// cutEdge cuts the suffix of a network store: @FROM_TO, :FROM_TO or /FROM_to_TO.
func cutEdge(name string) (from, to int64, rest string, ok bool) {
	rest, to, ok = cutNumber(name)
	if !ok {
		return 0, 0, name, false
	}
	marks := "@:"
	if s, long := strings.CutSuffix(rest, "_to_"); long {
		rest, marks = s, "/"
	} else if rest, ok = strings.CutSuffix(rest, "_"); !ok {
		return 0, 0, name, false
	}
	rest, from, ok = cutNumber(rest)
	if !ok || len(rest) < 2 || strings.IndexByte(marks, rest[len(rest)-1]) < 0 {
		return 0, 0, name, false
	}
	return from, to, rest[:len(rest)-1], true
}

// cutNumber cuts the digits at the end.
func cutNumber(s string) (rest string, n int64, ok bool) {
	i := len(s)
	for i > 0 && isDigit(s[i-1]) {
		i--
	}
	n, ok = digits(s[i:])
	return s[:i], n, ok
}

// digits reads a number of one to 18 digits.
func digits(s string) (n int64, ok bool) {
	if s == "" || len(s) > 18 {
		return 0, false
	}
	for i := range len(s) {
		if !isDigit(s[i]) {
			return 0, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, true
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isHex(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'f' }

// isRandom says whether b is one of Python's names of shared memory.
func isRandom[T string | []byte](b T) bool {
	if len(b) != len("psm_12345678") || string(b[:4]) != "psm_" {
		return false
	}
	for i := 4; i < len(b); i++ {
		if !isHex(b[i]) {
			return false
		}
	}
	return true
}

// External is the id that the client's side knows an engine's request by: without
// the tail of - and 8 hex digits that vLLM adds, cut once, where there is one.
func External(engineID string) string {
	at := len(engineID) - 9
	if at < 1 || engineID[at] != '-' {
		return engineID
	}
	for i := at + 1; i < len(engineID); i++ {
		if !isHex(engineID[i]) {
			return engineID
		}
	}
	return engineID[:at]
}
