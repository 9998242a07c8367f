package audio

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// log is a Sink that writes down what it is told; sample spans are joined.
type log struct {
	out  []string
	data []byte
	at   []int64 // the place of every sample byte
	raw  int
}

func (l *log) Container(c Container) { l.out = append(l.out, "container "+string(c)) }
func (l *log) Header(h Header) {
	l.out = append(l.out, fmt.Sprintf("header %s %d Hz %d ch, data %d, %d bytes", h.Format.Encoding, h.Format.Rate, h.Format.Channels, h.DataBytes, h.Size))
}

func (l *log) Samples(p []byte, pos Pos) {
	for i := range p {
		l.data = append(l.data, p[i])
		l.at = append(l.at, pos.Plus(i).Off)
	}
}
func (l *log) Opaque(p []byte, _ Pos)      { l.raw += len(p) }
func (l *log) Problem(k Problem, _ string) { l.out = append(l.out, "problem "+string(k)) }
func chunk(id string, size int, b []byte) []byte {
	out := binary.LittleEndian.AppendUint32([]byte(id), uint32(size))
	return append(out, b...)
}

// wav makes a file; dataSize below 0 is the true size.
func wav(tag, channels, bits uint16, rate uint32, dataSize int, data []byte, before ...[]byte) []byte {
	align := channels * bits / 8
	f := binary.LittleEndian.AppendUint16(nil, tag)
	f = binary.LittleEndian.AppendUint16(f, channels)
	f = binary.LittleEndian.AppendUint32(f, rate)
	f = binary.LittleEndian.AppendUint32(f, rate*uint32(align))
	f = binary.LittleEndian.AppendUint16(f, align)
	f = binary.LittleEndian.AppendUint16(f, bits)
	out := append([]byte("WAVE"), bytes.Join(before, nil)...)
	out = append(out, chunk("fmt ", 16, f)...)
	if dataSize < 0 {
		dataSize = len(data)
	}
	out = append(out, chunk("data", dataSize, data)...)
	return append(chunk("RIFF", len(out), nil), out...)
}

// read gives what a Track finds in payloads, each cut in pieces.
func read(declared Container, files bool, cut int, payloads ...[]byte) *log {
	l := &log{}
	t := &Track{Sink: l, Declared: declared, Files: files}
	off := int64(1)
	for _, p := range payloads {
		t.Begin()
		for len(p) > 0 {
			n := min(cut, len(p))
			t.Write(p[:n], Pos{off, true})
			off += int64(n)
			p = p[n:]
		}
		t.End()
	}
	return l
}

func TestTrack(t *testing.T) {
	pcm := []byte{1, 0, 2, 0, 3, 0, 4, 0}
	simple := wav(1, 1, 16, 24000, -1, pcm)
	mpeg := append(bytes.Repeat(append([]byte{0xFF, 0xFB, 0x90, 0x00}, make([]byte, 413)...), 2), 0xFF, 0xFB, 0x90, 0)
	for _, v := range []struct {
		name     string
		declared Container
		files    bool
		in       [][]byte
		want     []string
		data     []byte
		raw      int
	}{
		{"bare PCM", Raw, false, [][]byte{pcm}, []string{"container raw"}, pcm, 0},
		{"PCM that starts like a header", Raw, false, [][]byte{[]byte("RIF")}, []string{"container raw"}, []byte("RIF"), 0},
		{"wav", WAV, false, [][]byte{simple}, []string{"container wav", "header pcm_s16le 24000 Hz 1 ch, data 8, 44 bytes"}, pcm, 0},
		{"placeholder sizes", WAV, false, [][]byte{wav(1, 1, 16, 24000, 0xFFFFFFFF, pcm)}, []string{"container wav", "header pcm_s16le 24000 Hz 1 ch, data -1, 44 bytes"}, pcm, 0},
		{"size 0 and samples all the same", WAV, false, [][]byte{wav(1, 1, 16, 24000, 0, pcm)}, []string{"container wav", "header pcm_s16le 24000 Hz 1 ch, data 0, 44 bytes"}, pcm, 0},
		{"JUNK first, odd size padded", WAV, false, [][]byte{wav(1, 2, 24, 48000, -1, pcm[:6], chunk("JUNK", 3, []byte{9, 9, 9, 0}))}, []string{"container wav", "header pcm_s24le 48000 Hz 2 ch, data 6, 56 bytes"}, pcm[:6], 0},
		{"float", WAV, false, [][]byte{wav(3, 1, 32, 8000, -1, pcm)}, []string{"container wav", "header pcm_f32le 8000 Hz 1 ch, data 8, 44 bytes"}, pcm, 0},
		{"metadata behind the data", WAV, false, [][]byte{append(bytes.Clone(simple), chunk("LIST", 4, []byte("abcd"))...)}, []string{"container wav", "header pcm_s16le 24000 Hz 1 ch, data 8, 44 bytes"}, pcm, 0},
		{"more than declared", WAV, false, [][]byte{wav(1, 1, 16, 24000, 4, pcm)}, []string{"container wav", "header pcm_s16le 24000 Hz 1 ch, data 4, 44 bytes"}, pcm, 0},
		{"a header amid a body", WAV, false, [][]byte{append(bytes.Clone(simple), simple...)}, []string{
			"container wav", "header pcm_s16le 24000 Hz 1 ch, data 8, 44 bytes", "problem embedded_header", "container wav", "header pcm_s16le 24000 Hz 1 ch, data 8, 44 bytes",
		}, append(bytes.Clone(pcm), pcm...), 0},
		{"a file an event", "", true, [][]byte{simple, simple}, []string{
			"container wav", "header pcm_s16le 24000 Hz 1 ch, data 8, 44 bytes", "container wav", "header pcm_s16le 24000 Hz 1 ch, data 8, 44 bytes",
		}, append(bytes.Clone(pcm), pcm...), 0},
		{"a header in the first event alone", "", true, [][]byte{wav(1, 1, 16, 24000, 0xFFFFFFFF, nil), pcm}, []string{"container wav", "header pcm_s16le 24000 Hz 1 ch, data -1, 44 bytes"}, pcm, 0},
		{"block align contradicts", WAV, false, [][]byte{func() []byte { b := bytes.Clone(simple); b[32] = 3; return b }()}, []string{"container wav", "problem header_inconsistent"}, nil, 16},
		{"byte rate wrong", WAV, false, [][]byte{func() []byte { b := bytes.Clone(simple); b[28] ^= 1; return b }()}, []string{"container wav", "problem byte_rate_wrong", "header pcm_s16le 24000 Hz 1 ch, data 8, 44 bytes"}, pcm, 0},
		{"labelled wav, no header", WAV, false, [][]byte{pcm}, []string{"problem format_mismatch"}, nil, 8},
		{"labelled mp3, is wav", MP3, false, [][]byte{simple}, []string{"container wav", "problem format_mismatch", "header pcm_s16le 24000 Hz 1 ch, data 8, 44 bytes"}, pcm, 0},
		{"mp3 without a label", "", true, [][]byte{mpeg}, []string{"container mp3"}, nil, len(mpeg)},
		{"ID3", MP3, false, [][]byte{[]byte("ID3xxxxxxxxxx")}, []string{"container mp3"}, nil, 13},
		{"flac", FLAC, false, [][]byte{[]byte("fLaCxxxxxxxxxx")}, []string{"container flac"}, nil, 14},
		{"mu-law in wav", WAV, false, [][]byte{wav(7, 1, 8, 8000, -1, pcm)}, []string{"container wav", "header g711_ulaw 8000 Hz 1 ch, data 8, 44 bytes"}, pcm, 0},
		{"a codec in wav", WAV, false, [][]byte{wav(0x55, 1, 16, 8000, -1, pcm)}, []string{"container wav", "header  8000 Hz 1 ch, data 8, 44 bytes"}, nil, 8},
	} {
		t.Run(v.name, func(t *testing.T) {
			for _, cut := range []int{1, 3, 7, 1000} {
				if v.name == "mp3 without a label" && cut < 1000 {
					continue // told from a whole event's frames, which is how events come
				}
				l := read(v.declared, v.files, cut, v.in...)
				if d := cmp.Diff(v.want, l.out); d != "" {
					t.Errorf("cut %d (-want +got):\n%s", cut, d)
				}
				if !bytes.Equal(l.data, v.data) || l.raw != v.raw {
					t.Errorf("cut %d: samples %v, want %v; opaque %d, want %d", cut, l.data, v.data, l.raw, v.raw)
				}
			}
		})
	}
}

func TestRIFXAndRF64(t *testing.T) {
	be := func(b []byte) []byte { // turn a small RIFF into RIFX
		out := bytes.Clone(b)
		copy(out, "RIFX")
		for _, f := range [][2]int{{4, 4}, {16, 4}, {20, 2}, {22, 2}, {24, 4}, {28, 4}, {32, 2}, {34, 2}, {40, 4}} {
			for i := range f[1] / 2 {
				a, b := f[0]+i, f[0]+f[1]-1-i
				out[a], out[b] = out[b], out[a]
			}
		}
		return out
	}
	l := read(WAV, false, 5, be(wav(1, 1, 16, 24000, -1, []byte{0, 1, 0, 2})))
	if d := cmp.Diff([]string{"container wav", "header pcm_s16be 24000 Hz 1 ch, data 4, 44 bytes"}, l.out); d != "" {
		t.Error(d)
	}
	ds64 := make([]byte, 24)
	binary.LittleEndian.PutUint64(ds64[8:], 4)
	rf := wav(1, 1, 16, 24000, 0xFFFFFFFF, []byte{1, 0, 2, 0}, chunk("ds64", 24, ds64))
	copy(rf, "RF64")
	l = read(WAV, false, 5, rf)
	if d := cmp.Diff([]string{"container wav", "header pcm_s16le 24000 Hz 1 ch, data 4, 76 bytes"}, l.out); d != "" {
		t.Error(d)
	}
}

// TestPlaces: of a body each sample byte lies where it lay; of an event all lie at its end.
func TestPlaces(t *testing.T) {
	l := read(WAV, false, 3, wav(1, 1, 16, 24000, -1, []byte{1, 0, 2, 0}))
	if d := cmp.Diff([]int64{45, 46, 47, 48}, l.at); d != "" {
		t.Error(d)
	}
	l = &log{}
	tr := &Track{Sink: l, Files: true}
	tr.Begin()
	tr.Write([]byte{1, 0}, Pos{Off: 99})
	tr.End()
	if d := cmp.Diff([]int64{99, 99}, l.at); d != "" {
		t.Error(d)
	}
}

func TestDecode(t *testing.T) {
	raw := make([]byte, 9601)
	for i := range raw {
		raw[i] = byte(i * 31)
	}
	for _, n := range []int{0, 1, 2, 3, 5, 48, 9599, 9601} {
		in := base64.StdEncoding.EncodeToString(raw[:n])
		got, lenient, err := Decode(nil, []byte(in))
		if err != nil || lenient || !bytes.Equal(got, raw[:n]) {
			t.Errorf("%d bytes: %d, lenient %v, %v", n, len(got), lenient, err)
		}
		for _, enc := range []*base64.Encoding{base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding} {
			in2 := enc.EncodeToString(raw[:n])
			got, lenient, err := Decode(nil, []byte(in2))
			if err != nil || !bytes.Equal(got, raw[:n]) || lenient != (in2 != in) {
				t.Errorf("%d bytes in another alphabet: lenient %v, %v", n, lenient, err)
			}
		}
		if n > 40 {
			for _, bad := range []string{in[:20] + "*" + in[21:], in[:20] + "\n" + in[20:], in[:len(in)-3] + "====", "=" + in, in[:37] + "=" + in[38:]} {
				if _, _, err := Decode(nil, []byte(bad)); !errors.Is(err, ErrBase64) {
					t.Errorf("%d bytes: damaged text was taken: %v", n, err)
				}
			}
		}
	}
}

func TestByName(t *testing.T) {
	for name, want := range map[string]Container{
		"audio/wav": WAV, "audio/x-wav": WAV, "audio/mpeg": MP3, "audio/pcm;rate=44100": Raw, "PCM16": Raw, "audio/ogg": Ogg, "g711_ulaw": Raw, "text/html": "",
	} {
		if c, _, ok := ByName(name); c != want || ok != (want != "") {
			t.Errorf("ByName(%q) = %q, %v", name, c, ok)
		}
	}
}

func FuzzTrackAnyCut(f *testing.F) {
	f.Add(wav(1, 1, 16, 24000, -1, []byte("abcdefgh")), uint8(3), false)
	f.Add([]byte("RIFFxxxxWAVEdata\x00\x00\x00\x00"), uint8(1), true)
	f.Add([]byte(strings.Repeat("RIFF", 9)), uint8(2), false)
	f.Fuzz(func(t *testing.T, in []byte, cut uint8, files bool) {
		if files {
			return // an event's payload is written whole
		}
		whole := read(WAV, files, len(in)+1, in)
		parts := read(WAV, files, int(cut)%9+1, in)
		if d := cmp.Diff(whole.out, parts.out); d != "" {
			t.Errorf("the cut changes what is found:\n%s", d)
		}
		if !bytes.Equal(whole.data, parts.data) || whole.raw != parts.raw {
			t.Errorf("the cut changes the samples: %d and %d, opaque %d and %d", len(whole.data), len(parts.data), whole.raw, parts.raw)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("AAEC"))
	f.Add([]byte("AA=="))
	f.Add([]byte("A_-*"))
	f.Fuzz(func(t *testing.T, in []byte) {
		got, lenient, err := Decode(nil, in)
		want, werr := base64.StdEncoding.Strict().DecodeString(string(in))
		if bytes.ContainsAny(in, "\r\n") {
			if err == nil {
				t.Errorf("%q with line ends was taken", in)
			}
			return
		}
		if werr == nil && (err != nil || lenient || !bytes.Equal(got, want)) {
			t.Errorf("%q: %v, lenient %v, %v", in, got, lenient, err)
		}
	})
}
