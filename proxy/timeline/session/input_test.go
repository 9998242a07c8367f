package session

import (
	"fmt"
	"testing"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// inputs adds up what the events say of the sound and the bytes of a turn: those of the
// session that input_taken gives it, and the messages that asked for it.
func (g *rig) inputs(r *timeline.Record) (bytes, messages, up int64) {
	value := func(n timeline.Number) int64 { v, _ := n.Get(); return v }
	for i := range g.events {
		e := &g.events[i]
		switch {
		case e.RequestID != r.RequestID:
		case e.Event == timeline.EventMessage:
			up += value(e.Bytes)
		case e.Event == timeline.EventInputTaken:
			bytes, messages = 0, 0 // the last share is the record's
			for k := range g.events {
				c := &g.events[k]
				n := value(c.ChunkID) - value(e.ChunkID)
				if c.Event == timeline.EventInput && c.RequestID == *r.SessionID && n >= 0 && n < value(e.Count) {
					bytes, messages, up = bytes+value(c.Bytes), messages+1, up+value(c.WireBytes)
				}
			}
		}
	}
	return bytes, messages, up
}

// Each message with sound is one event of the session, and each turn's share of them is
// told, so that nothing of a turn's input has to be believed.
func TestInputEvents(t *testing.T) {
	heard := func(at, n int) string {
		return fmt.Sprintf("%d c {\"type\":\"input_audio_buffer.append\",\"audio\":\"$%d\"}\n", at, n)
	}
	const commit, final = ` c {"type":"input_audio_buffer.commit","final":false}` + "\n", ` c {"type":"input_audio_buffer.commit","final":true}` + "\n"
	for name, script := range map[string]string{
		"turns on demand": "3 s " + turnBased + "\n" + heard(4, 5) + "5" + commit + heard(10, 480) + heard(30, 480) + heard(50, 240) + "51" + final +
			"60 s {\"type\":\"response.audio.delta\",\"audio\":\"$480\",\"format\":\"pcm16\",\"sample_rate_hz\":24000}\n70 s {\"type\":\"response.audio.done\",\"has_audio\":true}\n",
		"by voice": "3 s " + segmented + "\n" + heard(4, 480) + heard(14, 480) + heardSegment(30, 0, "speech_stopped", 2) + segment(40, 0, "The", true, 3) +
			heard(50, 160) + heardSegment(60, 1, "speech_stopped", 4) + segment(70, 1, "quick", true, 5),
		"ahead of the form": heard(1, 480) + heard(2, 480) + "3 s " + segmented + "\n" + heardSegment(30, 0, "speech_stopped", 2) + segment(40, 0, "The", true, 3),
	} {
		t.Run(name, func(t *testing.T) {
			g := replayed(t, "/v1/realtime").play(script)
			g.line()
			some := false
			for _, r := range g.turns() {
				bytes, messages, up := g.inputs(r)
				if r.Input == nil {
					t.Errorf("turn %d has no input", *r.Turn)
					continue
				}
				some = true
				if bytes != r.Input.Bytes || messages != r.Input.Messages || up != r.BytesUp || up == 0 {
					t.Errorf("turn %d: the events tell %d bytes in %d messages, %d up; the record %+v, %d up", *r.Turn, bytes, messages, up, *r.Input, r.BytesUp)
				}
			}
			if !some {
				t.Error("no turn has input")
			}
		})
	}
}

// A video query with sound is one message: its bytes count once.
func TestQueryWithSoundCountsOnce(t *testing.T) {
	g := replayed(t, "/v1/video/chat/stream").play(`
		3 c {"type":"session.config","modalities":["audio"]}
		10 c {"type":"video.query","text":"what?","audio_data":"$480"}
		20 s {"type":"response.start"}
		30 s {"type":"response.audio.done"}
		31 s fin`)
	g.line()
	r := g.turns()[0]
	if r.Input == nil || r.Input.Bytes != 960 {
		t.Fatalf("input %+v", r.Input)
	}
	if _, _, up := g.inputs(r); up != r.BytesUp || r.BytesUp > r.Input.Bytes*4/3+100 {
		t.Errorf("%d bytes up by the events, %d in the record, of a message with %d bytes of sound", up, r.BytesUp, r.Input.Bytes)
	}
}
