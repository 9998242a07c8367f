package rundir

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// maxLine bounds a line that is read back: a record holds a few KiB.
const maxLine = 64 << 20

// Run is a run directory that is read. It holds no file open between iterations.
type Run struct {
	Dir string
	// Metadata is what metadata.json says; zero when MetadataErr is set.
	Metadata    Metadata
	MetadataErr error
	// Closed says that the writer ended in order. A run that is not closed is
	// still being written, or its process died.
	Closed bool
	// Sealed says that the run carries its hashes: metadata.json says so and SHA256SUMS
	// is there. CheckSeal compares them.
	Sealed bool
}

// Read opens the run in dir, whatever state a crash left it in. It fails when
// dir holds no requests.jsonl.
func Read(dir string) (*Run, error) {
	if _, err := os.Stat(filepath.Join(dir, RequestsFile)); err != nil {
		return nil, fmt.Errorf("opening the run: %w", err)
	}
	r := &Run{Dir: dir}
	text, err := os.ReadFile(filepath.Join(dir, MetadataFile))
	if err == nil {
		err = json.Unmarshal(text, &r.Metadata)
	}
	if err != nil {
		r.Metadata = Metadata{}
		r.MetadataErr = fmt.Errorf("reading %s: %w", MetadataFile, err)
	}
	r.Closed = r.Metadata.End != nil
	_, err = os.Lstat(filepath.Join(dir, SumsFile))
	r.Sealed = r.Metadata.Sealed && err == nil // a crash amid sealing leaves the first alone
	return r, nil
}

// LineError names a line that could not be used. Iteration goes on behind it.
type LineError struct {
	File   string
	Line   int   // 1-based
	Offset int64 // of the line's first byte in the file
	// Unfinished is a last line without its line feed: what a crash leaves.
	Unfinished bool
	Err        error
}

// Error names the file, the line and what is wrong with it.
func (e *LineError) Error() string {
	if e.Unfinished {
		return fmt.Sprintf("%s: line %d (byte %d) is unfinished", e.File, e.Line, e.Offset)
	}
	return fmt.Sprintf("%s: line %d (byte %d) is damaged: %v", e.File, e.Line, e.Offset, e.Err)
}

// Unwrap returns what the decoder said.
func (e *LineError) Unwrap() error { return e.Err }

// Records iterates over requests.jsonl. A line that cannot be used yields a nil
// record and a *LineError, and the iteration goes on; any other error ends it.
func (r *Run) Records() iter.Seq2[*timeline.Record, error] {
	return lines[timeline.Record](r.Dir, RequestsFile)
}

// Sessions iterates over sessions.jsonl in the same way.
func (r *Run) Sessions() iter.Seq2[*timeline.Session, error] {
	return lines[timeline.Session](r.Dir, SessionsFile)
}

// Quality iterates over quality.jsonl in the same way. A directory without that
// file says nothing of the sound.
func (r *Run) Quality() iter.Seq2[*timeline.QualityLine, error] {
	return lines[timeline.QualityLine](r.Dir, QualityFile)
}

// Events iterates over events.jsonl in the same way. A directory without that
// file has no events.
func (r *Run) Events() iter.Seq2[*timeline.Event, error] {
	return lines[timeline.Event](r.Dir, EventsFile)
}

func lines[T any](dir, name string) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		f, err := os.Open(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err != nil {
			yield(nil, fmt.Errorf("opening %s: %w", name, err))
			return
		}
		defer f.Close()
		decodeLines(f, name, yield)
	}
}

func decodeLines[T any](f io.Reader, name string, yield func(*T, error) bool) {
	r := bufio.NewReaderSize(f, 64<<10)
	var offset int64
	for number := 1; ; number++ {
		line, size, err := readLine(r)
		unfinished := errors.Is(err, io.EOF)
		if size == 0 && unfinished {
			return
		}
		if err != nil && !unfinished && !errors.Is(err, errLongLine) {
			yield(nil, fmt.Errorf("reading %s: %w", name, err))
			return
		}
		bad := &LineError{File: name, Line: number, Offset: offset, Unfinished: unfinished, Err: err}
		offset += size
		value := new(T)
		if err == nil {
			bad.Err = json.Unmarshal(line, value)
		}
		if bad.Err != nil {
			value = nil
		}
		if value != nil && !yield(value, nil) || value == nil && !yield(nil, bad) {
			return
		}
	}
}

var errLongLine = errors.New("line too long")

// readLine returns a line without its line feed and the bytes it took, and
// io.EOF with a line that has no line feed. A line over the bound is skipped.
func readLine(r *bufio.Reader) (line []byte, size int64, err error) {
	for {
		part, err := r.ReadSlice('\n')
		size += int64(len(part))
		if size <= maxLine {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return line, size, err
		case size > maxLine:
			return nil, size, errLongLine
		default:
			return bytes.TrimSuffix(line, []byte{'\n'}), size, nil
		}
	}
}
