package timeline

import "strings"

// Trace notes the trace context that a client sent. What is not valid is none.
func (b *Builder) Trace(traceparent string) {
	if validTrace(traceparent) {
		b.traceparent = traceparent
	}
}

// Traceparent returns what Trace noted.
func (b *Builder) Traceparent() string { return b.traceparent }

// validTrace says that a value has the form of W3C Trace Context, section 3.2.2: version,
// trace id, parent id and flags in lower-case hex, of which ids are not zero. Of a later
// version more may follow; only its first fields are told.
func validTrace(v string) bool {
	const length = 2 + 1 + 32 + 1 + 16 + 1 + 2
	if len(v) != length || v[2] != '-' || v[35] != '-' || v[52] != '-' || v[:2] == "ff" {
		return false
	}
	for i := range length {
		hex := v[i] >= '0' && v[i] <= '9' || v[i] >= 'a' && v[i] <= 'f'
		if !hex && i != 2 && i != 35 && i != 52 {
			return false
		}
	}
	return strings.Trim(v[3:35], "0") != "" && strings.Trim(v[36:52], "0") != ""
}
