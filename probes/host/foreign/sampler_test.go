package foreign

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/probes/host"
)

func TestNew(t *testing.T) {
	sink, own := func(Window) {}, func() Groups { return Groups{} }
	for _, test := range []struct {
		config Config
		reason string
	}{
		{Config{}, "needed"},
		{Config{Groups: own}, "needed"},
		{Config{Sink: sink}, "needed"},
		{Config{Groups: own, Sink: sink, Window: time.Millisecond}, "100ms"},
		{Config{Groups: own, Sink: sink, Window: -1}, "100ms"},
	} {
		if _, err := New(test.config); err == nil || !strings.Contains(err.Error(), test.reason) {
			t.Errorf("%+v: %v", test.config, err)
		}
	}
	s, err := New(Config{Groups: own, Sink: sink})
	if err != nil || s.config.Window != time.Second {
		t.Errorf("%v, %v", s, err)
	}
	if v, why := s.Summary().Judge(DefaultLimit); v != NotMeasured || !strings.Contains(why, "no window") {
		t.Errorf("before the first window: %s, %s", v, why)
	}
}

// script plays samples: busy says how many of four CPUs others kept busy in each second
// since the last one.
func script(start time.Time, busy func(from, to float64) float64) func(Groups) *sample {
	idle, last := 0.0, 0.0
	return func(Groups) *sample {
		at := time.Since(start).Seconds()
		idle += 4*(at-last) - busy(last, at)
		last = at
		s := &sample{mono: int64(at * 1e9), boot: int64(at * 1e9), online: host.CPUs{0, 1, 2, 3}, procs: map[int]process{}}
		s.all.idle = uint64(math.Round(idle * 100))
		s.may[server] = s.online
		return s
	}
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		s, err := New(Config{
			Root:   host.Root(t.TempDir()),
			Groups: func() Groups { return Groups{} },
			Sink: func(w Window) {
				got = append(got, fmt.Sprintf("%.1f-%.1f %.2f", float64(w.StartMonoNS)/1e9, float64(w.EndMonoNS)/1e9, *w.ForeignCores))
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		// Three cores from 1 to 2 s, a half later.
		s.read = script(time.Now(), func(from, to float64) float64 {
			return 3*max(0, min(to, 2)-max(from, 1)) + 0.5*max(0, to-max(from, 2))
		})
		ctx, cancel := context.WithTimeout(t.Context(), 3400*time.Millisecond)
		defer cancel()
		if err := s.Run(ctx); err != nil {
			t.Fatal(err)
		}
		want := []string{"0.0-1.0 0.00", "1.0-2.0 3.00", "2.0-3.0 0.50", "3.0-3.4 0.50"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		sum := s.Summary()
		if sum.Windows != 4 || sum.Failed != 0 || sum.Late != 0 || math.Abs(sum.MeasuredS-3.4) > 1e-9 || math.Abs(*sum.MeanCores-3.7/3.4) > 1e-9 {
			t.Errorf("%+v, mean %v", sum, *sum.MeanCores)
		}
		v, why := sum.Judge(DefaultLimit)
		if v != Contaminated || !strings.HasPrefix(why, "other processes took 3.00 cores (2.97 to 3.03) of the server's CPUs 0-3") {
			t.Errorf("%s: %s", v, why)
		}
		if v, why := sum.Judge(3); v != Clean || !strings.Contains(why, "within the limit of 3") {
			t.Errorf("%s: %s", v, why)
		}
	})
}

// A rest of less than two ticks is no window.
func TestRunEndsBesideATick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		s, err := New(Config{Root: host.Root(t.TempDir()), Groups: func() Groups { return Groups{} }, Sink: func(Window) { n++ }})
		if err != nil {
			t.Fatal(err)
		}
		s.read = script(time.Now(), func(float64, float64) float64 { return 0 })
		ctx, cancel := context.WithTimeout(t.Context(), 2010*time.Millisecond)
		defer cancel()
		if err := s.Run(ctx); err != nil || n != 2 {
			t.Errorf("%d windows, %v", n, err)
		}
	})
}

func TestRunWhereNothingCanBeMeasured(t *testing.T) {
	f := newFixture(t)
	f.Write("proc/self/mountinfo", "23 22 0:44 /proc/stat /proc/stat rw - fuse.lxcfs lxcfs rw\n")
	s, err := New(Config{Root: f.Root(), Groups: func() Groups { return Groups{} }, Sink: func(Window) { t.Error("a window") }})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "lxcfs") {
		t.Errorf("%v", err)
	}
	if v, why := s.Summary().Judge(1e9); v != NotMeasured || !strings.Contains(why, "lxcfs") {
		t.Errorf("%s: %s", v, why)
	}
}

// win is a window of so many seconds with so many cores of others, of 8.
func win(seconds, cores float64) Window {
	low, high := max(0, cores-0.1), cores+0.1
	return Window{
		EndMonoNS: int64(seconds * 1e9), WindowNS: second, CPUs: 8, CPUSet: "0-7",
		ForeignCores: &cores, ForeignLowCores: &low, ForeignHighCores: &high,
	}
}

func TestJudge(t *testing.T) {
	failed := Window{WindowNS: second}
	failed.fail("denied")
	for _, test := range []struct {
		name    string
		windows []Window
		limit   float64
		want    Verdict
		why     string
	}{
		{"nothing", nil, 2, NotMeasured, "no window ended"},
		{"one clean", []Window{win(1, 1.5)}, 2, Clean, "1.50 cores (1.40 to 1.60)"},
		{"at the limit", []Window{win(1, 2)}, 2, Clean, "within"},
		{"over it once", []Window{win(1, 0), win(1, 2.01), win(1, 0)}, 2, Contaminated, "2.01"},
		{"over it, and one failed", []Window{failed, win(1, 3)}, 2, Contaminated, "3.00"},
		{"all failed", []Window{failed, failed}, 2, NotMeasured, "denied"},
		{"one failed", []Window{win(1, 0), failed, win(1, 0)}, 2, NotMeasured, "1 of 3 windows have no foreign CPU use: denied"},
		{"a late one that may hide a peak", []Window{win(1, 0), win(4, 0.6)}, 2, NotMeasured, "2.40 cores inside of one"},
		{"a late one that cannot", []Window{win(1, 0), win(4, 0.4)}, 2, Clean, "0.40"},
		{"a late one over it", []Window{win(4, 2.5)}, 2, Contaminated, "2.50"},
		{"the CPUs bound what a late one hides", []Window{win(100, 1)}, 8, Clean, "1.00"},
		{"a short last one is spread over its window", []Window{win(1, 0), win(0.1, 8)}, 2, Clean, "0.80"},
		{"no limit", []Window{win(1, 0)}, math.NaN(), NotMeasured, "no limit"},
		{"a limit below zero", []Window{win(1, 0)}, -1, NotMeasured, "no limit"},
		{"limit zero", []Window{win(1, 0)}, 0, Clean, "0.00"},
	} {
		var s Summary
		for i := range test.windows {
			s.add(&test.windows[i])
		}
		if got, why := s.Judge(test.limit); got != test.want || !strings.Contains(why, test.why) {
			t.Errorf("%s: %s (%s), want %s (%s)", test.name, got, why, test.want, test.why)
		}
	}
}

// What Summary returned is the caller's.
func TestSummaryIsACopy(t *testing.T) {
	var s Summary
	w, slow := win(1, 1), win(3, 1)
	s.add(&w)
	s.add(&slow)
	c := s.copy()
	*c.MeanCores, *c.LateCores, c.Peak.Cores = 7, 7, 7
	if *s.MeanCores != 1 || *s.LateCores != 3 || s.Peak.Cores != 1 {
		t.Errorf("%v %v %v", *s.MeanCores, *s.LateCores, s.Peak)
	}
}

func TestNamed(t *testing.T) {
	g := Groups{Server: []Process{{5, 1}, {0, 0}}, Load: []Process{{5, 1}, {6, 2}}, Omnitap: []Process{{6, 2}}}
	want := map[int]member{5: {1, server}, 6: {2, omnitap}}
	if diff := cmp.Diff(want, g.named(), cmp.AllowUnexported(member{})); diff != "" {
		t.Error(diff)
	}
}
