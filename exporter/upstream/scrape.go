package upstream

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Schema is the version of a Scrape's form.
const Schema = 1

// File is the name of the file in a run directory: a line a Scrape.
const File = "upstream_metrics.jsonl"

// Phase says when a scrape was made.
type Phase string

// The phases.
const (
	Before Phase = "before"
	During Phase = "during"
	After  Phase = "after"
)

// Scrape is one line of the file. One that failed has Error and no series.
type Scrape struct {
	Schema int   `json:"schema"`
	Phase  Phase `json:"phase"`
	// MonoNS and WallNS are when the answer was there: CLOCK_MONOTONIC and wall clock.
	MonoNS int64 `json:"mono_ns"`
	WallNS int64 `json:"wall_ns"`
	// TookMS is how long the server took for it.
	TookMS float64 `json:"took_ms"`
	Bytes  int     `json:"bytes"`
	Error  string  `json:"error,omitempty"`
	// Whole says that Series are all that the server has; otherwise they are those that
	// changed since the line before, and the others are as they were.
	Whole  bool     `json:"whole"`
	Series []Series `json:"series"`
}

const (
	maxLine  = 64 << 20
	maxLines = 1 << 16
	// maxProblems bounds the texts of what is wrong with a file, maxRead its bytes.
	maxProblems = 20
	maxRead     = 1 << 30
)

// Read reads the file that a Scraper wrote, with every scrape whole. A line that cannot be
// used, such as the last one of a crash, is named in problems and left out, with every line
// behind it up to the next whole one. The error is the reader's.
func Read(r io.Reader) (scrapes []Scrape, problems []string, err error) {
	br := bufio.NewReaderSize(io.LimitReader(r, maxRead), 64<<10)
	var state map[string]Series
	note := func(n int, what string) {
		if len(problems) < maxProblems {
			problems = append(problems, fmt.Sprintf("line %d: %s", n, what))
		}
	}
	for n := 1; n <= maxLines; n++ {
		line, err := readLine(br)
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return scrapes, problems, nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return scrapes, problems, fmt.Errorf("reading metrics: %w", err)
		}
		var s Scrape
		switch jerr := json.Unmarshal(line, &s); {
		case jerr != nil:
			note(n, jerr.Error())
			state = nil
			continue
		case s.Schema != Schema:
			note(n, fmt.Sprintf("schema %d is not known", s.Schema))
			state = nil
			continue
		case s.Error != "":
			scrapes = append(scrapes, s)
			continue
		case !s.Whole && state == nil:
			note(n, "what it changes is not there")
			continue
		}
		if state == nil || s.Whole {
			state = map[string]Series{}
		}
		for _, x := range s.Series {
			state[x.key()] = x
		}
		s.Series, s.Whole = values(state), true
		scrapes = append(scrapes, s)
	}
	note(maxLines, "what follows is left out")
	return scrapes, problems, nil
}

// readLine gives a line without its end, at most maxLine bytes of it.
func readLine(br *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := br.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			return nil, bufio.ErrTooLong
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSuffix(line, []byte("\n")), err
		}
	}
}
