package session

import (
	"slices"
	"time"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/ordered"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
)

// videoChat is vLLM-Omni's /v1/video/chat/stream. No event of it has an id;
// a new query ends the one before without a word.
type videoChat struct {
	*session
	configured bool
	modes      []string
	frames     []videoFrame
	started    time.Time
	t          *turn
	told       bool // text.done was sent
	consumed   bool // the frames were told
	finishing  bool // video.done came
}

type videoFrame struct {
	id       string
	received float64 // ms
}

func newVideoChat(s *session) flow { return &videoChat{session: s, started: time.Now()} }

func (v *videoChat) open() {}

func (v *videoChat) reject(_, text string) {
	v.send(nil, event{name: "error", body: obj("error", "message", text)})
	if !v.configured {
		v.quit()
	}
}

func (v *videoChat) receive(m message) {
	switch {
	case m.kind == "ping":
		v.send(nil, event{name: "pong", body: obj("pong")})
	case m.kind == "session.config":
		v.config(m)
	case !v.configured:
		v.reject("", "Expected session.config as the first message")
	case m.kind == "video.frame":
		v.frame(m)
	case m.kind == "audio.chunk":
	case m.kind == "video.query":
		v.query(m)
	case m.kind == "video.done":
		if v.finishing = true; v.t == nil {
			v.done()
		}
	default:
		v.reject("", "Unknown message type: "+m.kind)
	}
}

func (v *videoChat) config(m message) {
	if own := m.mock(); len(own) > 0 && !v.adopt(own) {
		return
	}
	v.configured = true
	if v.modes = get[[]string](m, "modalities"); v.modes == nil {
		v.modes = []string{"text", "audio"}
	}
}

// clock is the server's own time in ms.
func (v *videoChat) clock() float64 {
	return 2_400_000 + float64(time.Since(v.started).Microseconds())/1000
}

// frame takes a frame and acknowledges it if it has a name.
func (v *videoChat) frame(m message) {
	id := m.str("frame_id")
	f := videoFrame{id, v.clock()}
	v.frames = append(v.frames, f)
	if id == "" {
		return
	}
	v.send(nil, event{name: "video.frame.ack", body: obj("video.frame.ack", "frame_id", id, "pts_ms", get[int](m, "pts_ms"), "capture_ts_ms", nil,
		"accepted", true, "buffered_frames", len(v.frames), "server_receive_ts_ms", f.received)})
}

func (v *videoChat) wants(mode string) bool { return slices.Contains(v.modes, mode) }

func (v *videoChat) query(m message) {
	if old := v.t; old != nil {
		v.t = nil
		v.cancelled(old)
	}
	t := v.begin(m.fields["mock"], m.ns, plan.Wish{Text: v.wants("text"), Audio: v.wants("audio")})
	if t == nil {
		return
	}
	v.t, v.told, v.consumed = t, false, false
	t.id = "video-" + v.Hex(12)
	trimFirst(t)
	v.send(t, event{name: "response.start", body: obj("response.start")})
	v.run(t, v.item, v.end)
}

const (
	trimmed   = 1920 // sample frames that the server drops at the start
	trimAbove = 3840 // of a first delta that is longer than this
)

// trimFirst drops the start of the first delta, as the real server does.
func trimFirst(t *turn) {
	frame := 2 * t.script.Channels
	for i := range t.gen.Items {
		it := &t.gen.Items[i]
		if it.Kind != plan.Audio {
			continue
		}
		if len(it.Audio.PCM) > trimAbove*frame {
			it.Audio.PCM = it.Audio.PCM[trimmed*frame:]
		}
		return
	}
}

func (v *videoChat) item(it plan.Item) {
	t := v.t
	v.consume()
	switch {
	case it.Kind == plan.Text:
		v.send(t, event{kind: plan.Text, name: "response.text.delta", text: it.Text, body: obj("response.text.delta", "delta", it.Text)})
	case isAudio(it):
		v.textDone()
		name := v.audioName(t.script.Names, ".delta")
		v.send(t, event{kind: it.Kind, name: name, pcm: it.Audio.PCM, body: obj(name, "data", payload(t, it, true), "format", "wav")})
	}
}

// consume tells which frames the model saw, before its first output.
func (v *videoChat) consume() {
	if v.consumed {
		return
	}
	v.consumed = true
	now := v.clock()
	ids, list, latest := ordered.List{}, ordered.List{}, 0
	for i, f := range v.frames {
		if f.id == "" {
			continue
		}
		latest = i * framePeriodMS
		ids = append(ids, f.id)
		list = append(list, ordered.Obj{
			"frame_id", f.id, "pts_ms", latest, "source_pts_ms", nil, "quality_profile", nil,
			"receiver_received_ts_ms", f.received, "decoded_ready_ts_ms", now,
		})
	}
	if len(ids) == 0 {
		return
	}
	v.send(v.t, event{name: "video.frames.consumed", body: obj("video.frames.consumed", "request_id", v.t.id, "model_selected_ts_ms", now,
		"frame_ids", ids, "frames", list, "latest_pts_ms", latest)})
}

const framePeriodMS = 40

func (v *videoChat) textDone() {
	if v.told || !v.wants("text") {
		return
	}
	v.told = true
	kind := plan.Other
	if !v.t.hasAudio {
		kind = plan.End
	}
	v.send(v.t, event{kind: kind, name: "response.text.done", body: obj("response.text.done", "text", v.t.text.String())})
}

func (v *videoChat) end() {
	t := v.t
	v.output(t)
	if t.dead() {
		return
	}
	v.textDone()
	if t.sounded {
		name := v.audioName(t.script.Names, ".done")
		v.send(t, event{kind: plan.End, name: name, body: obj(name)})
	}
	v.close(plan.Complete)
}

// close ends the query and, when the client said that it is done, the session.
func (v *videoChat) close(how plan.Ending) {
	t := v.t
	v.t = nil
	v.finish(t, how)
	if v.finishing {
		v.done()
	}
}

func (v *videoChat) done() {
	if !v.f.NoDone {
		v.send(nil, event{name: "session.done", body: obj("session.done")})
	}
	v.quit()
}

func (v *videoChat) fail(t *turn) {
	v.t = t
	v.send(t, event{name: "error", body: obj("error", "message", errorText(t.script, "Query processing failed"))})
	v.textDone()
	v.close(plan.Failed)
}

func (v *videoChat) late(t *turn, pcm []byte, _ bool) {
	shape := plan.Shape(t.script, t.f, 1)
	shape.PCM, shape.N = pcm, -1
	name := sibling(t.script.Names, ".delta")
	v.extraAudio(t, event{name: name, pcm: pcm, body: obj(name, "data", payload(t, plan.Item{Kind: plan.Audio, Audio: shape}, true), "format", "wav")})
}
