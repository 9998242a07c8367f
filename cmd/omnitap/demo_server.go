package main

import (
	"bufio"
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
)

// demoServer is the fake server of a demo: omnitap mock with stage processes. It is a
// process of its own, since probes do not watch omnitap itself.
type demoServer struct {
	addr string
	// truth is a folder for what the stages did by their own account.
	truth string
	pid   int
	ended chan struct{} // closed when the process was waited for
	err   error         // of Wait; read after ended
	said  chan struct{} // closed when nobody holds its standard error any more
}

// serverPatience is how long the server may take to end before it is killed.
const serverPatience = 10 * time.Second

// startDemoServer starts the server and waits until it listens. What it says goes to
// errOut.
func startDemoServer(ctx context.Context, errOut io.Writer) (*demoServer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("looking for omnitap's program: %w", err)
	}
	s := &demoServer{ended: make(chan struct{}), said: make(chan struct{})}
	if s.truth, err = os.MkdirTemp("", "omnitap-truth-"); err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making a pipe: %w", err), os.RemoveAll(s.truth))
	}
	// It ends when it is told to, behind the relay; or with us, whatever becomes of us.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), self, "mock", "--listen", "127.0.0.1:0", "--seed", "1", "--stages", "vo-2", "--stages-truth", s.truth)
	cmd.Stderr = w
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started, address := make(chan error, 1), make(chan string, 1)
	go s.hold(cmd, started)
	go s.listen(r, address, errOut)
	err = errors.Join(<-started, w.Close())
	if err != nil {
		<-s.said
		return nil, errors.Join(fmt.Errorf("starting the fake server: %w", err), os.RemoveAll(s.truth))
	}
	select {
	case s.addr = <-address:
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), s.stop())
	}
	if s.addr == "" {
		return nil, errors.Join(errors.New("the fake server does not start"), s.stop())
	}
	return s, nil
}

// hold starts the process and waits for it, on a thread that stays: the kernel takes
// the end of the thread that forked for the parent's death.
func (s *demoServer) hold(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(s.ended)
	err := cmd.Start()
	if err == nil {
		s.pid = cmd.Process.Pid
	}
	started <- err
	if err == nil {
		s.err = cmd.Wait()
	}
}

// listen reads what the server says: first of all its address, empty if it never says
// one.
func (s *demoServer) listen(r io.ReadCloser, address chan<- string, errOut io.Writer) {
	defer close(s.said)
	defer func() { _ = r.Close() }()
	in := bufio.NewReader(r)
	line, err := in.ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if !ok {
		_, _ = io.WriteString(errOut, line)
	}
	if !ok || err != nil {
		addr = ""
	}
	address <- addr
	_, _ = io.Copy(errOut, in)
}

// stop ends the server and waits until all its processes are gone.
func (s *demoServer) stop() error {
	select {
	case <-s.ended: // its number may be another's by now
	default:
		_ = syscall.Kill(s.pid, syscall.SIGTERM)
	}
	timer := time.NewTimer(serverPatience)
	defer timer.Stop()
	for _, done := range []chan struct{}{s.ended, s.said} {
		select {
		case <-done:
		case <-timer.C:
			return errors.Join(errors.New("the fake server does not end"), syscall.Kill(s.pid, syscall.SIGKILL), os.RemoveAll(s.truth))
		}
	}
	err := s.err
	if err != nil {
		err = fmt.Errorf("the fake server: %w", err)
	}
	return errors.Join(err, os.RemoveAll(s.truth))
}
