package join

import (
	"strings"

	"github.com/omnitap/omnitap/exporter/join/control"
	"github.com/omnitap/omnitap/probes/event"
)

const (
	shmDir  = "/dev/shm/"
	oExcl   = 0o200 // O_EXCL
	lockEx  = 2     // LOCK_EX
	lockUn  = 8     // LOCK_UN
	enoent  = -2    // -ENOENT
	maxName = 255
)

// shared is what is known of /dev/shm.
type shared struct {
	segs   table[string, *segment]
	fds    table[fdKey, string] // name of the segment, or of the lock file
	locks  table[lockKey, int64]
	misses table[missKey, *miss]
	// writing is the segment that a thread fills now: it fills one after the other.
	writing table[int32, *segment]
	// random finds a transfer by Python's random name, from its creation or from the
	// message that names it, whichever comes first.
	random table[string, *Transfer]
	// forgot says that a poll that missed was dropped: no misses may then be unseen ones.
	forgot bool
}

type fdKey struct{ pid, fd int32 }

type lockKey struct {
	tid int32
	key string
}

type missKey struct {
	pid  int32
	name string
}

type miss struct{ first, count int64 }

// segment is one that was created and not yet unlinked.
type segment struct {
	t      *Transfer
	kind   control.KeyKind
	writer *process
	fd     int32
	closed int64
	reader *process
	// opened is the return of the reader's last open: the one before the unlink copies,
	// an earlier one may meet an empty file. Under the lock it is surely the one.
	opened int64
	// early are its opens ahead of the lock: the last of them found the content.
	early        int64
	locked       bool
	contradicted bool
}

func newShared(limit int) shared {
	return shared{
		segs:    newTable[string, *segment](limit),
		fds:     newTable[fdKey, string](limit),
		locks:   newTable[lockKey, int64](limit),
		misses:  newTable[missKey, *miss](limit),
		writing: newTable[int32, *segment](limit),
		random:  newTable[string, *Transfer](limit),
	}
}

// segment takes a system call on shared memory.
func (j *Joiner) segment(e *event.Event) {
	p := j.procs[e.PID]
	switch e.Probe {
	case event.OpenAt, event.OpenMisses, event.Unlink:
		name, ok := strings.CutPrefix(e.Path, shmDir)
		if !ok || name == "" || len(name) > maxName || strings.HasPrefix(name, "sem.") {
			return
		}
		if e.Probe == event.Unlink {
			j.unlink(e, p, name)
		} else if p != nil {
			j.open(e, p, name)
		}
	case event.FTruncate:
		if s := j.written(e, p); s != nil && s.t.Bytes < 0 {
			s.t.Bytes, s.t.BytesBy = e.Size, Exact
		}
	case event.Close:
		if s := j.written(e, p); s != nil && s.closed == 0 {
			s.closed = e.MonoNS
			if s.t.TxEnd == 0 && s.kind == control.KeyRandom {
				s.t.TxEnd = e.MonoNS
			}
		}
		j.shm.fds.del(fdKey{e.PID, e.FD})
	case event.FlockExit, event.FlockEnter:
		if p != nil {
			j.flock(e, p)
		}
	default:
		// No other call is about shared memory.
	}
}

// written is the segment that a process has open for writing under a descriptor.
func (j *Joiner) written(e *event.Event, p *process) *segment {
	if p == nil {
		return nil
	}
	name, ok := j.shm.fds.get(fdKey{e.PID, e.FD})
	if !ok {
		return nil
	}
	// A descriptor of the same number may be another file's by now, where events were
	// lost between.
	if s, _ := j.shm.writing.get(e.TID); s != nil && s.t.Key == name && s.writer == p && s.fd == e.FD {
		return s
	}
	return nil
}

func (j *Joiner) open(e *event.Event, p *process, name string) {
	if key, isLock := lockOf(name); isLock {
		if e.Probe == event.OpenAt && e.Ret >= 0 {
			j.shm.fds.put(fdKey{e.PID, int32(e.Ret)}, name)
			j.shm.writing.del(e.TID)
			if s, _ := j.shm.segs.get(key); s != nil && s.reader == p {
				s.locked = true
			}
		}
		return
	}
	switch {
	case e.Probe == event.OpenMisses:
		j.missed(p, name, stampOf(e), max(e.Count, 0))
	case e.Ret == enoent:
		j.missed(p, name, stampOf(e), 1)
	case e.Ret < 0:
	case e.Flags&oExcl != 0:
		j.shm.fds.put(fdKey{e.PID, int32(e.Ret)}, name)
		j.create(e, p, name)
	default:
		j.shm.fds.put(fdKey{e.PID, int32(e.Ret)}, name)
		j.reopened(e, p, name)
	}
}

// stampOf is the call of an event, or its own stamp where the probe tells no call.
func stampOf(e *event.Event) int64 {
	if e.EnterNS > 0 && e.EnterNS <= e.MonoNS {
		return e.EnterNS
	}
	return e.MonoNS
}

// lockOf is the key that a lock file guards.
func lockOf(name string) (key string, ok bool) {
	if key, ok = strings.CutPrefix(name, "shm_"); !ok {
		return "", false
	}
	return strings.CutSuffix(key, "_lockfile.lock")
}

// missed counts polls for a segment that was not there.
func (j *Joiner) missed(p *process, name string, first, n int64) {
	k := missKey{p.pid, name}
	if m, ok := j.shm.misses.get(k); ok {
		m.first = min(m.first, first)
		m.count += n
		return
	}
	if _, dropped := j.shm.misses.put(k, &miss{first, n}); dropped {
		j.stats.MissesDropped++
		j.shm.forgot = true
	}
}

// create begins a transfer: a created segment may also never be read.
func (j *Joiner) create(e *event.Event, p *process, name string) {
	if old, _ := j.shm.segs.get(name); old != nil {
		old.t.Replaced = true
		j.settle(name, old)
	}
	key, known := control.Key(name)
	s := &segment{kind: key.Kind, writer: p, fd: int32(e.Ret)}
	if key.Kind == control.KeyRandom {
		if t, _ := j.shm.random.get(name); t != nil && t.TxStart == 0 {
			s.t = t
		}
	}
	if s.t == nil {
		s.t = newTransfer("shm")
		s.t.Unread = true
	}
	t := s.t
	t.Key, t.FromPID = name, p.pid
	if t.From == "" {
		t.From = p.stage
	}
	t.TxStart = stampOf(e)
	if at, ok := j.shm.locks.get(lockKey{e.TID, name}); ok {
		t.TxStart = at
	}
	switch {
	case key.Kind == control.KeyRandom:
		j.shm.random.put(name, t)
	case known && key.Request != "":
		j.named(s, p, &key)
	}
	j.shm.writing.put(e.TID, s)
	if old, dropped := j.shm.segs.put(name, s); dropped {
		j.stats.SegmentsDropped++
		old.finish()
	}
}

// named gives a segment the request and the edge that its name tells.
func (j *Joiner) named(s *segment, p *process, key *control.KeyParts) {
	t := s.t
	t.Request, t.Chunk = key.Request, key.Chunk
	s.contradicted = p.id >= 0 && int64(p.id) != key.From
	to := key.To
	if to == control.None {
		to = key.From + 1
	}
	if next := j.numbered(p, int(min(to, 1<<20))); next != nil {
		t.To = next.stage
	}
	t.grade(s.contradicted)
	j.own(t, j.requests.find(j, key.Request, t.TxStart, 0))
}

// reopened is an open of a segment that is there, by whomever.
func (j *Joiner) reopened(e *event.Event, p *process, name string) {
	s, _ := j.shm.segs.get(name)
	if s == nil || p.sameStage(s.writer) {
		return
	}
	if s.reader != nil && s.reader != p {
		s.locked, s.early = false, 0
	}
	s.reader, s.opened = p, e.MonoNS
	if s.locked {
		s.t.RxStart = e.MonoNS
	} else {
		s.early++
	}
}

// flock takes the lock of a key, or its release.
func (j *Joiner) flock(e *event.Event, p *process) {
	name, ok := j.shm.fds.get(fdKey{e.PID, e.FD})
	if !ok {
		return
	}
	key, ok := lockOf(name)
	if !ok {
		return
	}
	k := lockKey{e.TID, key}
	switch {
	case e.Probe == event.FlockExit && e.Flags&lockEx != 0 && e.Ret == 0:
		j.shm.locks.put(k, e.MonoNS)
	case e.Probe == event.FlockEnter && e.Flags&lockUn != 0:
		j.shm.locks.del(k)
		if s, _ := j.shm.segs.get(key); s != nil && s.writer == p && s.t.TxEnd == 0 {
			s.t.TxEnd = e.MonoNS
		}
	}
}

// unlink ends a segment. It is a receipt only where a stage does it that is not the
// sender's: resource trackers and a server that stops unlink what was never read.
func (j *Joiner) unlink(e *event.Event, p *process, name string) {
	s, _ := j.shm.segs.get(name)
	if s == nil || e.Ret != 0 {
		return
	}
	switch {
	case p == nil:
	case p.sameStage(s.writer):
		s.t.Replaced = true
	case s.reader == p || p.role != roleAPI:
		j.received(e, s, p, name)
	}
	j.settle(name, s)
}

func (j *Joiner) received(e *event.Event, s *segment, p *process, name string) {
	t := s.t
	if s.reader == p {
		t.RxStart = s.opened
	}
	t.RxEnd, t.EndBy, t.ToPID, t.Unread = stampOf(e), Syscall, p.pid, false
	if s.kind == control.KeyChunk || s.kind == control.KeyKV || t.To == "" {
		t.To = p.stage
	}
	if s.kind != control.KeyChunk && s.kind != control.KeyKV {
		return
	}
	k := missKey{p.pid, name}
	if m, ok := j.shm.misses.get(k); ok && m.first <= t.RxEnd {
		t.WaitStart, t.Misses = m.first, m.count
		j.shm.misses.del(k)
	} else if !j.shm.forgot {
		t.Misses = 0
	}
	if s.locked && s.early > 0 {
		t.Empty = s.early - 1
	}
}

// settle takes a segment out of the table: no more of it comes.
func (j *Joiner) settle(name string, s *segment) {
	j.shm.segs.del(name)
	s.finish()
	if t := s.t; t.owner == nil && t.Request == "" && t.RxEnd > 0 {
		t.grade(false)
		j.keepLoose(t)
	}
	if s.t.owner != nil {
		s.t.owner.touch(j, s.t.End())
	}
}

func (s *segment) finish() {
	if s.t.TxEnd == 0 {
		s.t.TxEnd = s.closed
	}
	if s.t.Request != "" {
		s.t.grade(s.contradicted)
	}
}

// keepLoose holds a transfer of no request, and tells the one that makes room.
func (j *Joiner) keepLoose(t *Transfer) {
	if old, dropped := j.loose.add(t); dropped && old.owner == nil {
		j.release(old)
	}
}
