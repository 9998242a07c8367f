package timeline

import (
	"math"
	"time"
)

// limits watches what bounds an exchange in time: the user's deadline, counted
// from t_in, and how long sound may stay away once it has begun. Both are told of
// as soon as the stamps pass them, be it by a later read or by Check, and are
// stamped with the moment itself, so that a capture gives the same.
type limits struct {
	next int64 // the earliest moment at which something is due; never is none

	late  bool   // the deadline passed ahead of the end
	phase string // how far the exchange had come then
	quiet bool   // sound stayed away then

	frames  int64 // of sound that were reckoned with
	dry     int64 // when a player that never waited has nothing left; 0 ahead of t_audio
	told    bool  // audio_stall was told for the silence at hand
	stalled bool  // a silence over the limit ended
}

// never is a moment that does not come.
const never = math.MaxInt64

// Events that tell of a limit.
const (
	// EventDeadline says that a deadline passed, at its moment.
	EventDeadline = "deadline"
	eventStall    = "audio_stall"
)

// Alarm reports whether an event is for a person who watches, too: such events go
// out even where no others are wanted (Config.NoEvents). Status is the phase of the
// exchange then.
func (e *Event) Alarm() bool { return e.Event == EventDeadline || e.Event == eventStall }

// Waits reports whether the exchange's end is still to come, for all that can be
// seen: not where it has ended in some way, and not where its end could pass unseen.
func (b *Builder) Waits() bool {
	c := &b.close
	ended := b.done || b.tunnel || b.marker.mono != 0 || b.complete || b.interrupted != nil || c.upstream != "" || c.harness != "" || c.left != 0 || c.frameBy != 0 || c.aborted != 0
	return !ended && c.unread == "" && c.lost == "" && c.badFrames == "" && !b.ambiguous && b.analysis != "lost"
}

// Due returns the moment at which a limit is reached if nothing else happens, 0
// for none.
func (b *Builder) Due() int64 {
	if b.limits.next == never || !b.Waits() {
		return 0
	}
	return b.limits.next
}

// Check tells of the limits that were passed by mono, which no later read is
// older than, and reports whether the deadline has passed with the end still out.
func (b *Builder) Check(mono int64) (late bool) {
	if !b.Waits() {
		return false
	}
	b.passed(mono)
	return b.limits.late
}

// Overdue reports whether the deadline has passed with the end still out.
func (b *Builder) Overdue() bool { return b.limits.late && b.Waits() }

// Aborted notes that the relay cut the connection at mono because of a deadline:
// the exchange's own, or that of another one which shared it.
func (b *Builder) Aborted(mono int64) { b.close.aborted = mono }

// passed tells of what was due ahead of mono, in order: what comes at the last
// moment comes in time.
func (b *Builder) passed(mono int64) {
	l := &b.limits
	if b.tunnel || b.ambiguous {
		return
	}
	for l.next < mono {
		stall, deadline := b.stallDue(), b.deadlineDue()
		l.next = min(stall, deadline)
		if l.next >= mono {
			return
		}
		if stall <= deadline {
			l.told = true
			b.alarm(eventStall, stall)
			continue
		}
		l.late, l.phase = true, b.phaseNow()
		l.quiet = l.told
		b.alarm(EventDeadline, deadline)
	}
}

func (b *Builder) alarm(name string, mono int64) {
	if b.ready {
		b.send(name, place{mono, 0}, Event{Status: Text(b.phaseNow())})
	}
}

// renew reckons anew when something is due.
func (b *Builder) renew() { b.limits.next = min(b.stallDue(), b.deadlineDue()) }

func (b *Builder) stallDue() int64 {
	if l := &b.limits; l.dry != 0 && !l.told && b.cfg.AudioStallMS > 0 {
		return l.dry + int64(b.cfg.AudioStallMS)*int64(time.Millisecond)
	}
	return never
}

func (b *Builder) deadlineDue() int64 {
	if in := b.at[pIn].mono; in != 0 && !b.limits.late && b.cfg.Deadline > 0 {
		return in + int64(b.cfg.Deadline)
	}
	return never
}

// sounded notes that sound came, which ends a silence.
func (b *Builder) sounded() {
	l := &b.limits
	frames, ok := b.snd.frames()
	if b.at[pAudio].mono == 0 || !ok || frames == l.frames {
		return
	}
	limit := int64(b.cfg.AudioStallMS) * int64(time.Millisecond)
	if away := b.now - l.dry; l.dry != 0 && limit > 0 && away >= limit {
		l.stalled = true
	}
	rate, _ := b.snd.rate()
	l.told, l.dry = false, max(l.dry, b.now)+(frames-l.frames)*int64(time.Second)/int64(rate)
	l.frames = frames
	b.renew()
}

// phaseNow says how far the exchange has come.
func (b *Builder) phaseNow() string {
	switch {
	case b.marker.mono != 0 || b.complete:
		return phaseDone
	case !b.answered():
		return PhaseBeforeHeaders
	case b.textUnits == 0 && b.reasoning.Units == 0 && !b.tool && (b.snd == nil || b.snd.bytes+b.snd.opaque == 0):
		return phaseNoContent
	}
	return phaseContent
}

// phase says how far the exchange had come at its end, or at its deadline.
func (b *Builder) phase(f *facts) string {
	if b.state == DeadlineExceeded && b.limits.late {
		return b.limits.phase
	}
	return phase(f)
}

// outOfTime reports whether a state that an exchange would else have gives way to
// its deadline, by the precedence of contract section 5: what the server said and
// what is our own fault stay, and so does a worker that is lost.
func outOfTime(s State) bool {
	switch s {
	case ClientCancelled, TransportError, InvalidOutput, QualityFailed, Success:
		return true
	default:
		return false
	}
}

// inTime names the state of an exchange whose deadline, if it had one, is looked at.
func (b *Builder) inTime(f *facts, state State, reason, by string) (State, string, string) {
	b.passed(b.at[pTerm].mono)
	aborted := b.close.aborted != 0 && !f.marker && !f.complete && f.said == nil && b.close.harness == ""
	if b.close.aborted == 0 && b.at[pTerm].mono <= b.at[pIn].mono+int64(b.cfg.Deadline) { // it ended in time; what came later was no part of it
		b.limits.late = false
	}
	switch l := &b.limits; {
	case !l.late && aborted:
		return HarnessError, "aborted_with_another", "relay"
	case !l.late || !aborted && !outOfTime(state):
		return state, reason, by
	case l.quiet:
		return DeadlineExceeded, "stall_audio", "relay"
	}
	return DeadlineExceeded, "deadline", "relay"
}
