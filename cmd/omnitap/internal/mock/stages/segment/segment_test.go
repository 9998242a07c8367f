package segment

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var samples = []Payload{
	{ID: "chatcmpl-a-01234567", Prompt: []int{1, 151644}, Tokens: []int{7, 8}, Seed: 1<<63 + 5, Frames: 90, Raw: []byte("hidden")},
	{ID: "a", Chunk: 4000000000, Finished: true},
	{ID: "b_1_2", Chunk: 3, Codes: []int64{0, 2047, -1}},
}

func TestRoundTrip(t *testing.T) {
	for _, want := range samples {
		got, err := Decode(Encode(want))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("Decode(Encode(%+v)) differs (-want +got):\n%s", want, d)
		}
	}
}

// Each single wrong byte and each shorter length is seen.
func TestDamageIsSeen(t *testing.T) {
	b := Encode(samples[0])
	for i := range b {
		if _, err := Decode(b[:i]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d of %d bytes: %v", i, len(b), err)
		}
		if i >= headBytes-8 && i < headBytes-4 {
			continue // the chunk's number: any value is one
		}
		b[i] ^= 0x40
		if _, err := Decode(b); !errors.Is(err, ErrCorrupt) {
			t.Errorf("byte %d changed: %v", i, err)
		}
		b[i] ^= 0x40
	}
}

func FuzzDecode(f *testing.F) {
	for _, p := range samples {
		f.Add(Encode(p))
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Decode(b)
		if err != nil {
			return
		}
		again, err := Decode(Encode(p))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(p, again, cmpopts.EquateEmpty()); d != "" {
			t.Error(d)
		}
	})
}
