//go:build linux && amd64

package proc_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/probes/event"
	"github.com/omnitap/omnitap/probes/internal/live"
	"github.com/omnitap/omnitap/probes/kernel"
	"github.com/omnitap/omnitap/probes/proc"
)

func TestMain(m *testing.M) {
	live.Main(m, map[string]live.Act{"fork": fork, "exit": exit, "eat": eat})
}

// fork runs a program and tells its pid.
func fork(args []string) (string, error) {
	p, err := os.StartProcess(args[0], args, &os.ProcAttr{})
	if err != nil {
		return "", err
	}
	_, err = p.Wait()
	return fmt.Sprint(p.Pid), err
}

// exit ends the process with a status, or by a signal to itself.
func exit(args []string) (string, error) {
	n, _ := strconv.Atoi(args[1])
	if args[0] == "signal" {
		return "", unix.Kill(os.Getpid(), unix.Signal(n))
	}
	os.Exit(n)
	return "", nil
}

// eat takes memory until there is none.
func eat([]string) (string, error) {
	for {
		b, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return "", err
		}
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
	}
}

func load(t *testing.T) (*kernel.Watch, *kernel.Family) {
	t.Helper()
	w := live.NewWatch(t)
	f, err := proc.Load(w, 0)
	return w, live.Family(t, f, err)
}

func TestForkExecExit(t *testing.T) {
	w, f := load(t)
	p := live.Start(t, "fork")
	p.Do("/bin/true") // the first time Go tries out what the kernel has, in a child
	live.Add(t, w, p)
	var child int
	fmt.Sscan(p.Do("/bin/true"), &child)
	events := live.Drain(t, f)
	forks := live.Of(events, p.Pid, event.Fork)
	if len(forks) != 1 || forks[0].Args != [5]int64{int64(child), int64(child), int64(p.Pid)} {
		t.Errorf("forks: %+v, child %d", forks, child)
	}
	execs := live.Of(events, child, event.Exec)
	if len(execs) != 1 || execs[0].Path != "/bin/true" || execs[0].Ret != int64(p.Pid) {
		t.Errorf("execs: %+v, parent %d", execs, p.Pid)
	}
	if ends := live.Of(events, child, event.Exit); len(ends) > 0 {
		t.Errorf("the child is not watched, its end is told: %+v", ends)
	}
}

// TestExit: the status of a process's end, as wait tells it, once.
func TestExit(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want int64
	}{
		{[]string{"status", "0"}, 0},
		{[]string{"status", "3"}, 3 << 8},
		{[]string{"signal", "9"}, 9},
		{[]string{"signal", "15"}, 15},
	} {
		w, f := load(t)
		p := live.Start(t, "exit")
		live.Add(t, w, p)
		p.Do(tt.args...)
		st := p.End()
		events := live.Drain(t, f)
		ends := live.Of(events, p.Pid, event.Exit)
		if len(ends) != 1 || ends[0].Flags != tt.want || ends[0].Args[0] != int64(p.Pid) {
			t.Errorf("%v: %+v (%v)", tt.args, ends, st)
		}
		if want := int64(st.Sys().(syscall.WaitStatus)); want != ends[0].Flags {
			t.Errorf("%v: told %#x, wait says %#x", tt.args, ends[0].Flags, want)
		}
	}
}

// TestFirstThreadEndsFirst: a process goes on when its first thread has ended, and ends
// with the status that its last one gave.
func TestFirstThreadEndsFirst(t *testing.T) {
	w, f := load(t)
	p := live.Run(t, []string{live.Compile(t, "threads", `
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static void *last(void *first) {
	char line[64];
	pthread_join(*(pthread_t *)first, 0);
	puts("ready"); fflush(stdout);
	fgets(line, sizeof line, stdin);
	puts("on"); fflush(stdout);
	fgets(line, sizeof line, stdin);
	exit(3);
}
int main(void) {
	static pthread_t self, t;
	self = pthread_self();
	pthread_create(&t, 0, last, &self);
	pthread_exit(0);
}`, "-pthread")}, nil)
	live.Add(t, w, p)
	p.Do("go on")
	if ends := live.Of(live.Drain(t, f), p.Pid, event.Exit); len(ends) > 0 {
		t.Errorf("told an end: %+v", ends)
	}
	p.Tell("end")
	p.End()
	if ends := live.Of(live.Drain(t, f), p.Pid, event.Exit); len(ends) != 1 || ends[0].Flags != 3<<8 {
		t.Errorf("ends: %+v", ends)
	}
}

func TestSignals(t *testing.T) {
	w, f := load(t)
	p := live.Start(t, "fork")
	live.Add(t, w, p)
	for _, sig := range []unix.Signal{unix.SIGURG, unix.SIGCHLD, unix.SIGWINCH, unix.SIGKILL} {
		if err := unix.Kill(p.Pid, sig); err != nil {
			t.Fatal(err)
		}
	}
	p.End()
	events := live.Drain(t, f)
	got := live.Of(events, os.Getpid(), event.Signal) // the sender's
	if len(got) != 2 || got[0].Flags != int64(unix.SIGWINCH) || got[1].Flags != int64(unix.SIGKILL) || got[1].Args[0] != int64(p.Pid) {
		t.Errorf("signals: %+v", got)
	}
	if ends := live.Of(events, p.Pid, event.Exit); len(ends) != 1 || ends[0].Flags != 9 {
		t.Errorf("ends: %+v", ends)
	}
}

// memoryGroup makes a cgroup with a limit and returns how a process gets into it.
func memoryGroup(t *testing.T, limit string) (add func(pid int)) {
	t.Helper()
	name := fmt.Sprintf("omnitap-test-%d", os.Getpid())
	for _, v := range []struct{ root, limit, sign string }{
		{"/sys/fs/cgroup", "memory.max", "cgroup.controllers"},
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"},
	} {
		if _, err := os.Stat(filepath.Join(v.root, v.sign)); err != nil {
			continue
		}
		dir := filepath.Join(v.root, name)
		if v.sign == "cgroup.controllers" { // it may be on already, or not be given away
			_ = os.WriteFile(filepath.Join(v.root, "cgroup.subtree_control"), []byte("+memory"), 0)
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			live.Until(t, "an empty cgroup", func() bool { err := os.Remove(dir); return err == nil || errors.Is(err, os.ErrNotExist) })
		})
		if err := os.WriteFile(filepath.Join(dir, v.limit), []byte(limit), 0); err != nil {
			t.Fatal(err)
		}
		return func(pid int) {
			if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Fatal("neither cgroup v1 nor v2 has a memory controller here")
	return nil
}

func TestOutOfMemory(t *testing.T) {
	w, f := load(t)
	p := live.Start(t, "eat")
	live.Add(t, w, p)
	memoryGroup(t, "33554432")(p.Pid)
	p.Do("eat")
	p.End()
	events := live.Drain(t, f)
	var kills []event.Event
	for _, e := range events {
		if e.Probe == event.OOMKill {
			kills = append(kills, e)
		}
	}
	if len(kills) != 1 || kills[0].Args[0] != int64(p.Pid) {
		t.Errorf("kills: %+v", kills)
	}
	if ends := live.Of(events, p.Pid, event.Exit); len(ends) != 1 || ends[0].Flags != 9 {
		t.Errorf("ends: %+v", ends)
	}
}
