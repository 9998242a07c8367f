package timeline

import (
	"fmt"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/proxy/wire/audio"
	"github.com/omnitap/omnitap/proxy/wire/dialect"
)

// notes adds flags and warnings.
func (b *Builder) notes(r *Record, f *facts) {
	if f.markerDue && b.complete && !f.marker && f.finish {
		b.Flag("missing_done")
	}
	if f.marker && (b.family == dialect.Chat || b.family == dialect.Completion) && !b.finish && b.said == nil {
		b.Flag("missing_finish_reason")
	}
	if f.marker && !b.complete && b.turn == nil {
		b.Flag("cut_after_terminal")
	}
	if b.waited > int64(b.cfg.SlowClientMS)*1e6 {
		b.Flag("client_slow")
	}
	if b.slow {
		b.Flag("relay_lag")
	}
	if b.limits.stalled || b.limits.told && b.state != Success {
		b.Flag("audio_stall")
	}
	if b.limits.late && b.state != DeadlineExceeded {
		b.Flag("deadline_passed")
	}
	if b.multi {
		b.Flag("multiple_choices")
	}
	if b.failedItems > 0 {
		b.Flag("items_failed")
	}
	if b.snd != nil && r.Audio != nil {
		b.soundNotes()
		r.Warnings = append([]string{}, b.warnings...)
	}
	if f.owes.text && !f.text || len(b.request.Modalities) > 0 && slices.Contains(b.request.Modalities, "text") && !f.text && f.audio {
		b.Flag("no_text")
	}
	if has(strings.ToLower(string(b.textHead)), oomContent) {
		b.Flag("oom_suspected")
	}
	r.Flags = b.flagList()
}

// oomContent begins a text that is an error of the memory sent as content.
var oomContent = []string{"cuda out of memory", "outofmemoryerror"}

func (b *Builder) flagList() []string {
	out := append([]string{}, b.flags...)
	slices.Sort(out)
	return out
}

func (b *Builder) soundNotes() {
	s := b.snd
	if rate, _ := s.rate(); s.model > 0 && s.declaresRate() && rate != s.model { // the wire wins (case C26)
		b.Warn(fmt.Sprintf("%s says %d Hz, the configuration %d for model %s", s.rateFrom, rate, s.model, b.model))
	}
	c, _, ok := audio.ByName(b.request.Format)
	if same := c == s.container || c == audio.Opus && s.container == audio.Ogg; ok && s.container != "" && !same {
		b.Flag("format_not_as_requested")
	}
	for _, p := range s.problems {
		switch audio.Problem(p.kind) {
		case audio.RepeatedHeader, audio.ByteRateWrong:
			b.Flag(p.kind)
		default: // faults, told elsewhere
		}
	}
}
