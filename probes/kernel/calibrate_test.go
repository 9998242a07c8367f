//go:build linux && amd64

package kernel_test

import (
	"context"
	"errors"
	"testing"

	"github.com/omnitap/omnitap/probes/internal/live"
	"github.com/omnitap/omnitap/probes/kernel"
)

// TestCalibrate: a trap that is single-stepped costs several times one that is emulated,
// and behind an endbr64 it is as cheap; both ways of attaching can be measured.
func TestCalibrate(t *testing.T) {
	live.Require(t)
	for _, multi := range []bool{true, false} {
		c, err := kernel.Calibrate(t.Context(), multi, kernel.Emulated, kernel.Stepped, kernel.Marked)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("multi %t: %v", multi, c)
		for k, cost := range c {
			if cost.Entry < 50 || cost.Entry > 200_000 || cost.Pair < cost.Entry/2 {
				t.Errorf("%v: %+v", k, cost)
			}
		}
		if c[kernel.Stepped].Entry < 3*c[kernel.Emulated].Entry || c[kernel.Stepped].Entry < 3*c[kernel.Marked].Entry {
			t.Errorf("single-stepping is not dear: %v", c)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := kernel.Calibrate(ctx, true, kernel.Emulated); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestCalibratePoint(t *testing.T) {
	live.Require(t)
	ns, err := kernel.CalibratePoint()
	if err != nil || ns < 5 || ns > 50_000 {
		t.Errorf("a tracepoint costs %v ns (%v)", ns, err)
	}
	t.Logf("%.0f ns", ns)
}
