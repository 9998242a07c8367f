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
	if err := childOf(ctx, d.args, base, d.out, d.out).run(func(int) {}); err != nil {
		return blockLoad{}, fmt.Errorf("%s: %w", d.args[0], err)
	}
	return blockLoad{attempts: -1}, nil
}

// childPatience is how long a command, and what it has started, may take to end when they
// are asked to.
const childPatience = 10 * time.Second

// userCommand is the user's command with all that it starts, a process group.
type userCommand struct {
	cmd *exec.Cmd
	// asked is when the group was asked to end, zero for not yet; read behind Wait.
	asked  time.Time
	within time.Duration // of that
}

// childOf is the user's command, which finds the relay in its environment. It is asked to
// end with ctx, it and what it has started; and with us, whatever becomes of us.
func childOf(ctx context.Context, args []string, base string, out, errOut io.Writer) *userCommand {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // the user's own command line
	cmd.Env = append(os.Environ(), "OPENAI_BASE_URL="+base+"/v1", "OMNITAP_URL="+base)
	cmd.Stdout, cmd.Stderr = out, errOut
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	c := &userCommand{cmd: cmd}
	cmd.Cancel = c.ask
	c.patience(childPatience)
	return c
}

// patience sets how long those who were asked may take to end.
func (c *userCommand) patience(d time.Duration) { c.within, c.cmd.WaitDelay = d, d }

// ask asks the whole group to end.
func (c *userCommand) ask() error {
	c.asked = time.Now()
	err := syscall.Kill(-c.cmd.Process.Pid, syscall.SIGTERM)
	if errors.Is(err, syscall.ESRCH) {
		err = os.ErrProcessDone
	}
	return err
}

// run runs the command to its end, and what it leaves behind. started is told its number.
func (c *userCommand) run(started func(pid int)) error {
	ended := make(chan error, 1)
	go c.hold(started, ended)
	return <-ended
}

// hold does that on a thread that stays: the kernel takes the end of the thread that
// forked for the parent's death.
func (c *userCommand) hold(started func(pid int), ended chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.cmd.Start()
	if err == nil {
		started(c.cmd.Process.Pid)
		err = c.cmd.Wait()
		c.clear()
	}
	ended <- err
}

// clear ends what the command has left behind: a load that goes on behind its command's
// end is in nobody's figures. Who does not heed the first word is killed. The group's
// number is nobody else's as long as it has a member.
func (c *userCommand) clear() {
	group := -c.cmd.Process.Pid
	if c.asked.IsZero() && errors.Is(c.ask(), os.ErrProcessDone) {
		return
	}
	limit := time.NewTimer(time.Until(c.asked.Add(c.within)))
	defer limit.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for syscall.Kill(group, 0) == nil {
		select {
		case <-tick.C:
		case <-limit.C:
			_ = syscall.Kill(group, syscall.SIGKILL) // gone in the meantime is as good
			return
		}
	}
}
