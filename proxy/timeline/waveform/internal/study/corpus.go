package study

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/omnitap/omnitap/proxy/wire/audio"
)

// Sound is a file of the corpus.
type Sound struct {
	File    string  `json:"file"`
	Kind    string  `json:"kind"`
	Rate    int     `json:"rate"`
	Seconds float64 `json:"seconds"`
}

// manifest lists the corpus, and says what it was made with.
func manifest(fsys fs.FS) (tools string, list []Sound, err error) {
	b, err := fs.ReadFile(fsys, "manifest.tsv")
	if err != nil {
		return "", nil, fmt.Errorf("reading the corpus: %w", err)
	}
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		if note, ok := strings.CutPrefix(sc.Text(), "# "); ok {
			tools = note
			continue
		}
		f := strings.Split(sc.Text(), "\t")
		if len(f) != 4 {
			return "", nil, fmt.Errorf("manifest.tsv: %d fields in %q, want 4", len(f), sc.Text())
		}
		rate, err1 := strconv.Atoi(f[2])
		seconds, err2 := strconv.ParseFloat(f[3], 64)
		if err := errors.Join(err1, err2); err != nil {
			return "", nil, fmt.Errorf("manifest.tsv: %w", err)
		}
		list = append(list, Sound{f[0], f[1], rate, seconds})
	}
	return tools, list, nil
}

// collector keeps the samples of a file.
type collector struct {
	format audio.Format
	data   []byte
	faults []string
}

func (*collector) Container(audio.Container) {}

func (c *collector) Header(h audio.Header) { c.format = h.Format }

func (c *collector) Samples(p []byte, _ audio.Pos) { c.data = append(c.data, p...) }

func (c *collector) Opaque([]byte, audio.Pos) { c.faults = append(c.faults, "no samples") }

func (c *collector) Problem(k audio.Problem, _ string) { c.faults = append(c.faults, string(k)) }

var _ audio.Sink = (*collector)(nil)

// read returns the samples of a file.
func read(fsys fs.FS, s Sound) ([]int16, error) {
	b, err := fs.ReadFile(fsys, s.File)
	if err != nil {
		return nil, err
	}
	var c collector
	t := audio.Track{Sink: &c, Declared: audio.WAV}
	t.Begin()
	t.Write(b, audio.Pos{})
	t.End()
	if want := (audio.Format{Encoding: audio.S16LE, Rate: s.Rate, Channels: 1}); c.format != want || len(c.faults) > 0 {
		return nil, fmt.Errorf("%+v %q, want %+v", c.format, c.faults, want)
	}
	x := make([]int16, len(c.data)/2)
	for i := range x {
		x[i] = int16(binary.LittleEndian.Uint16(c.data[2*i:]))
	}
	return x, nil
}

// A piece is as long as an answer is.
const (
	shortestPiece = 4 // seconds
	longestPiece  = 12
)

// pieces cuts a file into streams of 4 to 12 s; a rest that is shorter is left out.
func pieces(x []int16, rate int, r *rand.Rand) [][]int16 {
	var out [][]int16
	for {
		n := shortestPiece*rate + r.IntN((longestPiece-shortestPiece)*rate+1)
		if n = min(n, len(x)); n < shortestPiece*rate {
			return out
		}
		out = append(out, x[:n])
		x = x[n:]
	}
}
