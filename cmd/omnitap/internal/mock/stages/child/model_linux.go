package child

import (
	"encoding/binary"
	"fmt"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/message"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/segment"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/voice"
)

const (
	// firstFrames and moreFrames are the talker's chunks: initial_codec_chunk_frames
	// and codec_chunk_frames.
	firstFrames = 4
	moreFrames  = 25
	stopToken   = 2150
	// codecPrompt is the length of the talker's prompt, codesPrompt of code2wav's first.
	codecPrompt = 17
)

// advance makes a request's next step.
func (c *core) advance(r *request) result {
	if r.input != nil {
		r.exhausted = r.input.Finished
		r.next++
	}
	switch c.spec.Stage {
	case 0:
		return c.think(r)
	case 1:
		return c.talk(r)
	default:
		return c.speak(r)
	}
}

// think gives the next token of the script, and to the talker what it needs: the
// prompt and the first two steps in one chunk, then one a step. A request for text
// alone gives it one empty chunk at the end, which nobody reads.
func (c *core) think(r *request) result {
	a := &r.add
	last := r.step >= len(a.Script)-1
	res := result{out: message.Output{ID: a.ID}, done: last}
	if r.step < len(a.Script) {
		res.out.Tokens = a.Script[r.step : r.step+1]
	}
	if r.step == 0 {
		res.out.PromptTokens = new(len(a.Prompt))
	}
	if last {
		res.out.Finish = new(message.FinishStop)
	}
	if a.FinalStage == 0 {
		if last {
			res.send = &segment.Payload{ID: a.ID, Finished: true}
		}
		return res
	}
	if r.step == 0 && !last {
		return res
	}
	p := &segment.Payload{ID: a.ID, Chunk: r.sent, Finished: last, Tokens: res.out.Tokens}
	if r.sent == 0 {
		p.Prompt, p.Seed, p.Frames = a.Prompt, a.Seed, a.Frames
		p.Tokens = a.Script[:min(r.step+1, len(a.Script))]
	}
	p.Raw = hidden(p.Tokens, c.spec.HiddenBytes*(len(p.Tokens)+len(p.Prompt)))
	r.sent++
	res.send = p
	return res
}

// hidden stands for hidden states: bytes that depend on the tokens.
func hidden(tokens []int, n int) []byte {
	b := make([]byte, n)
	x := uint64(len(tokens))
	for _, t := range tokens {
		x = x*6364136223846793005 + uint64(t) + 1442695040888963407
	}
	for i := range b {
		x = x*6364136223846793005 + 1442695040888963407
		b[i] = byte(x >> 56)
	}
	return b
}

// talk gives the next codec frame; the frames go to code2wav in chunks.
func (c *core) talk(r *request) result {
	if p := r.input; p != nil {
		if p.Chunk == 0 {
			r.seed, r.frames = p.Seed, p.Frames
		}
		r.input = nil
	}
	codes := voice.Codes(r.seed, r.step)
	r.codes = append(r.codes, codes[:]...)
	last := r.step >= r.frames-1
	res := result{done: last, out: message.Output{ID: r.add.ID, Tokens: []int{int(codes[0])}}}
	res.out.Tensors = []message.Tensor{{
		Name: "codes.audio", DType: "int64", Shape: []int{1, voice.Codebooks}, Data: appendCodes(nil, codes[:]),
	}}
	if r.step == 0 { // the prefill gives a frame a token of the prompt
		t := &res.out.Tensors[0]
		t.Shape[0] = codecPrompt
		t.Data = append(make([]byte, (codecPrompt-1)*8*voice.Codebooks), t.Data...)
		res.out.PromptTokens = new(codecPrompt)
	}
	if last {
		res.out.Finish, res.out.Stop = new(message.FinishStop), new(stopToken)
		res.out.Tokens = []int{stopToken}
	}
	full := moreFrames
	if r.sent == 0 {
		full = firstFrames
	}
	if last || len(r.codes) >= full*voice.Codebooks {
		res.send = &segment.Payload{ID: r.add.ID, Chunk: r.sent, Finished: last, Codes: r.codes}
		r.codes = nil
		r.sent++
	}
	return res
}

func appendCodes(b []byte, codes []int64) []byte {
	for _, c := range codes {
		b = binary.LittleEndian.AppendUint64(b, uint64(c))
	}
	return b
}

// speak turns a chunk of frames into samples.
func (c *core) speak(r *request) result {
	p := r.input
	r.input = nil
	res := result{out: message.Output{ID: r.add.ID}, done: p.Finished}
	samples, err := voice.Decode(p.Codes)
	if err != nil { // a real vocoder would fail its engine
		fail(fmt.Errorf("chunk %d of %s: %w", p.Chunk, r.add.ID, err))
	}
	res.out.PromptTokens = new(len(p.Codes))
	res.out.Tensors = []message.Tensor{
		{Name: message.TensorAudio, DType: "bfloat16", Shape: []int{1, len(samples) / 2}, Data: samples},
		{Name: "sr", DType: "int32", Data: binary.LittleEndian.AppendUint32(nil, voice.Rate)},
	}
	if p.Finished {
		res.out.Finish = new(message.FinishStop)
	}
	return res
}
