package thread

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func comm(t *testing.T, tid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/comm", tid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// Work runs on a thread of its own, named as asked in its first 15 bytes, which ends
// with the work.
func TestGo(t *testing.T) {
	tids, end := make(chan int), make(chan struct{})
	Go("VLLM::StageEngineCoreProc", func() {
		tids <- unix.Gettid()
		<-end
	})
	tid := <-tids
	if got := comm(t, tid); got != "VLLM::StageEngi" || tid == os.Getpid() {
		t.Errorf("thread %d is named %q", tid, got)
	}
	close(end)
	for deadline := time.Now().Add(10 * time.Second); ; {
		if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid)); os.IsNotExist(err) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the thread does not end with its work")
		}
	}
}

// The process's first thread is never the one, however often it is free.
func TestGoLeavesTheFirstThread(t *testing.T) {
	for range 2000 {
		tids := make(chan int)
		Go("worker", func() { tids <- unix.Gettid() })
		if tid := <-tids; tid == os.Getpid() {
			t.Fatal("the work ran on the first thread")
		}
	}
}

// Sleep lasts until its time on the clock of the kernel's probes, not less.
func TestSleep(t *testing.T) {
	until := MonoNS() + 20e6
	Sleep(until)
	if now := MonoNS(); now < until || now > until+5e9 {
		t.Errorf("awake %d ns after its time", now-until)
	}
	before := MonoNS()
	Sleep(before - 1e9) // past: not at all
	if took := MonoNS() - before; took > 1e9 {
		t.Errorf("slept %d ns for a time that was over", took)
	}
}
