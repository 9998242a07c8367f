package nodes

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/probes/event"
)

func TestExchange(t *testing.T) {
	const hour = 3_600_000_000_000
	for _, tt := range []struct {
		name   string
		s      Stamp
		t0, t3 int64
		boot   string
		want   Sample
		fails  bool
	}{
		{"as far there as back", Stamp{Node: "b", ReceivedNS: hour + 1100, SentNS: hour + 1150}, 1000, 1250, "x", Sample{Peer: "b", MonoNS: 1125, OffsetNS: hour, UncertaintyNS: 101}, false},
		{"all of the delay on the way there", Stamp{Node: "b", ReceivedNS: hour + 1200, SentNS: hour + 1200}, 1000, 1200, "x", Sample{Peer: "b", MonoNS: 1100, OffsetNS: hour + 100, UncertaintyNS: 101}, false},
		{"one kernel", Stamp{Node: "b", BootID: "x", ReceivedNS: 1100, SentNS: 1150}, 1000, 1250, "x", Sample{Peer: "b", PeerBootID: "x", MonoNS: 1125, Same: true}, false},
		{"no boot id is no proof", Stamp{Node: "b", ReceivedNS: 1100, SentNS: 1150}, 1000, 1250, "", Sample{Peer: "b", MonoNS: 1125, UncertaintyNS: 101}, false},
		{"sent before it came", Stamp{Node: "b", ReceivedNS: 1100, SentNS: 1050}, 1000, 1250, "x", Sample{}, true},
		{"longer there than the whole took", Stamp{Node: "b", ReceivedNS: 1100, SentNS: 1500}, 1000, 1250, "x", Sample{}, true},
		{"nothing in it", Stamp{}, 1000, 1250, "x", Sample{}, true},
	} {
		got, err := sampleOf(&tt.s, tt.t0, tt.t3, tt.boot)
		if (err != nil) != tt.fails || !cmp.Equal(got, tt.want) {
			t.Errorf("%s: %+v, %v", tt.name, got, err)
		}
	}
}

// TestOffsetWithinUncertainty: whatever the ways take and however the clocks part within
// what NTP may do, the truth lies within what is said.
func TestOffsetWithinUncertainty(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		base, ppm := rng.Int64N(1e15)-5e14, rng.Float64()*1000-500
		truth := func(at int64) int64 { return base + int64(float64(at)*ppm/1e6) }
		var samples []Sample
		boot := "mine"
		for at := int64(1e9); at < 60e9; at += 2e9 {
			there, back := rng.Int64N(5e6), rng.Int64N(5e6)
			came := at + there + truth(at+there)
			s, err := sampleOf(&Stamp{Node: "b", BootID: "yours", ReceivedNS: came + 1e15, SentNS: came + 1e15}, at, at+there+back, boot)
			if err != nil {
				t.Fatal(err)
			}
			samples = append(samples, s)
		}
		rng.Shuffle(len(samples), func(i, j int) { samples[i], samples[j] = samples[j], samples[i] })
		c := NewClock(samples)
		for at := int64(0); at < 62e9; at += 5e8 {
			offset, sure, ok := c.At(at)
			if off := offset - truth(at) - 1e15; !ok || off > sure || -off > sure {
				t.Fatalf("at %d it is off by %d ns, which should lie within %d", at, off, sure)
			}
			if sure > 10e6 {
				t.Fatalf("at %d it is sure within %d ns only", at, sure)
			}
		}
		if w := c.Worst(0, 60e9); w <= 0 || w > 10e6 {
			t.Fatalf("the worst is %d ns", w)
		}
	}
}

func TestNoSample(t *testing.T) {
	c := NewClock(nil)
	if _, _, ok := c.At(1); ok || c.Worst(0, 1) != -1 {
		t.Error("without a sample there is an offset")
	}
}

// TestAsk: an exchange with this very process, which is one clock, and with one that
// hides which kernel it is on.
func TestAsk(t *testing.T) {
	boot := BootID()
	if boot == "" {
		t.Fatal("the kernel tells no boot id")
	}
	mux := http.NewServeMux()
	mux.Handle("/clock", Handler("b"))
	mux.HandleFunc("/else", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(Stamp{Node: "c", BootID: "else", ReceivedNS: KernelTime(), SentNS: KernelTime()})
	})
	mux.HandleFunc("/text", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) })
	srv := httptest.NewServer(mux)
	defer srv.Close()
	client := Client()
	s, err := Best(t.Context(), client, srv.URL+"/clock", 3)
	if err != nil || !s.Same || s.OffsetNS != 0 || s.Peer != "b" {
		t.Errorf("%+v, %v", s, err)
	}
	s, err = Best(t.Context(), client, srv.URL+"/else", 5)
	if err != nil || s.Same || s.OffsetNS > s.UncertaintyNS || -s.OffsetNS > s.UncertaintyNS || s.UncertaintyNS <= 0 {
		t.Errorf("%+v, %v", s, err)
	}
	for path, want := range map[string]string{"/text": "asking", "/nothing": "404"} {
		if _, err := Best(t.Context(), client, srv.URL+path, 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestTimeNamespace(t *testing.T) {
	if got := offsetIn("monotonic           5000         7\nboottime            12         0\n"); got != 5_000_000_000_007 {
		t.Errorf("%d", got)
	}
	if got := offsetIn("monotonic -3 0\n"); got != -3_000_000_000 {
		t.Errorf("%d", got)
	}
	if offsetIn("") != 0 || offsetIn("nonsense\n") != 0 {
		t.Error("nothing is an offset")
	}
}

// TestShift: every number of a process in an event belongs to its part afterwards.
func TestShift(t *testing.T) {
	for p := range event.Probe(64) {
		e := event.Event{MonoNS: 100, EnterNS: 50, PID: 7, TID: 8, Probe: p, Args: [5]int64{11, 12, 13, 14, 15}}
		Shift(&e, 3, 1000)
		if e.MonoNS != 1100 || e.EnterNS != 1050 {
			t.Errorf("%v: %d, %d", p, e.MonoNS, e.EnterNS)
		}
		if part, own := Own(int(e.PID)); part != 3 || own != 7 {
			t.Errorf("%v: process %d of part %d", p, own, part)
		}
		for i, n := range e.Args {
			want := int64(11 + i)
			for _, k := range numbered(p) {
				if k == i {
					want = int64(PID(3, 11+i))
				}
			}
			if n != want {
				t.Errorf("%v: argument %d is %d", p, i, n)
			}
		}
	}
	e := event.Event{MonoNS: 100, PID: 7, Probe: event.Fork}
	Shift(&e, 3, -10)
	if e.MonoNS != 90 || e.EnterNS != 0 || e.Args[0] != 0 {
		t.Errorf("%+v: what is not there has no time and no number", e)
	}
	if part, own := Own(PID(MaxParts-1, 1<<22-1)); part != MaxParts-1 || own != 1<<22-1 || int(int32(PID(MaxParts-1, 1<<22-1))) != PID(MaxParts-1, 1<<22-1) {
		t.Errorf("the last number of the last part is %d of %d", own, part)
	}
}

func TestReadPart(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bad := func(want string) {
		t.Helper()
		if _, err := ReadPart(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	if bad("no part of an agent"); IsPart(dir) {
		t.Error("an empty folder is a part")
	}
	write(AgentFile, "{")
	bad("agent.json")
	write(AgentFile, `{"schema":1,"role":"relay","node":"b"}`)
	bad(`role "relay"`)
	write(AgentFile, `{"schema":2,"role":"agent","node":"b"}`)
	bad("schema 2")
	write(AgentFile, `{"schema":1,"role":"agent","node":"b","clock":"","start":{"mono_ns":5,"wall_ns":6},"end":null}`)
	bad("processes.json")
	write("processes.json", `{"processes":[{"pid":7,"ppid":1,"cmdline":"x","stage_id":0,"stage":"thinker"}],"zmq_bind":[]}`)
	p, err := ReadPart(dir)
	if err != nil || !IsPart(dir) || len(p.Processes) != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	if _, err := p.ClockTo("a"); err == nil || !strings.Contains(err.Error(), "--clock") {
		t.Errorf("%v", err)
	}
	p.Agent.Clock = "http://a"
	if _, err := p.ClockTo("a"); err == nil || !strings.Contains(err.Error(), "no exchange") {
		t.Errorf("%v", err)
	}
	write(ClockFile, `{"peer":"a","mono_ns":5,"offset_ns":-3,"uncertainty_ns":2}`+"\n\nnonsense\n"+`{"peer":"a","mono_ns":0}`+"\n"+`{"peer":"a","mono_ns":9,"unc`)
	p, err = ReadPart(dir)
	if err != nil || len(p.Samples) != 1 || p.Damaged != 4 {
		t.Fatalf("%+v, %v", p, err)
	}
	if c, err := p.ClockTo("a"); err != nil {
		t.Error(err)
	} else if offset, _, ok := c.At(5); !ok || offset != -3 {
		t.Errorf("the offset is %d", offset)
	}
	if _, err := p.ClockTo("other"); err == nil {
		t.Error("the clock of another node is taken")
	}
}

func FuzzReadSamples(f *testing.F) {
	f.Add(`{"peer":"a","mono_ns":5,"offset_ns":-3,"uncertainty_ns":2}` + "\n")
	f.Add("x\n{}\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, _, err := ReadSamples(strings.NewReader(text))
		if err != nil {
			return
		}
		c := NewClock(list)
		for _, at := range []int64{0, 5, 1 << 40} {
			if _, sure, ok := c.At(at); ok && sure < 0 && len(list) < 2 {
				t.Errorf("at %d sure within %d", at, sure)
			}
		}
	})
}
