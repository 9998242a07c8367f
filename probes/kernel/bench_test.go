//go:build linux && amd64

package kernel

import (
	"encoding/binary"
	"sync/atomic"
	"testing"

	"github.com/omnitap/omnitap/probes/event"
)

// BenchmarkRing measures reading and decoding events out of a ring, of every form that
// the programs write.
func BenchmarkRing(b *testing.B) {
	for _, bb := range []struct {
		name string
		rec  record
	}{
		{"close", record{probe: byte(event.Close)}},
		{"openat", record{probe: byte(event.OpenAt), path: 60, data: pad("/dev/shm/chatcmpl-omt-0123456789-0123abcd_0_17", 272)}},
		{"sample", record{probe: byte(event.SchedSample), data: words(1, 2, 3, 4, 5)}},
		{"frame of 40 bytes", record{probe: byte(event.ZMQRecv), head: 40, data: make([]byte, 64)}},
		{"frame of 1 KiB", record{probe: byte(event.ZMQRecv), head: 1024, tail: 64, data: make([]byte, 1088)}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			bb.rec.comm, bb.rec.mono, bb.rec.pid = "VLLM::StageEngi", 1, 1
			one := string(bb.rec.bytes())
			r := newRing(1 << 20)
			n := uint64(0)
			for r.at+uint64(len(one))+8 < 1<<19 {
				r.put(one, 0)
				n++
			}
			end := binary.NativeEndian.Uint64(r.prod)
			var batch Batch
			for b.Loop() {
				atomic.StoreUint64(position(r.cons), 0)
				batch.Reset()
				if !r.drain(batch.add) || uint64(len(batch.Events)) != n {
					b.Fatal("the ring was not read whole")
				}
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e3, "k_events/s")
			b.ReportMetric(float64(end)/float64(n), "B/event")
			b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(n)/float64(b.N), "ns/event")
		})
	}
}
