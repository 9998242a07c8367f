package child

import (
	"fmt"
	"testing"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/message"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/segment"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/voice"
)

// sent runs a stage's steps without a process and returns the chunks that it sends on.
func sent(t *testing.T, stage int, a message.Add, inputs []*segment.Payload) (chunks []*segment.Payload, steps int) {
	t.Helper()
	c, r := &core{spec: Spec{Stage: stage, HiddenBytes: 10}}, &request{add: a}
	for done := false; !done; r.step++ {
		if steps++; steps > 1000 {
			t.Fatal("it does not end")
		}
		if len(inputs) > 0 {
			r.input, inputs = inputs[0], inputs[1:]
		}
		res := c.advance(r)
		if done = res.done; res.send != nil {
			chunks = append(chunks, res.send)
		}
	}
	return chunks, steps
}

// A chunk is written as number:frames or tokens, an f behind the last.
func shape(chunks []*segment.Payload) (s string) {
	for _, p := range chunks {
		s += fmt.Sprintf("%d:%d", p.Chunk, len(p.Tokens)+len(p.Codes)/voice.Codebooks)
		if p.Finished {
			s += "f"
		}
		s += " "
	}
	return s
}

func TestThinkerCutsChunks(t *testing.T) {
	for _, tt := range []struct {
		tokens, final int
		want          string
	}{
		{1, 2, "0:1f "}, {2, 2, "0:2f "}, {4, 2, "0:2 1:1 2:1f "}, {1, 0, "0:0f "}, {9, 0, "0:0f "},
	} {
		a := message.Add{ID: "a", Prompt: []int{1, 2, 3}, FinalStage: tt.final, Script: make([]int, tt.tokens), Frames: 5}
		chunks, steps := sent(t, 0, a, nil)
		if got := shape(chunks); got != tt.want || steps != tt.tokens {
			t.Errorf("%d tokens up to stage %d: %q in %d steps, want %q", tt.tokens, tt.final, got, steps, tt.want)
		}
		if p := chunks[0]; tt.final == 2 && (len(p.Prompt) != 3 || p.Frames != 5 || len(p.Raw) != 10*(3+len(p.Tokens))) {
			t.Errorf("chunk 0: %+v", p)
		}
	}
}

func TestTalkerCutsChunks(t *testing.T) {
	for frames, want := range map[int]string{
		1: "0:1f ", 4: "0:4f ", 5: "0:4 1:1f ", 29: "0:4 1:25f ", 60: "0:4 1:25 2:25 3:6f ",
	} {
		in := []*segment.Payload{{Frames: frames, Seed: 7}, {Chunk: 1, Finished: true}}
		chunks, steps := sent(t, 1, message.Add{ID: "a"}, in)
		if got := shape(chunks); got != want || steps != frames {
			t.Errorf("%d frames: %q in %d steps, want %q", frames, got, steps, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte{message.TypeAdd}, message.EncodeAdd(message.Add{ID: "a"}, 0))
	f.Add([]byte{message.TypeAbort}, message.EncodeAbort("a"))
	f.Add([]byte{9}, []byte{})
	f.Fuzz(func(t *testing.T, kind, body []byte) {
		v, err := parse([][]byte{kind, body})
		switch v.(type) {
		case task, []string, nil:
		default:
			t.Errorf("parse = %T, %v", v, err)
		}
		if _, err := parse([][]byte{kind}); err == nil {
			t.Error("a request of one frame is taken")
		}
	})
}
