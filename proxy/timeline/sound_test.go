package timeline

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/proxy/timeline/waveform"
	"github.com/omnitap/omnitap/proxy/wire/audio"
)

// hear feeds samples to a detector and returns the frame it found, -1 for none.
func hear(v []float64, rate int) int64 {
	a := newAudible(-60, rate)
	for i, s := range v {
		a.value(s, place{1, int64(i + 1)})
	}
	if !a.found {
		return -1
	}
	if a.at.off != a.atFrame+1 {
		panic("place and frame differ")
	}
	return a.atFrame
}

func join(parts ...[]float64) []float64 { return slices.Concat(parts...) }

func level(n int, v float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = v
	}
	return out
}

func sine(n int, hz, amplitude, offset float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = offset + amplitude*math.Sin(2*math.Pi*hz*float64(i)/24000)
	}
	return out
}

func noise(n int, rms, offset float64) []float64 {
	r := rand.New(rand.NewPCG(1, 2))
	out := make([]float64, n)
	for i := range out {
		out[i] = offset + rms*r.NormFloat64()
	}
	return out
}

func TestAudible(t *testing.T) {
	const third = 7920 // 330 ms at 24 kHz
	db := func(d float64) float64 { return math.Pow(10, d/20) }
	loud := sine(4800, 440, 0.4, 0)
	for _, v := range []struct {
		name string
		in   []float64
		want int64
		slop int64
	}{
		{"at once", loud, 1, 0},
		{"behind digital silence", join(level(third, 0), loud), third + 1, 0},
		{"behind a noise floor of -65 dBFS", join(noise(third, db(-65), 0), loud), third + 1, 24},
		{"behind a constant offset", join(level(third, 800.0/32768), sine(4800, 440, 0.4, 800.0/32768)), third + 1, 0},
		{"behind noise on an offset", join(noise(third, db(-70), 800.0/32768), sine(4800, 440, 0.4, 800.0/32768)), third + 1, 24},
		{"a click of 3 ms does not end it", join(level(third/2, 0), sine(72, 1000, 0.5, 0), level(third/2-72, 0), loud), third + 1, 0},
		{"silence", level(third, 0), -1, 0},
		{"an offset alone", level(third, 0.3), -1, 0},
		{"dither", noise(third, 0.6/32768, 0), -1, 0},
		{"a click alone", join(level(third, 0), sine(72, 1000, 0.5, 0), level(third, 0)), -1, 0},
		{"too short to be heard", sine(100, 440, 0.4, 0), -1, 0},
		{"a slow ramp from below", func() []float64 {
			out := make([]float64, 4800)
			for i := range out {
				out[i] = (float64(i) - 9000) / 32768
			}
			return out
		}(), 0, 0},
	} {
		t.Run(v.name, func(t *testing.T) {
			if got := hear(v.in, 24000); got < v.want-v.slop || got > v.want+v.slop {
				t.Errorf("first audible frame %d, want %d within %d", got, v.want, v.slop)
			}
		})
	}
}

// TestSampleValues: full scale and zero of every encoding.
func TestSampleValues(t *testing.T) {
	f32, f64b := make([]byte, 4), make([]byte, 8)
	binary.LittleEndian.PutUint32(f32, math.Float32bits(-0.5))
	binary.LittleEndian.PutUint64(f64b, math.Float64bits(0.25))
	nan := make([]byte, 4)
	binary.LittleEndian.PutUint32(nan, math.Float32bits(float32(math.NaN())))
	for _, v := range []struct {
		e    audio.Encoding
		in   []byte
		want float64
	}{
		{audio.S16LE, []byte{0x00, 0x80}, -1},
		{audio.S16BE, []byte{0x40, 0x00}, 0.5},
		{audio.U8, []byte{0x80}, 0},
		{audio.U8, []byte{0}, -1},
		{audio.S24LE, []byte{0, 0, 0x40}, 0.5},
		{audio.S24BE, []byte{0xC0, 0, 0}, -0.5},
		{audio.S32LE, []byte{0, 0, 0, 0x80}, -1},
		{audio.S32BE, []byte{0x40, 0, 0, 0}, 0.5},
		{audio.F32LE, f32, -0.5},
		{audio.F64LE, f64b, 0.25},
		{audio.F32LE, nan, 0},
		{audio.ULaw, []byte{0xFF}, 0},
		{audio.ULaw, []byte{0x00}, -32124.0 / 32768},
		{audio.ALaw, []byte{0xD5}, 8.0 / 32768},
		{audio.ALaw, []byte{0x2A}, -32256.0 / 32768},
	} {
		if got := sample(v.in, v.e); got != v.want {
			t.Errorf("sample(%x, %s) = %v, want %v", v.in, v.e, got, v.want)
		}
	}
}

func TestPlayback(t *testing.T) {
	// 100 ms of sound each; the third comes 150 ms late
	in := []arrival{{0, .1}, {100, .1}, {350, .1}, {400, .1}}
	got := playback(in, in)
	want := &Playback{
		Underruns: 1, StallMS: 150, LongestStallMS: 150, MinPrebufferMS: 150,
		Continuity: map[string]bool{"0": false, "50": false, "100": false, "200": true},
		VLLMOmni:   &VLLMContinuity{MaxLateMS: 150, OK: false},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got := playback(in[:1], in[:1]); got.VLLMOmni != nil || got.Underruns != 0 || !got.Continuity["0"] {
		t.Errorf("one arrival: %+v", got)
	}
	// a stall moves the rest: the fourth chunk is not late again for ours, but is for vLLM-Omni's definition
	in = []arrival{{0, .1}, {300, .1}, {400, .1}}
	if got := playback(in, in); got.Underruns != 1 || got.StallMS != 200 || got.VLLMOmni.MaxLateMS != 200 {
		t.Errorf("%+v", got)
	}
}

// TestPrebufferIsEnough: with the smallest head start nothing runs dry, with a
// little less something does.
func TestPrebufferIsEnough(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		in := []arrival{{0, .08}}
		for range 20 {
			in = append(in, arrival{in[len(in)-1].ms + 160*r.Float64(), .02 + .16*r.Float64()})
		}
		need := minPrebuffer(in)
		if n, _, _ := player(in, need+1e-9); n != 0 {
			t.Fatalf("underruns with the smallest prebuffer %v", need)
		}
		if n, _, _ := player(in, need-1); need > 1 && n == 0 {
			t.Fatalf("no underrun with less than the smallest prebuffer %v", need)
		}
	}
}

func TestGaps(t *testing.T) {
	var c []chunk
	for _, ms := range []int64{0, 10, 30, 60} {
		c = append(c, chunk{mono: ms * 1e6})
	}
	g := gaps(c)
	if g.N != 3 || g.P50 != 20 || g.Max != 30 || math.Abs(g.CV-math.Sqrt(200.0/3)/20) > 1e-12 {
		t.Errorf("%+v", g)
	}
	if gaps(c[:1]) != nil {
		t.Error("one chunk has no gap")
	}
}

// pcm turns values into s16le.
func pcm(v []float64) []byte {
	out := make([]byte, 0, 2*len(v))
	for _, s := range v {
		out = binary.LittleEndian.AppendUint16(out, uint16(int16(math.Round(s*32767))))
	}
	return out
}

// chunked gives a sound in chunks of so many frames, each without its last lost.
func chunked(v []float64, frames, lost int) *sound {
	cfg := Config{}.WithDefaults()
	s := newSound(&cfg, func() int64 { return 1 })
	s.track.Declared = audio.Raw
	s.track.Begin()
	off := int64(1)
	for i := 0; i+frames <= len(v); i += frames {
		b := pcm(v[i : i+frames-lost])
		s.begin()
		s.track.Write(b, audio.Pos{Off: off, Wire: true})
		off += int64(len(b))
		s.end(off - 1)
	}
	s.track.End()
	return s
}

// failures lists the checks that a whole sound fails.
func failures(s *sound) []string { return named(s.findings(true, 0), waveform.Failed) }

// TestBorders: samples lost at every border show, and whole sound does not,
// whatever the sound.
func TestBorders(t *testing.T) {
	speech := make([]float64, 96000) // voiced: harmonics under a moving envelope, with breath
	r := rand.New(rand.NewPCG(5, 6))
	for i := range speech {
		x := float64(i) / 24000
		for h := 1; h <= 12; h++ {
			speech[i] += math.Sin(2*math.Pi*float64(h)*(120*x+3*math.Sin(2*math.Pi*x))) / float64(h)
		}
		speech[i] = speech[i]*0.15*(0.6+0.4*math.Sin(2*math.Pi*3*x)) + 0.004*r.NormFloat64()
	}
	for _, v := range []struct {
		name string
		in   []float64
		find bool // a loss of 55 samples must show
	}{
		{"sine", sine(96000, 440, 0.36, 0), true},
		{"ramp", func() []float64 {
			out := make([]float64, 96000)
			for i := range out {
				out[i] = float64(i%20001-10000) / 32767
			}
			return out
		}(), true},
		{"noise", noise(96000, 0.1, 0), false},
		{"speech", speech, false},
		{"silence", level(96000, 0), false},
	} {
		for _, frames := range []int{480, 1920, 2400, 9600} {
			t.Run(fmt.Sprintf("%s/%d", v.name, frames), func(t *testing.T) {
				allowed := []string{}
				if v.name == "silence" {
					allowed = []string{"silence"}
				}
				if got := failures(chunked(v.in, frames, 0)); !slices.Equal(got, allowed) {
					t.Errorf("false alarm: %q", got)
				}
				if got := failures(chunked(v.in, frames, 55)); v.find && !slices.Contains(got, "border_jumps") {
					t.Errorf("missed: %q", got)
				}
			})
		}
	}
}

// TestSteadyToneIsNoRepeat: equal chunks side by side are content.
func TestSteadyToneIsNoRepeat(t *testing.T) {
	s := chunked(sine(24000, 500, 0.3, 0), 2400, 0)
	if got := failures(s); len(got) != 0 {
		t.Errorf("failed %v", got)
	}
}

// TestWholeFrames: a frame may be cut by a border, and must be whole in the end.
func TestWholeFrames(t *testing.T) {
	for _, c := range []struct {
		name  string
		sizes []int
		fails bool
		split float64
	}{
		{"whole", []int{480, 960}, false, 0},
		{"cut at two borders", []int{481, 960, 481, 2}, false, 2},
		{"odd", []int{480, 481}, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := Config{}.WithDefaults()
			s := newSound(&cfg, func() int64 { return 1 })
			s.track.Begin()
			p := pcm(sine(2000, 440, .3, 0))
			for _, n := range c.sizes {
				s.begin()
				s.track.Write(p[:n], audio.Pos{})
				s.end(1)
				p = p[n:]
			}
			s.track.End()
			f := s.wholeFrames(true)
			if (f.Verdict == waveform.Failed) != c.fails || *f.Measured != c.split || (len(s.trouble(true)) > 0) != c.fails {
				t.Errorf("%+v, measured %g, trouble %+v", f, *f.Measured, s.trouble(true))
			}
			if f := s.wholeFrames(false); f.Verdict != waveform.NotMeasured {
				t.Errorf("of a stream that was cut: %+v", f)
			}
		})
	}
}
