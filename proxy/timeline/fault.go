package timeline

import (
	"strings"

	"github.com/omnitap/omnitap/proxy/wire/dialect"
)

// said is what the server put into words, or into a status, about a failure.
type said struct {
	state   State
	reason  string
	message string
	code    int
	at      place
	// event says that it came inside an answer that had begun.
	event bool
}

// trouble is something that could not be decoded as declared.
type trouble struct {
	reason, detail string
}

// fault takes an error that an event or a body with a good status holds.
func (b *Builder) fault(f *dialect.Failure, off int64) {
	if b.said != nil {
		return
	}
	content := b.textUnits > 0 || b.reasoning.Units > 0 || b.tool || b.snd != nil && b.snd.bytes+b.snd.opaque > 0
	b.said = classify(f, f.Code, content)
	b.said.at, b.said.event = place{b.now, off}, true
}

// Refused takes the body of an answer with an error status; f is nil where it
// could not be read.
func (b *Builder) Refused(f *dialect.Failure) {
	if f == nil {
		f = &dialect.Failure{}
	}
	b.said = classify(f, b.status, false)
}

var workerLostWords = []string{
	"dead stage process", "enginedeaderror", "engine is dead", "enginecore encountered an issue", "engine core died",
	"no available replica", "no live replica", "missing replica", "worker died",
}

var oomWords = []string{"out of memory", "outofmemoryerror"}

var admissionWords = []string{"queue is full", "rate limit", "too many requests", "server is overloaded"}

// invalidCodes and admissionCodes are codes in words, as WebSocket errors have them.
var (
	invalidCodes = []string{
		"invalid_json", "invalid_audio", "invalid_event", "invalid_request", "invalid_value", "model_not_found", "model_not_validated",
		"unknown_event", "unsupported", "missing_required",
	}
	admissionCodes = []string{"resource_exhausted", "unavailable", "rate_limit", "overloaded", "queue_full"}
)

var deadlineWords = []string{"deadline", "timed out", "timeout"}

// byText is the reason of a deadline that only the failure's words tell.
const byText = "upstream_by_text"

// classify names the state that a failure in words means. content says that
// output had gone out before it.
func classify(f *dialect.Failure, code int, content bool) *said {
	s := &said{message: f.Message, code: code, state: ServerError, reason: "server_error"}
	text := strings.ToLower(f.Type + " " + f.Message)
	switch {
	case has(text, workerLostWords):
		s.state, s.reason = WorkerLost, "engine_dead"
	case code >= 400 && code < 500 && code != 429:
		s.state, s.reason = InvalidRequest, httpReason(code)
	case has(text, oomWords):
		s.state, s.reason = OOM, "out_of_memory"
	case code == 503 && content:
		s.reason = "client_backlog" // bytes that the client did not take, in mid-stream
	case code == 429 || code == 503 || has(text, admissionWords):
		s.state, s.reason = AdmissionRejected, httpReason(code)
	case code == 504:
		s.state, s.reason = DeadlineExceeded, "upstream"
	case code >= 500 && has(text, deadlineWords):
		s.state, s.reason = DeadlineExceeded, byText
	case code >= 500:
		s.reason = httpReason(code)
	case code != 0:
	case has(f.Word, admissionCodes):
		s.state, s.reason = AdmissionRejected, f.Word
	case has(f.Word, invalidCodes):
		s.state, s.reason = InvalidRequest, f.Word
	case f.Type == "invalid_request_error" && !f.Internal():
		s.state, s.reason = InvalidRequest, f.Type
	case has(text+" "+strings.ToLower(f.Word), deadlineWords) && !strings.Contains(text, "idle"): // an idle client's time is no deadline
		s.state, s.reason = DeadlineExceeded, byText
	}
	return s
}

func has(text string, words []string) bool {
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

func httpReason(code int) string {
	if code == 0 {
		return "error_event"
	}
	return "http_" + itoa(code)
}
