package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/proxy"
	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// What happens under load: the analysis falls behind, the disk stands still, ports
// run out, everything ends at once. Forwarding is the same throughout, and the
// records say what they lack.

// gatedSink is where an analysis is slowed: each event takes a while, or waits until
// it is let in.
type gatedSink struct {
	caseSink

	each time.Duration
	next timeline.Sink // gets all as well, nil for nobody

	gate sync.RWMutex // locked: nothing comes in
	held atomic.Int64 // events that wait
}

func (s *gatedSink) Event(e *timeline.Event) {
	time.Sleep(s.each)
	s.held.Add(1)
	s.gate.RLock()
	s.held.Add(-1)
	defer s.gate.RUnlock()
	s.caseSink.Event(e)
	if s.next != nil {
		s.next.Event(e)
	}
}

func (s *gatedSink) Record(r *timeline.Record) {
	s.caseSink.Record(r)
	if s.next != nil {
		s.next.Record(r)
	}
}

func (s *gatedSink) Session(l *timeline.Session) {
	s.caseSink.Session(l)
	if s.next != nil {
		s.next.Session(l)
	}
}

// count returns how many events of a name, or of any with "", came so far.
func (s *gatedSink) count(name string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.events {
		if name == "" || s.events[i].Event == name {
			n++
		}
	}
	return n
}

// loadRig is a relay with that sink.
type loadRig struct {
	addr     string
	server   *proxy.Server
	analyzer *tap.Analyzer
	sink     *gatedSink
	stop     func() // ends the relay, then the analysis
}

func startLoadRig(t testing.TB, upstream string, sink *gatedSink, tc tap.Config) *loadRig {
	t.Helper()
	r := &loadRig{sink: sink, analyzer: tap.NewAnalyzer(tc, sink, nil)}
	s, err := proxy.New(proxy.Config{Upstream: upstream, RunID: "t", Node: "n", Drain: 5 * time.Second, Analyzer: r.analyzer})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := proxy.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr, r.server = ln.Addr().String(), s
	ctx, cancel := context.WithCancel(context.Background())
	actx, acancel := context.WithCancel(context.Background())
	var relay, analysis sync.WaitGroup
	relay.Go(func() { _ = s.Run(ctx, ln) })
	analysis.Go(func() { r.analyzer.Run(actx) })
	r.stop = sync.OnceFunc(func() {
		cancel()
		relay.Wait()
		acancel()
		analysis.Wait()
	})
	t.Cleanup(r.stop)
	return r
}

// soundForm is a way for sound to come: what both ends say ahead of it, each piece
// of it, and what they say behind.
type soundForm struct {
	name   string
	before []said
	chunk  func(pcm string) string
	behind []said
	shut   func(*talk)
}

// said is something that one end says.
type said struct {
	from int
	data string
}

func soundForms() []soundForm {
	message := func(from int, kind, members string) said {
		return said{from, talkFrame(from, 0x81, talkJSON(kind, members))}
	}
	fins := func(w *talk) {
		w.fin(server)
		w.fin(client)
	}
	return []soundForm{
		{
			"chunks",
			[]said{{client, speechRequest(caseSpeechBody)}, {server, answerHead("audio/pcm", "X-Sample-Rate: 24000")}},
			httpChunk,
			[]said{{server, zeroChunk}},
			fins,
		},
		{
			"events",
			[]said{{client, speechRequest(caseSpeechBody)}, {server, answerHead("text/event-stream", "X-Sample-Rate: 24000")}},
			func(pcm string) string { return httpChunk(speechDelta(pcm)) },
			[]said{{server, httpChunk(speechDone) + zeroChunk}},
			fins,
		},
		{
			"websocket",
			[]said{
				{client, talkUpgrade("/v1/realtime")},
				{server, talkSwitch},
				message(server, "session.created", `"session":{"id":"sess_1","model":"m"}`),
				message(client, "response.create", ""),
				message(server, "response.created", `"response":{"id":"a"}`),
			},
			func(pcm string) string {
				return talkFrame(server, 0x81, talkJSON("response.output_audio.delta", soundOf("a", pcm)))
			},
			[]said{message(server, "response.done", `"response":{"id":"a","status":"completed"}`)},
			(*talk).shut,
		},
	}
}

// TestC66FallingBehind: the analysis loses bytes of sound that breaks an invariant
// right at its start. Every byte arrives, both ways, and so do the ends; the record
// judges nothing of what it did not see in full, the part that it saw included.
func TestC66FallingBehind(t *testing.T) {
	const queue = 40 << 10 // more than one block of reads
	voice := sound24(t, "voice")
	var parts []string
	for i := range 25 { // small enough for reads to be copied
		parts = append(parts, voice[i*4800:(i+1)*4800])
	}
	parts = append(parts[:2:2], append([]string{parts[1]}, parts[2:]...)...) // the second one once more
	for _, form := range soundForms() {
		for _, c := range []struct {
			name  string
			each  time.Duration
			stops []int // the chunks ahead of which the analysis comes to a stop
		}{
			{"not behind", 0, nil},
			{"stands still", 0, []int{4}},
			{"stands still twice", 0, []int{4, 17}},
			{"at a fraction of the rate", 20 * time.Millisecond, nil},
		} {
			t.Run(form.name+"/"+c.name, func(t *testing.T) {
				tc := tap.Config{Latency: time.Millisecond}
				behind := c.each > 0 || c.stops != nil
				if behind {
					tc.MaxQueue = queue
				}
				up, conns := loadUpstream(t)
				rig := startLoadRig(t, up, &gatedSink{each: c.each}, tc)
				w := loadPair(t, rig.addr, conns)
				playBehind(t, rig, w, form, parts, c.stops, c.each == 0)
				waitCase(t, "the connection to end", func() bool { return rig.server.Open() == 0 })
				rig.stop()
				rec := checkBehind(t, rig, behind)
				if behind {
					checkReason(t, rec, form.name, rig.analyzer.Dropped(), len(c.stops) == 1)
				}
			})
		}
	}
}

// playBehind plays a form through; ahead of the chunks in stops the analysis is
// brought to a stop, and let go when the next one is about to be, or at the end.
func playBehind(t *testing.T, rig *loadRig, w *talk, form soundForm, parts []string, stops []int, follow bool) {
	t.Helper()
	seen := func() {
		if follow {
			waitCase(t, "the analysis", func() bool { return rig.analyzer.Queued() == 0 })
		}
	}
	for _, s := range form.before {
		w.send(s.from, s.data)
	}
	closed := false
	for i, p := range parts {
		if slices.Contains(stops, i) {
			if closed {
				rig.sink.gate.Unlock()
			}
			seen()
			rig.sink.gate.Lock()
			closed = true
			// the worker has taken its batch and is stuck in it: what comes now finds a
			// queue of its own, and one gap at the most
			w.send(server, form.chunk(p))
			waitCase(t, "the analysis to stand still", func() bool { return rig.sink.held.Load() > 0 || rig.analyzer.Dropped() > 0 })
			continue
		}
		w.send(server, form.chunk(p))
		if len(stops) == 0 || i < stops[0] {
			seen()
		}
	}
	for _, s := range form.behind {
		w.send(s.from, s.data)
	}
	form.shut(w)
	if closed {
		rig.sink.gate.Unlock()
	}
}

// checkBehind checks the one record there is.
func checkBehind(t *testing.T, rig *loadRig, behind bool) *timeline.Record {
	t.Helper()
	if len(rig.sink.records) != 1 {
		t.Fatalf("%d records, want 1", len(rig.sink.records))
	}
	rec := rig.sink.records[0]
	checkNulls(t, rec)
	if dropped := rig.analyzer.Dropped(); (dropped > 0) != behind {
		t.Fatalf("%d bytes dropped, want some: %v", dropped, behind)
	}
	if !behind {
		if rec.Analysis != "full" || rec.Terminal.State != timeline.QualityFailed || !slices.Contains(rec.Quality.Failed, "repeated_chunk") {
			t.Errorf("analysis %s, terminal %+v, failed %q, want the repeated chunk to fail it", rec.Analysis, rec.Terminal, rec.Quality.Failed)
		}
		return rec
	}
	if rec.Analysis != "truncated" && rec.Analysis != "lost" {
		t.Errorf("analysis = %s, want truncated or lost", rec.Analysis)
	}
	if rec.Audio == nil {
		t.Fatal("audio is null, want what was seen of it")
	}
	switch {
	case rec.Turn == nil:
		wantTerminal(t, rec, timeline.HarnessError, "analysis_incomplete")
		wantNull(t, "audio.samples", rec.Audio.Samples)
		wantNull(t, "rtf", rec.RTF)
	case rec.Terminal.State != timeline.HarnessError && rec.Terminal.State != timeline.ClientCancelled:
		// a client's close frame decides although the end marker may lie in the gap
		t.Errorf("terminal = %+v, want no verdict on the server", rec.Terminal)
	}
	q := rec.Quality
	if q.Verdict != "not_measured" || len(q.Failed) != 0 || !slices.Equal(q.NotMeasured, timeline.CheckNames()) || len(q.Checks) != len(timeline.CheckNames()) {
		t.Errorf("quality = %+v, want all %d checks not measured", q, len(timeline.CheckNames()))
	}
	for _, f := range q.Checks {
		if f.Verdict != "not_measured" || f.Reason == "" {
			t.Errorf("%s: %s (%s), want not measured with a reason", f.Name, f.Verdict, f.Reason)
		}
	}
	for _, l := range rig.sink.lines {
		checkLine(t, l)
		if l.Analysis != "lost" && l.Analysis != "truncated" {
			t.Errorf("the session's analysis = %s", l.Analysis)
		}
	}
	return rec
}

// checkReason checks that the reason names what was dropped. Of several gaps it
// names the first alone; on a WebSocket, the byte from which on nothing is known.
func checkReason(t *testing.T, rec *timeline.Record, form string, dropped int64, one bool) {
	t.Helper()
	if rec.AnalysisReason == nil {
		t.Fatal("analysis_reason is null")
	}
	reason := *rec.AnalysisReason
	if form == "websocket" {
		var at int64
		if _, err := fmt.Sscanf(reason, "server: bytes not analysed at byte %d", &at); err != nil || at <= 0 {
			t.Errorf("reason = %q, want the byte from which on it was not read", reason)
		}
		return
	}
	var n int64
	if _, err := fmt.Sscanf(reason, "%d bytes were dropped ahead of analysis", &n); err != nil || n <= 0 || n > dropped || one && n != dropped {
		t.Errorf("reason = %q, want the %d dropped bytes named", reason, dropped)
	}
}

// stalledDisk stands in for the disk under a run directory: a write to one of its
// files waits, as on a disk that does not answer, until it is let go.
type stalledDisk struct {
	pipe [2]int        // full: whoever writes to it waits
	fd   int           // the run directory's: the pipe, meanwhile
	own  int           // the file itself
	read chan struct{} // closed when what was written meanwhile is in the file
}

// stallDisk makes writes to a file of dir, which this process has open, wait. One
// goroutine writes all files: it is stuck in the first that does not answer.
func stallDisk(t testing.TB, dir, name string) *stalledDisk {
	t.Helper()
	d, found := &stalledDisk{read: make(chan struct{})}, 0
	if err := unix.Pipe2(d.pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range open {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || to != filepath.Join(dir, name) {
			continue
		}
		_, _ = fmt.Sscan(e.Name(), &d.fd)
		found++
	}
	if found != 1 {
		t.Fatalf("%d descriptors of %s, want 1", found, name)
	}
	if d.own, err = unix.FcntlInt(uintptr(d.fd), unix.F_DUPFD_CLOEXEC, 3); err != nil {
		t.Fatal(err)
	}
	d.fill(t)
	if err := unix.Dup3(d.pipe[1], d.fd, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	return d
}

// fill fills the pipe.
func (d *stalledDisk) fill(t testing.TB) {
	t.Helper()
	if err := unix.SetNonblock(d.pipe[1], true); err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 4<<10); ; {
		if _, err := unix.Write(d.pipe[1], b); err != nil {
			break
		}
	}
	if err := unix.SetNonblock(d.pipe[1], false); err != nil {
		t.Fatal(err)
	}
}

// release lets the disk answer.
func (d *stalledDisk) release(t testing.TB) {
	t.Helper()
	full, err := unix.IoctlGetInt(d.pipe[0], unix.TIOCINQ)
	if err != nil {
		t.Fatal(err)
	}
	go d.drain(t, full)
}

// drain puts what comes behind the filling into the file, until nobody can write
// to the pipe any more.
func (d *stalledDisk) drain(t testing.TB, filling int) {
	t.Helper()
	defer close(d.read)
	b := make([]byte, 64<<10)
	for {
		n, err := unix.Read(d.pipe[0], b)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return
		}
		skip := min(filling, n)
		filling -= skip
		if _, err := unix.Write(d.own, b[skip:n]); err != nil {
			t.Errorf("writing on: %v", err)
		}
	}
}

// restore puts the file back; nothing may be under way. It follows release.
func (d *stalledDisk) restore(t testing.TB) {
	t.Helper()
	if err := unix.Dup3(d.own, d.fd, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(d.pipe[1])
	<-d.read
	_ = unix.Close(d.pipe[0])
	_ = unix.Close(d.own)
}

// TestC66DiskStalls: the disk of the run directory does not answer for two seconds
// while streams run. Their round trips are what they were, and of the lines each is
// in its file at the end, or counted as lost.
func TestC66DiskStalls(t *testing.T) {
	const streams, window = 4, 300 * time.Millisecond
	for _, c := range []struct {
		name   string
		buffer int
		lost   bool
	}{
		{"all fits the buffer", 0, false},
		{"more than the buffer", 256 << 10, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "run")
			out, err := rundir.Create(dir, rundir.Meta{RunID: "t", Node: "n", BufferBytes: c.buffer})
			if err != nil {
				t.Fatal(err)
			}
			sink := &gatedSink{next: runSink{out}}
			rig := startLoadRig(t, caseUpstream(t, func(c *net.TCPConn, _ int) {
				_, _ = readCaseRequest(c)
				echoStream(c)
			}), sink, tap.Config{Latency: 5 * time.Millisecond})
			var all []*echoClient
			for range streams {
				all = append(all, openEcho(t, rig.addr))
			}
			round := func() echoRound { return echoFor(t, all, window) }
			round() // the first ones are of a cold start
			before := []echoRound{round(), round()}
			disk := stallDisk(t, dir, rundir.EventsFile)
			written := out.Stats().Events.Lines
			var during []echoRound
			for range 7 { // two seconds
				during = append(during, round())
			}
			waitCase(t, "the analysis", func() bool { return rig.analyzer.Queued() == 0 })
			if n := out.Stats().Events.Lines; n > written+1 { // it stood still
				t.Errorf("%d lines were written while the disk stood still", n-written)
			}
			disk.release(t)
			after := []echoRound{round(), round()}
			checkRounds(t, append(before, after...), during)
			for _, e := range all {
				e.close()
			}
			waitCase(t, "the connections to end", func() bool { return rig.server.Open() == 0 })
			rig.stop()
			waitCase(t, "the lines to be written", func() bool {
				s := out.Stats().Events
				return s.Lines+s.LostLines == int64(sink.count(""))
			})
			disk.restore(t)
			if err := out.Close(); err != nil {
				t.Errorf("closing: %v", err)
			}
			checkStalledRun(t, dir, sink, c.lost)
		})
	}
}

// echoRound is what round trips took in a window of time.
type echoRound struct{ p50, p99, most time.Duration }

func (r echoRound) String() string {
	return fmt.Sprintf("p50 %v, p99 %v, max %v", r.p50, r.p99, r.most)
}

// echoFor has each stream make round trips for that long, one every 2 ms.
func echoFor(t testing.TB, all []*echoClient, long time.Duration) echoRound {
	t.Helper()
	var mu sync.Mutex
	var took []time.Duration
	var wg sync.WaitGroup
	for _, e := range all {
		wg.Go(func() {
			for until := time.Now().Add(long); time.Now().Before(until); {
				d := e.delays(t, 1)
				mu.Lock()
				took = append(took, d...)
				mu.Unlock()
				time.Sleep(2 * time.Millisecond) // a stream's pace
			}
		})
	}
	wg.Wait()
	slices.Sort(took)
	return echoRound{took[len(took)/2], took[len(took)*99/100], took[len(took)-1]}
}

// checkRounds compares windows with each other: a relay that waited for its disk
// would show in each of them, a busy machine shows in some.
func checkRounds(t testing.TB, calm, during []echoRound) {
	t.Helper()
	best := func(in []echoRound, of func(echoRound) time.Duration) time.Duration {
		return of(slices.MinFunc(in, func(a, b echoRound) int { return int(of(a) - of(b)) }))
	}
	for name, of := range map[string]func(echoRound) time.Duration{
		"p50": func(r echoRound) time.Duration { return r.p50 },
		"p99": func(r echoRound) time.Duration { return r.p99 },
	} {
		was, is := best(calm, of), best(during, of)
		if is > 2*was+time.Millisecond {
			t.Errorf("%s of round trips went from %v to %v; without a stall %v, with it %v", name, was, is, calm, during)
		}
	}
	for _, r := range during {
		if r.most > time.Second {
			t.Errorf("a round trip took %v: it waited for the disk", r.most)
		}
	}
}

// checkStalledRun checks that every line is in its file or counted.
func checkStalledRun(t *testing.T, dir string, sink *gatedSink, lost bool) {
	t.Helper()
	run, err := rundir.Read(dir)
	if err != nil || run.MetadataErr != nil {
		t.Fatalf("reading the run: %v, metadata %v", err, run.MetadataErr)
	}
	files := run.Metadata.Files
	if want := int64(sink.count("")); files.Events.Lines+files.Events.LostLines != want || (files.Events.LostLines > 0) != lost {
		t.Errorf("events %+v, want %d in all, lost ones: %v", files.Events, want, lost)
	}
	raw, err := os.ReadFile(filepath.Join(dir, rundir.EventsFile))
	if err != nil {
		t.Fatal(err)
	}
	if n := int64(bytes.Count(raw, []byte("\n"))); n != files.Events.Lines || int64(len(raw)) != files.Events.Bytes {
		t.Errorf("%s has %d lines, %d bytes, metadata says %+v", rundir.EventsFile, n, len(raw), files.Events)
	}
	read := 0
	for _, err := range run.Records() {
		if err != nil {
			t.Errorf("reading a record: %v", err)
		}
		read++
	}
	if n := len(sink.records); files.Requests.Lines != int64(read) || files.Requests.Lines+files.Requests.LostLines != int64(n) {
		t.Errorf("requests %+v, %d read, want %d accounted for", files.Requests, read, n)
	}
	for _, r := range sink.records {
		if r.Analysis != "full" {
			t.Errorf("analysis %s: the analysis waited for the disk", r.Analysis)
		}
	}
}

// loadPair connects a client to addr and returns both ends; conns has the upstream's.
func loadPair(t testing.TB, addr string, conns <-chan *net.TCPConn) *talk {
	t.Helper()
	w := &talk{t: t, ends: [2]*net.TCPConn{client: caseDial(t, addr)}}
	w.ends[server] = <-conns
	for _, e := range w.ends {
		_ = e.SetDeadline(time.Now().Add(20 * time.Second))
	}
	return w
}

// loadUpstream hands out connections as it takes them.
func loadUpstream(t testing.TB) (base string, conns <-chan *net.TCPConn) {
	t.Helper()
	c, done := make(chan *net.TCPConn), make(chan struct{})
	base = caseUpstream(t, func(conn *net.TCPConn, _ int) {
		select {
		case c <- conn:
			<-done
		case <-done:
		}
	})
	t.Cleanup(func() { close(done) })
	return base, c
}

// arrivals sends pieces at a pace, and returns how long each took to arrive in full,
// in the order of sending.
func (w *talk) arrivals(pieces []string, pace time.Duration) []time.Duration {
	w.t.Helper()
	sent, took := make([]time.Time, len(pieces)), make([]time.Duration, len(pieces))
	var all string
	for _, p := range pieces {
		all += p
	}
	var mu sync.Mutex // protects sent
	var reading sync.WaitGroup
	reading.Go(func() {
		got := make([]byte, len(all))
		n, next, end := 0, 0, len(pieces[0])
		for n < len(all) {
			m, err := w.ends[client].Read(got[n:])
			at := time.Now()
			if err != nil {
				w.t.Errorf("%d of %d bytes arrived: %v", n, len(all), err)
				return
			}
			mu.Lock()
			for n += m; n >= end && next < len(pieces); {
				took[next] = at.Sub(sent[next])
				if next++; next < len(pieces) {
					end += len(pieces[next])
				}
			}
			mu.Unlock()
		}
		if string(got) != all {
			w.t.Errorf("what arrived differs at %d", differAt(string(got), all))
		}
	})
	begin := time.Now()
	for i, p := range pieces {
		time.Sleep(time.Until(begin.Add(time.Duration(i) * pace))) // a paced sender
		mu.Lock()
		sent[i] = time.Now()
		mu.Unlock()
		caseSend(w.t, w.ends[server], p)
	}
	reading.Wait()
	return took
}

// TestC05ArrivalCurves: pieces sent at a pace arrive through the relay as they do
// without it: each quantile of their delays, p99 included, lies less than 5 ms
// behind the direct one's, and so does the delay that the record tells. Of several
// rounds one must hold: a relay that held pieces back would fail them all.
func TestC05ArrivalCurves(t *testing.T) {
	const pieces, pace, bound, rounds = 200, time.Millisecond, 5 * time.Millisecond, 6
	voice := sound24(t, "voice")
	var parts []string
	for i := range pieces {
		parts = append(parts, voice[i*480:(i+1)*480])
	}
	head := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: audio/wav\r\nContent-Length: %d\r\n\r\n", 44+480*pieces)
	forms := append(soundForms(), soundForm{
		"length",
		[]said{{client, speechRequest(caseWAVBody)}, {server, head + wavHead(24000, 1, 480*pieces)}},
		func(pcm string) string { return pcm }, nil, soundForms()[0].shut,
	})
	for _, form := range forms {
		t.Run(form.name, func(t *testing.T) {
			base, conns := loadUpstream(t)
			rig := startCaseRig(t, base, nil)
			var messages []string
			for _, p := range parts {
				messages = append(messages, form.chunk(p))
			}
			play := func(addr string) []time.Duration {
				w := loadPair(t, addr, conns)
				for _, s := range form.before {
					w.send(s.from, s.data)
				}
				took := w.arrivals(messages, pace)
				for _, s := range form.behind {
					w.send(s.from, s.data)
				}
				form.shut(w)
				slices.Sort(took)
				return took
			}
			var tried []string
			for round := range rounds {
				direct, relayed := play(strings.TrimPrefix(base, "http://")), play(rig.addr)
				waitCase(t, "the record", func() bool { return len(rig.records()) == round+1 })
				own := rig.records()[round].OwnDelayUS
				if own == nil {
					t.Fatal("own_delay_us is null")
				}
				worst := time.Duration(0)
				for i := range pieces * 99 / 100 { // in order: quantile by quantile
					worst = max(worst, relayed[i]-direct[i])
				}
				at := pieces*99/100 - 1
				tried = append(tried, fmt.Sprintf("p99 direct %v, relayed %v, own %.0f µs", direct[at], relayed[at], own.P99))
				if worst < bound && relayed[at] < direct[at]+bound && own.P99 < float64(bound.Microseconds()) {
					if form.name != "length" && own.N != pieces {
						t.Errorf("own_delay_us is over %d chunks, want %d", own.N, pieces)
					}
					return
				}
			}
			t.Errorf("in none of %d rounds all quantiles lay within %v: %s", rounds, bound, strings.Join(tried, "; "))
		})
	}
}

// frames reads frames until the stream ends, and gives each to take, unmasked. A
// frame that the end cut is none.
func frames(c net.Conn, take func(first byte, payload string)) error {
	r := bufio.NewReader(c)
	for {
		var head [2]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		n := int(head[1] & 0x7f)
		var long [2]byte
		if n == 126 {
			if _, err := io.ReadFull(r, long[:]); err != nil {
				return err
			}
			n = int(binary.BigEndian.Uint16(long[:]))
		}
		var key [4]byte
		if head[1]&0x80 != 0 {
			if _, err := io.ReadFull(r, key[:]); err != nil {
				return err
			}
		}
		payload := make([]byte, n)
		if _, err := io.ReadFull(r, payload); err != nil {
			return err
		}
		for i := range payload {
			payload[i] ^= key[i&3]
		}
		take(head[0], string(payload))
	}
}

// ordered checks that messages and pings, each numbered by its writer, come whole
// and in order.
type ordered struct {
	t    testing.TB
	text func(n int) string
	next [2]int // message, ping
}

func (o *ordered) take(first byte, payload string) {
	switch first {
	case 0x81:
		if want := o.text(o.next[0]); payload != want {
			o.t.Errorf("message %d is %q, want %q", o.next[0], payload, want)
		}
		o.next[0]++
	case 0x89:
		if want := fmt.Sprint("ping ", o.next[1]); payload != want {
			o.t.Errorf("ping %d is %q, want %q", o.next[1], payload, want)
		}
		o.next[1]++
	case 0x88:
	default:
		o.t.Errorf("a frame begins with %#x: frames were mixed", first)
	}
}

// writeOrdered sends what take expects, from two goroutines, until the connection fails or
// stop closes.
func writeOrdered(c net.Conn, from int, text func(n int) string, stop <-chan struct{}) {
	var writers sync.WaitGroup
	each := func(frame func(n int) string) {
		tick := time.NewTicker(300 * time.Microsecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			if _, err := io.WriteString(c, frame(n)); err != nil {
				return
			}
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	}
	writers.Go(func() { each(func(n int) string { return talkFrame(from, 0x81, text(n)) }) })
	writers.Go(func() { each(func(n int) string { return talkFrame(from, 0x89, fmt.Sprint("ping ", n)) }) })
	writers.Wait()
}

const (
	raceDeadline = 40 * time.Millisecond
	// raceLeave to raceLeave+raceSpan is when clients leave: around the deadline and
	// its being carried out.
	raceLeave = raceDeadline - 12*time.Millisecond
	raceSpan  = 27 * time.Millisecond
	// racePatience is when a client leaves that waits to be cut: a turn that the
	// analysis sees no sooner than its deadline is not.
	racePatience = time.Second
)

func raceDown(n int) string {
	return talkJSON("response.output_text.delta", fmt.Sprintf(`"response_id":"a","delta":"word %d"`, n))
}

func raceUp(n int) string {
	return talkJSON("input_audio_buffer.append", fmt.Sprintf(`"audio":"AAAA","event_id":"e%d"`, n))
}

// TestC48DeadlineAndClose: two write each way, and at the moment at which the
// relay's deadline cuts the connection the client leaves, too. No frame is damaged,
// each turn has one record and each session one line, and a session beside them
// goes on.
func TestC48DeadlineAndClose(t *testing.T) {
	const atOnce, long = 10, 4 * time.Second
	created := talkFrame(server, 0x81, talkJSON("session.created", `"session":{"id":"sess_1","model":"m"}`))
	ask := talkFrame(client, 0x81, talkJSON("response.create", ""))
	begun := talkFrame(server, 0x81, talkJSON("response.created", `"response":{"id":"a"}`))
	up := caseUpstream(t, func(c *net.TCPConn, _ int) {
		req, err := readCaseRequest(c)
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, talkSwitch+created)
		if strings.Contains(req, "bystander") {
			_, _ = io.Copy(c, c)
			return
		}
		if _, err := io.ReadFull(c, make([]byte, len(ask))); err != nil {
			return
		}
		_, _ = io.WriteString(c, begun)
		over := make(chan struct{})
		go func() {
			defer close(over)
			o := &ordered{t: t, text: raceUp}
			_ = frames(c, o.take)
		}()
		writeOrdered(c, server, raceDown, over)
		_ = c.Close()
		<-over
	})
	rig := startCaseRig(t, up, func(p *proxy.Config, tc *tap.Config) {
		tc.Latency, tc.Timeline.Deadline, p.AbortAfter = time.Millisecond, raceDeadline, raceDeadline
	})
	rig.blind() // to keep them all costs more than to read them: the cuts would come late
	greeting := talkSwitch + created
	other := caseDial(t, rig.addr)
	caseSend(t, other, talkUpgrade("/v1/realtime", "X-Is: bystander"))
	if _, err := io.ReadFull(other, make([]byte, len(greeting))); err != nil {
		t.Fatal(err)
	}
	var rounds, turns atomic.Int64
	var racers sync.WaitGroup
	until := time.Now().Add(long)
	for i := range atOnce {
		racers.Go(func() {
			random := rand.New(rand.NewPCG(48, uint64(i)))
			for time.Now().Before(until) {
				if raceRound(t, rig.addr, greeting, ask, begun, random.IntN(4), raceLeave+time.Duration(random.Int64N(int64(raceSpan)))) {
					turns.Add(1)
				}
				rounds.Add(1)
			}
		})
	}
	ping := talkFrame(client, 0x81, talkJSON("input_audio_buffer.append", `"audio":"AAAA"`))
	for time.Now().Before(until) {
		caseSend(t, other, ping)
		if _, err := io.ReadFull(other, make([]byte, len(ping))); err != nil {
			t.Fatalf("the session beside them: %v", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	racers.Wait()
	_ = other.Close()
	waitCase(t, "the connections to end", func() bool { return rig.server.Open() == 0 })
	checkRaces(t, rig, int(rounds.Load()), int(turns.Load()))
}

// raceRound is one session: how 0 leaves by a close frame, 1 by a reset, 2 by FIN, 3
// not at all. It reports whether the client saw a turn begin: on a busy machine the
// deadline may come sooner, that of the upgrade included.
func raceRound(t testing.TB, addr, greeting, ask, begun string, how int, at time.Duration) (turn bool) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return false
	}
	c := conn.(*net.TCPConn)
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, talkUpgrade("/v1/realtime"))
	got := make([]byte, len(greeting))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != greeting {
		if !errors.Is(err, syscall.ECONNRESET) && !strings.HasPrefix(string(got), "HTTP/1.1 502 ") {
			t.Errorf("the upgrade: %v, %q", err, got[:n])
		}
		return false
	}
	leaving := time.NewTimer(at)
	defer leaving.Stop()
	_, _ = io.WriteString(c, ask)
	if _, err := io.ReadFull(c, make([]byte, len(begun))); err != nil {
		return false
	}
	over, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		o := &ordered{t: t, text: raceDown}
		_ = frames(c, o.take)
	}()
	var writing sync.WaitGroup
	writing.Go(func() { writeOrdered(c, client, raceUp, stop) })
	if how == 3 {
		leaving.Reset(racePatience)
	}
	select {
	case <-leaving.C:
	case <-over:
	}
	close(stop)
	writing.Wait() // or the reset would damage its own frame
	switch how {
	case 0:
		_, _ = io.WriteString(c, closeFrame(client, 1000, "bye"))
	case 1:
		_ = c.SetLinger(0)
	}
	_ = c.Close()
	<-over
	return true
}

// checkRaces checks the records and lines of so many connections, on that many of
// which a client saw its turn begin.
func checkRaces(t *testing.T, rig *caseRig, rounds, turns int) {
	t.Helper()
	recs := rig.stop()
	states, names := map[string]int{}, map[string]bool{}
	aborted := 0
	for _, r := range recs {
		checkNulls(t, r)
		if conn := fmt.Sprint(r.ConnectionID); names[r.RequestID] || names[conn] {
			t.Errorf("two records of %s, connection %s", r.RequestID, conn)
		} else {
			names[r.RequestID], names[conn] = true, true
		}
		states[string(r.Terminal.State)+"/"+r.Terminal.Reason]++
		if r.Terminal.Evidence["aborted"] == true {
			aborted++
		}
		switch {
		case r.Terminal.State == timeline.DeadlineExceeded, r.Terminal.State == timeline.ClientCancelled:
		case r.Terminal.Reason == "aborted_with_another": // the upgrade itself was late
		case r.Terminal.Reason == "connect_timeout" && *r.Points.TTerm <= *r.Points.TIn+int64(raceDeadline):
			// the way to the server may take as long from the connection on, which comes ahead of t_in
		default:
			t.Errorf("terminal = %+v, want the deadline or the client", r.Terminal)
		}
		if in := *r.Points.TIn; r.Terminal.State == timeline.ClientCancelled && *r.Points.TTerm > in+int64(raceDeadline) {
			t.Errorf("t_term lies %v behind t_in, and the state is %+v", time.Duration(*r.Points.TTerm-in), r.Terminal)
		}
	}
	if len(recs) < turns || len(recs) > rounds {
		t.Errorf("%d records, want one for each of %d turns, and of %d connections at the most: %v", len(recs), turns, rounds, states)
	}
	if n := len(rig.lines()); n < turns+1 || n > rounds+1 {
		t.Errorf("%d session lines, want %d for those that began, or up to %d", n, turns+1, rounds+1)
	}
	if aborted == 0 || aborted == rounds {
		t.Errorf("%d of %d sessions were cut, want some: the two did not race", aborted, rounds)
	}
	t.Logf("%d rounds, %d turns, %d cut by the relay: %v", rounds, turns, aborted, states)
}

// portsEnv says that this process has a network of its own, with few ports.
const portsEnv = "OMNITAP_CASE_PORTS"

// TestC61OutOfPorts: with no ephemeral port left for a connection to the server the
// client is told, the record is our own fault and names it, streams that are open go
// on, and it passes. It runs in a process that has a network of its own: the
// machine's range of ports is not touched.
func TestC61OutOfPorts(t *testing.T) {
	if os.Getenv(portsEnv) != "" {
		outOfPorts(t)
		return
	}
	if os.Geteuid() != 0 && os.Getenv("REQUIRE_KERNEL") != "1" {
		t.Skip("a network namespace needs root")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestC61OutOfPorts$", "-test.count=1", "-test.v", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), portsEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) && os.Getenv("REQUIRE_KERNEL") != "1" {
		t.Skip("root without CAP_SYS_ADMIN cannot make a network namespace")
	}
	if err != nil || !strings.Contains(string(out), "PASS: TestC61OutOfPorts") {
		t.Errorf("in a network of its own: %v\n%s", err, out)
	}
}

// lonelyNetwork brings up loopback in this process's own network, with ports first to
// last to connect from.
func lonelyNetwork(t *testing.T, first, last int) {
	t.Helper()
	links, err := net.Interfaces()
	if err != nil || len(links) != 1 { // never that of the machine
		t.Fatalf("interfaces %v, %v, want loopback alone", links, err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	req, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	req.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		t.Fatalf("bringing up loopback: %v", err)
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", fmt.Appendf(nil, "%d %d", first, last), 0o600); err != nil {
		t.Fatalf("setting the range of ports: %v", err)
	}
}

func outOfPorts(t *testing.T) {
	t.Helper()
	const first, ports, clients = 40000, 50, 70
	lonelyNetwork(t, first, first+ports+2-1) // the listeners take one each
	answer := answerHead("text/event-stream") + httpChunk(chatText("Hi"))
	end := httpChunk(chatFinish) + httpChunk(chatDone) + zeroChunk
	release := make(chan struct{})
	up := caseUpstream(t, func(c *net.TCPConn, _ int) {
		_, _ = readCaseRequest(c)
		caseSend(t, c, answer)
		<-release
		caseSend(t, c, end)
	})
	rig := startCaseRig(t, up, nil)
	port := 20000 // outside of the range: clients need none of the relay's
	ask := func() (c net.Conn, got string) {
		port++
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}}
		c, err := d.DialContext(t.Context(), "tcp", rig.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		caseSend(t, c, chatRequest(caseChatBody))
		b := make([]byte, len("HTTP/1.1 200"))
		if _, err := io.ReadFull(c, b); err != nil {
			t.Fatal(err)
		}
		return c, string(b)
	}
	var held []net.Conn
	refused := 0
	for range clients {
		c, got := ask()
		if strings.HasSuffix(got, "200") {
			held = append(held, c)
			continue
		}
		rest, _ := io.ReadAll(c)
		if !strings.HasSuffix(got, "502") || !strings.Contains(string(rest), "out_of_ports") {
			t.Fatalf("got %q, want a 502 that names the reason", got+string(rest))
		}
		_ = c.Close()
		refused++
	}
	if len(held) != ports || refused != clients-ports {
		t.Errorf("%d streams, %d refusals, want %d, %d", len(held), refused, ports, clients-ports)
	}
	close(release)
	for _, c := range held {
		got, err := io.ReadAll(c)
		if err != nil || "HTTP/1.1 200"+string(got) != answer+end {
			t.Errorf("a stream that was open got %q, %v", got, err)
		}
		_ = c.Close()
	}
	waitCase(t, "the connections to end", func() bool { return rig.server.Open() == 0 })
	c, got := ask() // it passes
	rest, _ := io.ReadAll(c)
	if got+string(rest) != answer+end {
		t.Errorf("with ports again: %q", got+string(rest))
	}
	states := map[string]int{}
	for _, r := range rig.stop() {
		checkNulls(t, r)
		states[fmt.Sprintf("%s/%s/%v/%s", r.Terminal.State, r.Terminal.Reason, r.Terminal.Evidence["errno"], r.Terminal.By)]++
	}
	if states["success/done/<nil>/server"] != ports+1 || states["harness-error/out_of_ports/EADDRNOTAVAIL/relay"] != clients-ports || len(states) != 2 {
		t.Errorf("states %v, want %d successes and %d harness errors", states, ports+1, clients-ports)
	}
}
