package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
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
	return fmt.Sprintf("%s, %d requests a block, %s", d.what, d.plan.Requests, how)
}

// warm sends as many as are sent at once, one after the other's answer.
func (d *loadDriver) warm(ctx context.Context, base string, block int) error {
	n := max(d.plan.Concurrency, 1)
	_, err := load.Run(ctx, base, d.set, load.Plan{Requests: n, Concurrency: n, Timeout: d.plan.Timeout}, fmt.Sprintf("warm-%d", block))
	return err
}

func (d *loadDriver) block(ctx context.Context, base string, block int) (blockLoad, error) {
	prefix := fmt.Sprintf("block-%d", block)
	got, err := load.Run(ctx, base, d.set, d.plan, prefix)
	if err != nil {
		return blockLoad{}, err
	}
	return blockLoad{attempts: len(got.Sent), lag: got.Lag(), mine: func(r *timeline.Record) bool { return strings.HasPrefix(r.RequestID, prefix+"-") }}, nil
}

// commandDriver runs the user's command once a block.
type commandDriver struct {
	args []string
	out  io.Writer
}

func (d *commandDriver) source() string { return "the command " + d.args[0] }

// warm has nothing to do: a command warms up as it sees fit.
func (d *commandDriver) warm(context.Context, string, int) error { return nil }

func (d *commandDriver) block(ctx context.Context, base string, _ int) (blockLoad, error) {
	cmd := childOf(ctx, d.args, base, d.out, d.out)
	if err := cmd.Run(); err != nil {
		return blockLoad{}, fmt.Errorf("%s: %w", d.args[0], err)
	}
	return blockLoad{attempts: -1}, nil
}

// childPatience is how long a command may take to end when it is asked to.
const childPatience = 10 * time.Second

// childOf is the user's command, which finds the relay in its environment. It is asked to
// end with ctx, and with us.
func childOf(ctx context.Context, args []string, base string, out, errOut io.Writer) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // the user's own command line
	cmd.Env = append(os.Environ(), "OPENAI_BASE_URL="+base+"/v1", "OMNITAP_URL="+base)
	cmd.Stdout, cmd.Stderr = out, errOut
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = childPatience
	return cmd
}
