package find

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// helperEnv makes the test binary a process of a server instead.
const helperEnv = "FIND_TEST_HELPER"

func TestMain(m *testing.M) {
	if text := os.Getenv(helperEnv); text != "" {
		if err := helper(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// spec is what a helper is to look like.
type spec struct {
	Args  []string // the whole command line
	Comm  string
	Env   []string
	Unix  []string
	TCP   bool
	FIFO  string
	Dir   string
	Child []spec
}

// helper is one process: it opens what its spec says, starts its children, reports
// their pids and does what it is told until its input ends.
func helper(text string) error {
	var s spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	tell := json.NewEncoder(os.Stdout)
	port, err := s.open()
	if err != nil {
		return err
	}
	h := &state{pids: []int{}}
	for _, c := range s.Child {
		if err := h.start(c); err != nil {
			return err
		}
	}
	if err := tell.Encode(reply{Port: port, PIDs: h.pids}); err != nil {
		return err
	}
	defer h.stop()
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil //nolint:nilerr // the end of the input is the order to end
		}
		if err := h.do(line); err != nil {
			return err
		}
		if err := tell.Encode(reply{PIDs: h.pids}); err != nil {
			return err
		}
	}
}

type reply struct {
	Port int
	PIDs []int
}

// open makes the process look as its spec says.
func (s *spec) open() (port int, err error) {
	if s.Comm != "" {
		if err := setComm(s.Comm); err != nil {
			return 0, err
		}
	}
	for _, path := range s.Unix {
		if _, err := net.Listen("unix", path); err != nil {
			return 0, err
		}
	}
	if s.FIFO != "" {
		if _, err := syscall.Open(s.FIFO, syscall.O_RDWR|syscall.O_NONBLOCK, 0); err != nil {
			return 0, err
		}
	}
	if !s.TCP {
		return 0, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, nil
}

func setComm(name string) error {
	return os.WriteFile(fmt.Sprintf("/proc/self/task/%d/comm", os.Getpid()), []byte(name), 0)
}

// state is the running helper.
type state struct {
	children []*exec.Cmd
	inputs   []io.WriteCloser
	outputs  []*json.Decoder
	pids     []int
	ended    []int
}

func (h *state) start(s spec) error {
	cmd, in, out, err := startHelper(s)
	if err != nil {
		return err
	}
	var r reply
	from := json.NewDecoder(out)
	if err := from.Decode(&r); err != nil {
		return fmt.Errorf("child %q: %w", s.Args, err)
	}
	h.children = append(h.children, cmd)
	h.inputs = append(h.inputs, in)
	h.outputs = append(h.outputs, from)
	h.pids = append(append(h.pids, cmd.Process.Pid), r.PIDs...)
	return nil
}

func (h *state) stop() {
	for i, c := range h.children {
		if slices.Contains(h.ended, i) {
			continue
		}
		h.inputs[i].Close()
		_ = c.Wait()
	}
}

// do obeys one line: "end I", "start SPEC", "child I ORDER", "title TEXT", "clear".
func (h *state) do(line string) error {
	order, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	switch order {
	case "end":
		i, err := strconv.Atoi(rest)
		if err != nil {
			return err
		}
		h.inputs[i].Close()
		h.ended = append(h.ended, i)
		return h.children[i].Wait()
	case "start":
		var s spec
		if err := json.Unmarshal([]byte(rest), &s); err != nil {
			return err
		}
		return h.start(s)
	case "child": // pass an order on
		i, order, _ := strings.Cut(rest, " ")
		n, err := strconv.Atoi(i)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(h.inputs[n], order); err != nil {
			return err
		}
		return h.outputs[n].Decode(&reply{})
	case "title":
		overwrite(argv(), rest)
		return setComm(rest[:min(15, len(rest))])
	case "clear":
		overwrite(environ(), "")
		return nil
	default:
		return fmt.Errorf("order %q", order)
	}
}

// argv is the memory of the arguments, as the kernel laid it down in one piece.
func argv() []string {
	n := 0
	for _, a := range os.Args {
		n += len(a) + 1
	}
	return []string{unsafe.String(unsafe.StringData(os.Args[0]), n-1)}
}

// environ is the environment as the kernel laid it down behind the arguments.
func environ() []string {
	b, err := os.ReadFile("/proc/self/environ")
	if err != nil {
		return nil
	}
	last := os.Args[len(os.Args)-1]
	at := unsafe.Add(unsafe.Pointer(unsafe.StringData(last)), len(last)+1)
	return []string{unsafe.String((*byte)(at), len(b))}
}

// overwrite writes a text where some strings lie that the kernel gave us, and zeros
// behind it, as setproctitle does: Go's strings of os.Args are that memory.
func overwrite(strings []string, text string) {
	for i, s := range strings {
		b := unsafe.Slice(unsafe.StringData(s), len(s))
		clear(b)
		if i == 0 {
			copy(b, text)
		}
	}
}

// startHelper starts a helper.
func startHelper(s spec) (*exec.Cmd, io.WriteCloser, io.Reader, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, nil, nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, nil, err
	}
	cmd := &exec.Cmd{
		Path: self, Args: s.Args, Dir: s.Dir, Stderr: os.Stderr,
		Env: append([]string{helperEnv + "=" + string(text), "GOMAXPROCS=1"}, s.Env...),
		// Nothing outlives a test that was killed.
		SysProcAttr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, nil, err
	}
	return cmd, in, out, cmd.Start()
}

// server is a helper of the test, with its children.
type server struct {
	t    testing.TB
	pid  int
	port int
	pids []int // of the children, in the order of their starts
	in   io.WriteCloser
	out  *json.Decoder
}

// launch starts a server and waits until all of it stands.
func launch(t testing.TB, s spec) *server {
	t.Helper()
	cmd, in, out, err := startHelper(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		done := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		defer done.Stop()
		if err := cmd.Wait(); err != nil {
			t.Errorf("helper %q: %v", s.Args, err)
		}
	})
	v := &server{t: t, pid: cmd.Process.Pid, in: in, out: json.NewDecoder(out)}
	v.port = v.answer().Port
	return v
}

func (v *server) answer() reply {
	v.t.Helper()
	var r reply
	if err := v.out.Decode(&r); err != nil {
		v.t.Fatalf("helper: %v", err)
	}
	v.pids = r.PIDs
	return r
}

// tell gives an order and waits until it is done.
func (v *server) tell(format string, args ...any) {
	v.t.Helper()
	if _, err := fmt.Fprintf(v.in, format+"\n", args...); err != nil {
		v.t.Fatal(err)
	}
	v.answer()
}

func (v *server) start(s spec) int {
	v.t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		v.t.Fatal(err)
	}
	had := len(v.pids)
	v.tell("start %s", text)
	return v.pids[had]
}

// fifo makes a wake-up FIFO as vLLM-Omni names it, for the test's time.
func fifo(t testing.TB, stage int) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", //nolint:usetesting // the folder's place and name are what is tested
		fmt.Sprintf("omni_shm_wake_%d_", os.Getuid()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, fmt.Sprintf("%d_0123456789abcdef0123456789abcdef", stage))
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// scan scans and fails on an error.
func scan(t testing.TB, f *Finder) Result {
	t.Helper()
	r, err := f.Scan()
	if err != nil {
		t.Fatal(err)
	}
	return r
}
