package study

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/fstest"
)

// file is a WAV file of a voice: a tone that glides, with some noise.
func file(rate, seconds int, seed uint64) *fstest.MapFile {
	r := rand.New(rand.NewPCG(seed, 5))
	var data []byte
	for i := range rate * seconds {
		t := float64(i) / float64(rate)
		v := 6000*math.Sin(2*math.Pi*(110*t+30*t*t)) + 40*r.NormFloat64()
		data = binary.LittleEndian.AppendUint16(data, uint16(int16(v)))
	}
	var b bytes.Buffer
	b.WriteString("RIFF")
	for _, v := range []any{
		uint32(36 + len(data)), []byte("WAVEfmt "), uint32(16), uint16(1), uint16(1), uint32(rate), uint32(2 * rate),
		uint16(2), uint16(16), []byte("data"), uint32(len(data)), data,
	} {
		_ = binary.Write(&b, binary.LittleEndian, v)
	}
	return &fstest.MapFile{Data: b.Bytes()}
}

func small() fstest.MapFS {
	return fstest.MapFS{
		"manifest.tsv": {Data: []byte("# made by hand\na.wav\tspeech\t16000\t26\nb.wav\tmusic\t24000\t13\n")},
		"a.wav":        file(16000, 26, 1),
		"b.wav":        file(24000, 13, 2),
	}
}

// TestRunIsRepeatable: the report does not depend on the order of the work.
func TestRunIsRepeatable(t *testing.T) {
	var reports [2]string
	for i := range reports {
		r, err := Run(small(), Config{Seed: 1, Streams: 2, Amounts: []int{10, 555}, Workers: 1 + 3*i})
		if err != nil {
			t.Fatal(err)
		}
		reports[i] = r.Markdown()
		if found, streams := r.Rate(func(d Detection) bool { return d.Fault == "chunk-again" && !d.Hop }); streams < 3 || found == 0 {
			t.Errorf("a chunk that comes twice was found in %d of %d streams", found, streams)
		}
		if _, hours := r.Hourly(func(a Alarm) bool { return a.Check == r.Checks()[0] && a.Kind == "music" && a.Cut == "irregular" }); hours < 4./3600 || hours > 13./3600 {
			t.Errorf("%.1f s of music were judged", 3600*hours)
		}
	}
	if reports[0] != reports[1] {
		t.Error("two runs differ")
	}
	for _, want := range []string{"made by hand", "| speech | 0.4 | 16000 |", "`lost-border`", "| chunk |"} {
		if !strings.Contains(reports[0], want) {
			t.Errorf("the report lacks %q", want)
		}
	}
}

// TestRunTellsWhatIsWrong: a corpus that is not what it says is no result.
func TestRunTellsWhatIsWrong(t *testing.T) {
	for name, spoil := range map[string]func(fstest.MapFS){
		"no manifest": func(m fstest.MapFS) { delete(m, "manifest.tsv") },
		"no file":     func(m fstest.MapFS) { delete(m, "b.wav") },
		"other rate":  func(m fstest.MapFS) { m["a.wav"] = file(8000, 26, 1) },
		"no sound":    func(m fstest.MapFS) { m["a.wav"] = &fstest.MapFile{Data: []byte("no sound at all")} },
		"fields":      func(m fstest.MapFS) { m["manifest.tsv"].Data = []byte("a.wav\tspeech\n") },
		"no number":   func(m fstest.MapFS) { m["manifest.tsv"].Data = []byte("a.wav\tspeech\tfast\tlong\n") },
	} {
		t.Run(name, func(t *testing.T) {
			m := small()
			spoil(m)
			if r, err := Run(m, Config{Seed: 1, Workers: 2}); err == nil {
				t.Errorf("no error, %d sounds", len(r.Sounds))
			}
		})
	}
}

func TestShare(t *testing.T) {
	if got := fmt.Sprint(share(0, 0), share(0, 9), share(1, 1000), share(1, 2), share(999, 1000), share(7, 7)); got != "-00.15099.9100" {
		t.Errorf("shares: %s", got)
	}
}
