package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/exporter/telemetry"
)

// soakFlag is how long TestSoakExport runs: a moment, or what `make soak` says.
var soakFlag = flag.Duration("soak", 2*time.Second, "how long TestSoakExport runs")

// briefChat is an exchange whose bytes a relay does not change: both sides know how many
// come.
var briefChat = func() (x struct{ request, answer []byte }) {
	x.request = []byte(chatRequest(caseChatBody))
	event := workloads()[0].events[0]
	answer := []byte(sseHead)
	for _, e := range [][]byte{event, event, event, []byte(chatDone)} {
		answer = append(answer, httpChunk(string(e))...)
	}
	x.answer = append(answer, zeroChunk...)
	return x
}()

// startBrief is a server that answers each briefChat at once.
func startBrief(tb testing.TB) (base string) {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				in := make([]byte, len(briefChat.request))
				for {
					if _, err := io.ReadFull(c, in); err != nil {
						return
					}
					if _, err := c.Write(briefChat.answer); err != nil {
						return
					}
				}
			}()
		}
	}()
	return "http://" + ln.Addr().String()
}

// chatAway keeps so many connections busy with rate chats a second in all until stop
// closes, and returns how long each took.
func chatAway(tb testing.TB, addr string, conns, rate int, stop <-chan struct{}) (took []time.Duration) {
	tb.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	every := time.Duration(conns) * time.Second / time.Duration(rate)
	for i := range conns {
		all.Go(func() {
			mine, err := chatOn(addr, every, time.Duration(i)*every/time.Duration(conns), stop)
			if err != nil {
				tb.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, mine...)
		})
	}
	all.Wait()
	return took
}

// chatOn has a chat at each moment of a plan on one connection.
func chatOn(addr string, every, first time.Duration, stop <-chan struct{}) (took []time.Duration, err error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	in := make([]byte, len(briefChat.answer))
	next := time.Now().Add(first)
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return took, nil
		case <-timer.C:
		}
		begun := time.Now()
		if _, err := c.Write(briefChat.request); err != nil {
			return took, err
		}
		if _, err := io.ReadFull(c, in); err != nil {
			return took, err
		}
		took = append(took, time.Since(begun))
		next = next.Add(every)
		timer.Reset(time.Until(next))
	}
}

// swallow starts a collector that takes everything: a process of its own, and of low
// priority, as one on another machine would cost no time here.
func swallow(tb testing.TB) (base string) {
	tb.Helper()
	return "http://" + startChild(tb, "collector", "").addr
}

// swallowAll is that process.
func swallowAll() {
	threads, err := os.ReadDir("/proc/self/task") // later ones are made by these, and inherit it
	if err != nil {
		panic(err)
	}
	for _, e := range threads {
		if tid, err := strconv.Atoi(e.Name()); err != nil || unix.Setpriority(unix.PRIO_PROCESS, tid, 19) != nil {
			panic("the collector's priority stays as it is")
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	_, _ = fmt.Fprintln(os.Stdout, "addr", ln.Addr())
	_ = (&http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/x-protobuf")
	})}).Serve(ln)
}

// BenchmarkExport is a relay without and with OTLP, a span of each request and metrics
// each second, and one without once more: CPU a request, and what each adds of latency.
func BenchmarkExport(b *testing.B) {
	const conns, rate = 50, 500
	base := startBrief(b)
	kinds := []string{"off", "on", "off-again"}
	relays := map[string]*relayProcess{}
	program, collector := buildOmnitap(b), swallow(b)
	b.Setenv("OTEL_METRIC_EXPORT_INTERVAL", "1000")
	for _, k := range kinds {
		b.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", map[string]string{"on": collector}[k]) // empty is unset
		relays[k] = startServe(b, program, base, "--log", "off", "--admin", "127.0.0.1:0")
	}
	cpu, took, round := map[string]time.Duration{}, map[string][]time.Duration{}, 0
	for b.Loop() {
		order := slices.Clone(kinds)
		if round++; round%2 == 0 {
			slices.Reverse(order)
		}
		for _, k := range append(order, "direct") {
			addr := strings.TrimPrefix(base, "http://")
			var before time.Duration
			if k != "direct" {
				addr, before = relays[k].addr, relays[k].cpu(b)
			}
			stop := make(chan struct{})
			over := time.AfterFunc(time.Second, func() { close(stop) })
			took[k] = append(took[k], chatAway(b, addr, conns, rate, stop)...)
			over.Stop()
			if k != "direct" {
				cpu[k] += relays[k].cpu(b) - before
			}
		}
	}
	at := func(k string, q float64) float64 {
		slices.Sort(took[k])
		return float64(took[k][int(q*float64(len(took[k])-1))].Nanoseconds()) / 1e3
	}
	per := func(k string) float64 { return float64(cpu[k].Nanoseconds()) / 1e3 / float64(len(took[k])) }
	for _, k := range kinds {
		b.ReportMetric(per(k), k+"-cpu-us/request")
		b.ReportMetric(at(k, .5)-at("direct", .5), k+"-added-p50-us")
		b.ReportMetric(at(k, .99)-at("direct", .99), k+"-added-p99-us")
	}
	b.ReportMetric(per("on")/per("off"), "on/off")
	b.ReportMetric(per("off-again")/per("off"), "off/off")
	b.ReportMetric(0, "ns/op")
}

// cpu is the processor time of a process so far.
func (p *relayProcess) cpu(tb testing.TB) time.Duration {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "stat"))
	if err != nil {
		tb.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ") // proc(5): utime and stime are fields 14 and 15
	f := strings.Fields(rest)
	user, err1 := strconv.Atoi(f[11])
	system, err2 := strconv.Atoi(f[12])
	if err1 != nil || err2 != nil {
		tb.Fatalf("%q: %v, %v", text, err1, err2)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// resident is the memory of a process, bytes.
func (p *relayProcess) resident(tb testing.TB) int64 {
	tb.Helper()
	f, err := os.Open(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "statm"))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	var all, resident int64
	if _, err := fmt.Fscan(bufio.NewReader(f), &all, &resident); err != nil {
		tb.Fatal(err)
	}
	return resident * int64(os.Getpagesize())
}

// TestSoakExport: a share of the requests is sampled, all have metrics. Each is accounted
// for, and the relay does not grow: `make soak` sends 2,000 a second for ten minutes with
// 1 % of them sampled, here it is a moment.
func TestSoakExport(t *testing.T) {
	long := *soakFlag >= time.Minute
	conns, rate, share := 50, 200, 0.25 // of a few requests 1 % could be none
	if long {
		rate, share = 2000, 0.01
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", swallow(t))
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", fmt.Sprint(share))
	t.Setenv("OTEL_METRIC_EXPORT_INTERVAL", "1000")
	p := startServe(t, buildOmnitap(t), startBrief(t), "--log", "off", "--admin", "127.0.0.1:0")
	admin := p.admin(t)
	var sent atomic.Int64
	stop, done := make(chan struct{}), make(chan struct{})
	halt := sync.OnceFunc(func() { close(stop); <-done })
	t.Cleanup(halt)
	began, cpu := time.Now(), p.cpu(t)
	go func() {
		defer close(done)
		sent.Store(int64(len(chatAway(t, p.addr, conns, rate, stop))))
	}()
	sizes := watchSize(t, p, *soakFlag)
	halt()
	took, cpu := time.Since(began), p.cpu(t)-cpu
	st := settled(t, admin, sent.Load())
	t.Logf("%d requests in %.0f s (%.0f a second), %.1f %% of a core; resident MiB by the tenth of the time: %.1f; records %+v",
		sent.Load(), took.Seconds(), float64(sent.Load())/took.Seconds(), 100*cpu.Seconds()/took.Seconds(), sizes, st)
	if sent.Load() == 0 || st.Offered != sent.Load() || st.Unsampled+st.Exported+st.Lost() != sent.Load() || st.Lost() != 0 {
		t.Errorf("%d requests, records %+v", sent.Load(), st)
	}
	if got, n := float64(st.Exported)/float64(sent.Load()), float64(sent.Load()); math.Abs(got-share) > 5*math.Sqrt(share*(1-share)/n) {
		t.Errorf("%.3f %% were exported, want %v %%", 100*got, 100*share)
	}
	// for a moment it has not come to rest: `make soak` tells
	if first, last := slices.Max(sizes[2:5]), slices.Max(sizes[7:]); long && last > 1.05*first+2 {
		t.Errorf("it grows: %.1f MiB, later %.1f", first, last)
	}
}

// watchSize returns the largest resident size of a process, MiB, in each tenth of a time.
func watchSize(t testing.TB, p *relayProcess, long time.Duration) []float64 {
	t.Helper()
	sizes := make([]float64, 10)
	tick := time.NewTicker(min(long/20, time.Second))
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		i := int(10 * time.Since(began) / long)
		if i > 9 {
			return sizes
		}
		sizes[i] = max(sizes[i], float64(p.resident(t))/(1<<20))
	}
}

// settled waits until nothing of so many records is under way, and returns their account.
func settled(t testing.TB, admin string, n int64) (b telemetry.Balance) {
	t.Helper()
	waitCase(t, "the export to come to rest", func() bool {
		resp, err := http.Get(admin + "/healthz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		var h health
		if json.NewDecoder(resp.Body).Decode(&h) != nil || h.Telemetry == nil {
			return false
		}
		b = h.Telemetry.Records
		return b.Offered >= n && b.Pending == 0
	})
	return b
}
