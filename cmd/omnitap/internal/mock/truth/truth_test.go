package truth

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
)

func TestRecordCarriesOddBytes(t *testing.T) {
	var l Log
	r := l.Register(Truth{Channels: 1})
	data := []byte("abcdefghi")
	at := 0
	for i, n := range []int{3, 1, 0, 5} {
		p := plan.Piece{Kind: plan.Audio, PCM: data[at : at+n]}
		r.Wrote(&p, Stamp{BeforeNS: int64(10 * i), AfterNS: int64(10*i + 1)})
		at += n
	}
	r.Wrote(&plan.Piece{Kind: plan.Text, Texts: []string{"", "x"}}, Stamp{BeforeNS: 50, AfterNS: 51})
	r.Closing()
	r.Settle(func(t *Truth) { t.End = plan.Complete })
	got := l.All()[0]
	sum := sha256.Sum256(data)
	want := Truth{
		Seq: 1, Channels: 1, SamplesPerChunk: []int{1, 1, 2}, Samples: 4, SHA256: hex.EncodeToString(sum[:]),
		TextDeltas: []string{"", "x"}, Text: "x", End: plan.Complete,
		Stamps: Stamps{
			FirstText: &Stamp{50, 51}, FirstAudioEvent: &Stamp{0, 1}, FirstAudio: &Stamp{0, 1},
			Audio: []Stamp{{0, 1}, {10, 11}, {30, 31}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("truth (-want +got):\n%s", diff)
	}
}

func TestLogForgetsTheOldest(t *testing.T) {
	var l Log
	for range maxRecords + 5 {
		l.Register(Truth{})
	}
	all := l.All()
	if len(all) != maxRecords || all[0].Seq != 6 {
		t.Errorf("%d records from %d on", len(all), all[0].Seq)
	}
	l.Reset()
	if r := l.Register(Truth{}); r.Seq() != 1 {
		t.Errorf("after a reset the first is %d", r.Seq())
	}
}

func TestMonoRuns(t *testing.T) {
	if a, b := Mono(), Mono(); a <= 0 || b < a {
		t.Errorf("clock reads %d, then %d", a, b)
	}
}
