package audiofile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/omnitap/omnitap/proxy/timeline"
	"github.com/omnitap/omnitap/proxy/timeline/waveform"
	"github.com/omnitap/omnitap/proxy/wire/audio"
)

// stream is one stream on its way to the disk. It is a timeline.Listener.
type stream struct {
	s    *Saver
	n    int
	id   string
	lost atomic.Bool // bytes of it found no room
	w    writer      // the Saver's goroutine's own
}

// Samples is part of timeline.Listener.
func (x *stream) Samples(f audio.Format, rate int, p []byte) {
	if x.lost.Load() || f.FrameBytes() == 0 {
		return
	}
	if !x.s.put(op{s: x, format: f, rate: rate, data: bytes.Clone(p)}) {
		x.lost.Store(true)
	}
}

// Chunk is part of timeline.Listener.
func (x *stream) Chunk() {
	if !x.lost.Load() {
		x.s.put(op{s: x, border: true})
	}
}

// End is part of timeline.Listener.
func (x *stream) End(r *timeline.Record) {
	e := &ending{how: fmt.Sprintf("%s/%s", r.Terminal.State, r.Terminal.Reason)} // the record is others', too
	for _, f := range r.Quality.Checks {
		if f.Verdict == waveform.Failed {
			e.failed = append(e.failed, f)
		}
	}
	x.s.put(op{s: x, end: e})
}

// ending is what a stream's record says of its end.
type ending struct {
	how    string
	failed []waveform.Finding
}

// writer writes the files of one stream.
type writer struct {
	err    error
	part   int
	name   string // of the file at hand, without its end
	file   *wavFile
	format audio.Format
	rate   int
	rest   []byte // of a frame cut by a span
	frames int64  // of the stream ahead of the file at hand
	begun  bool   // a chunk that holds samples
	chunk  int
	labels strings.Builder
}

// guarded does an operation; a fault of it is its stream's alone.
func (w *writer) guarded(dir string, o *op) {
	defer func() {
		if r := recover(); r != nil {
			w.err = fmt.Errorf("writing sound failed: %v", r)
		}
	}()
	w.do(dir, o)
}

func (w *writer) do(dir string, o *op) {
	switch {
	case o.data != nil:
		w.samples(dir, o)
	case o.border && w.begun:
		w.begun = false
		w.chunk++
	}
}

func (w *writer) samples(dir string, o *op) {
	if w.file == nil || o.format != w.format || o.rate != w.rate {
		if w.next(dir, o); w.err != nil {
			return
		}
	}
	if !w.begun {
		w.begun = true
		w.label(w.file.frames, w.file.frames, fmt.Sprintf("chunk %d", w.chunk))
	}
	p := o.data
	if len(w.rest) > 0 {
		p = slices.Concat(w.rest, p)
	}
	whole := len(p) / w.format.FrameBytes() * w.format.FrameBytes()
	w.err = w.file.write(p[:whole])
	w.rest = append(w.rest[:0], p[whole:]...)
}

// next ends the file at hand and begins another one.
func (w *writer) next(dir string, o *op) {
	if w.err = w.end(dir); w.err != nil {
		return
	}
	w.format, w.rate, w.rest = o.format, o.rate, nil
	w.name = fmt.Sprintf("%06d-%s", o.s.n, safe(o.s.id))
	if w.part++; w.part > 1 {
		w.name += fmt.Sprintf("-%d", w.part)
	}
	w.name = unused(dir, w.name)
	w.file, w.err = createWAV(filepath.Join(dir, w.name+".part"), w.format, w.rate)
}

// end completes the file at hand.
func (w *writer) end(dir string) error {
	if w.file == nil {
		return nil
	}
	f := w.file
	w.frames += f.frames
	w.file = nil
	if err := f.close(); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(dir, w.name+".part"), filepath.Join(dir, w.name+".wav")); err != nil {
		return fmt.Errorf("naming a file of sound: %w", err)
	}
	return w.writeLabels(dir)
}

func (w *writer) writeLabels(dir string) error {
	defer w.labels.Reset()
	if err := os.WriteFile(filepath.Join(dir, w.name+".labels.txt"), []byte(w.labels.String()), 0o600); err != nil {
		return fmt.Errorf("writing labels: %w", err)
	}
	return nil
}

// label notes a stretch of the file at hand, in frames of it.
func (w *writer) label(from, to int64, text string) {
	rate := float64(max(1, w.rate))
	_, _ = fmt.Fprintf(&w.labels, "%.6f\t%.6f\t%s\n", float64(from)/rate, float64(to)/rate, text)
}

// close ends the stream. lost says that it is not whole: its name tells.
func (w *writer) close(dir string, e *ending, lost bool) error {
	if w.file == nil {
		return nil
	}
	if lost {
		_ = w.file.close()
		w.file = nil
		return os.Rename(filepath.Join(dir, w.name+".part"), filepath.Join(dir, w.name+".incomplete.wav"))
	}
	for _, f := range e.failed {
		at, where := int64(0), ""
		switch {
		case f.Sample == nil:
		case *f.Sample >= w.frames:
			at = *f.Sample - w.frames
		default:
			where = " (in an earlier part)"
		}
		w.label(at, at, "FAILED "+f.Name+where+": "+f.Reason)
	}
	w.label(w.file.frames, w.file.frames, "end: "+e.how)
	return w.end(dir)
}

// unused returns the name, with a mark where an earlier run left a file of that name.
func unused(dir, name string) string {
	for n, base := 2, name; ; n++ {
		if !slices.ContainsFunc([]string{".wav", ".part", ".incomplete.wav"}, func(end string) bool {
			_, err := os.Lstat(filepath.Join(dir, name+end))
			return err == nil
		}) {
			return name
		}
		name = fmt.Sprintf("%s~%d", base, n)
	}
}

// maxName bounds what of a request's id stands in a name.
const maxName = 80

// safe makes a part of a file name of a request id: clients choose theirs.
func safe(id string) string {
	id = strings.Map(func(r rune) rune {
		switch {
		case r >= '0' && r <= '9', r >= 'A' && r <= 'Z', r >= 'a' && r <= 'z', r == '-', r == '_':
			return r
		}
		return '_'
	}, id)
	return cmp.Or(id[:min(len(id), maxName)], "request")
}

// errFormat says that a format cannot be written.
var errFormat = errors.New("samples of this format cannot be written as WAV")
