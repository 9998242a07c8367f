package child

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/monitor"

	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/record"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/shm"
)

// init keeps a stage's main goroutine on the main thread, where the engine loop of the
// real server runs; only an init function can.
func init() {
	if os.Getenv(Env) != "" {
		runtime.LockOSThread()
	}
}

// Main runs the stage that the environment describes, and then never returns. Without
// one it returns false at once.
func Main() bool {
	text := os.Getenv(Env)
	if text == "" {
		return false
	}
	if err := run(text); err != nil {
		fmt.Fprintln(os.Stderr, "stage:", err)
		os.Exit(1)
	}
	os.Exit(0)
	return true
}

func run(text string) error {
	s, err := parseSpec(text)
	if err != nil {
		return err
	}
	// What a terminal sends goes to the parent too, which stops the stages in order.
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP)
	debug.SetGCPercent(50)
	defer monitor.Keep()()
	if s.Tracker {
		return track(s)
	}
	if !s.Queues {
		title(Title(s.Stage))
	}
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM)
	go endBySignal(terms)
	go endWithParent()
	truth, err := record.Open(s.Truth, Names[s.Stage])
	if err != nil {
		return err
	}
	c := newCore(s, truth)
	if s.Queues {
		return c.runQueues()
	}
	return c.runZMQ()
}

// title does what setproctitle leaves behind for comm; the parent has set the rest.
// Threads that come later inherit it.
func title(name string) {
	comms, _ := filepath.Glob("/proc/self/task/*/comm") // without /proc there is no comm
	for _, c := range comms {
		_ = os.WriteFile(c, []byte(name[:15]), 0) // a thread may be gone by now
	}
}

// endWithParent ends the process when the parent closes its pipe, or is gone.
func endWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	exit(0)
}

// endBySignal is for the kernel's word that the parent has died.
func endBySignal(terms <-chan os.Signal) {
	<-terms
	exit(0)
}

// exit ends the process between two segments, never within one.
func exit(status int) {
	shm.Quiesce()
	os.Exit(status)
}

// fail ends the process: the parent names the stage in its error.
func fail(err error) {
	fmt.Fprintln(os.Stderr, "stage:", err)
	exit(1)
}

// track is the resource tracker. It lives until the last process of the server is gone,
// whatever became of the others.
func track(s Spec) error {
	signal.Ignore(syscall.SIGTERM)
	unix.CloseOnExec(FDTracker)
	f := os.NewFile(FDTracker, "tracker")
	if f == nil {
		return errors.New("the tracker has no pipe")
	}
	err := shm.Track(f)
	if s.Dir != "" {
		err = errors.Join(err, os.RemoveAll(s.Dir))
	}
	return err
}
