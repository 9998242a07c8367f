package stages

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/record"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/shm"
)

// parentEnv makes the test binary a parent that is to be killed.
const parentEnv = "OMNITAP_TEST_PARENT"

func TestMain(m *testing.M) {
	Main()
	if dir := os.Getenv(parentEnv); dir != "" {
		os.Exit(beParent(dir))
	}
	// A race detector sleeps a second at the end of each process.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")); err != nil {
		panic(err)
	}
	before := runtime.NumGoroutine()
	code := m.Run()
	if code == 0 && !eventually(func() bool { return runtime.NumGoroutine() <= before }) {
		buf := make([]byte, 1<<20)
		fmt.Fprintf(os.Stderr, "goroutines are left:\n%s\n", buf[:runtime.Stack(buf, true)])
		code = 1
	}
	os.Exit(code)
}

// eventually polls until ok, for at most 20 seconds.
func eventually(ok func() bool) bool {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); <-tick.C {
		if ok() {
			return true
		}
	}
	return ok()
}

// rig is an Engine whose end is checked: nothing of it may be left.
type rig struct {
	*Engine
	t      *testing.T
	prefix string // of its HTTP ids
	truth  string
}

var rigs struct {
	sync.Mutex
	n int
}

func start(t *testing.T, cfg Config) *rig {
	t.Helper()
	rigs.Lock()
	rigs.n++
	r := &rig{t: t, prefix: fmt.Sprintf("test-%d-%d", os.Getpid(), rigs.n), truth: t.TempDir()}
	rigs.Unlock()
	for i, f := range cfg.Faults {
		if f.Request != "" {
			cfg.Faults[i].Request = r.prefix + f.Request
		}
	}
	cfg.Truth = r.truth
	cfg.HiddenBytes = 100
	var err error
	if r.Engine, err = Start(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.finish)
	return r
}

func (r *rig) finish() {
	pids := append(r.PIDs(), r.TrackerPID())
	if err := r.Close(); err != nil {
		r.t.Errorf("Close: %v", err)
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
			r.t.Errorf("process %d is still there (%v)", pid, err)
		}
	}
	if left := leftovers(r.t, r.prefix); len(left) > 0 {
		r.t.Errorf("left in %s: %v", shm.Dir, left)
	}
	if _, err := os.Stat(r.dir); err == nil {
		r.t.Errorf("the folder of the sockets is left")
	}
}

// leftovers are the names in /dev/shm that a test has made.
func leftovers(t *testing.T, prefix string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(shm.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.Contains(e.Name(), prefix) {
			names = append(names, e.Name())
		}
	}
	return names
}

func words(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("word%d ", i)
	}
	return out
}

func (r *rig) request(name string, tokens, frames int) Request {
	return Request{ID: r.prefix + name, Words: words(tokens), Audio: frames > 0, Frames: frames, Seed: uint64(len(name)*1000 + frames)}
}

func (r *rig) submit(ctx context.Context, req Request) <-chan Output {
	r.t.Helper()
	out, err := r.Submit(ctx, req)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// answer is all of a request's outputs.
type answer struct {
	text string
	pcm  []byte
	done bool
	err  error
}

func gather(out <-chan Output) (a answer) {
	var last int64
	next := [3]int{-1, -1, -1} // a test may have read some before
	for o := range out {
		switch {
		case a.err != nil: // the first counts
		case a.done:
			a.err = errors.New("an output behind the last")
		case o.MonoNS < last:
			a.err = fmt.Errorf("time goes back at output %d", o.Index)
		case o.Err != nil:
			a.err = o.Err
		case o.Done:
			a.done = true
		case next[o.Stage] >= 0 && o.Index != next[o.Stage]:
			a.err = fmt.Errorf("output %d of stage %d where %d is due", o.Index, o.Stage, next[o.Stage])
		default:
			next[o.Stage] = o.Index + 1
			a.text += o.Text
			a.pcm = append(a.pcm, o.PCM...)
		}
		last = o.MonoNS
	}
	return a
}

func check(t *testing.T, req Request, a answer) {
	t.Helper()
	text, pcm := req.Planned()
	if a.err != nil || !a.done {
		t.Errorf("%s: done %v, error %v", req.ID, a.done, a.err)
	}
	if a.text != text {
		t.Errorf("%s: text %q, want %q", req.ID, a.text, text)
	}
	if !bytes.Equal(a.pcm, pcm) {
		t.Errorf("%s: %d bytes of audio, not the %d planned", req.ID, len(a.pcm), len(pcm))
	}
}

// log reads a process's ground truth.
func (r *rig) log(stage string) (events []record.Event) {
	r.t.Helper()
	f, err := os.Open(filepath.Join(r.truth, "truth-"+stage+".jsonl"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var e record.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			r.t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

// having returns the events of a name, of a request unless id is empty.
func having(events []record.Event, name, id string) (out []record.Event) {
	for _, e := range events {
		if e.Event == name && (id == "" || e.RequestID != nil && *e.RequestID == id) {
			out = append(out, e)
		}
	}
	return out
}

var modes = map[string]Mode{"zmq": ZMQ, "queues": Queues}

func TestAnswer(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			r := start(t, Config{Mode: mode, ShmThreshold: 1000})
			for _, req := range []Request{
				r.request("both", 12, 60), r.request("long-text", 40, 5), r.request("one-word", 1, 1),
				r.request("exact-chunk", 2, 29), r.request("text", 6, 0),
			} {
				check(t, req, gather(r.submit(t.Context(), req)))
			}
		})
	}
}

func TestManyAtOnce(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			r := start(t, Config{Mode: mode, ShmThreshold: -1, Steps: [3]time.Duration{time.Millisecond, time.Millisecond, time.Millisecond}})
			type pending struct {
				req Request
				out <-chan Output
			}
			var all []pending
			for i := range 32 {
				frames := 0
				if i%8 != 0 {
					frames = 5 + 3*i
				}
				req := r.request(fmt.Sprint("many-", i), 3+i%20, frames)
				all = append(all, pending{req, r.submit(t.Context(), req)})
			}
			for _, p := range all {
				check(t, p.req, gather(p.out))
			}
			// What the queues' segments were is read and gone by now.
			if mode == Queues {
				if left := ownSegments(t); len(left) > 0 {
					t.Errorf("segments are left: %v", left)
				}
			}
		})
	}
}

// ownSegments are psm_ segments that begin as our payloads do; others may have theirs.
func ownSegments(t *testing.T) (names []string) {
	t.Helper()
	all, err := filepath.Glob(shm.Dir + "/psm_*")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range all {
		if b, err := os.ReadFile(n); err == nil && bytes.HasPrefix(b, []byte{1, 3, 0, 0, 0}) {
			names = append(names, n)
		}
	}
	return names
}

func TestCancel(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			r := start(t, Config{Mode: mode})
			ctx, cancel := context.WithCancel(t.Context())
			req := r.request("cancel", 500, 4000)
			out := r.submit(ctx, req)
			if mode == ZMQ {
				for o := range out { // in the midst of it: audio has come
					if o.Stage == 2 {
						break
					}
				}
			}
			cancel()
			if a := gather(out); !errors.Is(a.err, context.Canceled) || a.done {
				t.Fatalf("done %v, error %v", a.done, a.err)
			}
			stages := []string{"thinker"}
			if mode == ZMQ {
				stages = Names[:]
			}
			for _, s := range stages {
				if !eventually(func() bool { return len(having(r.log(s), "request_aborted", req.ID)) == 1 }) {
					t.Errorf("the %s was not told", s)
				}
			}
			next := r.request("next", 3, 10)
			check(t, next, gather(r.submit(t.Context(), next)))
		})
	}
}

func TestStageDies(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			r := start(t, Config{Mode: mode, Faults: []Fault{{Kind: FaultExit, Stage: 1, Request: "dies", Chunk: 7, Status: 3}}})
			fine := r.request("fine", 4, 12)
			check(t, fine, gather(r.submit(t.Context(), fine)))
			a := gather(r.submit(t.Context(), r.request("dies", 20, 50)))
			var got *StageError
			if !errors.As(a.err, &got) || got.Stage != 1 || got.PID != r.PIDs()[1] || !strings.Contains(got.Error(), "stage 1 (talker, pid") || !strings.Contains(got.Status, "3") {
				t.Fatalf("error %v", a.err)
			}
			if _, err := r.Submit(t.Context(), fine); !errors.As(err, &got) {
				t.Errorf("a request after that: %v", err)
			}
			if e := having(r.log("talker"), "fault_exit", ""); len(e) != 1 || *e[0].Chunk != 7 {
				t.Errorf("the ground truth tells of the exit %v", e)
			}
		})
	}
}

func TestStageIsKilled(t *testing.T) {
	r := start(t, Config{})
	out := r.submit(t.Context(), r.request("kill", 3000, 3000))
	<-out
	if err := unix.Kill(r.PIDs()[2], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var got *StageError
	if a := gather(out); !errors.As(a.err, &got) || got.Stage != 2 || !strings.Contains(got.Status, "killed") {
		t.Errorf("error %v", a.err)
	}
}

// The HTTP id stands in front of an engine's id; two servers of one seed share no id, as
// they share /dev/shm.
func TestEngineIDs(t *testing.T) {
	var ids [2]string
	for i := range ids {
		r := start(t, Config{Seed: 9})
		req := r.request("id", 1, 0)
		check(t, req, gather(r.submit(t.Context(), req)))
		e := having(r.log("api"), "submit", req.ID)
		if len(e) != 1 || !strings.HasPrefix(e[0].InternalID, req.ID+"-") || len(e[0].InternalID) != len(req.ID)+9 {
			t.Fatalf("submit: %v", e)
		}
		ids[i] = strings.TrimPrefix(e[0].InternalID, r.prefix)
	}
	if ids[0] == ids[1] {
		t.Errorf("two servers have the id %s", ids[0])
	}
}

func TestValidate(t *testing.T) {
	good := Request{ID: "a", Words: []string{"x"}}
	if err := errors.Join(good.Validate(), Config{}.Validate()); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"slash":        Request{ID: "a/b", Words: good.Words}.Validate(),
		"no id":        Request{Words: good.Words}.Validate(),
		"long id":      Request{ID: strings.Repeat("a", maxID+1), Words: good.Words}.Validate(),
		"no words":     Request{ID: "a"}.Validate(),
		"no frames":    Request{ID: "a", Words: good.Words, Audio: true}.Validate(),
		"mode":         Config{Mode: 7}.Validate(),
		"step":         Config{Steps: [3]time.Duration{-1}}.Validate(),
		"busy":         Config{Busy: 2}.Validate(),
		"fault kind":   Config{Faults: []Fault{{Kind: "x"}}}.Validate(),
		"fault stage":  Config{Faults: []Fault{{Kind: FaultSlow, Stage: 3}}}.Validate(),
		"stale in vo1": Config{Mode: Queues, Faults: []Fault{{Kind: FaultStale, Bytes: 1}}}.Validate(),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
