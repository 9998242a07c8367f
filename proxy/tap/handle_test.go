package tap_test

import (
	"context"
	"testing"

	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// BenchmarkHandOver is what the forward path pays for handing an event over.
func BenchmarkHandOver(b *testing.B) {
	for _, size := range []int{220, 3840, 32 << 10} {
		b.Run(map[int]string{220: "220B", 3840: "3840B", 32 << 10: "32KiB"}[size], func(b *testing.B) {
			a := tap.NewAnalyzer(tap.Config{Off: true}, nil, nil)
			ctx, stop := context.WithCancel(b.Context())
			done := make(chan struct{})
			go func() {
				a.Run(ctx)
				close(done)
			}()
			defer func() {
				stop()
				<-done
			}()
			h := a.Open(1, func(int) timeline.Identity { return timeline.Identity{} })
			pool := tap.NewPool(32 << 10)
			b.ReportAllocs()
			for b.Loop() {
				k := tap.Take(pool)
				h.Data(tap.Server, k, k.B[:size], 1, 0)
				h.Wrote(tap.Server, 2, 0)
				k.Release()
			}
		})
	}
}
