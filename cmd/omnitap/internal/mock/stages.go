package mock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/truth"
)

// How much the stages are asked for: a token a word, and the words of a chat are
// max_tokens.
const (
	stageWords    = 12
	maxStageWords = 4096
	framesAWord   = 5
	leastFrames   = 30
	maxPrompt     = 1 << 16
)

// staged says whether stage processes can make the answer.
func (x *exchange) staged() bool {
	return x.c.srv.cfg.Stages != nil && x.script.Dialect == script.DialectVLLM && reflect.ValueOf(x.own).IsZero()
}

// chatStages is a streaming chat that the stages answer.
func (x *exchange) chatStages(call *chatCall) plan.Answer {
	n := cmp.Or(field[int](x.req, "max_completion_tokens"), field[int](x.req, "max_tokens"), stageWords)
	req := stages.Request{Words: x.words(min(max(n, 1), maxStageWords)), Prompt: call.prompt, Audio: call.audio}
	out, refused := x.submit(&req)
	if refused != nil {
		return *refused
	}
	call.completions = len(req.Words)
	words, left := len(req.Words), 2*req.Samples()
	begun := false
	a := x.streamVLLM()
	x.pour(&a, out, func(it plan.Item) (pieces []plan.Piece) {
		if !begun { // the role comes with the first output
			begun = true
			pieces = append(pieces, plan.Piece{Kind: plan.Role, Data: x.event("", x.itemVLLM(call, plan.Item{Kind: plan.Role}, place{})), Raw: plan.NotRaw})
		}
		left -= len(it.Audio.PCM)
		p := plan.Piece{Kind: it.Kind, PCM: it.Audio.PCM, Raw: plan.NotRaw}
		if it.Kind == plan.Text {
			words--
			p.Texts = []string{it.Text}
		}
		p.Data = x.event("", x.itemVLLM(call, it, place{lastText: words == 0, afterText: words == 0, last: words == 0 && left == 0}))
		return append(pieces, p)
	}, func() []plan.Piece { return x.tailVLLM(call) })
	return a
}

// speechStages is a streaming speech request that the stages answer.
func (x *exchange) speechStages(call *speechCall) plan.Answer {
	x.id = "speech-" + x.hex(16)
	words := strings.SplitAfter(x.req.str("input"), " ")
	req := stages.Request{Words: words[:min(len(words), maxStageWords)], Prompt: call.tokens, Audio: true}
	out, refused := x.submit(&req)
	if refused != nil {
		return *refused
	}
	a, each, tail := x.frameSSE(), x.ssePieces(call), func() []plan.Piece { return x.tailSSE(call, req.Frames) }
	if call.mode == "raw" {
		a = plan.Answer{Status: http.StatusOK, ContentType: audioType(call.format), Form: "raw", End: plan.Complete}
		each, tail = x.rawPieces(call), func() []plan.Piece { return nil }
	}
	x.pour(&a, out, each, tail) // its text is for the talker alone
	return a
}

// words are the first n words of an endless answer.
func (x *exchange) words(n int) []string {
	out := make([]string, n)
	for i := range out {
		if out[i] = x.script.Text[i%len(x.script.Text)]; i > 0 && i%len(x.script.Text) == 0 {
			out[i] = " " + out[i]
		}
	}
	return out
}

// submit hands a request to the stages. refused is the answer to one that they do not
// take.
func (x *exchange) submit(r *stages.Request) (out <-chan stages.Output, refused *plan.Answer) {
	r.ID, r.Seed, r.Prompt = x.id, x.seed, min(r.Prompt, maxPrompt)
	if r.Audio {
		r.Frames = max(leastFrames, framesAWord*len(r.Words))
	}
	if err := r.Validate(); err != nil {
		return nil, new(x.refusal(http.StatusBadRequest, err.Error()))
	}
	ctx, cancel := context.WithCancel(x.c.Context())
	out, err := x.c.srv.cfg.Stages.Submit(ctx, *r)
	if err != nil && x.c.srv.cfg.Unnoticed {
		out, err = make(chan stages.Output), nil
	}
	if err != nil {
		cancel()
		return nil, new(x.refusal(http.StatusInternalServerError, deadWords(err)))
	}
	x.over = cancel // a client that leaves takes its request back
	x.rec.Update(func(t *truth.Truth) { t.CleanSamples, t.Rate, t.Channels = r.Samples(), stages.Rate, 1 })
	return out, nil
}

// pour lets what the stages make go out as it comes: each makes the pieces of an
// output, tail what comes behind the last.
func (x *exchange) pour(a *plan.Answer, out <-chan stages.Output, each func(plan.Item) []plan.Piece, tail func() []plan.Piece) {
	fail := a.Fail
	chunks := 0
	a.Live = func(stop <-chan struct{}) (b plan.Burst, ok bool) {
		var o stages.Output
		select {
		case <-stop:
			return b, false
		case o = <-out:
		}
		switch {
		case o.Err != nil && x.c.srv.cfg.Unnoticed:
			<-stop
			return b, false
		case o.Done:
			return plan.Burst{Pieces: tail(), Last: true}, true
		case o.Err != nil && fail == nil:
			return plan.Burst{Pieces: []plan.Piece{{Kind: plan.Halt, Stop: plan.Cut}}, Last: true}, true
		case o.Err != nil:
			x.script.ErrorMessage = deadWords(o.Err)
			return plan.Burst{Pieces: fail(), Last: true, Failed: true}, true
		case o.Stage == 0:
			return plan.Burst{Pieces: each(plan.Item{Kind: plan.Text, Text: o.Text})}, true
		}
		chunks++
		c := plan.Shape(x.script, x.f, chunks)
		c.PCM = o.PCM
		return plan.Burst{Pieces: each(plan.Item{Kind: plan.Audio, Audio: c})}, true
	}
}

// deadWords is what vLLM-Omni says when its stages cannot answer.
func deadWords(err error) string {
	if d, ok := errors.AsType[*stages.StageError](err); ok {
		return fmt.Sprintf("Dead stage process(es) detected: %s (pid=%d, exit=%d)", stages.Names[d.Stage], d.PID, d.Exit)
	}
	return err.Error()
}
