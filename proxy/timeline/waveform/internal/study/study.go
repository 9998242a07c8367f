// Package study measures how good the checks of package waveform are: how often
// they fail on whole sound, and how many faults of which size they find. It cuts
// a corpus of known sound (testdata/quality/corpus.py) as models cut theirs,
// puts in faults whose place and amount it chose itself, and counts.
//
//	file ── pieces ──▶ stream ── cut ──▶ chunks ───────────▶ judge ──▶ alarms
//	                                        └──── fault ──▶ judge ──▶ detections
//
// It names no check: what the checks are is read from their findings. It touches
// no disk: the corpus is an fs.FS, and its test writes the report down.
package study

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"sync"
)

// Config says how much is done.
type Config struct {
	// Seed makes the study repeatable: cuts, places and lengths are drawn from it.
	Seed uint64
	// Streams is how many streams of each kind of sound get faults.
	Streams int
	// Amounts are the sizes of faults in samples.
	Amounts []int
	// Workers is how many files are worked on at once, at least 1.
	Workers int
}

// Amounts is what the whole study puts in.
func Amounts() []int { return []int{1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 555, 1000, 2000} }

// Result is what came out; its counts do not depend on the number of workers.
type Result struct {
	Tools      string      `json:"tools"`
	Sounds     []Sound     `json:"sounds"`
	Alarms     []Alarm     `json:"alarms"`
	Detections []Detection `json:"detections"`
}

// Run studies a corpus.
func Run(fsys fs.FS, cfg Config) (*Result, error) {
	tools, sounds, err := manifest(fsys)
	if err != nil {
		return nil, err
	}
	perFile := map[string]int{}
	for _, s := range sounds {
		perFile[s.Kind]++
	}
	for kind, files := range perFile {
		perFile[kind] = (cfg.Streams + files - 1) / files
	}
	total := newTally()
	var mu sync.Mutex // protects total and err
	var wg sync.WaitGroup
	slots := make(chan struct{}, max(1, cfg.Workers))
	for i, s := range sounds {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			t, e := listen(fsys, cfg, i, s, perFile[s.Kind])
			mu.Lock()
			defer mu.Unlock()
			if e != nil {
				err = e
				return
			}
			total.add(t)
		})
	}
	wg.Wait()
	if err != nil {
		return nil, err
	}
	return &Result{Tools: tools, Sounds: sounds, Alarms: total.listAlarms(), Detections: total.listDetections()}, nil
}

// listen studies one file, faulty of whose pieces get faults. What is drawn for a
// piece depends on the seed, the file and the piece alone.
func listen(fsys fs.FS, cfg Config, file int, s Sound, faulty int) (*tally, error) {
	x, err := read(fsys, s)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", s.File, err)
	}
	t := newTally()
	list := pieces(x, s.Rate, rand.New(rand.NewPCG(cfg.Seed, uint64(file))))
	for i, piece := range list {
		r := rand.New(rand.NewPCG(cfg.Seed, uint64(file)<<16|uint64(i+1)))
		for c, cut := range cuts() {
			st := stream{rate: s.Rate, x: piece, sizes: cut.sizes(len(piece), s.Rate, r)}
			// the model's hop is known for every other stream
			hop := (i + c) % 2 * cut.hop(s.Rate)
			t.alarm(s.Kind, cut.name, st.seconds(), judge(hop, s.Rate, st.chunks()))
		}
		if n := min(faulty, len(list)); (i+1)*n/len(list) > i*n/len(list) {
			t.inject(cfg, s.Kind, piece, s.Rate, r)
		}
	}
	return t, nil
}
