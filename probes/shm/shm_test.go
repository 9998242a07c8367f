//go:build linux && amd64

package shm_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/probes/event"
	"github.com/omnitap/omnitap/probes/internal/live"
	"github.com/omnitap/omnitap/probes/kernel"
	"github.com/omnitap/omnitap/probes/shm"
)

func TestMain(m *testing.M) {
	live.Main(m, map[string]live.Act{"calls": calls, "paged": paged, "burst": burst})
}

const dir = "/dev/shm/"

// calls makes system calls as they are told: open PATH FLAGS, truncate FD N and so on.
func calls(args []string) (string, error) {
	var out []string
	for len(args) > 0 {
		n := 3
		switch args[0] {
		case "open":
			fd, err := unix.Open(args[1], flags[args[2]]|unix.O_CLOEXEC, 0o600)
			if errno, failed := errors.AsType[unix.Errno](err); failed {
				fd = -int(errno)
			}
			out = append(out, fmt.Sprint(fd))
		case "truncate", "flock":
			var fd, v int
			fmt.Sscan(args[1], &fd)
			fmt.Sscan(args[2], &v)
			do := unix.Flock
			if args[0] == "truncate" {
				do = func(fd, n int) error { return unix.Ftruncate(fd, int64(n)) }
			}
			if err := do(fd, v); err != nil {
				return "", err
			}
		case "misses":
			var v int
			fmt.Sscan(args[2], &v)
			for range v {
				if _, err := unix.Open(args[1], unix.O_RDONLY|unix.O_CLOEXEC, 0); err != unix.ENOENT {
					return "", fmt.Errorf("a miss: %w", err)
				}
			}
		case "close":
			var fd int
			fmt.Sscan(args[1], &fd)
			if err := unix.Close(fd); err != nil {
				return "", err
			}
			n = 2
		case "unlink":
			if err := unix.Unlink(args[1]); err != nil {
				return "", err
			}
			n = 2
		default:
			return "", fmt.Errorf("what is %q?", args[0])
		}
		args = args[n:]
	}
	return strings.Join(out, " "), nil
}

// flags are those of vLLM-Omni's connector.
var flags = map[string]int{
	"lock": unix.O_RDWR | unix.O_CREAT | unix.O_TRUNC, "create": unix.O_RDWR | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW,
	"read": unix.O_RDWR, "only": unix.O_RDONLY,
}

func start(t *testing.T) (*kernel.Watch, *kernel.Family, *live.Process) {
	t.Helper()
	w := live.NewWatch(t)
	f, err := shm.Load(w, 0)
	live.Family(t, f, err)
	p := live.Start(t, "calls")
	live.Add(t, w, p)
	return w, f, p
}

// told words events for a comparison, without times and threads.
func told(events []event.Event) (out []string) {
	for i := range events {
		e := &events[i]
		s := fmt.Sprintf("%v %s", e.Probe, strings.TrimPrefix(e.Path, dir))
		switch e.Probe {
		case event.OpenAt, event.Unlink, event.FlockExit:
			s += fmt.Sprintf(" ret %d", e.Ret)
		case event.OpenMisses:
			s += fmt.Sprintf(" count %d", e.Count)
		case event.FTruncate:
			s += fmt.Sprintf(" size %d", e.Size)
		default:
		}
		out = append(out, s)
	}
	return out
}

// TestConnector has a writer and a reader do what vLLM-Omni's connector does, in its
// order, and wants every call told once, in order, with its values.
func TestConnector(t *testing.T) {
	w, f, writer := start(t)
	reader := live.Start(t, "calls")
	live.Add(t, w, reader)
	key := fmt.Sprintf("chatcmpl-omt-%d-0123abcd_0_1", os.Getpid())
	seg, lock := dir+key, dir+"shm_"+key+"_lockfile.lock"
	t.Cleanup(func() { os.Remove(seg); os.Remove(lock) })

	reader.Do("misses", seg, "1")
	if got := told(live.Of(live.Drain(t, f), reader.Pid)); !cmp.Equal(got, []string{"openat " + key + " ret -2"}) {
		t.Errorf("the first miss is told at once: %q", got)
	}
	reader.Do("misses", seg, "1000")
	if got := live.Of(live.Drain(t, f), reader.Pid); len(got) > 0 {
		t.Errorf("later misses are counted, not told: %q", told(got))
	}

	l := writer.Do("open", lock, "lock")
	writer.Do("flock", l, "2")
	s := writer.Do("open", seg, "create")
	writer.Do("truncate", s, "123456")
	writer.Do("close", s)
	writer.Do("flock", l, "8")
	writer.Do("close", l)
	name := "shm_" + key + "_lockfile.lock"
	want := []string{
		"openat " + name + " ret " + l, "flock_enter ", "flock_exit  ret 0", "openat " + key + " ret " + s, "ftruncate  size 123456",
		"close ", "flock_enter ", "flock_exit  ret 0", "close ",
	}
	events := live.Of(live.Drain(t, f), writer.Pid)
	if diff := cmp.Diff(want, told(events)); diff != "" {
		t.Errorf("the writer's calls (-want +got):\n%s", diff)
	}
	checkTimes(t, events)
	if ops := []int64{events[1].Flags, events[2].Flags, events[6].Flags}; !cmp.Equal(ops, []int64{2, 2, 8}) {
		t.Errorf("operations of flock are %v", ops)
	}

	a := reader.Do("open", seg, "read")
	rl := reader.Do("open", lock, "read")
	reader.Do("flock", rl, "2")
	b := reader.Do("open", seg, "read")
	reader.Do("close", b, "unlink", seg, "flock", rl, "8", "close", rl, "unlink", lock, "close", a)
	want = []string{
		"openat_misses " + key + " count 1000", "openat " + key + " ret " + a, "openat " + name + " ret " + rl,
		"flock_enter ", "flock_exit  ret 0", "openat " + key + " ret " + b, "close ", "unlink " + key + " ret 0",
		"flock_enter ", "flock_exit  ret 0", "close ", "unlink " + name + " ret 0", "close ",
	}
	events = live.Of(live.Drain(t, f), reader.Pid)
	if diff := cmp.Diff(want, told(events)); diff != "" {
		t.Errorf("the reader's calls (-want +got):\n%s", diff)
	}
	m := events[0]
	if m.EnterNS <= 0 || m.MonoNS <= m.EnterNS || m.MonoNS > events[1].EnterNS {
		t.Errorf("misses from %d to %d, the open at %d", m.EnterNS, m.MonoNS, events[1].EnterNS)
	}
	checkTimes(t, events[1:])
	if c := live.Counts(t, f); c.Lost+c.Skipped != 0 {
		t.Errorf("lost events: %+v", c)
	}
}

func checkTimes(t *testing.T, events []event.Event) {
	t.Helper()
	last := int64(0)
	for i := range events {
		e := &events[i]
		if e.MonoNS <= last || e.EnterNS > e.MonoNS {
			t.Errorf("%v at %d (call at %d) after %d", e.Probe, e.MonoNS, e.EnterNS, last)
		}
		last = e.MonoNS
		if e.TID == 0 || e.Comm == "" {
			t.Errorf("%v has no thread: %d %q", e.Probe, e.TID, e.Comm)
		}
	}
}

// TestExists: the name is taken, then it is replaced; and a name of 255 bytes, the
// longest there is, comes whole, as a lock does that is as long.
func TestExists(t *testing.T) {
	_, f, p := start(t)
	seg := dir + strings.Repeat("n", 246) + "_0_123456"
	lock := dir + "shm_" + strings.Repeat("k", 255-4-14) + "_lockfile.lock"
	if len(seg) != len(dir)+255 || len(lock) != len(dir)+255 {
		t.Fatal(len(seg), len(lock))
	}
	t.Cleanup(func() { os.Remove(seg); os.Remove(lock) })
	s := p.Do("open", seg, "create")
	again := p.Do("open", seg, "create")
	if again != "-17" {
		t.Fatal(again)
	}
	l := p.Do("open", lock, "lock")
	p.Do("flock", l, "2", "truncate", l, "7", "truncate", s, "8", "unlink", seg, "unlink", lock)
	key, name := seg[len(dir):], lock[len(dir):]
	want := []string{
		"openat " + key + " ret " + s, "openat " + key + " ret -17", "openat " + name + " ret " + l, "flock_enter ", "flock_exit  ret 0",
		"ftruncate  size 8", "unlink " + key + " ret 0", "unlink " + name + " ret 0",
	}
	if diff := cmp.Diff(want, told(live.Of(live.Drain(t, f), p.Pid))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestOthers: other files are not told, and neither are other processes.
func TestOthers(t *testing.T) {
	w, f, p := start(t)
	stranger := live.Start(t, "calls")
	file := t.TempDir() + "/file"
	seg := fmt.Sprintf("%somt-others-%d", dir, os.Getpid())
	t.Cleanup(func() { os.Remove(seg) })
	fd := p.Do("open", file, "lock")
	p.Do("flock", fd, "2", "truncate", fd, "9", "close", fd, "unlink", file, "misses", "/dev/shmx/"+"a", "3", "misses", "/dev/null2", "3")
	s := stranger.Do("open", seg, "create")
	stranger.Do("truncate", s, "3", "close", s, "unlink", seg, "misses", seg, "10")
	if got := live.Drain(t, f); len(got) > 0 {
		t.Errorf("told %q", told(got))
	}
	if err := w.Remove(p.Pid); err != nil {
		t.Fatal(err)
	}
	p.Do("misses", seg, "2")
	if got := live.Drain(t, f); len(got) > 0 {
		t.Errorf("told of a process that is watched no longer: %q", told(got))
	}
}

// TestReusedNumber: a descriptor of a process that is gone says nothing of a later
// process with the same number. The table is given such an entry.
func TestReusedNumber(t *testing.T) {
	_, f, p := start(t)
	file := t.TempDir() + "/file"
	fd := p.Do("open", file, "lock")
	var n int32
	fmt.Sscan(fd, &n)
	key := struct {
		TGID uint32
		FD   int32
	}{uint32(p.Pid), n}
	if err := f.Map("fds").Put(key, struct{ Born, Kind uint64 }{1, 1}); err != nil {
		t.Fatal(err)
	}
	p.Do("truncate", fd, "5", "close", fd)
	if got := live.Drain(t, f); len(got) > 0 {
		t.Errorf("told %q", told(got))
	}
}

// paged opens a segment by a path whose page is not there: it is a fresh mapping of a
// file, and the kernel reads it first.
func paged(args []string) (string, error) {
	file, err := os.Open(args[0])
	if err != nil {
		return "", err
	}
	for _, call := range []uintptr{unix.SYS_OPENAT, unix.SYS_UNLINKAT} {
		p, err := unix.Mmap(int(file.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE)
		if err != nil {
			return "", err
		}
		at := unix.AT_FDCWD
		if _, _, e := unix.Syscall6(call, uintptr(at), uintptr(unsafe.Pointer(&p[0])), 0, 0, 0, 0); e != 0 {
			return "", e
		}
		if err := unix.Munmap(p); err != nil {
			return "", err
		}
	}
	return "done", nil
}

func TestPathNotResident(t *testing.T) {
	w := live.NewWatch(t)
	f, err := shm.Load(w, 0)
	live.Family(t, f, err)
	p := live.Start(t, "paged")
	live.Add(t, w, p)
	seg := fmt.Sprintf("%somt-paged-%d", dir, os.Getpid())
	if err := os.WriteFile(seg, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(seg) })
	file := t.TempDir() + "/path"
	if err := os.WriteFile(file, append([]byte(seg), make([]byte, 4096)...), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := p.Do(file); got != "done" {
		t.Fatal(got)
	}
	got := live.Of(live.Drain(t, f), p.Pid)
	if len(got) != 2 || got[0].Probe != event.OpenAt || got[0].Path != seg || got[1].Probe != event.Unlink || got[1].Path != seg {
		t.Errorf("told %q", told(got))
	}
}

// burst unlinks what is not there, and tells how long that took.
func burst(args []string) (string, error) {
	var n int
	fmt.Sscan(args[0], &n)
	from := time.Now()
	for range n {
		if err := unix.Unlink(dir + "omt-not-there"); err != unix.ENOENT {
			return "", fmt.Errorf("unlink: %w", err)
		}
	}
	return fmt.Sprint(time.Since(from).Nanoseconds()), nil
}

// TestC71LostEvents: a ring of 4 KiB that nobody reads for as long as a process makes
// 200,000 calls. What is not told is counted, exactly, and after that the ring works as
// before.
func TestC71LostEvents(t *testing.T) {
	const calls = 200_000
	w := live.NewWatch(t)
	f, err := shm.Load(w, 4096)
	live.Family(t, f, err)
	p, other := live.Start(t, "burst"), live.Start(t, "burst")
	live.Add(t, w, p)
	live.Add(t, w, other)
	var ns, ns2 float64
	p.Tell(fmt.Sprint(calls / 2))
	other.Tell(fmt.Sprint(calls / 2))
	fmt.Sscan(p.Answer(), &ns)
	fmt.Sscan(other.Answer(), &ns2)
	t.Logf("%.0f events/s", calls/max(ns, ns2)*1e9)
	got := live.Drain(t, f)
	c := live.Counts(t, f)
	if c.Sent != uint64(len(got)) || c.Sent == 0 || c.Lost == 0 || c.Sent+c.Lost+c.Skipped != calls {
		t.Errorf("%d calls, %d events read, counted %+v", calls, len(got), c)
	}
	p.Do("5")
	if got := live.Drain(t, f); len(got) != 5 {
		t.Errorf("after the loss %d of 5 events came", len(got))
	}
}
