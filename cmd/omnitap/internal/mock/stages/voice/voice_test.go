package voice

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

func flat(seed uint64, from, n int) []int64 {
	var out []int64
	for f := from; f < from+n; f++ {
		c := Codes(seed, f)
		out = append(out, c[:]...)
	}
	return out
}

func TestCodesAreReadBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		seed, frame := rng.Uint64(), rng.IntN(maxFrames)
		c := Codes(seed, frame)
		s, f, err := Read(c[:])
		if err != nil || s != seed || f != frame {
			t.Fatalf("Read(Codes(%d, %d)) = %d, %d, %v", seed, frame, s, f, err)
		}
		c[rng.IntN(Codebooks)] ^= 1
		if _, _, err := Read(c[:]); err == nil {
			t.Fatalf("a wrong code of frame %d is not seen", frame)
		}
	}
}

// However the frames are cut into chunks, the samples are those planned.
func TestChunksJoin(t *testing.T) {
	const seed, frames = 77, 61
	want := Planned(seed, frames)
	if len(want) != 2*(frames*FrameSamples-FirstShort) {
		t.Fatalf("%d bytes planned", len(want))
	}
	for _, size := range []int{1, 4, 25, frames} {
		var got []byte
		for at := 0; at < frames; at += size {
			bf, err := Decode(flat(seed, at, min(size, frames-at)))
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, PCM(bf)...)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("chunks of %d frames: %d bytes that differ from the %d planned", size, len(got), len(want))
		}
	}
}

// No stretch of a frame comes twice, in one voice or in two, and no border clicks.
func TestVoiceNeverRepeats(t *testing.T) {
	seen := map[string]bool{}
	for _, seed := range []uint64{1, 2, 3} {
		pcm := Planned(seed, 200)
		last, loud := 0, 0
		for i := 0; i+1 < len(pcm); i += 2 {
			v := int(int16(binary.LittleEndian.Uint16(pcm[i:])))
			if d := v - last; i > 0 && (d > 9000 || d < -9000) {
				t.Fatalf("seed %d: a step of %d at sample %d", seed, d, i/2)
			}
			last, loud = v, max(loud, v)
		}
		if loud < 8000 {
			t.Errorf("seed %d: peak %d", seed, loud)
		}
		for ; len(pcm) >= 2*FrameSamples; pcm = pcm[2*FrameSamples:] {
			k := string(pcm[:2*FrameSamples])
			if seen[k] {
				t.Fatalf("seed %d repeats a frame", seed)
			}
			seen[k] = true
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	gap := append(flat(1, 0, 2), flat(1, 3, 1)...)
	other := append(flat(1, 0, 2), flat(2, 2, 1)...)
	for name, codes := range map[string][]int64{"gap": gap, "other seed": other, "part of a frame": flat(1, 0, 1)[:5]} {
		if _, err := Decode(codes); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if CheckFrames(0) == nil || CheckFrames(maxFrames+1) == nil || CheckFrames(1) != nil {
		t.Error("CheckFrames lets a wrong length pass or refuses 1")
	}
}

func BenchmarkDecode25(b *testing.B) {
	codes := flat(5, 4, 25)
	for b.Loop() {
		if _, err := Decode(codes); err != nil {
			b.Fatal(err)
		}
	}
}

// TestSamples: the count is that of what is planned.
func TestSamples(t *testing.T) {
	for _, frames := range []int{1, 4, 5, 29, 60} {
		if got, want := Samples(frames), len(Planned(7, frames))/2; got != want {
			t.Errorf("%d frames: %d samples, want %d", frames, got, want)
		}
	}
}
