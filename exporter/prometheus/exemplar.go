package prometheus

import "github.com/omnitap/omnitap/proxy/timeline"

// exemplar is the trace id of a record's exemplars, empty where it is not known.
func (s *Sink) exemplar(r *timeline.Record) string {
	if s.traceID == nil {
		return ""
	}
	if id := s.traceID(r); traced(id) {
		return id
	}
	return ""
}

// traced reports whether a trace id is one by the W3C's rules: lower-case hex, not all 0.
func traced(id string) bool {
	if len(id) != 32 {
		return false
	}
	zeros := true
	for i := range len(id) {
		c := id[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
		zeros = zeros && c == '0'
	}
	return !zeros
}
