package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/omnitap/omnitap/exporter/experiment"
	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/proxy/tap"
)

// stopped is a stop condition that holds: no error of the run.
type stopped struct{ why string }

func (s stopped) Error() string { return s.why }

// load relays while the command, or the built-in generator, makes its load.
func (m *measurement) load(ctx context.Context) error {
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	m.relay.closing = m.describe
	done := make(chan error, 1)
	go func() { done <- m.relay.run(serving) }()
	watching, quiet := context.WithCancel(context.WithoutCancel(ctx))
	defer quiet()
	watched := make(chan error, 1)
	go func() { watched <- m.around.watch(watching) }()

	limited, stop := m.limits(ctx)
	defer stop(nil)
	err := m.drive(limited)
	var why stopped
	switch {
	case ctx.Err() != nil:
		m.info.State, m.info.Reason, err = "interrupted", "a signal", nil
	case errors.As(context.Cause(limited), &why):
		m.info.State, m.info.Reason, err = "stopped", why.why, nil
	case err != nil:
		m.info.State, m.info.Reason = "failed", err.Error()
	default:
		m.info.State = "complete"
	}
	quiet()
	// What was not sampled is said in the run's own account.
	<-watched
	end()
	return errors.Join(err, <-done)
}

// limits ends a run when a stop condition of its experiment holds.
func (m *measurement) limits(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	limited, stop := context.WithCancelCause(ctx)
	look := func(so experiment.Progress) {
		so.ForeignCores = m.around.peak()
		if why, reached := m.q.e.Reached(so); reached {
			stop(stopped{why})
		}
	}
	m.ph.progress = look
	go func() { // time passes without requests, too
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-limited.Done():
				return
			case <-tick.C:
				look(m.ph.far(tap.Monotonic()))
			}
		}
	}()
	return limited, stop
}

// lookEvery is how often stop conditions of time are looked at.
const lookEvery = 100 * time.Millisecond

// drive makes the load.
func (m *measurement) drive(ctx context.Context) error {
	base := "http://" + m.relay.listener.Addr().String()
	if len(m.args) == 0 {
		return m.builtIn(ctx, base)
	}
	out, errOut, err := m.logs()
	if err != nil {
		return err
	}
	cmd := childOf(ctx, m.args, base, io.MultiWriter(out, m.a.errOut), io.MultiWriter(errOut, m.a.errOut))
	m.info.Child = &rundir.Child{Args: rundir.RedactArgs(m.args)}
	if err = cmd.Start(); err == nil {
		m.around.loadBy(cmd.Process.Pid)
		err = cmd.Wait()
	}
	m.childEnded(cmd)
	if err != nil {
		err = fmt.Errorf("%s: %w", m.args[0], err)
	}
	return errors.Join(err, out.Close(), errOut.Close())
}

// builtIn sends the experiment's own requests.
func (m *measurement) builtIn(ctx context.Context, base string) error {
	f := m.f.calibrateFlags
	f.block = m.q.e.Warmup.Requests + cmp.Or(m.q.e.Measured.Requests, f.block)
	d, err := f.driver(nil, m.a.errOut)
	if err != nil {
		return err
	}
	got, err := d.block(ctx, base, 0)
	if got.lag.N > 0 {
		_, _ = fmt.Fprintf(m.a.errOut, "generator lag: p50 %.2f ms, p99 %.2f ms\n", got.lag.P50, got.lag.P99)
	}
	return err
}

// logs are the files of what the command says.
func (m *measurement) logs() (out, errOut *os.File, err error) {
	open := func(name string) (*os.File, error) {
		return os.OpenFile(filepath.Join(m.f.Out, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	}
	if out, err = open(rundir.StdoutFile); err != nil {
		return nil, nil, err
	}
	if errOut, err = open(rundir.StderrFile); err != nil {
		return nil, nil, errors.Join(err, out.Close())
	}
	return out, errOut, nil
}

// childEnded notes how the command ended.
func (m *measurement) childEnded(cmd *exec.Cmd) {
	if cmd.ProcessState == nil {
		return
	}
	ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && ws.Signaled() {
		m.info.Child.Signal = ws.Signal().String()
		return
	}
	code := cmd.ProcessState.ExitCode()
	m.info.Child.ExitCode = &code
}
