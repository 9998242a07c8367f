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

// errMeasured ends the built-in load when all that was to be measured was.
var errMeasured = errors.New("all was measured")

// load relays while the command, or the built-in generator, makes its load.
func (m *measurement) load(ctx context.Context) error {
	limited, release := m.limits(ctx)
	defer release()
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	m.relay.closing = m.describe
	done := make(chan error, 1)
	go func() { done <- m.relay.run(serving) }()
	watching, quiet := context.WithCancel(context.WithoutCancel(ctx))
	defer quiet()
	watched := make(chan error, 1)
	go func() { watched <- m.around.watch(watching) }()

	m.beside = m.beginBeside(limited)
	err := m.drive(limited)
	why, isStop := errors.AsType[stopped](context.Cause(limited))
	switch {
	case ctx.Err() != nil:
		m.info.State, m.info.Reason, err = "interrupted", "a signal", nil
	case isStop:
		m.info.State, m.info.Reason, err = "stopped", why.why, nil
	case err != nil && !errors.Is(context.Cause(limited), errMeasured):
		m.info.State, m.info.Reason = "failed", err.Error()
	default:
		m.info.State, err = "complete", nil
	}
	m.beside.end(ctx)
	quiet()
	if err := <-watched; err != nil {
		m.relay.log.Warn("foreign CPU use was not measured", "error", err)
	}
	end()
	return errors.Join(err, <-done)
}

// limits is a context that ends with ctx, and when a stop condition of the experiment
// holds: what is under way then was cut off by us. It is to be released.
func (m *measurement) limits(ctx context.Context) (limited context.Context, release func()) {
	limited, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := func(why error) {
		m.ph.stop(tap.Monotonic())
		cancel(why)
	}
	look := func(so experiment.Progress) {
		so.ForeignCores = m.around.peak()
		if why, reached := m.q.e.Reached(so); reached {
			stop(stopped{why})
		} else if m.openEnded() && m.measured(so) {
			stop(errMeasured)
		}
	}
	m.ph.progress = look
	go m.ticks(limited, look) // time passes without requests, too
	unhook := context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })
	return limited, func() {
		unhook()
		cancel(nil)
	}
}

// ticks looks at the progress every now and then.
func (m *measurement) ticks(ctx context.Context, look func(experiment.Progress)) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			look(m.ph.far(tap.Monotonic()))
		}
	}
}

// openEnded says that the built-in requests are not so many, but go on for so long.
func (m *measurement) openEnded() bool {
	return len(m.args) == 0 && (m.q.e.Warmup.Duration > 0 || m.q.e.Measured.Duration > 0)
}

// measured says that all was measured that was to be.
func (m *measurement) measured(so experiment.Progress) bool {
	least := m.q.e.Measured
	if least.Requests == 0 && least.Duration == 0 {
		least.Requests = m.f.block
	}
	return least.Requests > 0 && so.Ended >= least.Requests || least.Duration > 0 && so.Elapsed >= least.Duration
}

// lookEvery is how often stop conditions of time are looked at.
const lookEvery = 100 * time.Millisecond

// drive makes the load.
func (m *measurement) drive(ctx context.Context) error {
	if len(m.args) == 0 {
		return m.builtIn(ctx)
	}
	out, errOut, err := m.logs()
	if err != nil {
		return err
	}
	c := childOf(ctx, m.args, m.base, io.MultiWriter(out, m.a.errOut), io.MultiWriter(errOut, m.a.errOut))
	m.info.Child = &rundir.Child{Args: rundir.RedactArgs(m.args)}
	if err = c.run(m.around.loadBy); err != nil {
		err = fmt.Errorf("%s: %w", m.args[0], err)
	}
	m.childEnded(c.cmd)
	if lost := errors.Join(out.close(), errOut.close()); lost != nil { // the figures are none the worse
		m.info.Child.Lost = lost.Error()
		_, _ = fmt.Fprintln(m.a.errOut, lost)
	}
	return err
}

// openBlock is how many requests are sent between two pauses, where they are not counted.
const openBlock = 1 << 16

// builtIn sends the experiment's own requests.
func (m *measurement) builtIn(ctx context.Context) error {
	f := m.f.calibrateFlags
	if f.block = m.q.e.Warmup.Requests + cmp.Or(m.q.e.Measured.Requests, f.block); m.openEnded() {
		f.block = openBlock
	}
	d, err := f.driver(nil, m.a.errOut)
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		got, err := d.block(ctx, m.base, n)
		if got.lag.N > 0 {
			_, _ = fmt.Fprintf(m.a.errOut, "generator lag: p50 %.2f ms, p99 %.2f ms\n", got.lag.P50, got.lag.P99)
		}
		if err != nil || !m.openEnded() || got.attempts < openBlock {
			return err
		}
	}
}

// childLog is a file of what the command says. Its writes do not fail: a disk that is full
// ends no load.
type childLog struct {
	file *os.File
	lost int
	err  error
}

// Write writes until the file takes no more; what comes then is counted.
func (l *childLog) Write(p []byte) (n int, _ error) {
	if l.err == nil {
		n, l.err = l.file.Write(p)
	}
	l.lost += len(p) - n
	return len(p), nil
}

func (l *childLog) close() error {
	err := l.file.Close()
	if l.err != nil {
		err = fmt.Errorf("%s lacks the last %d bytes: %w", filepath.Base(l.file.Name()), l.lost, l.err)
	}
	return err
}

// logs are the files of what the command says.
func (m *measurement) logs() (out, errOut *childLog, err error) {
	open := func(name string) (*childLog, error) {
		f, err := os.OpenFile(filepath.Join(m.f.Out, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
		return &childLog{file: f}, err
	}
	if out, err = open(rundir.StdoutFile); err != nil {
		return nil, nil, err
	}
	if errOut, err = open(rundir.StderrFile); err != nil {
		return nil, nil, errors.Join(err, out.close())
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
