package study

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// preface is the head of the report; what follows is made from the counts.
const preface = `# How good the checks on samples are

` + "`make quality-study`" + ` wrote this file: do not edit it. It makes a corpus of sound (%s; %s), cuts it as models cut theirs, and runs the checks of this package over it: once whole, and once for each fault with the fault put in. ` + "`make test-quality`" + ` holds the checks to the margins in ` + "`internal/study/study_test.go`" + `.

How to read it: a stream is 4 to 12 s of one file, and a cut ` + "`4 × 12.5/s`" + ` has 4 frames a chunk of a model that makes 12.5 frames a second. Speech comes from a synthesizer with formants, not from people and not from a neural model; ` + "`speech-lowpass`" + ` and ` + "`speech-8k`" + ` stand for vocoders that lack the treble, white noise for the worst case, where each sample comes as a surprise. A fault counts as found when a check failed that had not failed on the same stream without it. Low numbers are meant as they stand.

`

// Markdown is the report.
func (r *Result) Markdown() string {
	var b strings.Builder
	var seconds float64
	for _, s := range r.Sounds {
		seconds += s.Seconds
	}
	fmt.Fprintf(&b, preface, fmt.Sprintf("%.0f minutes", seconds/60), r.Tools)
	b.WriteString("## Corpus\n\n")
	r.corpus(&b)
	b.WriteString("## False alarms\n\nStreams failed an hour of whole sound that the check judged, over all cuts; `-` where it judged nothing. Every other stream is judged with the model's hop known.\n\n")
	r.alarmTable(&b, "kind", func(a Alarm) string { return a.Kind }, r.kinds())
	r.alarmTable(&b, "cut", func(a Alarm) string { return a.Cut }, cutNames())
	b.WriteString("## Thresholds\n\nThe largest value that whole sound reached, by kind of sound, beside the threshold of the check; the units are those of the check's documentation (seconds of silence, shares of full scale or of samples, ratios of breaks, samples of an overlap). The margin between the two is why the threshold is where it is; `-` where nothing was measured.\n\n")
	r.thresholds(&b)
	b.WriteString("Where checks failed most: failed of judged streams.\n\n")
	r.worst(&b)
	b.WriteString("## Faults found\n\nPer cent of the streams; `a/b` is without and with the model's hop known, where that differs; `-` where chunks are too small for the fault. For faults at one place only places that are heard count (-60 dB of full scale within 10 ms); the last column has those in silence.\n\n")
	for _, f := range faults() {
		r.faultTable(&b, f)
	}
	b.WriteString("## Which check finds it\n\nPer cent of the streams of all kinds of speech, where heard.\n\n")
	r.byCheck(&b, false)
	r.byCheck(&b, true)
	b.WriteString("## By cut\n\nPer cent of the streams of all kinds of speech, where heard, hop not known.\n\n")
	r.byCut(&b)
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// table writes a Markdown table and an empty line.
func table(b *strings.Builder, head []string, rows [][]string) {
	line := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	line(head)
	line(slices.Repeat([]string{"---"}, len(head)))
	for _, cells := range rows {
		line(cells)
	}
	b.WriteString("\n")
}

func (r *Result) kinds() []string {
	var out []string
	for _, s := range r.Sounds {
		if !slices.Contains(out, s.Kind) {
			out = append(out, s.Kind)
		}
	}
	return out
}

func cutNames() []string {
	var out []string
	for _, c := range cuts() {
		out = append(out, c.name)
	}
	return out
}

func (r *Result) corpus(b *strings.Builder) {
	var rows [][]string
	for _, kind := range r.kinds() {
		var seconds float64
		var rates []int
		for _, s := range r.Sounds {
			if s.Kind == kind {
				seconds += s.Seconds
				rates = append(rates, s.Rate)
			}
		}
		slices.Sort(rates)
		rates = slices.Compact(rates)
		rows = append(rows, []string{kind, fmt.Sprintf("%.1f", seconds/60), strings.Trim(fmt.Sprint(rates), "[]")})
	}
	table(b, []string{"kind", "minutes", "rates in Hz"}, rows)
}

// share is a in per cent of b.
func share(a, b int) string {
	switch p := 100 * float64(a) / float64(b); {
	case b == 0:
		return "-"
	case p > 0 && p < 1, p > 99 && p < 100:
		return strconv.FormatFloat(p, 'f', 1, 64)
	default:
		return strconv.FormatFloat(p, 'f', 0, 64)
	}
}
