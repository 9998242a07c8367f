package main

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/load"
	"github.com/omnitap/omnitap/exporter/calibration"
	"github.com/omnitap/omnitap/probes"
)

// failingDriver sends blocks until the one that fails, in its warm-up or in itself.
type failingDriver struct {
	loadDriver
	fails  int
	warmup bool
	err    func() error // what happens then
}

func (d *failingDriver) warm(ctx context.Context, base string, block int) (blockLoad, error) {
	if d.warmup && block == d.fails {
		return blockLoad{}, d.err()
	}
	return d.loadDriver.warm(ctx, base, block)
}

func (d *failingDriver) block(ctx context.Context, base string, block int) (blockLoad, error) {
	if !d.warmup && block == d.fails {
		return blockLoad{}, d.err()
	}
	return d.loadDriver.block(ctx, base, block)
}

// TestCalibrationEndsDetached: whatever ends a calibration, nothing is attached behind it, and
// the blocks so far are kept.
func TestCalibrationEndsDetached(t *testing.T) {
	t.Parallel()
	loop := newLoopServer(0)
	server := httptest.NewServer(loop)
	t.Cleanup(server.Close)
	errHere := errors.New("here it ends")
	for name, c := range map[string]struct {
		warmup bool
		silent bool // nothing that the block sends is answered well
		cancel bool
	}{
		"the block fails":      {},
		"the warm-up fails":    {warmup: true},
		"interrupted":          {cancel: true},
		"interrupted warm-up":  {cancel: true, warmup: true},
		"no request succeeded": {silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := &serveFlags{}
			f.Upstream, f.DeadlineAction, f.Correlation, f.Log = server.URL, "mark", "passive", "off"
			kept := &keeper{}
			relay, err := (&app{out: os.Stdout, errOut: os.Stderr}).calibrationRelay(t.Context(), f, kept)
			if err != nil {
				t.Fatal(err)
			}
			serving, end := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- relay.run(serving) }()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			d := &failingDriver{fails: 1, warmup: c.warmup} // the first that is attached
			d.loadDriver = loadDriver{set: load.Set{loopRequest}, what: "a loop", plan: load.Plan{Requests: 2, Concurrency: 1}}
			d.err = func() error {
				if !loop.isOn() {
					t.Error("nothing was attached: nothing is shown")
				}
				if c.cancel {
					cancel()
					return ctx.Err()
				}
				if c.silent {
					return nil
				}
				return errHere
			}
			cal := &calibrator{
				cfg: calibration.Config{}, base: relay.base(f), probes: loop, finder: loop.finder, driver: d, relay: relay, kept: kept, say: func(string) {},
			}
			got, err := cal.run(ctx)
			if loop.isOn() || err == nil {
				t.Errorf("attached %v behind %v", loop.isOn(), err)
			}
			if c.silent && !strings.Contains(err.Error(), "block 1: none of 0 requests succeeded") || !c.silent && !errors.Is(err, errHere) && !errors.Is(err, context.Canceled) {
				t.Errorf("it ends by %v", err)
			}
			if len(got.Attempts) != 1 || len(got.Attempts[0].Blocks) != 1 {
				t.Errorf("%+v", got.Attempts)
			}
			end()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDetachTwice: a relay that ends takes the probes away beside the calibration that does:
// one of them does it, and the other does not wait for ever.
func TestDetachTwice(t *testing.T) {
	requireProbes(t)
	t.Parallel()
	server, err := startDemoServer(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.stop(); err != nil {
			t.Error(err)
		}
	})
	f := &serveFlags{}
	f.Upstream, f.DeadlineAction, f.Correlation, f.Log = "http://"+server.addr, "mark", "passive", "off"
	relay, err := (&app{out: os.Stdout, errOut: os.Stderr}).calibrationRelay(t.Context(), f, &keeper{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = relay.listener.Close() })
	if err := relay.sw.attach(t.Context(), probes.Config{Names: stageNames()}); err != nil {
		t.Fatal(err)
	}
	verified := make(chan bool)
	for range 3 {
		go func() {
			st, err := relay.sw.detach(context.Background())
			if err != nil {
				t.Error(err)
			}
			verified <- st.Detached != nil && st.Detached.Verified()
		}()
	}
	limit := time.NewTimer(commandLimit)
	defer limit.Stop()
	did := 0
	for range 3 {
		select {
		case ok := <-verified:
			if ok {
				did++
			}
		case <-limit.C:
			t.Fatal("a detachment does not end")
		}
	}
	if did != 1 || relay.sw.current() != nil {
		t.Errorf("%d of them have detached, attached: %v", did, relay.sw.current() != nil)
	}
}

// TestCalibrateInterrupted: a signal amid a block with probes ends a calibration.
func TestCalibrateInterrupted(t *testing.T) {
	requireProbes(t)
	t.Parallel()
	h := holdLoad(t, `curl -q -sf --noproxy '*' -o /dev/null "$OMNITAP_URL/v1/chat/completions" -H 'Content-Type: application/json' -d '{"model":"m","messages":[{"role":"user","content":"hi"}]}'; `)
	p := startProcess(t, append([]string{"calibrate", "--demo"}, h.args...)...)
	h.base()
	h.end(0)
	h.base() // the second block has the probes
	family := descendants(t, p.cmd.Process.Pid)
	p.signal(t, syscall.SIGINT)
	if code := p.wait(t); code != exitEnvironment || !strings.Contains(p.output(), "block 1: ") {
		t.Errorf("exit %d: %s", code, p.output())
	}
	wantEnded(t, family...)
}
