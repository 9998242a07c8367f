package session

import (
	"cmp"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/ordered"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
)

// videoOut is vLLM-Omni's /v1/realtime/video: text that describes a chunk,
// then the chunk. The script's chunks and gaps are those of the media; the
// bytes of a chunk are an empty MP4 fragment of twice its samples' size.
type videoOut struct {
	*session
	t    *turn
	sent int
}

func newVideoOut(s *session) flow { return &videoOut{session: s} }

func (v *videoOut) open() {}

func (v *videoOut) reject(_, text string) {
	v.send(nil, event{name: "error", body: obj("error", "message", text)})
	if v.t == nil {
		v.quit()
	}
}

func (v *videoOut) receive(m message) {
	switch {
	case m.kind == "session.start" && v.t == nil:
		v.start(m)
	case v.t == nil:
		v.reject("", "Expected session.start as the first message")
	case m.kind == "session.interaction":
	case m.kind == "session.ping":
		v.send(v.t, event{name: "session.pong", body: obj("session.pong")})
	case m.kind == "session.stop":
		v.trailer(true)
	default:
		v.reject("", "Unknown message type: "+m.kind)
	}
}

func (v *videoOut) start(m message) {
	if own := m.mock(); len(own) > 0 && !v.adopt(own) {
		return
	}
	if v.t = v.begin(nil, m.ns, plan.Wish{Audio: true}); v.t == nil {
		return
	}
	v.t.id = "video_stream-" + v.Hex(32)
	v.name = v.t.id
	config := ordered.Obj{"format", cmp.Or(m.str("format"), "m4s")}
	for _, key := range []string{"width", "height", "fps", "num_frames"} {
		if m.has(key) {
			config = append(config, key, m.value(key))
		}
	}
	v.send(v.t, event{name: "video.start", body: obj("video.start", "request_id", v.t.id, "format", config.Get("format"), "config", config)})
	v.run(v.t, v.item, func() { v.trailer(false) })
}

const framesPerChunk = 8

func (v *videoOut) item(it plan.Item) {
	if it.Kind == plan.Audio {
		v.media("media", framesPerChunk, fragment(len(it.Audio.PCM)))
		v.sent++
	}
}

// fragment is a moof box and an mdat box of n bytes.
func fragment(n int) []byte {
	out := append([]byte{0, 0, 0, 8}, "moof"...)
	out = append(out, byte((n+8)>>24), byte((n+8)>>16), byte((n+8)>>8), byte(n+8))
	return append(append(out, "mdat"...), make([]byte, n)...)
}

// media sends the description of a chunk and the chunk.
func (v *videoOut) media(kind string, frames int, data []byte) {
	v.send(v.t, event{name: "video.chunk_metadata", body: obj("video.chunk_metadata", "request_id", v.t.id, "kind", kind, "num_frames", frames,
		"byte_length", len(data), "generation_chunk_index", v.sent, "transport_chunk_index", v.sent,
		"applied_event_ids", ordered.List{}, "active_event_ids", ordered.List{})})
	v.send(v.t, event{kind: plan.Body, data: data})
}

func (v *videoOut) trailer(stopped bool) {
	t := v.t
	v.drop(t)
	v.output(t)
	if t.dead() {
		return
	}
	v.media("trailer", 0, append([]byte{0, 0, 0, 8}, "mfra"...))
	v.send(t, event{kind: plan.End, name: "session.done", body: obj("session.done", "request_id", t.id, "chunks", v.sent, "stopped", stopped)})
	v.finish(t, plan.Complete)
	v.quit()
}

func (v *videoOut) fail(t *turn) {
	v.t = t
	v.send(t, event{name: "error", body: obj("error", "message", errorText(t.script, "mock engine fault"))})
	v.finish(t, plan.Failed)
	v.quit()
}

func (v *videoOut) late(t *turn, pcm []byte, _ bool) {
	v.extraAudio(t, event{data: fragment(len(pcm))})
}
