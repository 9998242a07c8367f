package find

import (
	"context"
	"slices"
	"time"
)

// After an exec the title comes when the program has loaded what it needs.
var titleAfter = []time.Duration{time.Second, 2 * time.Second}

// Bounds of what hints may make us keep.
const (
	maxAtExec = 4096
	maxDue    = 64
)

// Exec tells that a process began another program. Its environment is read at once,
// since a title soon clears most of it; its command line twice, later.
func (f *Finder) Exec(pid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id, err := f.proc.stat(pid, f.buf)
	if err != nil {
		return
	}
	now := f.now()
	if e := f.known[pid]; e != nil && e.StartTicks == id.start {
		e.watch, e.mapped, e.Libs = now.Add(watchFor), time.Time{}, nil
	}
	env, err := f.proc.environ(pid, f.keep)
	if err == nil && len(env) > 0 && len(f.atExec) < maxAtExec {
		f.atExec[execKey{pid, id.start}] = env
	} else {
		delete(f.atExec, execKey{pid, id.start})
	}
	if !f.matters(pid, id) {
		return // most programs are none of ours, and a scan is dear
	}
	for _, d := range titleAfter {
		f.schedule(now.Add(d))
	}
}

// matters says whether a program that has just begun may belong to a server, by its
// name and command line or by its parent.
func (f *Finder) matters(pid int, id identity) bool {
	if f.members[id.ppid] || f.rulesEnv {
		return true
	}
	e := entry{}
	e.PID, e.PPID, e.Comm = pid, id.ppid, id.comm
	if args, err := f.proc.args(pid); err == nil {
		e.Args = args
	}
	e.Env = f.atExec[execKey{pid, id.start}]
	return f.cheap(&e)
}

// Fork tells that a process has a child. One of a known process is looked at soon.
func (f *Finder) Fork(pid, parent int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.members[parent] && !f.members[pid] {
		return
	}
	now := f.now()
	f.schedule(now)
	for _, d := range titleAfter {
		f.schedule(now.Add(d))
	}
}

// Exit tells that a process ended.
func (f *Finder) Exit(pid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.members[pid] {
		f.schedule(f.now())
	}
}

// schedule asks Run for a scan. Scans close together become one.
func (f *Finder) schedule(at time.Time) {
	const together = 200 * time.Millisecond
	at = at.Truncate(together).Add(together)
	if i, found := slices.BinarySearchFunc(f.due, at, time.Time.Compare); !found && len(f.due) < maxDue {
		f.due = slices.Insert(f.due, i, at)
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// next is when the next scan is due, at the latest after every.
func (f *Finder) next(last time.Time, every time.Duration) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := last.Add(every)
	if len(f.due) > 0 && f.due[0].Before(at) {
		return f.due[0]
	}
	return at
}

// passed forgets what was due until now.
func (f *Finder) passed(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.due = slices.DeleteFunc(f.due, func(at time.Time) bool { return !at.After(now) })
}

// Run scans at once, then when a hint asks for it, and after every at the latest,
// until the context ends. use gets every result, in Run's goroutine.
func (f *Finder) Run(ctx context.Context, every time.Duration, use func(Result)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	last := f.now().Add(-every) // the first is due now, also if a hint comes first
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.wake:
		case <-timer.C:
			last = f.now()
			f.passed(last)
			r, err := f.Scan()
			if err != nil {
				return err
			}
			use(r)
		}
		timer.Reset(max(0, f.next(last, every).Sub(f.now())))
	}
}
