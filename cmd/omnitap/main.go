// Command omnitap stands in front of an omni-modal inference server, passes
// every byte through untouched and says what happened to each request.
//
// One file holds one command. Commands only wire packages together; what they
// print and the codes they exit with are what scripts rely on.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/monitor"

	"github.com/spf13/cobra"

	fake "github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages"
)

// Exit codes.
const (
	exitUnusable    = 1 // measured but unusable, or a check failed
	exitUsage       = 2 // wrong usage or bad input
	exitEnvironment = 3 // the environment: port taken, no permission
)

// exitError is an error with the code that the process exits with.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func exitWith(code int, err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code, err}
}

// app is what every command gets: where to read, write and complain.
type app struct {
	out, errOut io.Writer
}

// shared is a writer of several goroutines: a demo's server speaks between our own lines.
type shared struct {
	mu sync.Mutex // protects w
	w  io.Writer
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

func main() {
	if fake.Main() { // a stage process of the fake server
		return
	}
	floor := heapFloor()
	_ = monitor.Keep() // until the end
	code := run(os.Args[1:], os.Stdout, os.Stderr)
	runtime.KeepAlive(floor)
	os.Exit(code)
}

// run is main without the process around it.
func run(args []string, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	errOut = &shared{w: errOut}
	root := newRoot(&app{out, errOut})
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	_, _ = fmt.Fprintln(errOut, "omnitap:", err)
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	return exitUsage
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "omnitap",
		Short:         "measure omni-modal inference servers from the wire",
		Long:          "omnitap stands in front of an unmodified omni-modal inference server (vLLM-Omni,\nSGLang-Omni), passes every byte through untouched, and says what happened to each\nrequest: first text, first playable audio, every sample, and how it ended.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version(),
	}
	root.SetOut(a.out)
	root.SetErr(a.errOut)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(serveCmd(a), demoCmd(a), mockCmd(a), checkCmd(a), runCmd(a), calibrateCmd(a), verifyCmd(a), compareCmd(a), reportCmd(a), replayCmd(a), joinCmd(a), exportCmd(a))
	return root
}
