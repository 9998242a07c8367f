package tone

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"testing"
)

func value(b []byte, i int) int { return int(int16(binary.LittleEndian.Uint16(b[2*i:]))) }

func TestHeaderIsTheServers(t *testing.T) {
	// Headers from a running vLLM-Omni 0.26.0: a chat chunk of 2400 samples
	// and the streaming header of a stereo speech answer.
	tests := []struct {
		name           string
		rate, channels int
		size           uint32
		want           string
	}{
		{"chat chunk", 24000, 1, 4800, "52494646e412000057415645666d74201000000001000100c05d000080bb00000200100064617461c0120000"},
		{"stream", 24000, 2, SizeUnknown, "52494646ffffffff57415645666d74201000000001000200c05d0000007701000400100064617461ffffffff"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for range 2 { // made, then from the cache
				h, err := Header(tt.rate, tt.channels, tt.size)
				if err != nil {
					t.Fatal(err)
				}
				if got := hex.EncodeToString(h); got != tt.want {
					t.Errorf("Header() = %s, want %s", got, tt.want)
				}
			}
		})
	}
}

func TestSamples(t *testing.T) {
	for _, kind := range Kinds {
		s := Spec{Kind: kind, Rate: 24000, Channels: 2, Frames: 4800, Lead: 480, Tail: 240, Seed: 7}
		got := Samples(s)
		if len(got) != 4*s.Frames {
			t.Errorf("%s: %d bytes, want %d", kind, len(got), 4*s.Frames)
		}
		if !bytes.Equal(got, Samples(s)) {
			t.Errorf("%s: two calls differ", kind)
		}
		if !bytes.Equal(got[:4*480], make([]byte, 4*480)) || !bytes.Equal(got[len(got)-4*240:], make([]byte, 4*240)) {
			t.Errorf("%s: lead or tail is not silent", kind)
		}
	}
}

func TestRampEncodesTheIndex(t *testing.T) {
	got := Samples(Spec{Kind: "ramp", Rate: 8000, Channels: 1, Frames: 70000})
	for _, i := range []int{0, 1, 32767, 32768, 65535, 65536, 69999} {
		if g, w := value(got, i), int(int16(i)); g != w {
			t.Errorf("sample %d = %d, want %d", i, g, w)
		}
	}
}

func TestChirpIsSmooth(t *testing.T) {
	got := Samples(Spec{Rate: 24000, Channels: 1, Frames: 24000 * 70}) // past both turns
	for i := 1; i < len(got)/2; i++ {
		if d := value(got, i) - value(got, i-1); d > 11500 || d < -11500 {
			t.Fatalf("jump of %d at sample %d", d, i)
		}
	}
}

func TestSilenceVariants(t *testing.T) {
	s := Spec{Kind: "sine", Rate: 24000, Channels: 1, Frames: 4800, Lead: 2400, LeadDB: -65, DC: 800, Click: 1200}
	got := Samples(s)
	var sum int
	for i := range 1200 {
		sum += value(got, i)
	}
	if mean := sum / 1200; mean < 790 || mean > 810 {
		t.Errorf("mean of the lead = %d, want about 800", mean)
	}
	if v := value(got, 1210); v < amplitude {
		t.Errorf("click = %d, want above %d", v, amplitude)
	}
}

func TestCheck(t *testing.T) {
	if err := Check("speech-like"); err != nil {
		t.Error(err)
	}
	if err := Check("violin"); err == nil {
		t.Error("Check(violin) = nil, want an error")
	}
}
