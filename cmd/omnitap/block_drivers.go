package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/load"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// loadDriver sends a set of requests itself.
type loadDriver struct {
	set  load.Set
	plan load.Plan
	what string
}

func (d *loadDriver) source() string {
	how := fmt.Sprintf("%d at once", d.plan.Concurrency)
	if d.plan.Rate > 0 {
		how = fmt.Sprintf("%v a second", d.plan.Rate)
	}
	if len(d.plan.Times) > 0 {
		how = "at given times"
	}
	return fmt.Sprintf("%s, %d requests a block, %s", d.what, max(d.plan.Requests, len(d.plan.Times)), how)
}

// warm sends as many as are sent at once, one after the other's answer.
func (d *loadDriver) warm(ctx context.Context, base string, block int) (blockLoad, error) {
	n := max(d.plan.Concurrency, 1)
	return d.send(ctx, base, load.Plan{Requests: n, Concurrency: n, Timeout: d.plan.Timeout}, fmt.Sprintf("warm-%d", block))
}

func (d *loadDriver) block(ctx context.Context, base string, block int) (blockLoad, error) {
	return d.send(ctx, base, d.plan, fmt.Sprintf("block-%d", block))
}

// send sends a plan's requests, whose ids begin with prefix.
func (d *loadDriver) send(ctx context.Context, base string, plan load.Plan, prefix string) (blockLoad, error) {
	got, err := load.Run(ctx, base, d.set, plan, prefix) // an error says that not all were sent
	return blockLoad{attempts: len(got.Sent), lag: got.Lag(), mine: func(r *timeline.Record) bool { return strings.HasPrefix(r.RequestID, prefix+"-") }}, err
}

// commandDriver runs the user's command once a block.
type commandDriver struct {
	args []string
	out  io.Writer
}

func (d *commandDriver) source() string { return "the command " + d.args[0] }

// warm has nothing to do: a command warms up as it sees fit.
func (d *commandDriver) warm(context.Context, string, int) (blockLoad, error) {
	return blockLoad{attempts: -1}, nil
}

func (d *commandDriver) block(ctx context.Context, base string, _ int) (blockLoad, error) {
	cmd := childOf(ctx, d.args, base, d.out, d.out)
	if err := runChild(cmd, func(int) {}); err != nil {
		return blockLoad{}, fmt.Errorf("%s: %w", d.args[0], err)
	}
	return blockLoad{attempts: -1}, nil
}

// childPatience is how long a command may take to end when it is asked to.
const childPatience = 10 * time.Second

// childOf is the user's command, which finds the relay in its environment. It is asked to
// end with ctx, it and what it has started; and with us, whatever becomes of us.
func childOf(ctx context.Context, args []string, base string, out, errOut io.Writer) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // the user's own command line
	cmd.Env = append(os.Environ(), "OPENAI_BASE_URL="+base+"/v1", "OMNITAP_URL="+base)
	cmd.Stdout, cmd.Stderr = out, errOut
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error {
		err := syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		if errors.Is(err, syscall.ESRCH) {
			err = os.ErrProcessDone
		}
		return err
	}
	cmd.WaitDelay = childPatience
	return cmd
}

// runChild runs the user's command to its end. started is told its number.
func runChild(cmd *exec.Cmd, started func(pid int)) error {
	ended := make(chan error, 1)
	go holdChild(cmd, started, ended)
	return <-ended
}

// holdChild does that on a thread that stays: the kernel takes the end of the thread that
// forked for the parent's death.
func holdChild(cmd *exec.Cmd, started func(pid int), ended chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Start()
	if err == nil {
		started(cmd.Process.Pid)
		err = cmd.Wait()
	}
	ended <- err
}
