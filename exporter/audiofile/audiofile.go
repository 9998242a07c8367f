// Package audiofile writes the sound of requests as WAV files, for a person who
// wants to hear what the checks complain about. It holds users' sound: nothing is
// written unless it was asked for, and the folder is its owner's alone.
//
//	s, err := audiofile.New(dir, log)
//	cfg.Listen = s.Listen
//	...
//	err = s.Close()
//
// A stream becomes NNNNNN-REQUEST.wav, and beside it NNNNNN-REQUEST.labels.txt in
// Audacity's form (start, end, label): where chunks begin, and what failed. A
// stream whose format changes becomes several files, -2 and so on behind the first.
//
// The analysis never waits for the disk: where the disk does not take it in time the
// rest of a stream is dropped, and its file says so by its name (.incomplete.wav);
// Dropped counts them, and the log tells of the first.
//
// Compressed sound is not written: no sample of it is known here.
package audiofile

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"unsafe"

	"github.com/omnitap/omnitap/proxy/timeline"
	"github.com/omnitap/omnitap/proxy/wire/audio"
)

// maxQueue bounds the bytes that wait for the disk.
const maxQueue = 64 << 20

// Saver writes streams to a folder. Make it with New; it is safe for concurrent use.
type Saver struct {
	dir   string
	log   *slog.Logger
	most  int64
	ready chan struct{} // something waits
	done  chan struct{}

	mu      sync.Mutex // protects what follows
	room    sync.Cond  // bytes were written; nil L but where somebody waits for it
	queue   []op
	bytes   int64
	n       int // streams so far
	dropped int // of them not whole
	err     error
	closed  bool
}

// op is something to be done for a stream.
type op struct {
	s      *stream
	format audio.Format
	rate   int
	data   []byte
	border bool
	end    *ending
}

// size is what an operation weighs in the account of memory.
func (o *op) size() int64 { return int64(len(o.data)) + int64(unsafe.Sizeof(*o)) }

// New makes the folder, with its parents, for its owner alone. log may be nil.
func New(dir string, log *slog.Logger) (*Saver, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder for sound: %w", err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Saver{dir: dir, log: log, most: maxQueue, ready: make(chan struct{}, 1), done: make(chan struct{})}
	go s.run()
	return s, nil
}

// Wait lets streams wait for the disk, for whoever has the time: nothing is dropped.
// Call it ahead of Listen.
func (s *Saver) Wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room.L = &s.mu
}

// Listen is a timeline.Listen: each stream is written.
func (s *Saver) Listen(id string, _ *timeline.Asked) timeline.Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.n++
	return &stream{s: s, n: s.n, id: id}
}

// Dropped returns how many streams are not whole, for want of time or room.
func (s *Saver) Dropped() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}

// Close writes what waits and returns the first failure to write. What comes later
// is not written.
func (s *Saver) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.wake()
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *Saver) wake() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// put queues an operation, and reports whether there was room. An end always has.
func (s *Saver) put(o op) bool {
	s.mu.Lock()
	n := o.size()
	for s.room.L != nil && s.bytes > 0 && s.bytes+n > s.most {
		s.room.Wait()
	}
	ok := o.end != nil || !s.closed && (s.bytes+n <= s.most || s.room.L != nil)
	if ok {
		s.queue = append(s.queue, o)
		s.bytes += n
	}
	s.mu.Unlock()
	s.wake()
	return ok
}

// run writes until Close.
func (s *Saver) run() {
	defer close(s.done)
	for {
		s.mu.Lock()
		todo, closed := s.queue, s.closed
		s.queue = nil
		s.mu.Unlock()
		for i := range todo {
			s.do(&todo[i])
		}
		if closed && len(todo) == 0 {
			return
		}
		if len(todo) == 0 {
			<-s.ready
		}
	}
}

// do does an operation. A stream that cannot be written is given up, with the reason
// in the log once.
func (s *Saver) do(o *op) {
	defer func() {
		s.mu.Lock()
		s.bytes -= o.size()
		s.mu.Unlock()
		s.room.Broadcast()
	}()
	w := &o.s.w
	if w.err == nil {
		w.guarded(s.dir, o)
	}
	if o.end == nil {
		return
	}
	lost := w.err != nil || o.s.lost.Load()
	if err := w.close(s.dir, o.end, lost); err != nil && w.err == nil {
		w.err, lost = err, true
	}
	if !lost {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped++; s.dropped == 1 || w.err != nil && s.err == nil {
		s.log.Warn("sound was not saved in full", "request", o.s.id, "reason", reason(w.err))
	}
	if s.err == nil {
		s.err = w.err
	}
}

func reason(err error) string {
	if err == nil {
		return "the disk is too slow"
	}
	return err.Error()
}
