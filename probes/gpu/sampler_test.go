package gpu

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// taken collects samples.
type taken struct {
	mu   sync.Mutex
	list []*Sample
}

func (t *taken) add(s *Sample) {
	t.mu.Lock()
	t.list = append(t.list, s)
	t.mu.Unlock()
}

func (t *taken) all() []*Sample {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]*Sample{}, t.list...)
}

// start runs a sampler in a bubble. stop ends it and returns what Run did.
func start(t *testing.T, lib library) (s *Sampler, got *taken, stop func() error) {
	t.Helper()
	got = &taken{}
	s, err := newSampler(Config{Sink: got.add, Clocks: testClocks()}, lib)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	end := make(chan error, 1)
	go func() { end <- s.Run(ctx) }()
	return s, got, func() error { cancel(); return <-end }
}

func TestSampler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newFake(0), newFake(1)
		lib := &fakeLibrary{list: []card{a, b}}
		s, got, stop := start(t, lib)
		time.Sleep(2050 * time.Millisecond) // the bubble's clock
		synctest.Wait()
		if err := stop(); err != nil {
			t.Error(err)
		}
		list := got.all()
		if len(list) != 21 { // at 0, 100, … 2000 ms
			t.Errorf("%d samples", len(list))
		}
		withProcesses := 0
		for i, x := range list {
			if len(x.Devices) != 2 || x.Devices[1].Name != "gpu1" || x.CPUNS == nil {
				t.Fatalf("%+v", x)
			}
			if x.Devices[0].ProcessesRead {
				withProcesses++
			}
			if i > 0 && x.Devices[0].MonoNS-list[i-1].Devices[0].MonoNS != int64(DefaultInterval) {
				t.Errorf("sample %d comes after %d ns", i, x.Devices[0].MonoNS-list[i-1].Devices[0].MonoNS)
			}
		}
		if withProcesses != 3 || a.times("processes") != 3 {
			t.Errorf("processes were asked for %d times", withProcesses)
		}
		status := s.Status()
		if status.State != StateSampling || status.Samples != 21 || status.Devices != 2 || status.Driver != "580.1" || status.CPUNS == nil || *status.CPUNS <= 0 {
			t.Errorf("%+v", status)
		}
		if opened, closed := lib.counts(); opened != 1 || closed != 1 {
			t.Errorf("opened %d times, closed %d times", opened, closed)
		}
	})
}

// C72: what cannot be opened is tried again slowly, a bounded number of times, and Run
// goes on until its end all the same.
func TestLibraryThatIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lib := &fakeLibrary{fails: []error{errLibraryNotFound}}
		s, got, stop := start(t, lib)
		time.Sleep(time.Minute)
		synctest.Wait()
		if opened, closed := lib.counts(); opened != 3 || closed != 0 { // at 0, 10, 30 s
			t.Errorf("opened %d times in a minute, closed %d times", opened, closed)
		}
		status := s.Status()
		if status.State != StateUnavailable || status.Reason != "starting NVML: ERROR_LIBRARY_NOT_FOUND" || status.Tries != 3 {
			t.Errorf("%+v", status)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if opened, _ := lib.counts(); opened != maxTries || s.Status().State != StateGivenUp {
			t.Errorf("opened %d times: %+v", opened, s.Status())
		}
		if err := stop(); err != nil || len(got.all()) != 0 {
			t.Errorf("%v, %d samples", err, len(got.all()))
		}
	})
}

// A driver that comes back is sampled again, and one that breaks in the middle is opened
// anew.
func TestLibraryThatComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(0)
		lib := &fakeLibrary{fails: []error{errVersionMismatch, nil}, list: []card{f}}
		s, got, stop := start(t, lib)
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if status := s.Status(); status.State != StateSampling || status.Reason != "" || len(got.all()) == 0 {
			t.Fatalf("%+v", status)
		}
		f.all(errUninitialized)
		time.Sleep(time.Second)
		synctest.Wait()
		status := s.Status()
		if opened, closed := lib.counts(); opened != 2 || closed != 1 || status.State != StateUnavailable || !strings.Contains(status.Reason, "UNINITIALIZED") {
			t.Errorf("opened %d times, closed %d times: %+v", opened, closed, status)
		}
		list := got.all()
		d := list[len(list)-1].Devices[0]
		holds(t, d)
		if len(columns(d)) != 0 || d.Lost != "" {
			t.Errorf("%+v", d)
		}
		f.all(nil)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if got := s.Status().State; got != StateSampling {
			t.Error(got)
		}
		_ = stop()
	})
}

// A lost card is named, the others go on; the XID is told.
func TestOthersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := newFake(0), newFake(1), newFake(2)
		c.id.err = errNoPermission
		lib := &fakeLibrary{list: []card{a, b, c}}
		s, got, stop := start(t, lib)
		time.Sleep(450 * time.Millisecond)
		lib.tell(xid{b.id.uuid, 31})
		time.Sleep(time.Second)
		synctest.Wait()
		last := func() []Device { list := got.all(); return list[len(list)-1].Devices }
		if d := last(); d[0].Lost != "" || d[0].XID != nil || d[1].Lost != "" || *d[1].XID != 31 || d[2].Lost != "ERROR_NO_PERMISSION" {
			t.Errorf("%+v", d)
		}
		lib.tell(xid{b.id.uuid, fallen})
		time.Sleep(time.Second)
		synctest.Wait()
		d, before := last(), b.times("energy")
		if d[0].EnergyMJ == nil || !strings.Contains(d[1].Lost, "XID 79") || *d[1].XID != fallen || d[1].EnergyMJ != nil {
			t.Errorf("%+v", d)
		}
		if lost := s.Status().Lost; len(lost) != 2 || !strings.Contains(lost["gpu1"], "XID 79") {
			t.Errorf("%v", lost)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if b.times("energy") != before {
			t.Error("a card that is lost is asked on")
		}
		time.Sleep(slow)
		synctest.Wait()
		if b.times("energy") == before || len(s.Status().Lost) != 1 {
			t.Errorf("the card is not tried again: %v", s.Status().Lost)
		}
		_ = stop()
	})
}

// A call that hangs holds the sampler alone: the status shows it, and Run ends.
func TestCallThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, release := newFake(0), make(chan struct{})
		f.block = release
		s, got, stop := start(t, &fakeLibrary{list: []card{f}})
		time.Sleep(time.Hour)
		synctest.Wait()
		if s.Status().BusySinceNS == 0 {
			t.Error("the status does not show the call that is under way")
		}
		if err := stop(); !errors.Is(err, ErrStuck) || s.Status().State != StateStuck {
			t.Errorf("%v, %+v", err, s.Status())
		}
		close(release)
		synctest.Wait()
		if len(got.all()) != 0 {
			t.Error("a sample came after Run had ended")
		}
	})
}

func TestNew(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("no sink")
	}
	if _, err := New(Config{Sink: func(*Sample) {}, Interval: time.Millisecond}); err == nil {
		t.Error("1 ms")
	}
}
