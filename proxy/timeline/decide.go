package timeline

import (
	"strconv"

	"github.com/omnitap/omnitap/proxy/timeline/waveform"
)

func itoa(n int) string { return strconv.Itoa(n) }

// End is how one side of a connection ended.
type End uint8

// Ends of a side.
const (
	Open End = iota
	FIN
	RST
	// Cut: the capture or the relay's observation stops here.
	Cut
)

func (e End) String() string {
	return [...]string{"open", "fin", "rst", "cut"}[e]
}

// closing is how the connection of an exchange ended, as far as it had ended
// before the exchange was over.
type closing struct {
	client, server     End
	clientAt, serverAt int64
	// clientGone says that the client's socket refused bytes after its FIN.
	clientGone bool
	// order: 1 when the client's end came first, 2 the server's, 0 neither.
	first int
	// harness is a failure of our own: its reason and errno.
	harness, errno string
	// upstream is a failure to reach the server.
	upstream string
	shutdown bool
	// lost is a framing error of the answer.
	lost string
	// other is a framing error or gap that is ours or the client's.
	unread string
	// The close frame of a WebSocket that came before anything else ended it:
	// 1 the client's, 2 the server's, 0 none.
	frameBy, frameCode int
	frameAt            int64
	frameReason        string
	left               int64 // when the client said that it leaves
	over               bool  // the server said that the session is over
	aborted            int64 // when the relay cut it because of a deadline
	// propagated is when the client's end had been passed on to the server.
	propagated int64
	// pingTimeout says that who closed had waited for a pong in vain.
	pingTimeout bool
	// How the server broke the WebSocket protocol: a word, and what it was.
	badReason, badFrames string
}

// facts is all that decide looks at.
type facts struct {
	status             int
	complete           bool // the answer's framing ended well
	marker             bool // the flow's end marker came
	markerDue          bool // the flow has one
	finish             bool // a reason for the end came
	said               *said
	close              closing
	owes               owes
	text, audio, other bool // what came: text, playable or countable sound, anything else that counts
	noBody             bool
	trouble            []trouble
	findings           []waveform.Finding // of the checks on the sound
	failed             []string           // those that failed
	begun              bool               // response bytes came
	unreadable         bool               // the body could not be looked into
	ambiguous          bool               // the answer declares its length in two ways
	truncated          bool               // a part of the body was not looked into
	tunnel             bool               // the connection became a tunnel
	interrupted        bool               // the user cut the turn off
	unknownSound       bool               // what may be sound came in events that are not known
}

// decide names the terminal state by the precedence of contract section 5, with
// the evidence that one connection gives.
func decide(f *facts) (state State, reason, by string) {
	switch {
	case f.close.harness != "":
		return HarnessError, f.close.harness, "relay"
	case f.said != nil:
		return f.said.state, f.said.reason, "server"
	case f.tunnel:
		return tunnelEnd(&f.close)
	case f.interrupted:
		return ClientCancelled, "interrupted", "client"
	case f.ambiguous:
		return InvalidOutput, "ambiguous_framing", "server"
	case f.marker:
		return judge(f)
	}
	if f.close.badFrames != "" {
		return InvalidOutput, f.close.badReason, "server"
	}
	if !f.complete {
		return cutShort(f)
	}
	return judge(f)
}

// tunnelEnd names the end of a connection that is timed as a plain one.
func tunnelEnd(c *closing) (state State, reason, by string) {
	switch {
	case c.harness != "":
		return HarnessError, c.harness, "relay"
	case c.upstream != "":
		return TransportError, c.upstream, "server"
	case c.server == RST && c.first == 2:
		return TransportError, "reset", "server"
	case c.client == RST && c.first == 1:
		return ClientCancelled, "client_reset", "client"
	case c.shutdown:
		return HarnessError, "proxy_shutdown", "relay"
	}
	return Success, "tunnel_closed", [...]string{"unknown", "client", "server"}[c.first]
}

// cutShort names the end of an answer that did not come to its own end.
func cutShort(f *facts) (state State, reason, by string) {
	c := &f.close
	switch {
	case c.upstream != "":
		return TransportError, c.upstream, "server"
	case c.lost != "":
		return TransportError, c.lost, "server"
	case c.unread != "" && !c.shutdown: // its end may lie in what was not seen: nobody else is blamed
		return HarnessError, "analysis_incomplete", "relay"
	case c.left != 0:
		return ClientCancelled, "client_closed", "client"
	case c.over:
		return endedWithout(f)
	case c.frameBy != 0:
		return closedByFrame(f)
	case c.first == 1 && c.client == RST:
		return ClientCancelled, "client_reset", "client"
	case c.first == 1 && (c.clientGone || c.server == RST):
		return ClientCancelled, "client_closed", "client"
	case c.first == 1:
		return ClientCancelled, "half_closed", "client"
	case c.shutdown:
		return HarnessError, "proxy_shutdown", "relay"
	case c.server == RST && !f.begun:
		return TransportError, "reset_before_answer", "server"
	case c.server == RST:
		return TransportError, "reset", "server"
	case c.server == FIN && !f.begun:
		return TransportError, "closed_before_answer", "server"
	case c.server == FIN:
		return TransportError, "cut", "server"
	case c.server == Cut || c.client == Cut:
		return HarnessError, "capture_ends", "unknown"
	}
	return HarnessError, "unfinished", "unknown"
}

// endedWithout names the end of a turn that the server left in good order and
// without its end.
func endedWithout(f *facts) (state State, reason, by string) {
	if !f.text && !f.audio && !f.other {
		return InvalidOutput, "no_output", "server"
	}
	return InvalidOutput, "missing_terminal", "server"
}

// closedByFrame names the end of a turn that a close frame cut short (RFC 6455
// section 7.4.1).
func closedByFrame(f *facts) (state State, reason, by string) {
	c := &f.close
	if c.frameBy == 1 {
		if c.pingTimeout {
			return WorkerLost, "ping_timeout", "server"
		}
		return ClientCancelled, "client_closed", "client"
	}
	reason = "close_" + itoa(c.frameCode)
	switch c.frameCode {
	case 0, 1000:
		return endedWithout(f)
	case 1011:
		if c.pingTimeout {
			return ClientCancelled, "ping_timeout", "client"
		}
		return ServerError, reason, "server"
	case 1001, 1012, 1014:
		return TransportError, reason, "server"
	case 1013:
		return AdmissionRejected, reason, "server"
	case 1002, 1003, 1007, 1008, 1009, 1010:
		return InvalidRequest, reason, "server"
	}
	return ServerError, reason, "server"
}

// judge looks at an answer that came to its end.
func judge(f *facts) (state State, reason, by string) {
	if f.unreadable { // a status alone proves nothing, and the body could not be read
		return HarnessError, "not_analysed", "relay"
	}
	nothing := !f.text && !f.audio && !f.other
	if f.truncated && (nothing || f.owes.audio && !f.audio) {
		return HarnessError, "not_analysed", "relay" // it may lie in what was not looked into
	}
	if f.markerDue && !f.marker && !f.finish {
		if nothing {
			return InvalidOutput, "no_output", "server"
		}
		return InvalidOutput, "missing_terminal", "server"
	}
	if len(f.trouble) > 0 {
		return InvalidOutput, f.trouble[0].reason, "server"
	}
	switch {
	case f.noBody || f.status < 200 || f.status > 299:
	case f.owes.audio && !f.audio && f.unknownSound:
		return HarnessError, "unknown_events", "relay" // it may be the sound that is owed
	case f.owes.audio && !f.audio:
		if nothing {
			return InvalidOutput, "no_output", "server"
		}
		return InvalidOutput, "no_audio", "server"
	case (f.owes.text || f.owes.either) && nothing:
		return InvalidOutput, "no_output", "server"
	}
	if len(f.failed) > 0 {
		return QualityFailed, f.failed[0], "server"
	}
	return Success, "done", "server"
}

// Phases of an exchange, as Terminal.Phase has them.
const (
	// PhaseBeforeHeaders is the phase of what nothing was answered to.
	PhaseBeforeHeaders = "before_headers"
	phaseNoContent     = "before_first_content"
	phaseContent       = "content"
	phaseDone          = "done"
)

// phase says how far an exchange had come.
func phase(f *facts) string {
	switch {
	case f.marker || f.complete:
		return phaseDone
	case !f.begun:
		return PhaseBeforeHeaders
	case !f.text && !f.audio && !f.other:
		return phaseNoContent
	}
	return phaseContent
}
