package event

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// recorded are the sets of real kernel events.
var recorded = []string{"mc-tcp", "so-basic", "vo-basic", "vo-faults", "vo-real", "vo-real-speech"}

// lines unpacks the events of a set.
func lines(t testing.TB, set string) [][]byte {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "testdata", "stages", set, "raw.jsonl.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n"))
}

func TestRecordingsRoundTrip(t *testing.T) {
	counts := map[string]int{
		"mc-tcp": 1153, "so-basic": 3479, "vo-basic": 2880, "vo-faults": 1003, "vo-real": 3055, "vo-real-speech": 6104,
	}
	for _, set := range recorded {
		all := lines(t, set)
		if len(all) != counts[set] {
			t.Errorf("%s has %d lines, want %d", set, len(all), counts[set])
		}
		var e Event
		for i, line := range all {
			if err := Parse(line, &e); err != nil {
				t.Fatalf("%s line %d: %v", set, i+1, err)
			}
			if got := e.AppendJSON(nil); !bytes.Equal(got, line) {
				t.Fatalf("%s line %d:\n got %s\nwant %s", set, i+1, got, line)
			}
		}
	}
}

func TestParseFields(t *testing.T) {
	const head = `{"mono_ns":9,"pid":2,"tid":3,"comm":"c",`
	base := Event{MonoNS: 9, PID: 2, TID: 3, Comm: "c"}
	with := func(set func(*Event)) Event { e := base; set(&e); return e }
	for _, test := range []struct {
		line string
		want Event
	}{
		{`"probe":"openat","args":{"enter_ns":5,"flags":655554,"path":"/dev/shm/k","ret":-2}}`, with(func(e *Event) {
			e.Probe, e.EnterNS, e.Flags, e.Path, e.Ret = OpenAt, 5, 655554, "/dev/shm/k", -2
		})},
		{`"probe":"openat_misses","args":{"count":7,"first_ns":4,"path":"/dev/shm/k"}}`, with(func(e *Event) {
			e.Probe, e.EnterNS, e.Count, e.Path = OpenMisses, 4, 7, "/dev/shm/k"
		})},
		{`"probe":"flock_exit","args":{"fd":26,"op":2,"ret":0}}`, with(func(e *Event) {
			e.Probe, e.FD, e.Flags = FlockExit, 26, 2
		})},
		{`"probe":"zmq_msg_send","args":{"enter_ns":1,"head_b64":"AQI=","more":true,"msg_type":102,"ret":90,"size":90,"sock":"0x7f4ff0005180","tail_b64":"Aw=="}}`, with(func(e *Event) {
			e.Probe, e.EnterNS, e.Head, e.Tail, e.More, e.MsgType = ZMQSend, 1, []byte{1, 2}, []byte{3}, true, 102
			e.Ret, e.Size, e.Sock = 90, 90, 0x7f4ff0005180
		})},
		{`"probe":"recv","args":{"call":"read","enter_ns":1,"fd":24,"head_b64":"","len":8,"ret":8}}`, with(func(e *Event) {
			e.Probe, e.Call, e.EnterNS, e.FD, e.Size, e.Ret = Recv, "read", 1, 24, 8, 8
		})},
		{`"probe":"accept","args":{"addr":"127.0.0.1:5","fd":3,"ret":9}}`, with(func(e *Event) {
			e.Probe, e.Path, e.FD, e.Ret = Accept, "127.0.0.1:5", 3, 9
		})},
		{`"probe":"inet_sock_set_state","args":{"daddr":"::1","dport":2,"new":3,"old":4,"saddr":"10.0.0.1","sport":5}}`, with(func(e *Event) {
			e.Probe, e.Path, e.Args = SockState, "10.0.0.1 ::1", [5]int64{4, 3, 5, 2}
		})},
		{`"probe":"sched_switch","args":{"cpu":1,"next_tgid":2,"next_tid":3,"prev_state":4,"prev_tgid":5,"prev_tid":6}}`, with(func(e *Event) {
			e.Probe, e.Flags, e.Args = SchedSwitch, 4, [5]int64{1, 5, 6, 2, 3}
		})},
		{`"probe":"sched_sample","args":{"blocked_ns":3,"run_ns":1,"runnable_ns":2}}`, with(func(e *Event) {
			e.Probe, e.Args = SchedSample, [5]int64{1, 2, 3}
		})},
		{`"probe":"sched_process_fork","args":{"child":4,"child_tid":5,"parent":6}}`, with(func(e *Event) {
			e.Probe, e.Args = Fork, [5]int64{4, 5, 6}
		})},
		{`"probe":"sched_process_exec","args":{"path":"/usr/bin/python3"}}`, with(func(e *Event) {
			e.Probe, e.Path = Exec, "/usr/bin/python3"
		})},
		{`"probe":"signal","args":{"signal":9,"target":4}}`, with(func(e *Event) {
			e.Probe, e.Flags, e.Args[0] = Signal, 9, 4
		})},
		{`"probe":"oom_kill","args":{"target":4}}`, with(func(e *Event) { e.Probe, e.Args[0] = OOMKill, 4 })},
		{`"probe":"cuda_call","args":{"a1":1,"a3":3,"enter_ns":2,"fn":"cuMemcpyAsync","ret":0,"size":65536}}`, with(func(e *Event) {
			e.Probe, e.Args, e.EnterNS, e.Path, e.Size = CUDACall, [5]int64{1, 0, 3}, 2, "cuMemcpyAsync", 65536
		})},
		{`"probe":"cuda_count","args":{"count":450,"first_ns":2,"fn":"cuLaunchKernel"}}`, with(func(e *Event) {
			e.Probe, e.Count, e.EnterNS, e.Path = CUDACount, 450, 2, "cuLaunchKernel"
		})},
		{`"probe":"heartbeat","args":{"count":3}}`, with(func(e *Event) { e.Probe, e.Count = Heartbeat, 3 })},
		{`"probe":"loss","args":{"count":3,"family":"zmq"}}`, with(func(e *Event) {
			e.Probe, e.Count, e.Path = Loss, 3, "zmq"
		})},
	} {
		var got Event
		if err := Parse([]byte(head+test.line), &got); err != nil {
			t.Errorf("Parse(%s): %v", test.line, err)
			continue
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("Parse(%s): %s", test.line, diff)
		}
		if out := got.AppendJSON(nil); string(out) != head+test.line {
			t.Errorf("AppendJSON = %s, want %s", out, head+test.line)
		}
	}
}

// Every probe loses nothing of what its arguments hold.
func TestEveryProbeRoundTrips(t *testing.T) {
	for p := range specs {
		if specs[p].name == "" {
			continue
		}
		want := Event{MonoNS: 1<<62 + 1, PID: 7, TID: 8, Comm: "a\"\\\n\x01\xff é\u2028", Probe: Probe(p)}
		fill(&want)
		var got Event
		if err := Parse(want.AppendJSON(nil), &got); err != nil {
			t.Errorf("%s: %v", want.Probe, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", want.Probe, diff)
		}
	}
}

// fill sets what the probe's arguments hold.
func fill(e *Event) {
	for i, a := range specs[e.Probe].args {
		switch a.in {
		case inPath:
			e.Path = "/dev/shm/\xfe\x00x"
		case inSource, inDestination:
			e.Path = "127.0.0.1 ::1"
		case inCall:
			e.Call = "sendmmsg"
		case inSock:
			e.Sock = 1<<64 - 1
		case inMore:
			e.More = true
		case inHead:
			e.Head = []byte("head")
		case inTail:
			e.Tail = []byte("tail!")
		case inFD:
			e.FD = -1
		case inMsgType:
			e.MsgType = 255
		default:
			*e.slot(a.in) = -int64(i + 1)
		}
	}
}

func TestParseAnyOrder(t *testing.T) {
	line := `{ "args" : {"later":[1,{"x":null}],"ret":-2,"path":"a\u00e9\ud83d\ude00\udcff","flags":1,"enter_ns":2},` +
		"\t" + `"new":{"a":[]},"probe":"openat","comm":"c","tid":3,"pid":2,"mono_ns":9 } `
	var got Event
	if err := Parse([]byte(line), &got); err != nil {
		t.Fatal(err)
	}
	want := Event{MonoNS: 9, PID: 2, TID: 3, Comm: "c", Probe: OpenAt, Path: "aé😀\xff", Flags: 1, EnterNS: 2, Ret: -2}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseErrors(t *testing.T) {
	const head = `{"mono_ns":9,"pid":2,"tid":3,"comm":"c",`
	for _, test := range []struct{ line, want string }{
		{``, "ends in the middle"},
		{`[]`, "'{' was expected"},
		{`{"mono_ns":9}`, "pid is missing"},
		{`{"mono_ns":9,"mono_ns":9}`, "mono_ns stands twice"},
		{`{"mono_ns":9.5}`, "mono_ns: a whole number"},
		{`{"mono_ns":9223372036854775808}`, "mono_ns: value out of range"},
		{`{"mono_ns":null}`, "mono_ns: a whole number"},
		{`{"pid":2147483648}`, "pid: value out of range"},
		{`{"comm":"a` + "\n" + `"}`, "comm: control character"},
		{`{"comm":"\x"}`, "comm: unknown escape"},
		{head + `"probe":"openat"}`, "args is missing"},
		{head + `"probe":"openat","args":[]}`, "args: '{' was expected"},
		{head + `"probe":"openat","args":{"enter_ns":1,"flags":1,"path":"x"}}`, "ret of openat is missing"},
		{head + `"probe":"close","args":{"fd":1,"fd":1}}`, "fd stands twice"},
		{head + `"probe":"close","args":{"fd":"1"}}`, "fd: a whole number"},
		{head + `"probe":"close","args":{"fd":1}`, "ends in the middle"},
		{head + `"probe":"close","args":{"fd":1}}}`, "something follows"},
		{head + `"probe":"zmq_bind","args":{"endpoint":"x","sock":"7f"}}`, "sock: an address"},
		{head + `"probe":"zmq_msg_recv","args":{"head_b64":"?"}}`, "head_b64: base64"},
		{head + `"probe":"close","args":{"fd":1},"x":` + strings.Repeat("[", 99) + `}`, "nested too deep"},
	} {
		e := Event{PID: 77}
		err := Parse([]byte(test.line), &e)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Parse(%s) = %v, want %q", test.line, err, test.want)
		}
		if diff := cmp.Diff(Event{}, e); diff != "" {
			t.Errorf("Parse(%s) left %s", test.line, diff)
		}
	}
}

func TestUnknownProbeIsKept(t *testing.T) {
	const line = `{"mono_ns":9,"pid":2,"tid":3,"comm":"c","probe":"new\nprobe","args":{"a":[1]}}`
	var e Event
	err := Parse([]byte(line), &e)
	unknown, ok := errors.AsType[*UnknownProbeError](err)
	if !ok || unknown.Probe != "new\nprobe" || err.Error() != `unknown probe "new\nprobe"` {
		t.Fatalf("Parse = %v", err)
	}
	want := Event{MonoNS: 9, PID: 2, TID: 3, Comm: "c", Path: "new\nprobe"}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Error(diff)
	}
	if got := string(e.AppendJSON(nil)); got != `{"mono_ns":9,"pid":2,"tid":3,"comm":"c","probe":"new\nprobe","args":{}}` {
		t.Errorf("AppendJSON = %s", got)
	}
}

// drain reads everything, and returns what was said about lines and the end.
func drain(r io.Reader) (n int, bad []string, unknown map[string]int64, end error) {
	reader := NewReader(r)
	var e Event
	for {
		ok, err := reader.Next(&e)
		var line *LineError
		switch {
		case ok:
			n++
		case errors.As(err, &line):
			bad = append(bad, line.Error())
		default:
			return n, bad, reader.Unknown(), err
		}
	}
}

func TestReader(t *testing.T) {
	good := `{"mono_ns":9,"pid":2,"tid":3,"comm":"c","probe":"close","args":{"fd":1}}`
	strange := `{"mono_ns":9,"pid":2,"tid":3,"comm":"c","probe":"odd","args":{}}`
	long := `{"x":"` + strings.Repeat("a", MaxLine) + `"}`
	for _, test := range []struct {
		name, in string
		n        int
		bad      []string
	}{
		{"empty", "", 0, nil},
		{"blank lines", "\n \n" + good + "\n\n", 1, nil},
		{"no last line end", good + "\n" + good, 2, nil},
		{"unfinished", good + "\n" + good[:38], 1, []string{"line 2 is unfinished: comm: ends in the middle"}},
		{"damaged", "{}\n" + good + "\n", 1, []string{"line 1 is damaged: mono_ns is missing"}},
		{"unknown", strange + "\n" + good + "\n" + strange, 3, nil},
		{"long", good + "\n" + long + "\n" + good, 2, []string{"line 2 is damaged: longer than 1048576 bytes"}},
		{"long and last", good + "\n" + long, 1, []string{"line 2 is unfinished: longer than 1048576 bytes"}},
	} {
		for how, r := range map[string]io.Reader{
			"whole": strings.NewReader(test.in), "halves": iotest.HalfReader(strings.NewReader(test.in)),
			"with error": iotest.DataErrReader(strings.NewReader(test.in)),
		} {
			n, bad, unknown, end := drain(r)
			if n != test.n || end != nil || !cmp.Equal(bad, test.bad) {
				t.Errorf("%s (%s): %d events, %q, %v; want %d, %q", test.name, how, n, bad, end, test.n, test.bad)
			}
			if want := int64(strings.Count(test.in, `"odd"`)); unknown["odd"] != want {
				t.Errorf("%s (%s): %d of an unknown probe, want %d", test.name, how, unknown["odd"], want)
			}
		}
	}
}

func TestReaderUnknownNamesAreBounded(t *testing.T) {
	var b strings.Builder
	for i := range 100 {
		fmt.Fprintf(&b, `{"mono_ns":9,"pid":2,"tid":3,"comm":"c","probe":"odd%d","args":{}}`+"\n", i)
	}
	n, _, unknown, _ := drain(strings.NewReader(b.String()))
	if n != 100 || len(unknown) != maxNames+1 || unknown[""] != 100-maxNames {
		t.Errorf("%d events, %d names, %d without", n, len(unknown), unknown[""])
	}
}

// A capture that was cut off, as by a kill: what is there is used, the rest is named.
func TestReaderCutGzip(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "testdata", "stages", "vo-basic", "raw.jsonl.gz"))
	if err != nil {
		t.Fatal(err)
	}
	if n, bad, _, end := drain(bytes.NewReader(b)); n != 2880 || bad != nil || end != nil {
		t.Errorf("whole: %d events, %q, %v", n, bad, end)
	}
	n, bad, _, end := drain(bytes.NewReader(b[:len(b)/2]))
	if n < 1000 || len(bad) != 1 || !strings.Contains(bad[0], "is unfinished") || !errors.Is(end, io.ErrUnexpectedEOF) {
		t.Errorf("half: %d events, %q, %v", n, bad, end)
	}
	if _, _, _, end := drain(strings.NewReader("\x1f\x8b\x00")); end == nil {
		t.Error("a damaged gzip head went unnoticed")
	}
}

func TestReaderError(t *testing.T) {
	want := errors.New("disk")
	r := NewReader(iotest.ErrReader(want))
	for range 2 {
		if ok, err := r.Next(&Event{}); ok || !errors.Is(err, want) {
			t.Errorf("Next = %v, %v", ok, err)
		}
	}
}

func TestProcessesRoundTrip(t *testing.T) {
	for _, set := range recorded {
		b, err := os.ReadFile(filepath.Join("..", "..", "testdata", "stages", set, "processes.json"))
		if err != nil {
			t.Fatal(err)
		}
		p, err := ReadProcesses(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := WriteProcesses(&out, p); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(b), strings.TrimSuffix(out.String(), "\n")); diff != "" {
			t.Errorf("%s: %s", set, diff)
		}
	}
}

func TestProcessesErrors(t *testing.T) {
	for _, in := range []string{
		"", "[]", `{"processes":[{}]}`, `{"zmq_bind":[[1]]}`, `{"zmq_bind":[["a","b"]]}`, `{"zmq_bind":[[1,2]]}`, `{"zmq_bind":[7]}`,
	} {
		if _, err := ReadProcesses(strings.NewReader(in)); err == nil {
			t.Errorf("ReadProcesses(%s) gave no error", in)
		}
	}
	if _, err := ReadProcesses(io.LimitReader(spaces{}, maxProcesses+10)); err == nil || !strings.Contains(err.Error(), "longer") {
		t.Errorf("a file that is too long: %v", err)
	}
	var b bytes.Buffer
	if err := WriteProcesses(&b, Processes{}); err != nil || strings.Contains(b.String(), "null") {
		t.Errorf("empty: %s, %v", b.String(), err)
	}
}

func TestStagesOfSharedProcess(t *testing.T) {
	p := Process{Server: "sglang-omni", Stage: "decode+thinker"}
	if diff := cmp.Diff([]string{"decode", "thinker"}, p.Stages()); diff != "" {
		t.Error(diff)
	}
	p.Server = "other"
	if got := p.Stages(); len(got) != 1 || got[0] != p.Stage {
		t.Errorf("Stages = %q", got)
	}
}

type spaces struct{}

func (spaces) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

// The table in README.md is what readers of a capture have; it must be the code's.
func TestReadmeTable(t *testing.T) {
	f, err := os.Open("README.md")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := map[string]string{}
	for in := bufio.NewScanner(f); in.Scan(); {
		cells := strings.Split(in.Text(), "|")
		if len(cells) >= 5 && strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
			got[strings.Trim(cells[1], " `")] = strings.TrimSpace(cells[2])
		}
	}
	want := map[string]string{}
	for p := range specs {
		if specs[p].name == "" {
			continue
		}
		var names []string
		for _, a := range specs[p].args {
			name := a.name
			if a.optional {
				name += "?"
			}
			names = append(names, name)
		}
		want[specs[p].name] = strings.Join(names, ", ")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if n := len(want); n != int(Loss) {
		t.Errorf("%d probes have a name, want %d", n, int(Loss))
	}
}

func TestProbeString(t *testing.T) {
	if got := fmt.Sprint(Unknown, Probe(200), ZMQSend, MooncakeStart); got != "unknown unknown zmq_msg_send mc_startTransfer" {
		t.Error(got)
	}
}

// What parses is written and read again as the same event, and the second writing is
// the first.
func FuzzParse(f *testing.F) {
	for _, set := range recorded {
		seen := map[Probe]bool{}
		for _, line := range lines(f, set) {
			var e Event
			if err := Parse(line, &e); err == nil && !seen[e.Probe] {
				seen[e.Probe] = true
				f.Add(line)
			}
		}
	}
	f.Add([]byte(`{"mono_ns":-1,"pid":0,"tid":0,"comm":"\udcff\ud800\ud83d\ude00","probe":"x","args":{}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		var e Event
		if err := Parse(line, &e); err != nil && e.Path == "" {
			return
		}
		out := e.AppendJSON(nil)
		var again Event
		if err := Parse(out, &again); err != nil && e.Probe != Unknown {
			t.Fatalf("%s: %v", out, err)
		}
		if diff := cmp.Diff(e, again); diff != "" {
			t.Fatal(diff)
		}
		if second := again.AppendJSON(nil); !bytes.Equal(out, second) {
			t.Fatalf("%s became %s", out, second)
		}
	})
}

func FuzzReadProcesses(f *testing.F) {
	f.Add([]byte(`{"processes":[{"pid":1,"ppid":null}],"zmq_bind":[[1,"ipc:///a"]]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ReadProcesses(bytes.NewReader(b))
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := WriteProcesses(&out, p); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadProcesses(&out); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	all := lines(b, "vo-basic")
	b.ReportAllocs()
	var e Event
	n := 0
	for b.Loop() {
		if err := Parse(all[n%len(all)], &e); err != nil {
			b.Fatal(err)
		}
		n++
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
}

func BenchmarkAppendJSON(b *testing.B) {
	all := lines(b, "vo-basic")
	events := make([]Event, len(all))
	for i := range all {
		if err := Parse(all[i], &events[i]); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	buf := make([]byte, 0, 4096)
	n := 0
	for b.Loop() {
		buf = events[n%len(events)].AppendJSON(buf[:0])
		n++
	}
}
