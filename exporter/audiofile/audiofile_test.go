package audiofile

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-audio/wav"

	"github.com/omnitap/omnitap/proxy/timeline"
	"github.com/omnitap/omnitap/proxy/timeline/waveform"
	"github.com/omnitap/omnitap/proxy/wire/audio"
)

func record(state timeline.State, checks ...waveform.Finding) *timeline.Record {
	return &timeline.Record{Terminal: timeline.Terminal{State: state, Reason: "r"}, Quality: timeline.Quality{Checks: checks}}
}

// readWAV reads a file as anybody would.
func readWAV(t *testing.T, path string) (samples []int, rate, channels, bits int) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	d := wav.NewDecoder(f)
	b, err := d.FullPCMBuffer()
	if err != nil {
		t.Fatal(err)
	}
	return b.Data, int(d.SampleRate), int(d.NumChans), int(d.BitDepth)
}

func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if fi, err := e.Info(); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want 0600", e.Name(), fi.Mode(), err)
		}
		out = append(out, e.Name())
	}
	return out
}

// TestFormats: each encoding becomes the samples it stands for, cut anywhere.
func TestFormats(t *testing.T) {
	f32 := func(v ...float32) (b []byte) {
		for _, x := range v {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
		return b
	}
	for _, c := range []struct {
		name   string
		format audio.Format
		in     []byte
		want   []int
		bits   int
	}{
		{"s16le", audio.Format{Encoding: audio.S16LE, Rate: 24000, Channels: 1}, []byte{1, 0, 0xff, 0xff, 0, 0x80, 0xff, 0x7f}, []int{1, -1, -32768, 32767}, 16},
		{"s16be stereo", audio.Format{Encoding: audio.S16BE, Rate: 48000, Channels: 2}, []byte{0, 1, 0xff, 0xff}, []int{1, -1}, 16},
		{"u8", audio.Format{Encoding: audio.U8, Rate: 8000, Channels: 1}, []byte{128, 129, 0}, []int{0, 256, -32768}, 16},
		{"s24le", audio.Format{Encoding: audio.S24LE, Rate: 24000, Channels: 1}, []byte{1, 0, 0, 0xff, 0xff, 0xff}, []int{1, -1}, 24},
		{"f32le", audio.Format{Encoding: audio.F32LE, Rate: 24000, Channels: 1}, f32(0, .5, -2, float32(math.NaN()), float32(math.Inf(1))), []int{0, 1 << 22, -1 << 23, 0, 1<<23 - 1}, 24},
		{"ulaw", audio.Format{Encoding: audio.ULaw, Rate: 8000, Channels: 1}, []byte{0xff, 0x80}, []int{0, 32124}, 16},
	} {
		for _, size := range []int{1, 3, len(c.in)} {
			t.Run(fmt.Sprintf("%s/%d", c.name, size), func(t *testing.T) {
				dir := t.TempDir()
				s, err := New(dir, nil)
				if err != nil {
					t.Fatal(err)
				}
				l := s.Listen("id", nil)
				for p := range slices.Chunk(c.in, size) {
					l.Samples(c.format, c.format.Rate, p)
				}
				l.Chunk()
				l.End(record(timeline.Success))
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				got, rate, channels, bits := readWAV(t, filepath.Join(dir, "000001-id.wav"))
				if !slices.Equal(got, c.want) || rate != c.format.Rate || channels != c.format.Channels || bits != c.bits {
					t.Errorf("%v at %d Hz, %d channels, %d bits; want %v, %d bits", got, rate, channels, bits, c.want, c.bits)
				}
			})
		}
	}
}

// TestFormatChanges: a stream whose format changes is as many files, and a failure
// is labelled in the one that it lies in.
func TestFormatChanges(t *testing.T) {
	dir := t.TempDir()
	s, err := New(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := s.Listen("../a b", nil)
	for i, rate := range []int{24000, 24000, 48000} {
		l.Samples(audio.Format{Encoding: audio.S16LE, Rate: rate, Channels: 1}, rate, make([]byte, 4800*(i+1)))
		l.Chunk()
	}
	l.Chunk() // without samples it is none
	l.End(record(timeline.QualityFailed, waveform.Finding{Name: "clipping", Verdict: waveform.Failed, Reason: "why", Sample: new(int64(7200 + 4800))}))
	s.Listen("no sound", nil).End(record(timeline.Success))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := names(t, dir), []string{"000001-___a_b-2.labels.txt", "000001-___a_b-2.wav", "000001-___a_b.labels.txt", "000001-___a_b.wav"}; !slices.Equal(got, want) {
		t.Fatalf("files %q, want %q", got, want)
	}
	for name, want := range map[string]string{
		"000001-___a_b.labels.txt":   "0.000000\t0.000000\tchunk 0\n0.100000\t0.100000\tchunk 1\n",
		"000001-___a_b-2.labels.txt": "0.000000\t0.000000\tchunk 2\n0.100000\t0.100000\tFAILED clipping: why\n0.150000\t0.150000\tend: quality-failed/r\n",
	} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, b, want)
		}
	}
	if got, rate, _, _ := readWAV(t, filepath.Join(dir, "000001-___a_b-2.wav")); len(got) != 7200 || rate != 48000 {
		t.Errorf("%d samples at %d Hz, want 7200 at 48000", len(got), rate)
	}
}

// TestSlowDisk: what finds no room is dropped with the rest of its stream, whose
// name tells; nobody waits, and memory is bounded.
func TestSlowDisk(t *testing.T) {
	dir := t.TempDir()
	s, err := New(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	f := audio.Format{Encoding: audio.S16LE, Rate: 24000, Channels: 1}
	small, large := s.Listen("small", nil), s.Listen("large", nil)
	small.Samples(f, 24000, make([]byte, 100))
	s.mu.Lock() // from here on the disk takes nothing: its goroutine needs the lock
	s.most = 1000
	s.bytes = 0
	s.mu.Unlock()
	large.Samples(f, 24000, make([]byte, 600))
	large.Samples(f, 24000, make([]byte, 1001))
	large.Samples(f, 24000, make([]byte, 10))
	large.End(record(timeline.Success))
	small.End(record(timeline.Success))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := names(t, dir), []string{"000001-small.labels.txt", "000001-small.wav", "000002-large.incomplete.wav"}; !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
	if n := s.Dropped(); n != 1 {
		t.Errorf("%d streams dropped, want 1", n)
	}
	if l := s.Listen("late", nil); l != nil {
		t.Error("a closed Saver listens")
	}
}

// TestNoDisk: a folder that cannot be made is an error, one that goes away is told
// of once and takes nothing else down.
func TestNoDisk(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(filepath.Join(file, "x"), nil); err == nil || !strings.Contains(err.Error(), "folder for sound") {
		t.Errorf("New = %v, want an error that names the folder", err)
	}
	dir := filepath.Join(t.TempDir(), "gone")
	s, err := New(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	f := audio.Format{Encoding: audio.S16LE, Rate: 24000, Channels: 1}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			l := s.Listen(fmt.Sprint(i), nil)
			for range 10 {
				l.Samples(f, 24000, make([]byte, 480))
				l.Chunk()
			}
			l.End(record(timeline.Success))
		})
	}
	wg.Wait()
	if err := s.Close(); err == nil || s.Dropped() != 8 {
		t.Errorf("Close = %v, %d dropped; want an error and 8", err, s.Dropped())
	}
}

// TestNothingIsDroppedByWhoWaits: with Wait a stream larger than the bound is whole;
// an earlier file of the same name stays.
func TestNothingIsDroppedByWhoWaits(t *testing.T) {
	dir := t.TempDir()
	f := audio.Format{Encoding: audio.S16LE, Rate: 24000, Channels: 1}
	for range 2 {
		s, err := New(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.most = 1000
		s.Wait()
		l := s.Listen("id", nil)
		for range 200 {
			l.Samples(f, 24000, make([]byte, 480))
			l.Chunk()
		}
		l.Samples(f, 24000, make([]byte, 4800)) // more than ever fits
		l.End(record(timeline.Success))
		if err := s.Close(); err != nil || s.Dropped() != 0 {
			t.Errorf("Close = %v, %d dropped", err, s.Dropped())
		}
	}
	for _, name := range []string{"000001-id.wav", "000001-id~2.wav"} {
		if got, _, _, _ := readWAV(t, filepath.Join(dir, name)); len(got) != 200*240+2400 {
			t.Errorf("%s: %d samples", name, len(got))
		}
	}
}
