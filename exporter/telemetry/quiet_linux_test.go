package telemetry

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/sys/unix"
)

// priority is that of the calling thread, nice.
func priority(t testing.TB) int {
	t.Helper()
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, unix.Gettid())
	if err != nil {
		t.Error(err)
	}
	return 20 - raw
}

// watched notes the priority of whoever exports.
type watched struct {
	nowhere
	t    testing.TB
	mu   sync.Mutex
	seen []int
}

func (w *watched) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, priority(w.t))
	return nil
}

// TestExportsQuietly: batches are encoded on a thread of low priority, at the end too, and
// no other thread has become like it.
func TestExportsQuietly(t *testing.T) {
	runtime.LockOSThread()
	own := priority(t)
	runtime.UnlockOSThread()
	x, err := New(t.Context(), Config{}, Asked{})
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{t: t}
	x.route(Config{}, resource.Empty(), w)
	for range 3 {
		x.Record(sample(3, 3))
		if err := x.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	x.Record(sample(3, 3))
	if err := x.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(w.seen) < 4 {
		t.Errorf("%d batches", len(w.seen))
	}
	for _, p := range w.seen {
		if p != max(own, lowered) {
			t.Errorf("a batch was exported at nice %d, want %d", p, max(own, lowered))
		}
	}
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			runtime.LockOSThread() // not unlocked: each sees a thread of its own
			if p := priority(t); p != own {
				t.Errorf("another thread runs at nice %d, want %d", p, own)
			}
		})
	}
	all.Wait()
}
