package tap

import (
	"bufio"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/omnitap/omnitap/proxy/tap/capture"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// Reels says where captures of connections are written.
type Reels struct {
	// Dir is made with mode 0700 if it is not there.
	Dir string
	// Head is what each capture's first line says.
	Head capture.Header
	Log  *slog.Logger
}

// Record makes the Analyzer write a capture of each connection that is opened
// from here on. Call it ahead of Open.
func (a *Analyzer) Record(r Reels) error {
	if err := os.MkdirAll(r.Dir, 0o700); err != nil {
		return fmt.Errorf("making the capture folder: %w", err)
	}
	if r.Log == nil {
		r.Log = slog.New(slog.DiscardHandler)
	}
	a.reels = &r
	return nil
}

// tape writes one connection's capture. A nil tape does nothing. It is used by
// one worker at a time; its file is made with the first bytes.
type tape struct {
	r    *Reels
	path string
	// identify knows the connection's wall clock
	identify Identify
	f        *os.File
	buf      *bufio.Writer
	w        *capture.Writer
	t0       int64
	last     int64
	off      bool
}

func (a *Analyzer) tape(n uint64, identify Identify) *tape {
	if a.reels == nil {
		return nil
	}
	stamp := time.Now().UTC().Format("20060102T150405")
	return &tape{r: a.reels, identify: identify, path: filepath.Join(a.reels.Dir, fmt.Sprintf("%s-conn%06d.wire.jsonl", stamp, n))}
}

func (t *tape) start(mono int64) bool {
	if t == nil || t.off {
		return false
	}
	if t.w != nil {
		return true
	}
	f, err := os.OpenFile(t.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		t.fail(err)
		return false
	}
	head := t.r.Head
	t.t0 = mono
	head.T0MonoNS = &mono
	if off := t.identify(0).WallOffset; off != nil {
		wall := mono + *off
		head.T0WallNS = &wall
	}
	t.f, t.buf = f, bufio.NewWriterSize(f, 64<<10)
	if t.w, err = capture.NewWriter(t.buf, head); err != nil {
		t.fail(err)
		return false
	}
	return true
}

// data writes one read. Where its first byte has a stamp of its own it gets a line
// of its own: what a reading finds does not depend on the cut.
func (t *tape) data(dir Dir, p []byte, mono, first int64) {
	if first != 0 && first < mono && len(p) > 1 {
		t.data(dir, p[:1], first, 0)
		p = p[1:]
	}
	if t.start(mono) {
		t.check(t.w.Data(t.at(mono), "cs"[dir], p))
	}
}

func (t *tape) end(dir Dir, e timeline.End, mono int64) {
	if t.start(mono) {
		t.check(t.w.End(t.at(mono), "cs"[dir], e.String()))
	}
}

// at gives a stamp since the first; stamps of two sockets may cross by a few
// microseconds, and a capture's never go back.
func (t *tape) at(mono int64) int64 {
	t.last = max(t.last, mono-t.t0)
	return t.last
}

// flush puts what was written since into the file, in whole lines.
func (t *tape) flush() {
	if t != nil && t.buf != nil && !t.off {
		t.check(t.buf.Flush())
	}
}

func (t *tape) check(err error) {
	if err != nil {
		t.fail(err)
	}
}

// fail ends a capture that cannot be written; the relay goes on.
func (t *tape) fail(err error) {
	t.r.Log.Warn("capture ends early", "file", t.path, "reason", err.Error())
	t.off = true
	t.close()
}

// stop ends a capture that cannot be whole.
func (t *tape) stop(reason string) {
	if t != nil && !t.off {
		t.flush()
		t.r.Log.Warn("capture ends early", "file", t.path, "reason", reason)
		t.off = true
		t.close()
	}
}

func (t *tape) close() {
	if t == nil || t.f == nil {
		return
	}
	if !t.off {
		t.off = true
		if err := t.buf.Flush(); err != nil {
			t.r.Log.Warn("capture ends early", "file", t.path, "reason", err.Error())
		}
	}
	if err := t.f.Close(); err != nil {
		t.r.Log.Warn("closing a capture", "file", t.path, "reason", err.Error())
	}
	t.f, t.buf, t.w = nil, nil, nil
}
