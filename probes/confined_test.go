//go:build linux && amd64

package probes

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/probes/internal/live"
)

// confineEnv says how a process gives up rights before it plays its act.
const confineEnv = "PROBES_TEST_CONFINE"

// confined gives up what confineEnv says and runs this program again; it returns false
// where there is nothing to give up.
func confined() bool {
	what := os.Getenv(confineEnv)
	if what == "" {
		return false
	}
	runtime.LockOSThread()
	os.Unsetenv(confineEnv)
	if err := confine(what); err != nil {
		fmt.Fprintln(os.Stderr, "giving up rights:", err)
		os.Exit(1)
	}
	exe, err := os.Executable()
	if err == nil {
		err = unix.Exec(exe, os.Args, os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
	return true
}

func confine(what string) error {
	switch {
	case strings.HasPrefix(what, "caps"):
		if err := withoutTracefs(); err != nil {
			return err
		}
		if strings.HasPrefix(what, "caps and tracefs") {
			if err := unix.Mount("tracefs", tracefsPlaces[0], "tracefs", 0, ""); err != nil {
				return err
			}
		}
		return dropAllBut(strings.Split(what, ",")[1:])
	case what == "seccomp":
		return denyBPF()
	case what == "no tracefs":
		return withoutTracefs()
	}
	return fmt.Errorf("what is %q?", what)
}

// dropAllBut takes capabilities out of the bounding set: the next program gets the rest.
func dropAllBut(keep []string) error {
	for c := range 64 {
		if slices.Contains(keep, strconv.Itoa(c)) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil && err != unix.EINVAL {
			return err
		}
	}
	return nil
}

// denyBPF installs a filter that answers bpf() with EPERM.
func denyBPF() error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_BPF, Jt: 0, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
}

var tracefsPlaces = []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"}

// withoutTracefs takes it out of a mount namespace of this process's own.
func withoutTracefs() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	for _, p := range tracefsPlaces {
		for unix.Unmount(p, unix.MNT_DETACH) == nil {
		}
	}
	return nil
}

// TestC70KernelSaysNo: whatever is missing, one line names it and what grants it, and
// what can work does.
func TestC70KernelSaysNo(t *testing.T) {
	live.Require(t)
	for _, tt := range []struct {
		name, confine string
		want          []string
		not           string
	}{
		{"no capabilities", "caps", []string{"error: ", "not permitted", "CAP_BPF and CAP_PERFMON"}, ""},
		{"one of two", fmt.Sprint("caps,", unix.CAP_BPF), []string{"error: ", "not permitted", "CAP_BPF and CAP_PERFMON"}, ""},
		{"two, with tracefs", fmt.Sprint("caps and tracefs,", unix.CAP_BPF, ",", unix.CAP_PERFMON), []string{"attached: shm, proc, sched"}, "failed"},
		{"two", fmt.Sprint("caps,", unix.CAP_BPF, ",", unix.CAP_PERFMON), []string{"attached: proc, sched", "shm failed", "mount -t tracefs"}, "error"},
		{"seccomp", "seccomp", []string{"error: ", "a seccomp filter forbids it"}, ""},
		{"no tracefs", "no tracefs", []string{"attached: shm, proc, sched"}, "failed"},
	} {
		p := live.Run(t, []string{self(t)}, []string{confineEnv + "=" + tt.confine, "PROBES_TEST_ACT=open"})
		got := p.Do("open")
		for _, want := range tt.want {
			if !strings.Contains(got, want) || tt.not != "" && strings.Contains(got, tt.not) {
				t.Errorf("%s: %q", tt.name, got)
			}
		}
		if strings.Contains(got, " | ") {
			t.Errorf("%s: more than a line: %q", tt.name, got)
		}
		if tt.confine == "no tracefs" {
			unseen(t, p)
		}
		if st := p.End(); !st.Success() {
			t.Errorf("%s: the process ended with %v", tt.name, st)
		}
	}
}

// unseen wants no tracefs in any thread's mounts of the process.
func unseen(t *testing.T, p *live.Process) {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/mounts", p.Pid, task.Name()))
		if err == nil && strings.Contains(string(mounts), " tracefs ") {
			t.Errorf("thread %s sees a tracefs:\n%s", task.Name(), mounts)
		}
	}
}

func self(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}
