package rundir

import (
	"bytes"
	"io"
	"sync"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// blockBytes is the size of one piece of buffer. The buffer is a list of pieces
// because one growing slice would be copied, tens of MiB at a time, under the
// lock that the data path takes.
const blockBytes = 256 << 10

// eventBytes is more than an event line needs, so that a line started in a block
// nearly always fits; one that does not grows its block.
const eventBytes = 4 << 10

var blocks = sync.Pool{New: func() any { return &block{data: make([]byte, 0, blockBytes)} }}

// block holds whole lines.
type block struct {
	data []byte
}

func (b *block) free() {
	if cap(b.data) == blockBytes {
		b.data = b.data[:0]
		blocks.Put(b)
	}
}

// file is what a lane needs of *os.File.
type file interface {
	io.WriteCloser
	Truncate(size int64) error
	Sync() error
}

// Counts says what became of the lines of one file. Lost lines did not fit the
// buffer, could not be encoded, came after Close, or were still waiting for a
// failing disk at Close.
type Counts struct {
	Lines     int64 `json:"lines"`
	Bytes     int64 `json:"bytes"`
	LostLines int64 `json:"lost_lines"`
	LostBytes int64 `json:"lost_bytes"`
}

// lane is one file with its buffer:
//
//	caller → add → queue of blocks → flush → pending → file
//
// Any goroutine may add; one at a time may flush and giveUp.
type lane struct {
	name  string
	limit int
	file  file

	mu     sync.Mutex // protects the fields of this group
	queue  []*block
	held   int // bytes in queue and pending
	counts Counts
	closed bool

	// The flusher's own.
	pending []*block
	partial int   // bytes of pending[0] that are in the file already
	size    int64 // bytes in the file
	lineEnd int64 // bytes in the file up to its last line feed

	// What the logger was told.
	failing bool  // the last write failed
	losing  bool  // lines get lost
	lost    int64 // lines lost at the last flush
}

// addLine appends an encoded line and says whether the flusher has to be woken.
func (l *lane) addLine(line []byte) (wake bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.held+len(line) > l.limit {
		l.lose(len(line))
		return false
	}
	first := len(l.queue) == 0
	b := l.tail(len(line))
	b.data = append(b.data, line...)
	l.held += len(line)
	return first
}

// addEvent encodes an event in place, which saves a copy and an allocation.
func (l *lane) addEvent(e *timeline.Event) (wake bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := len(l.queue) == 0
	b := l.tail(eventBytes)
	before := len(b.data)
	b.data = append(AppendEvent(b.data, e), '\n')
	n := len(b.data) - before
	if l.closed || l.held+n > l.limit {
		b.data = b.data[:before]
		l.lose(n)
		return first
	}
	l.held += n
	return first
}

// lose counts one line that will not be written. The caller holds mu.
func (l *lane) lose(n int) {
	l.counts.LostLines++
	l.counts.LostBytes += int64(n)
}

// tail gives the block that has room for n more bytes. The caller holds mu.
func (l *lane) tail(n int) *block {
	if k := len(l.queue); k > 0 {
		if b := l.queue[k-1]; cap(b.data)-len(b.data) >= n {
			return b
		}
	}
	b := blocks.Get().(*block)
	if n > blockBytes {
		b.free()
		b = &block{data: make([]byte, 0, n)}
	}
	l.queue = append(l.queue, b)
	return b
}

// flush writes what waits. What the file did not take stays, from the very byte
// on, so that the next attempt continues in the middle of the line.
//
// The queue is taken only when nothing is pending: taken at every attempt, it
// would give a failing disk a new block, hardly filled, each time, and memory
// would no longer be what limit says.
func (l *lane) flush() error {
	for {
		if len(l.pending) == 0 {
			l.mu.Lock()
			l.pending, l.queue = l.queue, nil
			l.mu.Unlock()
		}
		if len(l.pending) == 0 {
			return nil
		}
		if err := l.flushPending(); err != nil {
			return err
		}
	}
}

func (l *lane) flushPending() error {
	for len(l.pending) > 0 {
		b := l.pending[0]
		rest := b.data[l.partial:]
		n, err := l.file.Write(rest)
		l.wrote(rest[:n])
		if err == nil && n < len(rest) {
			err = io.ErrShortWrite
		}
		if err != nil {
			l.partial += n
			return err
		}
		b.free()
		l.partial = 0
		l.pending[0] = nil
		l.pending = l.pending[1:]
	}
	return nil
}

// wrote counts bytes that are in the file.
func (l *lane) wrote(p []byte) {
	if i := bytes.LastIndexByte(p, '\n'); i >= 0 {
		l.lineEnd = l.size + int64(i) + 1
	}
	l.size += int64(len(p))
	lines := int64(bytes.Count(p, []byte{'\n'}))

	l.mu.Lock()
	defer l.mu.Unlock()
	l.held -= len(p)
	l.counts.Lines += lines
	l.counts.Bytes += int64(len(p))
}

// giveUp counts what still waits as lost and cuts a line that was written in part.
func (l *lane) giveUp() error {
	l.mu.Lock()
	l.pending = append(l.pending, l.queue...)
	l.queue = nil
	for i, b := range l.pending {
		rest := b.data
		if i == 0 {
			rest = rest[l.partial:]
		}
		l.counts.LostLines += int64(bytes.Count(rest, []byte{'\n'}))
		l.counts.LostBytes += int64(len(rest))
		l.held -= len(rest)
	}
	cut := l.size - l.lineEnd
	l.counts.Bytes -= cut
	l.counts.LostBytes += cut
	l.mu.Unlock()

	l.pending, l.partial = nil, 0
	if cut == 0 {
		return nil
	}
	l.size = l.lineEnd
	return l.file.Truncate(l.lineEnd)
}

// shut refuses further lines.
func (l *lane) shut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

func (l *lane) snapshot() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}
