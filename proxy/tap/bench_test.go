package tap_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/timeline"
)

type nowhere struct{}

func (nowhere) Record(*timeline.Record)   {}
func (nowhere) Session(*timeline.Session) {}
func (nowhere) Event(*timeline.Event)     {}

// BenchmarkRead is what looking at one event costs, by workload.
func BenchmarkRead(b *testing.B) {
	pcm := make([]byte, 3840)
	for i := range pcm {
		pcm[i] = byte(i * 7)
	}
	text := `data: {"id":"chatcmpl-q1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null,"token_ids":null}],"modality":"text"}` + "\n\n"
	sound := `data: {"id":"chatcmpl-q1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"` + strings.Repeat("AAECAwQF", 800) + `"},"logprobs":null,"finish_reason":null}],"usage":{"prompt_tokens":7,"total_tokens":7,"completion_tokens":0},"modality":"audio"}` + "\n\n"
	for _, w := range []struct{ name, media, event string }{
		{"sse220", "text/event-stream", text}, {"raw3840", "audio/pcm", string(pcm)}, {"b64audio6400", "text/event-stream", sound},
	} {
		b.Run(w.name, func(b *testing.B) {
			cfg := tap.Config{}.WithDefaults()
			c := tap.NewConn(&cfg, func(int) timeline.Identity { return timeline.Identity{} }, nowhere{}, nil, false)
			c.Bytes(tap.Client, []byte("POST /v1/x HTTP/1.1\r\nContent-Length: 0\r\n\r\n"), 1, 0)
			c.Bytes(tap.Server, []byte("HTTP/1.1 200 OK\r\nContent-Type: "+w.media+"\r\nTransfer-Encoding: chunked\r\n\r\n"), 2, 0)
			chunk := fmt.Appendf(nil, "%x\r\n%s\r\n", len(w.event), w.event)
			b.ReportAllocs()
			mono := int64(3)
			for b.Loop() {
				c.Bytes(tap.Server, chunk, mono, 0)
				c.Wrote(tap.Server, mono+1, 0)
				mono += 1000
			}
		})
	}
}
