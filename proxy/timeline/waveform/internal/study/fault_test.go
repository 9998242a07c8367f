package study

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ramp has no value twice, so that it tells where each sample came from.
func ramp(n int) []int16 {
	x := make([]int16, n)
	for i := range x {
		x[i] = int16(i + 1)
	}
	return x
}

// TestSizes: a cut loses nothing, and models' chunks are whole frames.
func TestSizes(t *testing.T) {
	for _, rate := range []int{16000, 22050, 24000, 44100, 48000} {
		for _, c := range cuts() {
			n := 5*rate + 17
			sizes := c.sizes(n, rate, rand.New(rand.NewPCG(1, 1)))
			sum := 0
			for i, size := range sizes {
				sum += size
				if hop := c.hop(rate); hop > 0 && i < len(sizes)-1 && size%hop != 0 {
					t.Errorf("%s at %d: chunk %d has %d samples, the hop is %d", c.name, rate, i, size, hop)
				}
			}
			if sum != n || slices.Min(sizes) < 1 {
				t.Errorf("%s at %d: chunks of %d samples together, want %d", c.name, rate, sum, n)
			}
			if hop := float64(c.frame(rate)) * c.perSecond; c.perSecond > 0 && hop != float64(rate) {
				t.Errorf("%s at %d: frames do not fill a second", c.name, rate)
			}
		}
	}
	if got, want := cuts()[15].sizes(20000, 16000, nil), []int{1280, 2560, 5120, 10240, 800}; !slices.Equal(got, want) {
		t.Errorf("growing chunks: %d, want %d", got, want)
	}
}

// TestPieces: streams are whole sound in order, of the lengths that answers have.
func TestPieces(t *testing.T) {
	x := ramp(60000)
	var n int
	for _, p := range pieces(x, 1000, rand.New(rand.NewPCG(1, 2))) {
		if len(p) < 4000 || len(p) > 12000 {
			t.Errorf("a piece of %d samples", len(p))
		}
		if p[0] != x[n] {
			t.Errorf("a piece begins with sample %d, want %d", p[0], x[n])
		}
		n += len(p)
	}
	if left := len(x) - n; left >= 4000 {
		t.Errorf("%d samples are left out", left)
	}
}

// TestFaultsAreWhatTheySay: the spoilt stream is what the fault, its amount and
// its place make of the whole one, and the whole one is left alone.
func TestFaultsAreWhatTheySay(t *testing.T) {
	const rate, n = 8000, 8000*4 + 300
	x := ramp(n)
	for _, f := range faults() {
		for _, k := range []int{1, 7, 100, 555} {
			for seed := range uint64(20) {
				s := stream{rate: rate, x: slices.Clone(x), sizes: slices.Concat(slices.Repeat([]int{1600}, 20), []int{300})}
				chunks, at, ok := f.spoil(s, k, rand.New(rand.NewPCG(seed, 3)))
				if !ok { // the last chunk is too small
					continue
				}
				got := slices.Concat(chunks...)
				if want := wanted(x, f.name, k, at); f.single && !slices.Equal(got, want) {
					t.Fatalf("%s of %d at %d: %d samples, want %d, or others", f.name, k, at, len(got), len(want))
				}
				if want := n + grows(f.name, k, len(s.sizes)-1, n/rate); !f.single && len(got) != want {
					t.Errorf("%s of %d: %d samples, want %d", f.name, k, len(got), want)
				}
				if !slices.Equal(s.x, x) {
					t.Fatalf("%s of %d changed the whole stream", f.name, k)
				}
			}
		}
	}
}

// wanted is what a fault at one place makes.
func wanted(x []int16, name string, k, at int) []int16 {
	switch name {
	case "lost-border":
		return slices.Concat(x[:at-k], x[at:])
	case "lost-inside":
		return slices.Concat(x[:at], x[at+k:])
	case "again-border", "again-inside":
		return slices.Concat(x[:at], x[at-k:])
	case "chunk-again":
		return slices.Concat(x[:min(len(x), at+1600)], x[at:])
	case "zeros-border":
		return slices.Concat(x[:at], make([]int16, k), x[at:])
	}
	return nil
}

// grows is by how many samples a fault at many places lengthens the stream.
func grows(name string, k, borders, seconds int) int {
	switch name {
	case "lost-borders":
		return -k * borders
	case "lost-scattered":
		return -k * seconds
	}
	return k * borders
}

// TestOverlapAtEachBorder: each chunk begins with what the whole one before it
// ended with, not with what was put ahead of that.
func TestOverlapAtEachBorder(t *testing.T) {
	s := stream{rate: 1, x: ramp(9), sizes: []int{3, 3, 3}}
	got, _, _ := eachBorder(overlap)(s, 2, nil)
	if want := [][]int16{{1, 2, 3}, {2, 3, 4, 5, 6}, {5, 6, 7, 8, 9}}; !cmp.Equal(got, want) {
		t.Errorf("overlaps: %d, want %d", got, want)
	}
}

// TestTooSmall: a fault that a chunk has no room for is none.
func TestTooSmall(t *testing.T) {
	s := stream{rate: 100, x: ramp(400), sizes: []int{100, 100, 100, 100}}
	for _, f := range faults() {
		if _, _, ok := f.spoil(s, 100, rand.New(rand.NewPCG(1, 4))); ok && f.name != "chunk-again" && f.name != "zeros-border" && f.name != "zeros-borders" {
			t.Errorf("%s of a whole chunk was put in", f.name)
		}
	}
}

func TestHeard(t *testing.T) {
	s := stream{rate: 1000, x: make([]int16, 1000)}
	for i := 500; i < 1000; i++ {
		s.x[i] = int16(100 * (i%2*2 - 1))
	}
	for at, want := range map[int]bool{0: false, 480: false, 500: true, 999: true} {
		if got := s.heard(at); got != want {
			t.Errorf("heard(%d) = %t, want %t", at, got, want)
		}
	}
}
