package stages

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/child"
)

// proc is a child process.
type proc struct {
	stage int // -1: the tracker
	cmd   *exec.Cmd
	// life is the pipe whose end tells the child to stop.
	life *os.File
	done chan struct{} // closed when it was waited for
	err  error         // of Wait; read after done
}

// spawner starts children from a thread of its own: the kernel sends the parent's death
// signal when the thread that forked ends, and Go ends threads as it likes.
type spawner struct {
	jobs chan func()
	gone chan struct{}
}

func newSpawner() *spawner {
	s := &spawner{jobs: make(chan func()), gone: make(chan struct{})}
	go s.run()
	return s
}

func (s *spawner) run() {
	defer close(s.gone)
	runtime.LockOSThread()
	for job := range s.jobs {
		job()
	}
}

func (s *spawner) stop() {
	close(s.jobs)
	<-s.gone
}

// start starts a command on the spawner's thread and waits for it elsewhere.
func (s *spawner) start(stage int, cmd *exec.Cmd) (*proc, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdin = r
	p := &proc{stage: stage, cmd: cmd, life: w, done: make(chan struct{})}
	started := make(chan error, 1)
	s.jobs <- func() { started <- cmd.Start() }
	err = errors.Join(<-started, r.Close())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting a process: %w", err), w.Close())
	}
	go p.wait()
	return p, nil
}

func (p *proc) wait() {
	p.err = p.cmd.Wait()
	close(p.done)
}

// stop ends the child: it is asked to, and after a while made to.
func (p *proc) stop(patience time.Duration) error {
	_ = p.life.Close()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
	}
	err := p.cmd.Process.Kill()
	<-p.done
	return errors.Join(fmt.Errorf("process %d did not end and was killed", p.cmd.Process.Pid), err)
}

// command is a re-exec of this program as a child.
func command(s child.Spec, args, env []string, stderr *os.File, files ...*os.File) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err == nil {
		_, err = os.Stat(self)
	}
	if err != nil {
		self = "/proc/self/exe" // the file was replaced
	}
	setting, err := s.Setting()
	if err != nil {
		return nil, err
	}
	environ := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, child.Env+"=") })
	return &exec.Cmd{
		Path:       self,
		Args:       args,
		Env:        append(append(environ, env...), setting),
		Stderr:     stderr,
		ExtraFiles: files, // from descriptor 3 on: child.FDTracker, FDIn, FDOut
	}, nil
}

// stageCommand is a stage's process: title in the first argument, as setproctitle leaves
// it; without titles the command line of a spawned Python process.
func stageCommand(s child.Spec, stderr *os.File, files ...*os.File) (*exec.Cmd, error) {
	args, env := []string{child.Title(s.Stage)}, []string(nil)
	if s.Queues {
		args = []string{
			"python3", "-c",
			"from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=3, pipe_handle=4)", "--multiprocessing-fork",
		}
		env = []string{fmt.Sprintf("VLLM_LOGGING_PREFIX=[Stage-%d] ", s.Stage)}
	}
	cmd, err := command(s, args, env, stderr, files...)
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	return cmd, nil
}

// trackerCommand is the resource tracker's process. It outlives its parent by a moment,
// to clean up.
func trackerCommand(dir string, stderr, pipe *os.File) (*exec.Cmd, error) {
	args := []string{"python3", "-B", "-c", fmt.Sprintf("from multiprocessing.resource_tracker import main;main(%d)", child.FDTracker)}
	return command(child.Spec{Tracker: true, Dir: dir}, args, nil, stderr, pipe)
}
