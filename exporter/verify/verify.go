package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/exporter/rundir/schema"
	"github.com/omnitap/omnitap/exporter/verify/internal/shape"
)

// Options say how a run is verified. The zero value is the strict way.
type Options struct {
	// AllowUnsealed makes a note, and no error, of a run that is not sealed.
	AllowUnsealed bool
	// MaxFindings is how many findings are listed; all are counted. Default 1000.
	MaxFindings int
}

// DefaultMaxFindings is how many findings are listed.
const DefaultMaxFindings = 1000

// version is the schema version that this program reads.
const version = 1

// verifier is one verification.
type verifier struct {
	dir  string
	opts Options
	res  *Result
	meta metadata

	requests, sessionLines, qualityLines *shape.Checker

	names    *names
	parser   parser
	events   *lines // nil once they are over
	groups   groups
	waiting  map[string][]*pending
	sessions map[sessionKey]*session
	opened   map[string]int // the line of sessions.jsonl that opened an id
	quality  qualities
	inputs   map[name]*inputs
	newer    bool // it was told that events have words of a later form
	conns    map[uint64]*[2]spans
	measured measured

	seed    [2]maphash.Seed
	ids     map[[2]uint64]int32 // the line that a request id was seen in
	missing map[Missing]int64
	counted map[string]*count
	other   map[int64]int64 // lines of other schema versions
}

// measured is what the records of a run's measured part say of it in sum.
type measured struct {
	phases    bool // records name theirs
	successes int64
	audioS    float64
}

// count is what was read of a file of lines.
type count struct{ lines, bytes int64 }

// Verify verifies the run in dir, which it does not change. The error is for a
// directory that cannot be read at all; everything else is in the result.
func Verify(dir string, opts Options) (*Result, error) {
	v, err := newVerifier(dir, opts)
	if err != nil {
		return nil, err
	}
	type sealed struct {
		state *rundir.SealState
		err   error
	}
	done := make(chan sealed, 1)
	go func() { // the hashes take the other core
		s, err := rundir.CheckSeal(dir)
		done <- sealed{s, err}
	}()
	v.documents()
	v.readSessions()
	v.readRecords()
	v.resources()
	v.finish()
	s := <-done
	if s.err != nil {
		return nil, s.err
	}
	v.seal(s.state)
	v.res.Passed = v.res.OK()
	return v.res, nil
}

func newVerifier(dir string, opts Options) (*verifier, error) {
	if opts.MaxFindings <= 0 {
		opts.MaxFindings = DefaultMaxFindings
	}
	v := &verifier{
		dir: dir, opts: opts, names: newNames(), groups: newGroups(), waiting: map[string][]*pending{}, sessions: map[sessionKey]*session{}, opened: map[string]int{},
		conns: map[uint64]*[2]spans{}, inputs: map[name]*inputs{}, seed: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, ids: map[[2]uint64]int32{},
		missing: map[Missing]int64{}, counted: map[string]*count{}, other: map[int64]int64{},
		res: &Result{
			Dir: dir, Counts: Counts{States: map[string]int64{}}, Compared: map[string]int64{}, Findings: []Finding{}, NotDerivable: []Missing{},
			max: opts.MaxFindings,
		},
	}
	v.parser.names = v.names
	var errs [3]error
	v.requests, errs[0] = shape.Compile(schema.Requests)
	v.sessionLines, errs[1] = shape.Compile(schema.Sessions)
	v.qualityLines, errs[2] = shape.Compile(schema.Quality)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = errors.New("it is no directory")
	}
	if err != nil {
		return nil, fmt.Errorf("opening the run: %w", err)
	}
	return v, nil
}

// say adds a finding about a line of a file, 0 for the file itself.
func (v *verifier) say(level Level, kind Kind, file string, line int, format string, a ...any) {
	v.res.add(Finding{Level: level, Kind: kind, File: file, Line: line, Text: fmt.Sprintf(format, a...)})
}

// lacks notes that a record holds a value that cannot be derived.
func (v *verifier) lacks(field, why string) { v.missing[Missing{Field: field, Why: why}]++ }

// open opens a file of lines; nil where it is not there or cannot be read, which is
// then told: as an error where the run needs it.
func (v *verifier) open(name string, needed bool) *lines {
	v.counted[name] = &count{}
	l, err := openLines(v.dir, name)
	switch {
	case err == nil:
		return l
	case !errors.Is(err, fs.ErrNotExist):
		v.say(Error, KindFile, name, 0, "%v", err)
	case needed:
		v.say(Error, KindFile, name, 0, "it is not there")
	}
	return nil
}

// next returns the next usable line, nil at the end. Lines that are none are told.
func (v *verifier) next(l *lines) []byte {
	for {
		line, err := l.next()
		c := v.counted[l.name]
		c.lines, c.bytes = int64(l.n), l.size
		bad, isLine := errors.AsType[*rundir.LineError](err)
		switch {
		case err == nil:
			return line
		case errors.Is(err, io.EOF):
			return nil
		case isLine:
			v.badLine(bad)
		default:
			v.say(Error, KindFile, l.name, 0, "%v", err)
			return nil
		}
	}
}

func (v *verifier) badLine(bad *rundir.LineError) {
	text := "the line is cut: it has no end"
	if !bad.Unfinished {
		text = bad.Err.Error()
	}
	v.say(Error, KindLine, bad.File, bad.Line, "%s", text)
}

// fits holds a line to its schema and reports whether it can be used.
func (v *verifier) fits(c *shape.Checker, l *lines, line []byte) bool {
	err := c.Check(line, l.n)
	bad, isShape := errors.AsType[*shape.Error](err)
	switch {
	case err == nil:
		return true
	case !isShape:
		v.say(Error, KindLine, l.name, l.n, "no JSON: %v", err)
	case bad.Path == "schema":
		n := versionOf(line)
		v.other[n]++
		v.say(Error, KindVersion, l.name, l.n, "schema %d, this program reads %d", n, version)
	default:
		v.say(Error, KindSchema, l.name, l.n, "%v", bad)
	}
	return false
}

// run holds a line's run id to the run's.
func (v *verifier) run(file string, line int, id string) {
	if id != v.meta.RunID && v.meta.read {
		v.say(Error, KindValue, file, line, "run_id %q is not the run's, %q", clip(id), v.meta.RunID)
	}
}

// clip bounds what is shown of a text of a file.
func clip(s string) string { return s[:min(len(s), 100)] }

// unique notes a request id and reports the line that had it before, 0 for none.
func (v *verifier) unique(id string, attempt int64, line int) int32 {
	text := fmt.Appendf(nil, "%s\x00%d", id, attempt)
	key := [2]uint64{maphash.Bytes(v.seed[0], text), maphash.Bytes(v.seed[1], text)}
	before, ok := v.ids[key]
	if !ok {
		v.ids[key] = int32(line)
	}
	return before
}

// seal tells what the hashes told.
func (v *verifier) seal(s *rundir.SealState) {
	v.res.Seal = s
	if !s.Sealed {
		level := Error
		if v.opts.AllowUnsealed && v.meta.End != nil {
			level = Note
		}
		v.say(level, KindSeal, "", 0, "%s", s.Why)
	}
	for _, p := range s.Problems {
		switch p.Kind {
		case rundir.SealMode: // a copy seldom keeps modes; its bytes are what counts
			v.say(Note, KindSeal, p.File, 0, "%s", p.Detail)
		case rundir.SealForeign:
			v.say(Error, KindFile, p.File, 0, "%s%s", p.Detail, compressed(p.File))
		case rundir.SealMissing, rundir.SealChanged, rundir.SealLink, rundir.SealSums:
			v.say(Error, KindSeal, p.File, 0, "%s", p.Detail)
		}
	}
}

// compressed says of a foreign file that looks like a compressed part of a run that
// it is not read.
func compressed(name string) string {
	plain := strings.TrimSuffix(name, filepath.Ext(name))
	if plain != name && rundir.IsPart(plain) && slices.Contains([]string{".gz", ".zst", ".bz2", ".xz", ".lz4", ".zip"}, filepath.Ext(name)) {
		return "; compressed files are not read"
	}
	return ""
}

// versionOf is the schema version of a line, 0 for none.
func versionOf(line []byte) int64 {
	var l struct {
		Schema int64 `json:"schema"`
	}
	_ = json.Unmarshal(line, &l) // a version that is no number is none
	return l.Schema
}
