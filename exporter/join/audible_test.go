package join

import (
	"testing"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// SGLang-Omni numbers no stages and has two last ones: decode tells text, code2wav
// sound. The way to first audio ends at the one that speaks, whichever was seen first.
func TestLastStageIsTheOneThatSpeaks(t *testing.T) {
	text := &stage{name: "decode", id: -1, outputs: []output{{sent: 1}}}
	sound := &stage{name: "code2wav", id: -1, outputs: []output{{sent: 2}, {sent: 3, payload: true}}}
	silent := &stage{name: "talker", id: -1}
	for _, order := range [][]*stage{{text, sound, silent}, {sound, text, silent}, {silent, text, sound}} {
		r := &request{stages: order}
		if got := r.lastStage(); got != sound {
			t.Errorf("last stage is %q", got.name)
		}
	}
}

// On a busy machine the write of a request returns long after the server has begun to
// work on it: what counts is when its last byte came in.
func TestAskedBeforeTheWriteReturned(t *testing.T) {
	in, body, up := int64(100e6), int64(101e6), int64(140e6)
	a := Ask{Points: timeline.Points{TIn: &in, TBody: &body, TUp: &up}}
	if a.from() != body {
		t.Errorf("the stages may be asked from %d on, want %d", a.from(), body)
	}
}
