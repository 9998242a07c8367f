package twin

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/proxy/wire/audio"
)

const testRate = 24000

func TestCompare(t *testing.T) {
	x := speech(seeded(1), 6*testRate, testRate)
	other := speech(seeded(2), 6*testRate, testRate)
	quiet := make([]int16, testRate)
	take := func(x ...[]int16) Take { return s16(slices.Concat(x...), testRate) }
	for _, v := range []struct {
		name   string
		came   Take
		one    bool
		breaks []Break
	}{
		{"the same", take(x), true, nil},
		{"another take", take(other), false, nil},
		{"noise", take(noise(6 * testRate)), false, nil},
		{"silence", take(quiet, quiet, quiet), false, nil},
		{"end cut off", take(x[:5*testRate]), true, []Break{{Frame: 5 * testRate, Missing: testRate}}},
		{"12 samples short at the end", take(x[:len(x)-12]), true, []Break{{Frame: int64(len(x) - 12), Missing: 12}}},
		{"more behind the end", take(x, x[testRate:testRate+777]), true, []Break{{Frame: int64(len(x)), Missing: -777}}},
		{"sent again whole", take(x, x), true, []Break{{Frame: int64(len(x)), Missing: -6 * testRate}}},
		{"start cut off", take(x[1000:]), true, []Break{{Frame: 0, Missing: 1000}}},
		{"silence ahead", take(quiet[:9000], x), true, []Break{{Frame: 0, Missing: -9000}}},
		{"two seconds lost", take(x[:2*testRate], x[4*testRate:]), true, []Break{{Frame: 2 * testRate, Missing: 2 * testRate}}},
		{"cut close to the end", take(x[:len(x)-900], x[len(x)-600:]), true, []Break{{Frame: int64(len(x) - 900), Missing: 300}}},
		{"changed close to the end", take(x[:len(x)-644], other[:501], x[len(x)-143:]), true, []Break{{Frame: int64(len(x) - 644), Changed: 501}}},
		{"one sample lost", take(x[:70001], x[70002:]), true, []Break{{Frame: 70001, Missing: 1}}},
		{"half a second of another", take(x[:70000], other[:12000], x[82000:]), true, []Break{{Frame: 70000, Changed: 12000}}},
	} {
		t.Run(v.name, func(t *testing.T) {
			c := Compare(v.came, take(x))
			if c.OneTake != v.one {
				t.Fatalf("one take: %v, aligned %.3f, matched %d of %d", c.OneTake, c.Aligned, c.Matched, c.Came)
			}
			near := cmp.Comparer(func(a, b Break) bool { // equal samples on both sides of a break
				return apart(int(a.Frame), int(b.Frame)) <= 6 && a.Missing == b.Missing && apart(int(a.Changed), int(b.Changed)) <= 12
			})
			if d := cmp.Diff(v.breaks, c.Breaks, near); d != "" {
				t.Errorf("breaks (-want +got):\n%s", d)
			}
			if v.one && c.MaxError > 2*same {
				t.Errorf("pieces that agree differ by %v at %d", c.MaxError, c.MaxErrorAt)
			}
		})
	}
}

// TestLostAtEveryChunk: issue 1354 of SGLang-Omni, 555 samples of each chunk.
func TestLostAtEveryChunk(t *testing.T) {
	x := speech(seeded(3), 10*19200, testRate)
	var came []int16
	for i := 0; i < len(x); i += 19200 {
		came = append(came, x[i:i+19200-555]...)
	}
	c := Compare(s16(came, testRate), s16(x, testRate))
	if !c.OneTake || c.BreakCount != 10 || len(c.Breaks) != maxBreaks || c.BreakSamples != 5550 {
		t.Fatalf("one take %v, %d breaks of %d samples: %v", c.OneTake, c.BreakCount, c.BreakSamples, c.Breaks)
	}
	for i, b := range c.Breaks {
		if want := int64(i+1) * 18645; b.Missing != 555 || b.Frame < want || b.Frame > want+4 {
			t.Errorf("break %d: %v, want 555 missing at %d", i, b, want)
		}
	}
}

func TestWholeLag(t *testing.T) {
	x := speech(seeded(4), 3*testRate, testRate)
	for _, lag := range []int{0, 1, 480, 11999, -1, -777, -12000} {
		came := s16(x, testRate)
		if lag > 0 {
			came = s16(x[lag:], testRate)
		} else if lag < 0 {
			came = s16(append(make([]int16, -lag), x...), testRate)
		}
		c := Compare(came, s16(x, testRate))
		if c.Lag != lag || c.Correlation < 0.9999 {
			t.Errorf("lag %d, want %d; correlation %v", c.Lag, lag, c.Correlation)
		}
		if lag == 0 && c.Unshifted != c.Correlation {
			t.Errorf("at lag 0 %v, want %v", c.Unshifted, c.Correlation)
		}
	}
}

// TestEncodings: the same values in another encoding are the same take.
func TestEncodings(t *testing.T) {
	x := speech(seeded(5), testRate, testRate)
	encode := map[audio.Encoding]func([]byte, int16) []byte{
		audio.S16BE: func(p []byte, v int16) []byte { return binary.BigEndian.AppendUint16(p, uint16(v)) },
		audio.S32LE: func(p []byte, v int16) []byte { return binary.LittleEndian.AppendUint32(p, uint32(v)<<16) },
		audio.F32LE: func(p []byte, v int16) []byte {
			return binary.LittleEndian.AppendUint32(p, math.Float32bits(float32(v)/32768))
		},
		audio.F64LE: func(p []byte, v int16) []byte {
			return binary.LittleEndian.AppendUint64(p, math.Float64bits(float64(v)/32768))
		},
		audio.S24LE: func(p []byte, v int16) []byte { return append(p, 0, byte(v), byte(v>>8)) },
	}
	for e, f := range encode {
		var p []byte
		for _, v := range x {
			p = f(p, v)
		}
		c := Compare(Take{Format: audio.Format{Encoding: e, Rate: testRate, Channels: 1}, Samples: p}, s16(x, testRate))
		if !c.OneTake || c.MaxError != 0 || c.BreakCount != 0 {
			t.Errorf("%s: %+v", e, c)
		}
	}
}

// TestChannels: where both takes have two, the second one counts.
func TestChannels(t *testing.T) {
	x := speech(seeded(6), 2*testRate, testRate)
	var both []int16
	for _, v := range x {
		both = append(both, v, v)
	}
	stereo := s16(both, testRate)
	stereo.Format.Channels = 2
	wrong := slices.Clone(both)
	wrong[2*5000+1] ^= 1 << 10
	bad := s16(wrong, testRate)
	bad.Format.Channels = 2
	if c := Compare(bad, stereo); c.MaxErrorAt != 5000 || c.MaxError < 0.03 || c.Came != 2*testRate {
		t.Errorf("the second channel: %+v", c)
	}
	if c := Compare(s16(x, testRate), stereo); !c.OneTake || c.MaxError != 0 {
		t.Errorf("one channel and two: %+v", c)
	}
}

func TestNotComparable(t *testing.T) {
	x := s16(speech(seeded(7), testRate, testRate), testRate)
	half := x
	half.Format.Rate, half.Samples = testRate/2, x.Samples[:len(x.Samples)/2]
	if c := Compare(x, half); c.Why == "" || c.Difference != 0 {
		t.Errorf("other rates: %+v", c)
	}
	undeclared := x
	undeclared.Format.Rate = 0
	if c := Compare(undeclared, x); c.Why != "" || !c.OneTake {
		t.Errorf("a rate that only one take declares: %+v", c)
	}
	for _, none := range []Take{{}, {Format: x.Format}, {Samples: []byte{1, 2}}} {
		if c := Compare(x, none); c.Why == "" {
			t.Errorf("no twin: %+v", c)
		}
	}
	if c := Compare(Take{Format: x.Format}, x); c.Why == "" || c.Share != 1 {
		t.Errorf("no stream: %+v", c)
	}
}

// TestNonsenseDoesNotFail: values that are no numbers, tiny takes, odd rates.
func TestNonsenseDoesNotFail(t *testing.T) {
	for _, rate := range []int{1, 8000, 1 << 24} {
		for _, n := range []int{1, 2, 63, 500, 3000} {
			p := make([]byte, 0, 4*n)
			for i := range n {
				v := []float32{float32(math.NaN()), float32(math.Inf(1)), 1e38, 0}[i%4]
				p = binary.LittleEndian.AppendUint32(p, math.Float32bits(v))
			}
			a := Take{Format: audio.Format{Encoding: audio.F32LE, Rate: rate, Channels: 1}, Samples: p}
			b := s16(noise(n), rate)
			for _, pair := range [][2]Take{{a, b}, {b, a}, {a, a}, {b, b}} {
				c := Compare(pair[0], pair[1])
				for _, f := range Check(Config{}, c) {
					if f.Measured != nil && (math.IsNaN(*f.Measured) || math.IsInf(*f.Measured, 0)) {
						t.Errorf("%d Hz, %d frames: %+v", rate, n, f)
					}
				}
			}
			if c := Compare(b, b); n >= 63 && (!c.OneTake || c.BreakCount > 0) {
				t.Errorf("%d Hz, %d frames of one take: %+v", rate, n, c)
			}
		}
	}
}

// TestFaintNoiseIsOneTake: a server whose numbers are not exact gives one take, with
// its largest error, and cuts in it are found all the same.
func TestFaintNoiseIsOneTake(t *testing.T) {
	rnd := seeded(8)
	x := speech(rnd, 5*testRate, testRate)
	came := slices.Clone(x)
	for i := range came {
		came[i] += int16(rnd.IntN(41) - 20)
	}
	c := Compare(s16(came, testRate), s16(x, testRate))
	if !c.OneTake || c.BreakCount != 0 || c.MaxError > 21.0/32768 || c.MaxError < 19.0/32768 {
		t.Errorf("faint noise: %+v", c)
	}
	c = Compare(s16(slices.Concat(came[:60000], came[60555:]), testRate), s16(x, testRate))
	if c.BreakCount != 1 || c.Breaks[0].Missing != 555 || apart(int(c.Breaks[0].Frame), 60000) > 40 {
		t.Errorf("a cut in faint noise: %+v", c)
	}
}

// TestLongTakesAreBounded: only the first two minutes are compared.
func TestLongTakesAreBounded(t *testing.T) {
	x := speech(seeded(9), 130*8000, 8000)
	c := Compare(s16(x[:125*8000], 8000), s16(x, 8000))
	if c.Compared != 120*8000 || !c.OneTake || c.BreakCount != 0 {
		t.Errorf("%+v", c)
	}
}

func noise(n int) []int16 {
	rnd, x := rand.New(rand.NewPCG(99, 1)), make([]int16, n)
	for i := range x {
		x[i] = int16(rnd.NormFloat64() * 3000)
	}
	return x
}

func BenchmarkCompare(b *testing.B) {
	for _, v := range []struct {
		name    string
		rate, s int
		other   bool
	}{{"same 10 s at 24 kHz", 24000, 10, false}, {"other 10 s at 24 kHz", 24000, 10, true}, {"same 120 s at 48 kHz", 48000, 120, false}, {"other 120 s at 48 kHz", 48000, 120, true}} {
		b.Run(v.name, func(b *testing.B) {
			x := s16(speech(seeded(1), v.s*v.rate, v.rate), v.rate)
			y := x
			if v.other {
				y = s16(speech(seeded(2), v.s*v.rate, v.rate), v.rate)
			}
			b.ReportAllocs()
			for b.Loop() {
				Compare(x, y)
			}
		})
	}
	b.Run("555 lost of each of 13 chunks", func(b *testing.B) {
		x := speech(seeded(3), 13*19200, testRate)
		var came []int16
		for i := 0; i < len(x); i += 19200 {
			came = append(came, x[i:i+19200-555]...)
		}
		one, two := s16(came, testRate), s16(x, testRate)
		for b.Loop() {
			Compare(one, two)
		}
	})
}

func ExampleBreak_String() {
	fmt.Println(Break{Frame: 18645, Missing: 555})
	fmt.Println(Break{Frame: 19200, Missing: -480})
	// Output:
	// 555 samples missing at frame 18645
	// 480 samples put in at frame 19200
}
