package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
)

// raw is an answer of a header and two chunks of samples.
func raw() Answer {
	return Answer{Status: 200, End: Complete, Pieces: []Piece{
		{Kind: Other, Data: []byte("HEAD"), Raw: NotRaw},
		{Kind: Audio, Data: []byte("abcd"), PCM: []byte("abcd")},
		{Kind: Audio, Data: []byte("hhefgh"), PCM: []byte("efgh"), Raw: 2},
	}}
}

// shape writes the data of pieces, halts as words.
func shape(a *Answer) []string {
	words := map[Stop]string{Pause: "<pause>", Cut: "<cut>", Reset: "<reset>", BadSize: "<bad>"}
	var out []string
	for _, p := range a.Pieces {
		s := string(p.Data)
		if p.Kind == Halt {
			s = words[p.Stop]
		}
		out = append(out, s)
	}
	return out
}

func TestDisturb(t *testing.T) {
	tests := []struct {
		faults []string
		want   []string
		pcm    string
	}{
		{nil, []string{"HEAD", "abcd", "hhefgh"}, "abcdefgh"},
		{[]string{"cut=head"}, []string{"<cut>"}, ""},
		{[]string{"cut=end"}, []string{"HEAD", "abcd", "hhefgh", "<cut>"}, "abcdefgh"},
		{[]string{"reset=after:1"}, []string{"HEAD", "abcd", "<reset>"}, "abcd"},
		{[]string{"reset=after:9"}, []string{"HEAD", "abcd", "hhefgh", "<reset>"}, "abcdefgh"},
		{[]string{"bad-chunk-size=event:1"}, []string{"HEAD", "<bad>"}, ""},
		{[]string{"cut=byte:0"}, []string{"<cut>"}, ""},
		{[]string{"cut=byte:3"}, []string{"HEA", "<cut>"}, ""},
		{[]string{"cut=byte:7"}, []string{"HEAD", "abc", "<cut>"}, "abc"},
		{[]string{"cut=byte:9"}, []string{"HEAD", "abcd", "h", "<cut>"}, "abcd"},
		{[]string{"cut=byte:11"}, []string{"HEAD", "abcd", "hhe", "<cut>"}, "abcde"},
		{[]string{"stall=byte:9"}, []string{"HEAD", "abcd", "h", "<pause>", "hefgh"}, "abcdefgh"},
		{[]string{"stall=byte:11"}, []string{"HEAD", "abcd", "hhe", "<pause>", "fgh"}, "abcdefgh"},
		{[]string{"stall=after:1", "cut=after:2"}, []string{"HEAD", "abcd", "<pause>", "hhefgh", "<cut>"}, "abcdefgh"},
		{[]string{"error=after:1"}, []string{"HEAD", "abcd", "<cut>"}, "abcd"},
		{[]string{"stall=output"}, []string{"HEAD", "abcd", "hhefgh", "<pause>"}, "abcdefgh"},
	}
	for _, tt := range tests {
		f, err := script.Compile(tt.faults)
		if err != nil {
			t.Fatal(err)
		}
		a := raw()
		a.Disturb(&f)
		if diff := cmp.Diff(tt.want, shape(&a)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tt.faults, diff)
		}
		pcm := ""
		for _, p := range a.Pieces {
			pcm += string(p.PCM)
		}
		if pcm != tt.pcm {
			t.Errorf("%v: samples %q, want %q", tt.faults, pcm, tt.pcm)
		}
	}
}

func TestDisturbBeforeTheHead(t *testing.T) {
	f, err := script.Compile([]string{"reset=start"})
	if err != nil {
		t.Fatal(err)
	}
	a := raw()
	a.Disturb(&f)
	if a.Before == nil || a.Before.Stop != Reset || len(a.Pieces) != 3 {
		t.Errorf("answer = %+v", a)
	}
	// An error that is an event cannot come before the head.
	if f, err = script.Compile([]string{"error=start"}); err != nil {
		t.Fatal(err)
	}
	a = raw()
	a.Fail = func() []Piece { return []Piece{{Data: []byte("oops")}} }
	a.Disturb(&f)
	if diff := cmp.Diff([]string{"oops"}, shape(&a)); diff != "" || a.End != Failed {
		t.Errorf("end %q (-want +got):\n%s", a.End, diff)
	}
}

func TestGenerateTimes(t *testing.T) {
	ten, five := 10.0, 5.0
	s := script.Script{
		Text: []string{"a", "b", "c"}, Samples: script.Ints{4, 2}, FirstDelayMS: &ten, AudioDelayMS: &five,
		GapMS: script.Floats{8}, TextGapMS: script.Floats{2, 30}, Tone: "ramp",
	}.WithDefaults("")
	type out struct {
		Kind Kind
		Due  time.Duration
	}
	due := func(f script.Set) []out {
		g := Generate(s, f, Wish{Text: true, Audio: true, Role: true}, 0)
		var got []out
		var now time.Duration
		for _, it := range g.Items {
			now += it.Wait
			got = append(got, out{it.Kind, now})
		}
		if now != g.Total() {
			t.Errorf("Total() = %v, want %v", g.Total(), now)
		}
		return got
	}
	const ms = time.Millisecond
	want := []out{{Role, 10 * ms}, {Text, 10 * ms}, {Text, 12 * ms}, {Audio, 15 * ms}, {Audio, 23 * ms}, {Text, 42 * ms}}
	if diff := cmp.Diff(want, due(script.Set{})); diff != "" {
		t.Errorf("times (-want +got):\n%s", diff)
	}
	want = []out{{Role, 10 * ms}, {Text, 10 * ms}, {Text, 12 * ms}, {Empty, 13500 * time.Microsecond}, {Audio, 15 * ms}, {Audio, 23 * ms}, {Text, 42 * ms}}
	if diff := cmp.Diff(want, due(script.Set{Empty: []string{"null"}})); diff != "" {
		t.Errorf("times with an empty event (-want +got):\n%s", diff)
	}
	for _, o := range due(script.Set{Burst: true}) {
		if o.Due != 0 {
			t.Errorf("burst: %v is due at %v", o.Kind, o.Due)
		}
	}
}
