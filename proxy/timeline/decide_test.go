package timeline

import (
	"testing"

	"github.com/omnitap/omnitap/proxy/wire/dialect"
)

// done is an answer of a chat stream that came to its end with text and sound.
func done() facts {
	return facts{status: 200, complete: true, marker: true, markerDue: true, finish: true, text: true, audio: true, begun: true, owes: owes{either: true}}
}

func TestDecide(t *testing.T) {
	for _, v := range []struct {
		name   string
		change func(*facts)
		state  State
		reason string
		by     string
	}{
		{"whole", func(*facts) {}, Success, "done", "server"},
		{"reason without marker, clean", func(f *facts) { f.marker = false }, Success, "done", "server"},
		{"marker without reason", func(f *facts) { f.finish = false }, Success, "done", "server"},
		{"neither, clean", func(f *facts) { f.marker, f.finish = false, false }, InvalidOutput, "missing_terminal", "server"},
		{"neither, clean, nothing", func(f *facts) { f.marker, f.finish, f.text, f.audio = false, false, false, false }, InvalidOutput, "no_output", "server"},
		{"marker alone", func(f *facts) { f.finish, f.text, f.audio = false, false, false }, InvalidOutput, "no_output", "server"},
		{"cut behind the marker", func(f *facts) { f.complete = false; f.close = closing{server: RST, first: 2} }, Success, "done", "server"},
		{"cut ahead of the marker", func(f *facts) { f.complete, f.marker = false, false; f.close = closing{server: FIN, first: 2} }, TransportError, "cut", "server"},
		{"reset", func(f *facts) { f.complete, f.marker = false, false; f.close = closing{server: RST, first: 2} }, TransportError, "reset", "server"},
		{"closed ahead of any answer", func(f *facts) {
			*f = facts{close: closing{server: FIN, first: 2}, owes: owes{either: true}}
		}, TransportError, "closed_before_answer", "server"},
		{"client leaves", func(f *facts) {
			f.complete, f.marker = false, false
			f.close = closing{client: FIN, server: FIN, first: 1}
		}, ClientCancelled, "half_closed", "client"},
		{"client leaves for good", func(f *facts) {
			f.complete, f.marker = false, false
			f.close = closing{client: RST, clientGone: true, first: 1}
		}, ClientCancelled, "client_reset", "client"},
		{"client's FIN, whole answer", func(f *facts) { f.close = closing{client: FIN, first: 1} }, Success, "done", "server"},
		{"client closes a moment after the server's reset", func(f *facts) {
			f.complete, f.marker = false, false
			f.close = closing{client: FIN, server: RST, first: 2}
		}, TransportError, "reset", "server"},
		{"the server said so ahead of the client's leaving", func(f *facts) {
			f.complete, f.marker = false, false
			f.said = &said{state: ServerError, reason: "http_500"}
			f.close = closing{client: FIN, first: 1}
		}, ServerError, "http_500", "server"},
		{"own fault over all", func(f *facts) { f.close.harness = "out_of_descriptors"; f.said = &said{state: ServerError} }, HarnessError, "out_of_descriptors", "relay"},
		{"malformed framing", func(f *facts) { f.complete, f.marker = false, false; f.close.lost = "malformed_body" }, TransportError, "malformed_body", "server"},
		{"two lengths", func(f *facts) { f.ambiguous = true }, InvalidOutput, "ambiguous_framing", "server"},
		{"relay stops", func(f *facts) { f.complete, f.marker = false, false; f.close.shutdown = true }, HarnessError, "proxy_shutdown", "relay"},
		{"bytes not looked at", func(f *facts) { f.complete, f.marker = false, false; f.close.unread = "x" }, HarnessError, "analysis_incomplete", "relay"},
		{"body not looked into", func(f *facts) { f.unreadable = true }, HarnessError, "not_analysed", "relay"},
		{"audio owed and none", func(f *facts) { f.owes, f.audio = owes{audio: true, either: true}, false }, InvalidOutput, "no_audio", "server"},
		{"audio owed, nothing at all", func(f *facts) { f.owes, f.audio, f.text = owes{audio: true}, false, false }, InvalidOutput, "no_output", "server"},
		{"undecodable over quality", func(f *facts) { f.trouble = []trouble{{"base64", ""}}; f.failed = []string{"silence"} }, InvalidOutput, "base64", "server"},
		{"quality", func(f *facts) { f.failed = []string{"silence"} }, QualityFailed, "silence", "server"},
		{"no body by rule", func(f *facts) {
			*f = facts{status: 200, complete: true, noBody: true, owes: owes{audio: true}, begun: true}
		}, Success, "done", "server"},
		{"tunnel", func(f *facts) { *f = facts{status: 101, tunnel: true, close: closing{client: FIN, first: 1}} }, Success, "tunnel_closed", "client"},
	} {
		t.Run(v.name, func(t *testing.T) {
			f := done()
			v.change(&f)
			if state, reason, by := decide(&f); state != v.state || reason != v.reason || by != v.by {
				t.Errorf("decide() = %s (%s) by %s, want %s (%s) by %s", state, reason, by, v.state, v.reason, v.by)
			}
		})
	}
}

func TestClassify(t *testing.T) {
	for _, v := range []struct {
		message, typ string
		code         int
		content      bool
		want         State
	}{
		{"boom", "InternalServerError", 500, false, ServerError},
		{"", "", 0, false, ServerError},
		{"bad", "BadRequestError", 400, false, InvalidRequest},
		{"missing", "", 404, false, InvalidRequest},
		{"slow down", "", 429, false, AdmissionRejected},
		{"The request queue is full.", "server_error", 503, false, AdmissionRejected},
		{"stream dropped", "server_error", 503, true, ServerError},
		{"The request queue is full.", "server_error", 0, false, AdmissionRejected},
		{"Dead stage process(es) detected: code2wav (pid=1, exit=-9)", "server_error", 500, true, WorkerLost},
		{"x", "EngineDeadError", 500, false, WorkerLost},
		{"fake stage 2 died", "InternalServerError", 500, true, ServerError},
		{"CUDA out of memory. Tried to allocate", "", 500, false, OOM},
		{"out of memory is not a voice", "BadRequestError", 400, false, InvalidRequest},
		{"gateway", "", 504, false, DeadlineExceeded},
		{"companion deadline passed", "", 500, false, DeadlineExceeded},
	} {
		if got := classify(&dialect.Failure{Message: v.message, Type: v.typ}, v.code, v.content); got.state != v.want {
			t.Errorf("classify(%q, %q, %d, content %v) = %s (%s), want %s", v.message, v.typ, v.code, v.content, got.state, got.reason, v.want)
		}
	}
}
