package waveform

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/proxy/wire/audio"
)

const rate = 24000

var mono16 = audio.Format{Encoding: audio.S16LE, Rate: rate, Channels: 1}

// voice is a signal with what speech has: a gliding fundamental with harmonics,
// syllables, noise, pauses of silence between words.
func voice(n int, seed uint64) []float64 {
	r := rand.New(rand.NewPCG(seed, 1))
	x := make([]float64, n)
	phase, f0 := 0.0, 120.0
	for i := range x {
		t := float64(i) / rate
		f0 += r.NormFloat64() * .02
		f0 = min(max(f0, 80), 260)
		phase += 2 * math.Pi * f0 / rate
		env := math.Max(0, math.Sin(2*math.Pi*3.1*t+1)) * math.Max(0, math.Sin(2*math.Pi*.41*t+.4))
		v := 0.0
		for h := 1; h <= 12; h++ {
			v += math.Sin(float64(h)*phase) / float64(h)
		}
		x[i] = env*(.22*v+.02*r.NormFloat64()) + 1e-4*r.NormFloat64()
	}
	return x
}

func tone(n int, hz, level float64) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = level * math.Sin(2*math.Pi*hz*float64(i)/rate)
	}
	return x
}

func noise(n int, level float64, seed uint64) []float64 {
	r := rand.New(rand.NewPCG(seed, 2))
	x := make([]float64, n)
	for i := range x {
		x[i] = level * r.NormFloat64()
	}
	return x
}

func s16(x []float64) []byte {
	var b []byte
	for _, v := range x {
		b = binary.LittleEndian.AppendUint16(b, uint16(int16(math.Round(max(-1, min(v, 32767./32768))*32768))))
	}
	return b
}

func zeros(n int) []float64 { return make([]float64, n) }

func join(x ...[]float64) []float64 { return slices.Concat(x...) }

// cut makes chunks of n values.
func cut(x []float64, n int) [][]float64 { return slices.Collect(slices.Chunk(x, n)) }

// look runs chunks of s16le through a Stream.
func look(cfg Config, chunks ...[]float64) map[string]Finding {
	s := New(cfg)
	s.Format(mono16, rate)
	for _, c := range chunks {
		s.Begin()
		s.Samples(s16(c))
		s.End()
	}
	return byName(s.Findings(true))
}

func byName(list []Finding) map[string]Finding {
	m := map[string]Finding{}
	for _, f := range list {
		m[f.Name] = f
	}
	return m
}

// fails wants just these checks to fail.
func fails(t *testing.T, got map[string]Finding, want ...string) {
	t.Helper()
	var names []string
	for name, f := range got {
		if f.Verdict == Failed {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if !slices.Equal(names, want) {
		t.Errorf("failed: %q, want %q", names, want)
		for _, name := range names {
			t.Logf("%s: %s", name, got[name].Reason)
		}
	}
}

// TestCleanSoundPasses: whole sound fails no check, however it is cut.
func TestCleanSoundPasses(t *testing.T) {
	for name, x := range map[string][]float64{
		"voice": voice(6*rate, 1), "another voice": voice(6*rate, 7), "noise": noise(3*rate, .2, 1), "quiet noise": noise(3*rate, .003, 2),
		"tone of a whole period": tone(3*rate, 1000, .5), "tone": tone(3*rate, 441.3, .5), "low tone": tone(3*rate, 31, .8),
		"full scale": tone(2*rate, 700, 1), "a pause": join(voice(rate, 3), zeros(3*rate), voice(rate, 4)),
	} {
		for _, n := range []int{480, 1920, 3840, 4800, 18645, 1<<20 + 1} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) { fails(t, look(Config{}, cut(x, n)...)) })
		}
	}
}

// TestEachCheckFindsItsFault: each with the place and the amount.
func TestEachCheckFindsItsFault(t *testing.T) {
	v := voice(8*rate, 5)
	lossy := func(k int) [][]float64 { // each chunk but the last lacks its last k
		c := cut(tone(4*rate, 220, .5), 19200)
		for i := range c[:len(c)-1] {
			c[i] = c[i][:len(c[i])-k]
		}
		return c
	}
	again := cut(v[rate:], 1920)
	again = slices.Insert(again, 21, again[20])
	double := cut(v[rate:], 4800)
	double[10] = join(double[9][len(double[9])-300:], double[10])
	odd := cut(v[:4*rate], 3*1920)
	odd[5] = odd[5][:len(odd[5])-555]
	for !loudAt(v, 9*1920) { // the one break must be where something is heard
		v = v[240:]
	}
	one := cut(v[:19*1920], 1920)
	one[8] = one[8][:1920-700]
	hole := slices.Clone(v[:4*rate])
	for i := range 600 {
		hole[9*1920+i] = 0
	}
	square := tone(rate, 100, 1)
	for i := range square {
		square[i] = max(-.9, min(.9, square[i]*3)) / .9
	}
	for _, c := range []struct {
		name     string
		cfg      Config
		chunks   [][]float64
		check    string
		chunk    int
		sample   int64
		measured float64
	}{
		{"555 samples lost at each border", Config{Hop: 1920}, lossy(555), "border_jumps", 1, 19200 - 555, 1},
		{"555 samples lost at one border, in hops", Config{Hop: 1920}, odd, "chunk_hops", 5, 5 * 3 * 1920, 1},
		{"700 samples lost at one border", Config{}, one, "border_break", 9, 9*1920 - 700, 0},
		{"600 samples blanked", Config{}, cut(hole, 4800), "dropout", 3, 9 * 1920, 1},
		{"300 samples twice", Config{}, double, "border_overlap", 10, 48000, 300},
		{"a chunk twice", Config{}, again, "repeated_chunk", 21, 21 * 1920, 1},
		{"a silent start", Config{}, [][]float64{zeros(6 * rate), tone(rate, 300, .5)}, "leading_silence", 0, 0, 6},
		{"a hole", Config{}, [][]float64{tone(rate, 300, .5), zeros(6 * rate), tone(rate, 300, .5)}, "inner_silence", 0, rate, 6},
		{"a silent tail", Config{}, [][]float64{tone(rate, 300, .5), noise(30*rate, 1e-4, 3)}, "trailing_silence", 0, rate, 30},
		{"clipped", Config{}, [][]float64{tone(rate, 100, .5), square}, "clipping", 1, 0, .4},
		{"an offset", Config{}, [][]float64{offsetBy(noise(rate, .01, 9), .2)}, "dc_offset", 0, 0, .2},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := look(c.cfg, c.chunks...)
			fails(t, got, c.check)
			f := got[c.check]
			if f.Chunk == nil || f.Measured == nil || f.Threshold == nil || f.Reason == "" {
				t.Fatalf("finding %+v lacks something", f)
			}
			if *f.Chunk != c.chunk || c.sample > 0 && math.Abs(float64(*f.Sample-c.sample)) > 120 {
				t.Errorf("at chunk %d, sample %d; want %d, %d", *f.Chunk, *f.Sample, c.chunk, c.sample)
			}
			if c.measured > 0 && math.Abs(*f.Measured-c.measured) > .1*c.measured {
				t.Errorf("measured %g, want about %g (%s)", *f.Measured, c.measured, f.Reason)
			}
		})
	}
}

// loudAt reports whether values around i are clearly heard.
func loudAt(x []float64, i int) bool {
	return math.Abs(x[i]) > .05 && math.Abs(x[i-1]) > .05 && math.Abs(x[i+599]) > .05 && math.Abs(x[i+600]) > .05 && math.Abs(x[i-701]-x[i]) > .1
}

func offsetBy(x []float64, d float64) []float64 {
	for i := range x {
		x[i] += d
	}
	return x
}

// TestAmountAtBorders: the amount is told where the hop is known, and only there.
func TestAmountAtBorders(t *testing.T) {
	c := cut(tone(4*rate, 220, .5), 19200)
	for i := range c[:len(c)-1] {
		c[i] = c[i][:len(c[i])-555]
	}
	known, unknown := look(Config{Hop: 1920}, c...)["border_jumps"], look(Config{}, c...)["border_jumps"]
	if want := "1365 samples beyond whole hops of 1920: it lacks 555"; !strings.Contains(known.Reason, want) || strings.Contains(unknown.Reason, "lacks") {
		t.Errorf("with the hop: %q; without: %q", known.Reason, unknown.Reason)
	}
	c = cut(tone(4*rate, 220, .5), 19200)
	c[len(c)-1] = c[len(c)-1][:len(c[len(c)-1])-555] // a last chunk may be short (case C21)
	fails(t, look(Config{Hop: 1920}, c...))
}

// TestOverlapsOfAnyLength: an overlap is found whatever its length, also one that
// begins in a pause, and a pause over a border is none.
func TestOverlapsOfAnyLength(t *testing.T) {
	v := voice(6*rate, 11)[rate/2:]
	for _, k := range []int{16, 17, 64, 333, 1000, 2000, 2048} {
		c := cut(v, 4800)
		i := 1
		for math.Abs(c[i][0]) < .05 { // where something is heard
			i++
		}
		c[i] = join(c[i-1][len(c[i-1])-k:], c[i])
		if f := look(Config{}, c...)["border_overlap"]; f.Verdict != Failed || *f.Measured != float64(k) || *f.Chunk != i {
			t.Errorf("%d samples twice: %+v", k, f)
		}
	}
	for math.Abs(v[4800]) < .05 || math.Abs(v[4700]) < .05 {
		v = v[100:]
	}
	for i := range 400 { // sound fades, or the pause is a hole
		v[4799-i] *= float64(i) / 400
	}
	quiet := join(v[:4800], zeros(1500), v[4800:9600])
	pause := [][]float64{quiet[:4800+700], quiet[4800+700:]}
	fails(t, look(Config{}, pause...))
	if f := look(Config{}, pause...)["border_overlap"]; f.Verdict != Passed {
		t.Errorf("a pause over a border: %+v", f)
	}
	again := [][]float64{quiet[:4800+900], join(quiet[4800-300:4800+900], quiet[4800+900:])}
	if f := look(Config{}, again...)["border_overlap"]; f.Verdict != Failed || *f.Measured != 1200 {
		t.Errorf("a pause with 300 samples ahead of it, twice: %+v", f)
	}
}

// TestNotFinite: NaN and infinity are found in float samples, and spoil no other check.
func TestNotFinite(t *testing.T) {
	f := audio.Format{Encoding: audio.F32LE, Rate: rate, Channels: 2}
	s := New(Config{})
	s.Format(f, rate)
	x := tone(rate, 300, .5)
	for i, c := range cut(x, 4800) {
		var b []byte
		for j, v := range c {
			if i == 2 && j == 77 {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(math.NaN())))
				continue
			}
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(-v)))
		}
		s.Begin()
		s.Samples(b)
		s.End()
	}
	got := byName(s.Findings(true))
	fails(t, got, "finite")
	if f := got["finite"]; *f.Chunk != 2 || *f.Sample != 2*4800+77 {
		t.Errorf("at chunk %d, sample %d", *f.Chunk, *f.Sample)
	}
}

// TestNothingIsNotMeasured: without samples, or with some that are not decoded,
// nothing passes.
func TestNothingIsNotMeasured(t *testing.T) {
	for _, f := range []audio.Format{{}, mono16, {Encoding: "opus", Channels: 1}} {
		s := New(Config{})
		if f.Encoding != "" {
			s.Format(f, rate)
		}
		s.Begin()
		if f.Encoding == "opus" {
			s.Samples([]byte("OggS"))
		}
		s.End()
		list := s.Findings(true)
		if len(list) != len(Names()) {
			t.Errorf("%d findings", len(list))
		}
		for _, f := range list {
			if f.Verdict != NotMeasured || f.Reason == "" {
				t.Errorf("%+v", f)
			}
		}
	}
}

// TestOff: checks that are off pass nothing.
func TestOff(t *testing.T) {
	for name, f := range look(Config{Off: true}, voice(rate, 1), zeros(9*rate)) {
		if f.Verdict != NotMeasured || f.Reason != "the checks are off" {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// TestNamesAreFindings: each check has its finding, sorted.
func TestNamesAreFindings(t *testing.T) {
	s := New(Config{})
	s.Format(mono16, rate)
	s.Begin()
	s.Samples(s16(voice(rate, 1)))
	s.End()
	var names []string
	for _, f := range s.Findings(false) {
		names = append(names, f.Name)
		if f.Verdict == NotMeasured && f.Reason == "" {
			t.Errorf("%s gives no reason", f.Name)
		}
	}
	if !slices.Equal(names, Names()) {
		t.Errorf("findings %q, names %q", names, Names())
	}
}

// FuzzCuts: the findings do not depend on how the bytes of a chunk are cut.
func FuzzCuts(f *testing.F) {
	f.Add(s16(voice(500, 1)), uint8(1), uint8(0), uint64(1))
	f.Add(s16(tone(300, 1000, 1)), uint8(2), uint8(1), uint64(2))
	f.Add([]byte{0, 0, 0xc0, 0x7f, 0, 0, 0x80, 0x7f}, uint8(1), uint8(2), uint64(3))
	encodings := []audio.Encoding{audio.S16LE, audio.U8, audio.F32LE, audio.S24BE, audio.ULaw, audio.ALaw, audio.F64LE, audio.S32BE}
	f.Fuzz(func(t *testing.T, p []byte, channels, encoding uint8, seed uint64) {
		format := audio.Format{Encoding: encodings[int(encoding)%len(encodings)], Rate: 8000, Channels: 1 + int(channels)%3}
		run := func(pieces func([]byte) [][]byte) []Finding {
			s := New(Config{Hop: 7})
			s.Format(format, 8000)
			for c := range slices.Chunk(p, 197) {
				s.Begin()
				for _, q := range pieces(c) {
					s.Samples(q)
				}
				s.End()
			}
			return s.Findings(true)
		}
		whole := run(func(b []byte) [][]byte { return [][]byte{b} })
		r := rand.New(rand.NewPCG(seed, 3))
		pieces := run(func(b []byte) (out [][]byte) {
			for len(b) > 0 {
				n := 1 + r.IntN(min(len(b), 9))
				out, b = append(out, b[:n]), b[n:]
			}
			return out
		})
		if !reflect.DeepEqual(whole, pieces) {
			t.Errorf("findings differ:\n%+v\n%+v", whole, pieces)
		}
	})
}

// BenchmarkStream tells what a sample frame costs, all checks on.
func BenchmarkStream(b *testing.B) {
	for name, x := range map[string][]float64{"voice": voice(2400*50, 1), "noise": noise(2400*50, .1, 1), "tone": tone(2400*50, 1000, .5), "silence": zeros(2400 * 50)} {
		for _, chunk := range []int{480, 1920, 9600} {
			b.Run(fmt.Sprintf("%s/%d", name, chunk), func(b *testing.B) {
				p := s16(x)
				s := New(Config{})
				s.Format(mono16, rate)
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					for c := range slices.Chunk(p, 2*chunk) {
						s.Begin()
						s.Samples(c)
						s.End()
						n += len(c) / 2
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/frame")
			})
		}
	}
}

// TestStateIsBounded: a stream's state does not grow with it.
func TestStateIsBounded(t *testing.T) {
	const bound = 20 << 10
	if size := reflect.TypeFor[Stream]().Size(); size > bound {
		t.Errorf("a stream takes %d bytes, want at most %d", size, bound)
	}
	s := New(Config{})
	s.Format(mono16, rate)
	x := s16(voice(4800, 1))
	if n := testing.AllocsPerRun(200, func() {
		s.Begin()
		s.Samples(x)
		s.End()
	}); n > 0 {
		t.Errorf("%g allocations a chunk, want none", n)
	}
}

// FuzzDropout: holes are the same, however the bytes are cut and whichever way they
// are read.
func FuzzDropout(f *testing.F) {
	f.Add([]byte{1, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 7}, uint8(3))
	f.Add(append(append([]byte{0, 0, 5, 5}, make([]byte, 30)...), 9, 9, 0, 0), uint8(8))
	f.Fuzz(func(t *testing.T, p []byte, cut uint8) {
		p = p[:len(p)&^1]
		for i := range p {
			if p[i]&3 == 0 { // many zeros
				p[i] = 0
			}
		}
		want, got, pieces := dropout{most: 40}, dropout{most: 40}, dropout{most: 40}
		want.add(values(make([]int16, len(p)/2), p), place{})
		got.addMono(p, place{})
		size := 2 * (int(cut)%40 + 1)
		for i := 0; i < len(p); i += size {
			pieces.addMono(p[i:min(len(p), i+size)], place{0, int64(i / 2)})
		}
		for name, d := range map[string]dropout{"whole": got, "cut": pieces} {
			if d.holes != want.holes || d.zeros != want.zeros || d.longest != want.longest {
				t.Errorf("%s: %+v, want %+v", name, d, want)
			}
		}
	})
}

// FuzzMeasure: a quick look at values finds what a close one does, as far as it is
// asked for.
func FuzzMeasure(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{0xff, 0x7f, 1, 0, 0, 0x80, 0xff, 0x3f, 0, 0x40, 0xff, 0xbf, 0, 0xc0})
	f.Fuzz(func(t *testing.T, p []byte) {
		p = p[:len(p)&^1]
		if len(p) == 0 {
			return
		}
		got, want := measureMono(p), measure(values(make([]int16, len(p)/2), p))
		clips := func(s stats) bool { return s.low <= -full || s.high >= full }
		zero := func(s stats) bool { return s.low == 0 && s.high == 0 }
		if got.n != want.n || got.sum != want.sum || got.sq != want.sq || clips(got) != clips(want) || zero(got) != zero(want) {
			t.Errorf("%x: %+v, want %+v", p, got, want)
		}
	})
}
