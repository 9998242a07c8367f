// Package plan decides what the mock sends and when, without a clock and
// without a connection: first a Generation, the text and the samples in the
// order in which the engine gives them out, then an Answer, the pieces of a
// body in a wire format. Faults are edits of these lists. The wire formats
// themselves are in package mock, the sending in package wire.
package plan

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/tone"
)

// Kind is what an Item or a Piece is.
type Kind uint8

// The kinds of items and pieces.
const (
	Other Kind = iota
	Role
	Text
	Audio
	Empty   // an audio event without samples
	Comment // an SSE comment
	Body    // verbatim body bytes
	End     // the end marker
	Halt    // not bytes but an act: cut, reset, stall
)

// Chunk is the audio of one item.
type Chunk struct {
	// PCM is s16le, interleaved.
	PCM []byte
	// Rate and Channels are as declared, which faults may make a lie.
	Rate, Channels int
	// N counts chunks from 1.
	N int
}

// Item is one thing that the engine hands to the front end.
type Item struct {
	Kind Kind
	// Wait is the time after the item before it.
	Wait time.Duration
	// Text is a delta, a comment, body bytes, or the form of an empty event.
	Text  string
	Audio Chunk
}

// Generation is what the engine makes of one request: no wire format yet.
type Generation struct {
	Items []Item
	// Clean is the length of the signal in sample frames before faults.
	Clean int
}

// Wish is what the request asks for.
type Wish struct {
	Text, Audio bool
	// Role asks for the role-only item that some servers send.
	Role bool
}

// Generate makes the items of an answer. It is pure: time is only planned.
func Generate(s script.Script, f script.Set, w Wish, seed uint64) Generation {
	w.Text, w.Audio = w.Text && !f.NoText, w.Audio && !f.NoAudio
	var g Generation
	if len(s.Steps) > 0 {
		g, w.Role = fromSteps(s, f, seed), false
	} else {
		g = fromSchedule(s, f, w, seed)
	}
	if f.Role != nil {
		w.Role = *f.Role
	}
	if w.Role {
		g.addRole()
	}
	g.addEmpty(f.Empty)
	if f.Burst {
		for i := range g.Items {
			g.Items[i].Wait = 0
		}
	}
	return g
}

func fromSchedule(s script.Script, f script.Set, w Wish, seed uint64) Generation {
	type timed struct {
		Item
		due time.Duration
		n   int
	}
	var texts, sounds []timed
	first := s.FirstDelay()
	due := first
	if w.Text {
		for i, t := range s.Text {
			if i > 0 {
				due += s.TextGap(i - 1)
			}
			texts = append(texts, timed{Item{Kind: Text, Text: t}, due, i})
		}
	}
	due = first
	if len(texts) > 0 {
		if s.Order == "text-first" {
			due = texts[len(texts)-1].due
		}
		if s.Order != "audio-first" {
			due += s.AudioDelay()
		}
	}
	var g Generation
	if w.Audio {
		var chunks []Chunk
		chunks, g.Clean = sound(s, f, s.Frames(), seed)
		for i, c := range chunks {
			if i > 0 {
				due += s.Gap(i - 1)
			}
			sounds = append(sounds, timed{Item{Kind: Audio, Audio: c}, due, i})
		}
		if s.Order == "audio-first" {
			for i := range texts {
				texts[i].due += due - first
			}
		}
	}
	all := slices.Concat(texts, sounds)
	switch s.Order {
	case "audio-first":
		all = slices.Concat(sounds, texts)
	case "interleaved":
		slices.SortStableFunc(all, func(a, b timed) int {
			return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.n, b.n), cmp.Compare(a.Kind, b.Kind))
		})
	}
	now := time.Duration(0)
	for _, t := range all {
		t.Wait = max(0, t.due-now)
		now += t.Wait
		g.Items = append(g.Items, t.Item)
	}
	return g
}

func fromSteps(s script.Script, f script.Set, seed uint64) Generation {
	var lengths []int
	for _, st := range s.Steps {
		if st.Samples > 0 {
			lengths = append(lengths, st.Samples)
		}
	}
	chunks, clean := sound(s, f, lengths, seed)
	g := Generation{Clean: clean}
	for _, st := range s.Steps {
		it := Item{Wait: script.Millis(st.WaitMS)}
		switch {
		case st.Text != nil:
			it.Kind, it.Text = Text, *st.Text
		case st.Samples > 0:
			it.Kind, it.Audio = Audio, chunks[0]
			chunks = chunks[1:]
		case st.Empty != "":
			it.Kind, it.Text, it.Audio = Empty, st.Empty, Shape(s, f, 1)
		case st.Role:
			it.Kind = Role
		case st.Comment != "":
			it.Kind, it.Text = Comment, st.Comment
		default:
			it.Kind, it.Text = Body, st.Body+string(st.Base64)
		}
		g.Items = append(g.Items, it)
	}
	for _, c := range chunks { // whole-repeat adds one
		g.Items = append(g.Items, Item{Kind: Audio, Audio: c})
	}
	return g
}

// Shape declares rate and channels of chunk n.
func Shape(s script.Script, f script.Set, n int) Chunk {
	c := Chunk{Rate: s.Rate, Channels: s.Channels, N: n}
	if f.WrongRate > 0 {
		c.Rate = f.WrongRate
	}
	if from := f.RateChange[0]; from > 0 && n >= from {
		c.Rate = f.RateChange[1]
	}
	if from := f.ChannelChange[0]; from > 0 && n >= from {
		c.Channels = f.ChannelChange[1]
	}
	return c
}

// sound makes the signal and cuts it into chunks, faults included. It returns
// the length of the signal in frames before faults.
func sound(s script.Script, f script.Set, lengths []int, seed uint64) ([]Chunk, int) {
	total := 0
	for _, n := range lengths {
		total += n
	}
	frames := func(v float64) int { return min(total, int(v*float64(s.Rate)/1000)) }
	signal := tone.Samples(tone.Spec{
		Kind: s.Tone, Rate: s.Rate, Channels: s.Channels, Frames: total,
		Lead: frames(s.LeadMS), Tail: frames(s.TailMS), LeadDB: s.LeadDB, TailDB: s.TailDB,
		DC: s.DC, Click: frames(s.ClickMS), Seed: seed,
	})
	frame := 2 * s.Channels
	chunks := make([]Chunk, 0, len(lengths)+1)
	at := 0
	for i, n := range lengths {
		c := Shape(s, f, i+1)
		from, to := at, at+n*frame
		at = to
		lost := f.Lost
		if i == len(lengths)-1 {
			lost = f.LostTail
		}
		to = max(from, to-lost*frame)
		if i > 0 {
			from = max(0, from-f.Repeat*frame)
		}
		if f.Cumulative {
			from = 0
		}
		c.PCM = signal[from:to:to]
		chunks = append(chunks, c)
	}
	if n := len(chunks); f.WholeRepeat && n > 0 {
		c := Shape(s, f, n+1)
		c.PCM = signal
		chunks = append(chunks, c)
	}
	if n := len(chunks); f.OddBytes && n > 0 {
		chunks[n-1].PCM = append(chunks[n-1].PCM, 0x55)
	}
	return chunks, total
}

// addRole puts a role-only item before the first text, or first of all where
// there is none.
func (g *Generation) addRole() {
	i := max(0, slices.IndexFunc(g.Items, func(it Item) bool { return it.Kind == Text }))
	role := Item{Kind: Role}
	if i < len(g.Items) {
		role.Wait, g.Items[i].Wait = g.Items[i].Wait, 0
	}
	g.Items = slices.Insert(g.Items, i, role)
}

// addEmpty puts audio events without samples before the first audio; they
// share its wait.
func (g *Generation) addEmpty(forms []string) {
	i := slices.IndexFunc(g.Items, func(it Item) bool { return it.Kind == Audio })
	if i < 0 || len(forms) == 0 {
		return
	}
	wait := g.Items[i].Wait / time.Duration(len(forms)+1)
	g.Items[i].Wait = wait
	shape := g.Items[i].Audio
	shape.PCM = nil
	for _, form := range slices.Backward(forms) {
		g.Items = slices.Insert(g.Items, i, Item{Kind: Empty, Wait: wait, Text: form, Audio: shape})
	}
}

// Total is the time that the whole generation takes.
func (g *Generation) Total() time.Duration {
	var d time.Duration
	for _, it := range g.Items {
		d += it.Wait
	}
	return d
}

// Text joins the text deltas.
func (g *Generation) Text() string {
	var b strings.Builder
	for _, it := range g.Items {
		if it.Kind == Text {
			b.WriteString(it.Text)
		}
	}
	return b.String()
}

// PCM joins the samples.
func (g *Generation) PCM() []byte {
	var out []byte
	for _, it := range g.Items {
		out = append(out, it.Audio.PCM...)
	}
	return out
}

// Count is the number of items of a kind.
func (g *Generation) Count(k Kind) int {
	n := 0
	for _, it := range g.Items {
		if it.Kind == k {
			n++
		}
	}
	return n
}
