package load

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/omnitap/omnitap/proxy/tap/capture"
)

// maxSet bounds the bodies of a set, in all.
const maxSet = 512 << 20

// Captures reads sets from captures of connections (records.md section 4).
type Captures struct {
	// Paths are files, and folders that are walked for NAME.wire.jsonl[.gz].
	Paths []string
	// Keys keeps the clients' keys: fields and query parameters whose name says key,
	// token, cookie and the like are dropped without it.
	Keys bool
}

// LeftOut is something in a capture that is not in the set.
type LeftOut struct{ File, Why string }

// NothingError says that captures hold no request that can be sent.
type NothingError struct{ LeftOut []LeftOut }

// maxNamed bounds what an error lists.
const maxNamed = 5

// Error lists what was left out.
func (e *NothingError) Error() string {
	if len(e.LeftOut) == 0 {
		return "no captures (NAME.wire.jsonl) in there"
	}
	var list []string
	for _, l := range e.LeftOut[:min(len(e.LeftOut), maxNamed)] {
		list = append(list, l.File+": "+l.Why)
	}
	if more := len(e.LeftOut) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return "the captures hold no request that can be sent: " + strings.Join(list, "; ")
}

// FromCaptures is the set of the whole HTTP requests in captures, without their clients'
// keys, in the order of the files' names. Where none is left, WebSockets for example, the
// error is a NothingError. Captures.Read tells also what was left out of a set.
func FromCaptures(paths []string) (Set, error) {
	set, left, err := Captures{Paths: paths}.Read()
	if err == nil && len(set) == 0 {
		err = &NothingError{left}
	}
	return set, err
}

// Read returns the set, and what is not in it. A body's own request id is dropped: servers
// refuse one that is under way, or take its output for late. A file that is no capture is
// an error; of a damaged one what stands before the damage is used.
func (c Captures) Read() (Set, []LeftOut, error) {
	files, err := c.files()
	if err != nil {
		return nil, nil, err
	}
	g := &gatherer{keys: c.Keys}
	for _, name := range files {
		if err := g.file(name); err != nil {
			return nil, nil, err
		}
	}
	return g.set, g.left, nil
}

// files lists the captures in the order in which they are read.
func (c Captures) files() (out []string, err error) {
	for _, path := range c.Paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("looking for captures: %w", err)
		}
		if !info.IsDir() {
			out = append(out, path)
			continue
		}
		err = filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && (strings.HasSuffix(name, ".wire.jsonl") || strings.HasSuffix(name, ".wire.jsonl.gz")) {
				out = append(out, name)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("looking for captures: %w", err)
		}
	}
	return out, nil
}

// file reads one capture.
func (g *gatherer) file(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("opening a capture: %w", err)
	}
	defer func() { _ = f.Close() }()
	var in io.Reader = f
	if strings.HasSuffix(name, ".gz") {
		if in, err = gzip.NewReader(f); err != nil {
			return fmt.Errorf("%s: %w", name, capture.ErrNoCapture)
		}
	}
	r, _, err := capture.NewReader(in)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	g.begin(name)
	for g.size <= maxSet {
		e, err := r.Read()
		if d, damaged := errors.AsType[*capture.DamagedError](err); damaged {
			g.leave(d.Error())
			break
		}
		if err != nil { // its end
			break
		}
		if e.Dir == 'c' {
			g.parser.Feed(e.Data)
		}
	}
	if g.size > maxSet {
		return fmt.Errorf("%s: the captures' requests take more than %d MiB", name, maxSet>>20)
	}
	g.end()
	return nil
}
