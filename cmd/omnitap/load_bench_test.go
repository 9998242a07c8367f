package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// Many streams of speech in real time through a relay that has one core. The relay
// is a process of its own, bound to its core ahead of its first instruction; the
// load is made by two threads on the other cores, with raw system calls, and stamps
// arrivals by the kernel: what the load itself lacks in speed shows as lag, and not
// as delay.

// loadChildEnv makes TestLoadChild the relay: what kind, and the upstream.
const loadChildEnv = "OMNITAP_LOAD_CHILD"

// Kinds of relays under load: one that looks at nothing; without and with a run
// directory; and with little memory for what waits, so that it drops as soon as it
// falls behind.
const (
	loadBlind = "blind"
	loadPlain = "off"
	loadDir   = "dir"
	loadTight = "tight"
)

// tightMemory is more than 30 ms of a few thousand streams.
const tightMemory = 12 << 20

// TestLoadChild is no test of its own: it is the relay of the load benchmarks.
func TestLoadChild(t *testing.T) {
	kind, upstream, ok := strings.Cut(os.Getenv(loadChildEnv), " ")
	if !ok {
		t.Skip("the child of the load benchmarks")
	}
	tally := &recordTally{states: map[string]int{}}
	f := &serveFlags{fileConfig: fileConfig{Upstream: "http://" + upstream, Listen: "127.0.0.1:0", Admin: "off", Log: "json", DeadlineAction: "mark", Drain: 5 * time.Second}}
	switch kind {
	case loadBlind:
		f.Tap.Off = true
	case loadDir:
		f.Out = t.TempDir() + "/run"
	case loadTight:
		f.Tap.MaxMemory = tightMemory
	}
	s, err := (&app{io.Discard, tally}).build(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx) }()
	_, _ = fmt.Fprintln(os.Stdout, "addr", s.listener.Addr())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		state := loadState{CPU: cpuTime(), Memory: rss(), Queued: s.analyzer.Queued(), Dropped: s.analyzer.Dropped()}
		if s.out != nil {
			w := s.out.Stats()
			state.Lost = w.Events.LostLines + w.Requests.LostLines + w.Quality.LostLines + w.Sessions.LostLines
		}
		tally.add(&state)
		b, err := json.Marshal(state)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(os.Stdout, "load %s\n", b)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// cpuTime returns what this process has used so far, in ns.
func cpuTime() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}

// busyTime returns what all processes of the machine have used so far, in ns.
func busyTime(tb testing.TB) (ns int64) {
	tb.Helper()
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		tb.Fatal(err)
	}
	for i, f := range strings.Fields(strings.SplitN(string(b), "\n", 2)[0]) {
		if i > 0 && i < 9 && i != 4 && i != 5 { // idle, waiting for a disk
			n, _ := strconv.ParseInt(f, 10, 64)
			ns += n * int64(time.Second) / 100 // USER_HZ
		}
	}
	return ns
}

// loadState is what the relay tells of itself.
type loadState struct {
	CPU, Memory, Queued, Dropped int64
	Lost                         int64 // lines of the run directory
	Records, Full                int   // and those whose analysis was full
	States                       map[string]int
}

// recordTally counts the lines of a log.
type recordTally struct {
	mu            sync.Mutex // protects what follows
	records, full int
	states        map[string]int
}

func (r *recordTally) Write(p []byte) (int, error) {
	var line struct {
		Analysis, State, Reason string
	}
	if json.Unmarshal(p, &line) == nil && line.State != "" {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.records++
		r.states[line.State+"/"+line.Reason]++
		if line.Analysis == "full" {
			r.full++
		}
	}
	return len(p), nil
}

func (r *recordTally) add(s *loadState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Records, s.Full, s.States = r.records, r.full, r.states
}

// cores of the load and of the relay.
type cores struct{ load, relay unix.CPUSet }

// splitCores takes the last core for the relay and leaves the others to the load.
func splitCores(tb testing.TB) cores {
	tb.Helper()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		tb.Fatal(err)
	}
	var c cores
	last := -1
	for i := range len(all) * 64 {
		if all.IsSet(i) {
			c.load.Set(i)
			last = i
		}
	}
	if c.load.Count() < 2 {
		tb.Skip("one core for the load and one for the relay are needed")
	}
	c.load.Clear(last)
	c.relay.Set(last)
	bindThreads(tb, &c.load)
	tb.Cleanup(func() { bindThreads(tb, &all) })
	return c
}

// bindThreads binds all threads of this process; later ones are bound as those that
// start them.
func bindThreads(tb testing.TB, set *unix.CPUSet) {
	tb.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		tb.Fatal(err)
	}
	for _, e := range tasks {
		id, _ := strconv.Atoi(e.Name())
		_ = unix.SchedSetaffinity(id, set) // a thread may have ended
	}
}

// loadChild is a relay with a core of its own.
type loadChild struct {
	addr string
	in   io.Writer
	out  *bufio.Scanner
	stop func()
}

// startLoadChild starts it from a thread that is bound to that core: the process
// inherits it, and Go takes the number of its cores from there.
func startLoadChild(tb testing.TB, kind, upstream string, core *unix.CPUSet) *loadChild {
	tb.Helper()
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), exe, "-test.run=^TestLoadChild$", "-test.count=1")
	cmd.Env = append(os.Environ(), loadChildEnv+"="+kind+" "+upstream)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var own unix.CPUSet
	if err := unix.SchedGetaffinity(0, &own); err != nil {
		tb.Fatal(err)
	}
	if err := unix.SchedSetaffinity(0, core); err != nil {
		tb.Fatal(err)
	}
	err = cmd.Start()
	_ = unix.SchedSetaffinity(0, &own)
	if err != nil {
		tb.Fatal(err)
	}
	c := &loadChild{in: in, out: bufio.NewScanner(out)}
	c.out.Buffer(nil, 1<<20)
	if !c.out.Scan() {
		tb.Fatal("the relay did not start")
	}
	c.addr = strings.TrimPrefix(c.out.Text(), "addr ")
	c.stop = sync.OnceFunc(func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	tb.Cleanup(c.stop)
	return c
}

// state asks the relay.
func (c *loadChild) state(tb testing.TB) (s loadState) {
	tb.Helper()
	if _, err := io.WriteString(c.in, "\n"); err != nil {
		tb.Fatal(err)
	}
	for c.out.Scan() {
		if line, ok := strings.CutPrefix(c.out.Text(), "load "); ok {
			if err := json.Unmarshal([]byte(line), &s); err != nil {
				tb.Fatal(err)
			}
			return s
		}
	}
	tb.Fatal("the relay is gone")
	return s
}

// speech is so many seconds of sound that is made like speech, 24 kHz mono:
// syllables of a voice with harmonics, hisses between them, pauses, and never the
// same twice.
func speech(seconds int) []byte {
	const rate = 24000
	r := rand.New(rand.NewPCG(24, 7))
	out := make([]byte, 0, 2*rate*seconds)
	put := func(v float64) {
		out = binary.LittleEndian.AppendUint16(out, uint16(int16(max(-32000, min(32000, v+12*r.NormFloat64())))))
	}
	phase := 0.0
	for len(out) < 2*rate*seconds {
		for range 4 + r.IntN(8) { // a phrase of syllables
			pitch, loud := 95+90*r.Float64(), 2500+6000*r.Float64()
			var formant [10]float64
			for h := range formant {
				formant[h] = r.Float64() / float64(h+1)
			}
			n := rate * (120 + r.IntN(160)) / 1000
			for i := range n {
				x := float64(i) / float64(n)
				phase += 2 * math.Pi * pitch * (1 + .15*math.Sin(3*x)) / rate
				v := 0.0
				for h, a := range formant {
					v += a * math.Sin(float64(h+1)*phase)
				}
				put(loud * v * math.Sin(math.Pi*x))
			}
			for range rate * r.IntN(70) / 1000 { // a hiss
				put(700 * r.NormFloat64())
			}
		}
		for range rate * (100 + r.IntN(250)) / 1000 {
			put(0)
		}
	}
	return out[:2*rate*seconds]
}

// script is what the streams of a form say.
type script struct {
	form     soundForm
	every    time.Duration
	messages [][]byte // all of one length
	size     int
}

// scriptSeconds is how long the sound is of which each stream has a part.
const scriptSeconds = 20

var madeSpeech = sync.OnceValue(func() []byte { return speech(scriptSeconds) })

func newScript(form soundForm, every time.Duration) *script {
	s := &script{form: form, every: every}
	for part := range slices.Chunk(madeSpeech(), int(every.Seconds()*48000)) {
		s.messages = append(s.messages, []byte(form.chunk(string(part))))
	}
	s.size = len(s.messages[0])
	return s
}

// streamLoad is a set of streams. Its sockets are raw: Go's poller would cost more than
// they do.
type streamLoad struct {
	tb       testing.TB
	script   *script
	chunks   int // of each stream
	listener int
	addr     string
	streams  []*loadStream
	byFD     map[int32]*loadStream
	sinkFD   int // epoll
	lags     []time.Duration
	blocked  int // writes that found no room
}

type loadStream struct {
	up, down int
	first    int            // its first message
	sent     []atomic.Int64 // CLOCK_REALTIME of each
	late     []atomic.Bool  // it was held up in being sent
	got      int            // bytes
	took     []int64
	damaged  bool
}

func newLoad(tb testing.TB, s *script, long time.Duration) *streamLoad {
	tb.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		tb.Fatal(err)
	}
	if err := unix.Listen(fd, 4096); err != nil {
		tb.Fatal(err)
	}
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10})
	name, err := unix.Getsockname(fd)
	if err != nil {
		tb.Fatal(err)
	}
	l := &streamLoad{tb: tb, script: s, chunks: int(long / s.every), listener: fd, addr: fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)}
	tb.Cleanup(func() { _ = unix.Close(fd) })
	return l
}

// open opens n streams through addr, up to where sound begins.
func (l *streamLoad) open(addr string, n int) {
	l.tb.Helper()
	to, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		l.tb.Fatal(err)
	}
	if l.sinkFD, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		l.tb.Fatal(err)
	}
	l.byFD = map[int32]*loadStream{}
	for i := range n {
		x := &loadStream{first: i * 37 % (len(l.script.messages) - l.chunks), sent: make([]atomic.Int64, l.chunks), late: make([]atomic.Bool, l.chunks)}
		l.streams = append(l.streams, x)
		if x.down, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			l.tb.Fatal(err)
		}
		_ = unix.SetsockoptTimeval(x.down, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10})
		if err := unix.Connect(x.down, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: to.Port}); err != nil {
			l.tb.Fatal(err)
		}
		if x.up, _, err = unix.Accept4(l.listener, unix.SOCK_CLOEXEC); err != nil {
			l.tb.Fatal(err)
		}
		_ = unix.SetsockoptTimeval(x.up, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10})
		for _, s := range l.script.form.before {
			l.say(x, s)
		}
		for _, fd := range []int{x.up, x.down} {
			_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
			_ = unix.SetNonblock(fd, true)
		}
		_ = unix.SetsockoptInt(x.down, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
		if err := unix.EpollCtl(l.sinkFD, unix.EPOLL_CTL_ADD, x.down, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(x.down)}); err != nil {
			l.tb.Fatal(err)
		}
		l.byFD[int32(x.down)] = x
	}
}

// say has one end say something, and the other one hear it.
func (l *streamLoad) say(x *loadStream, s said) {
	l.tb.Helper()
	from, to := x.down, x.up
	if s.from == server {
		from, to = x.up, x.down
	}
	if n, err := unix.Write(from, []byte(s.data)); n != len(s.data) {
		l.tb.Fatalf("wrote %d of %d bytes: %v", n, len(s.data), err)
	}
	b := make([]byte, len(s.data))
	for got := 0; got < len(b); {
		n, err := unix.Read(to, b[got:])
		if n <= 0 {
			l.tb.Fatalf("%d of %d bytes arrived: %v", got, len(b), err)
		}
		got += n
	}
	if string(b) != s.data {
		l.tb.Fatal("other bytes arrived")
	}
}

// play sends all sound in real time, and returns how long that took.
func (l *streamLoad) play() time.Duration {
	begin := time.Now()
	var threads sync.WaitGroup
	threads.Go(l.send)
	threads.Go(l.receive)
	threads.Wait()
	return time.Since(begin)
}

// send sends each stream's chunks at their times, the streams spread evenly.
func (l *streamLoad) send() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	n := len(l.streams)
	step := l.script.every / time.Duration(n)
	begin := time.Now()
	l.lags = make([]time.Duration, 0, n*l.chunks)
	for k := range l.chunks {
		for i, x := range l.streams {
			due := time.Duration(k)*l.script.every + time.Duration(i)*step
			at := time.Since(begin)
			if wait := due - at; wait > 0 {
				nap(max(wait, pause))
				at = time.Since(begin)
			}
			l.lags = append(l.lags, at-due)
			before := time.Now()
			x.sent[k].Store(before.UnixNano())
			for b := l.script.messages[x.first+k]; len(b) > 0; {
				m, err := unix.Write(x.up, b)
				if m > 0 {
					b = b[m:]
					continue
				}
				if err != unix.EAGAIN {
					l.tb.Errorf("writing: %v", err)
					return
				}
				l.blocked++
				nap(50 * time.Microsecond)
			}
			if time.Since(before) > unsure {
				x.late[k].Store(true)
			}
		}
	}
}

// unsure is how long a chunk's sending may take for its delay to count: over it the
// load itself was held up amid it.
const unsure = 100 * time.Microsecond

// nap sleeps without Go's timers.
func nap(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &ts, nil)
}

// receive takes all sound that is to come, or gives up when nothing comes for long.
func (l *streamLoad) receive() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	events := make([]unix.EpollEvent, 1024)
	buf, oob := make([]byte, 256<<10), make([]byte, 128)
	left := int64(len(l.streams)) * int64(l.chunks*l.script.size)
	for left > 0 {
		n, err := unix.EpollWait(l.sinkFD, events, 10_000)
		if n == 0 && err == nil {
			l.tb.Errorf("%d bytes did not arrive", left)
			return
		}
		for _, e := range events[:max(0, n)] {
			x := l.byFD[e.Fd]
			m, k, _, _, err := unix.RecvmsgBuffers(x.down, [][]byte{buf}, oob, 0)
			if m <= 0 {
				if err == nil {
					l.tb.Error("a stream ended early")
					return
				}
				continue
			}
			x.take(l.script, buf[:m], stampOf(oob[:k]))
			left -= int64(m)
		}
		nap(look) // the stamps are the kernel's: a look at each chunk would cost the load its pace
	}
}

// look is how often arrivals are looked at, and pause how often chunks are sent: those
// that are due by then.
const (
	look  = 4 * time.Millisecond
	pause = 200 * time.Microsecond
)

// stampOf returns the kernel's receive stamp of a read.
func stampOf(oob []byte) int64 {
	if len(oob) >= unix.CmsgLen(16) {
		sec, nsec := binary.NativeEndian.Uint64(oob[16:]), binary.NativeEndian.Uint64(oob[24:])
		return int64(sec)*int64(time.Second) + int64(nsec)
	}
	return time.Now().UnixNano()
}

// take compares what came, and notes the delay of each chunk that is whole.
func (x *loadStream) take(s *script, p []byte, at int64) {
	for len(p) > 0 {
		k, off := x.got/s.size, x.got%s.size
		want := s.messages[x.first+k][off:]
		n := min(len(p), len(want))
		x.damaged = x.damaged || !bytes.Equal(p[:n], want[:n])
		if n == len(want) {
			x.took = append(x.took, at-x.sent[k].Load())
		}
		x.got += n
		p = p[n:]
	}
}

// finish ends all streams as their form does.
func (l *streamLoad) finish() {
	for _, x := range l.streams {
		for _, fd := range []int{x.up, x.down} {
			_ = unix.SetNonblock(fd, false)
		}
		if x.damaged {
			l.tb.Error("other bytes arrived than were sent")
		}
		said := l.script.form.behind
		if l.script.form.name == "websocket" {
			said = append(slices.Clip(said), goodbye(server), goodbye(client))
		}
		for _, s := range said {
			l.say(x, s)
		}
		_ = unix.Shutdown(x.up, unix.SHUT_WR)
		_, _ = unix.Read(x.down, make([]byte, 1))
		_ = unix.Close(x.down)
		_ = unix.Close(x.up)
	}
	l.streams = nil
	_ = unix.Close(l.sinkFD)
}

func goodbye(from int) said { return said{from, closeFrame(from, 1000, "")} }

// loadResult is what a load and a relay make of each other.
type loadResult struct {
	wall         time.Duration
	delays       []int64 // sorted
	lags         []time.Duration
	blocked      int
	others       float64   // cores that other processes took meanwhile
	before, then loadState // of the relay, around the sound
	end          loadState // behind the last record
}

func (r *loadResult) delay(q float64) float64 {
	return float64(r.delays[int(q*float64(len(r.delays)-1))]) / 1e3
}

func (r *loadResult) lag(q float64) float64 {
	return float64(r.lags[int(q*float64(len(r.lags)-1))]) / 1e3
}

// core returns how much of its core the relay took while the sound came.
func (r *loadResult) core() float64 { return float64(r.then.CPU-r.before.CPU) / float64(r.wall) }

// runLoad plays n streams through a relay of that kind, "" for none.
func runLoad(tb testing.TB, s *script, kind string, n int, long time.Duration, c *cores) *loadResult {
	tb.Helper()
	l := newLoad(tb, s, long)
	addr := l.addr
	var relay *loadChild
	if kind != "" {
		relay = startLoadChild(tb, kind, l.addr, &c.relay)
		addr = relay.addr
		defer relay.stop()
	}
	r := &loadResult{}
	l.open(addr, n)
	if relay != nil {
		r.before = relay.state(tb)
	}
	busy, own := busyTime(tb), cpuTime()
	r.wall = l.play()
	busy, own = busyTime(tb)-busy, cpuTime()-own
	if relay != nil {
		r.then = relay.state(tb)
	}
	r.others = float64(busy-own-(r.then.CPU-r.before.CPU)) / float64(r.wall)
	for _, x := range l.streams {
		for k, d := range x.took {
			if !x.late[k].Load() {
				r.delays = append(r.delays, d)
			}
		}
	}
	r.lags, r.blocked = l.lags, l.blocked
	slices.Sort(r.delays)
	slices.Sort(r.lags)
	l.finish()
	if relay == nil || kind == loadBlind { // nobody to write records
		return r
	}
	for end := time.Now().Add(20 * time.Second); ; nap(50 * time.Millisecond) {
		if r.end = relay.state(tb); r.end.Records >= n && r.end.Queued == 0 {
			break
		}
		if time.Now().After(end) {
			tb.Errorf("%d records of %d streams, %d bytes queued", r.end.Records, n, r.end.Queued)
			break
		}
	}
	return r
}

const (
	loadStreams = 500
	loadLong    = 3 * time.Second
)

// briefly returns d, or a tenth of it where the benchmark only has to show that it
// still runs (-test.benchtime 1x).
func briefly(d time.Duration) time.Duration {
	if onceOnly() {
		return d / 10
	}
	return d
}

func onceOnly() bool { return flag.Lookup("test.benchtime").Value.String() == "1x" }

// BenchmarkRealtimeStreams plays 500 streams in real time through a relay on one
// core, all checks on; blind is the same without looking at anything. It reports the
// share of the core, what the analysis lost, and what the relay adds to the time from a chunk's sending to its arrival, against the
// same streams without it.
func BenchmarkRealtimeStreams(b *testing.B) {
	for _, form := range soundForms() {
		for _, every := range []time.Duration{20 * time.Millisecond, 80 * time.Millisecond} {
			for _, kind := range []string{loadBlind, loadPlain, loadDir} {
				b.Run(fmt.Sprintf("%s/%v/%s", form.name, every, kind), func(b *testing.B) {
					c := splitCores(b)
					s := newScript(form, every)
					for b.Loop() {
						direct := runLoad(b, s, "", loadStreams, briefly(time.Second), &c)
						r := runLoad(b, s, kind, loadStreams, briefly(loadLong), &c)
						reportLoad(b, r, direct, kind == loadBlind)
					}
				})
			}
		}
	}
}

func reportLoad(b *testing.B, r, direct *loadResult, blind bool) {
	b.Helper()
	b.ReportMetric(100*r.core(), "core-%")
	b.ReportMetric(r.delay(.5)-direct.delay(.5), "added-p50-us")
	b.ReportMetric(r.delay(.99)-direct.delay(.99), "added-p99-us")
	b.ReportMetric(direct.delay(.99), "direct-p99-us")
	b.ReportMetric(r.lag(.99), "load-lag-p99-us")
	b.ReportMetric(100*float64(len(r.delays))/float64(len(r.lags)), "sure-%")
	b.ReportMetric(float64(r.end.Memory)/(1<<20), "rss-MiB")
	b.ReportMetric(r.others, "other-cores")
	b.ReportMetric(0, "ns/op") // the time is real time
	if blind {
		return
	}
	b.ReportMetric(float64(r.end.Dropped), "dropped-B")
	b.ReportMetric(float64(r.end.Lost), "lost-lines")
	b.ReportMetric(float64(r.end.Records-r.end.Full), "not-full")
	b.ReportMetric(float64(r.end.Records-r.end.States["success/done"]), "not-success")
	if r.end.Records != r.end.States["success/done"] {
		b.Logf("states %v", r.end.States)
	}
}

// BenchmarkMostStreams adds streams until the analysis drops bytes or the load itself
// cannot keep pace. It reports the most with which neither was so, and of the step
// behind it how it ended; every byte arrives all the same.
func BenchmarkMostStreams(b *testing.B) {
	for _, form := range soundForms() {
		for _, every := range []time.Duration{20 * time.Millisecond, 80 * time.Millisecond} {
			b.Run(fmt.Sprintf("%s/%v", form.name, every), func(b *testing.B) {
				c := splitCores(b)
				s := newScript(form, every)
				for b.Loop() {
					most(b, s, &c)
				}
			})
		}
	}
}

func most(b *testing.B, s *script, c *cores) {
	b.Helper()
	var good *loadResult
	reached := 0
	for n := 500; n <= 5000; n += 250 {
		r := runLoad(b, s, loadTight, n, briefly(2*time.Second), c)
		why := ""
		switch {
		case r.end.Dropped > 0:
			why = "dropped"
		case r.lag(.99) > 1e3*float64(s.every.Milliseconds())/2:
			why = "load"
		}
		b.Logf("%d streams: %.0f %% of the core, %d B dropped, %d of %d records not full, delay p50 %.0f µs, p99 %.0f µs, the load's lag p99 %.0f µs, blocked %d, others %.2f cores %s",
			n, 100*r.core(), r.end.Dropped, r.end.Records-r.end.Full, r.end.Records, r.delay(.5), r.delay(.99), r.lag(.99), r.blocked, r.others, why)
		if why != "" {
			b.ReportMetric(map[string]float64{"dropped": 1, "load": 0}[why], "dropped(0=load-too-slow)")
			b.ReportMetric(float64(r.end.Records-r.end.Full)/float64(n)*100, "not-full-%-behind")
			b.ReportMetric(r.delay(.99), "p99-us-behind")
			break
		}
		if good, reached = r, n; onceOnly() {
			break
		}
	}
	b.ReportMetric(float64(reached), "streams")
	if good != nil {
		b.ReportMetric(100*good.core(), "core-%")
		b.ReportMetric(good.delay(.99), "p99-us")
	}
	b.ReportMetric(0, "ns/op")
}

// nobody is a sink that keeps nothing.
type nobody struct{ full, records int }

func (n *nobody) Event(*timeline.Event) {}
func (n *nobody) Record(r *timeline.Record) {
	n.records++
	if r.Analysis == "full" {
		n.full++
	}
}
func (n *nobody) Session(*timeline.Session) {}

// BenchmarkAnalysisAlone reads 500 streams in turn with nothing around it, and
// reports how many streams in real time one core could read, by CPU time.
func BenchmarkAnalysisAlone(b *testing.B) {
	for _, form := range soundForms() {
		for _, every := range []time.Duration{20 * time.Millisecond, 80 * time.Millisecond} {
			for _, kind := range []string{loadPlain, loadDir} { // as serve sets it with and without
				b.Run(fmt.Sprintf("%s/%v/%s", form.name, every, kind), func(b *testing.B) { analysisAlone(b, newScript(form, every), kind == loadDir) })
			}
		}
	}
}

func analysisAlone(b *testing.B, s *script, kept bool) {
	var tc tap.Config
	tc.Timeline.NoEvents, tc.Timeline.Hash = !kept, "off"
	if kept {
		tc.Timeline.Hash = "on"
	}
	tc = tc.WithDefaults()
	sink := &nobody{}
	identify := func(n int) timeline.Identity {
		off := int64(0)
		return timeline.Identity{RunID: "b", OwnID: fmt.Sprint("own-", n), WallOffset: &off}
	}
	chunks := int(loadLong / s.every)
	now, streams, before := int64(1), 0, cpuTime()
	for b.Loop() {
		conns := make([]*tap.Conn, loadStreams)
		tell := func(c *tap.Conn, x said) {
			now += 1000
			d := [...]tap.Dir{client: tap.Client, server: tap.Server}[x.from]
			c.Bytes(d, []byte(x.data), now, now)
			c.Wrote(d, now, 0)
		}
		for i := range conns {
			conns[i] = tap.NewConn(&tc, identify, sink, nil, false)
			for _, x := range s.form.before {
				tell(conns[i], x)
			}
		}
		for k := range chunks {
			for i, c := range conns {
				now += int64(s.every) / loadStreams
				c.Bytes(tap.Server, s.messages[i*37%(len(s.messages)-chunks)+k], now, 0)
				c.Wrote(tap.Server, now, 0)
			}
		}
		for _, c := range conns {
			for _, x := range s.form.behind {
				tell(c, x)
			}
			c.End(tap.Server, timeline.FIN, now)
			c.End(tap.Client, timeline.FIN, now)
			c.Close(now)
		}
		streams += loadStreams
	}
	if sink.full != streams || sink.records != streams {
		b.Errorf("%d records, %d full, want %d", sink.records, sink.full, streams)
	}
	perChunk := float64(cpuTime()-before) / float64(streams*chunks)
	b.ReportMetric(perChunk, "ns/chunk")
	b.ReportMetric(float64(s.every)/perChunk, "streams/core")
	b.ReportMetric(0, "ns/op")
}
