package session

import "github.com/omnitap/omnitap/proxy/wire/dialect"

// generations follows vLLM-Omni's turn-based realtime: the first commit that is
// not final starts a generation, long before the user has spoken; a later one is
// ignored while it runs. response.audio.done ends it, in every outcome.
type generations struct {
	s *Session
	// skipped is a commit that was taken to be ignored: it may have reached the
	// server when the generation was over already.
	skipped *ask
}

func (g *generations) client(m *dialect.Message, at Span) {
	switch m.Kind {
	case dialect.Ask:
		if string(m.Type) != "input_audio_buffer.commit" {
			return
		}
		if len(g.s.open)+len(g.s.asks) > 0 {
			g.skipped = &ask{source: "commit", at: at}
			return
		}
		g.skipped = nil
		g.s.takeInput()
		g.s.wait(&ask{source: "commit", at: at})
	case dialect.InputEnd:
		g.ended(at)
	default:
	}
}

// ended notes the final commit at the generation that runs, or is asked for.
func (g *generations) ended(at Span) {
	if t := g.s.only(); t != nil {
		t.b.Also("commit_final", at.First)
		t.b.InputEnd(at.Last, at.End)
		g.s.heard(t, g.s.takeInput())
		return
	}
	if len(g.s.asks) > 0 {
		a := g.s.asks[len(g.s.asks)-1]
		a.also = append(a.also, moment{"commit_final", at.First})
		a.final, a.input, a.upFinal = at, g.s.takeInput(), g.s.earlyUp
	}
}

// turn returns the generation that runs, begun where it is new.
func (g *generations) turn() *turn {
	if t := g.s.only(); t != nil {
		return t
	}
	a := g.s.take(nil)
	if a == nil {
		a, g.skipped = g.skipped, nil
	}
	t := g.s.begin(a, "", "")
	if a != nil && a.final.End != 0 {
		t.b.InputEnd(a.final.Last, a.final.End)
		if a.upFinal != 0 {
			t.b.UpstreamSent(a.upFinal, a.final.End)
		}
	}
	return t
}

// nobodys reports whether no generation runs and none was asked for: what comes
// now is late.
func (g *generations) nobodys() bool { return len(g.s.open)+len(g.s.asks) == 0 && g.skipped == nil }

func (g *generations) server(m *dialect.Message, at Span) {
	switch m.Kind {
	case dialect.Output, dialect.TextDone:
		if g.nobodys() {
			g.s.loose(m)
			return
		}
		t := g.turn()
		t.err = nil // what came before it was about a message
		t.output(m, at)
	case dialect.AudioDone:
		if g.nobodys() || len(g.s.open)+len(g.s.asks) == 0 {
			return
		}
		t := g.turn()
		if t.err != nil {
			t.fail(t.err)
		}
		g.s.marker(t, at)
	case dialect.TurnDone: // no event of this form, but some proxies of it send one
		if t := g.s.only(); t != nil {
			g.s.marker(t, at)
		}
	case dialect.Failed:
		g.failed(m, at)
	default:
	}
}

// refusal reports whether an error refuses a commit: no generation starts.
func refusal(code string) bool { return code == "model_not_validated" }

// slip reports whether an error is about one message, beside which a generation
// goes on.
func slip(code string) bool {
	switch code {
	case "invalid_json", "invalid_audio", "invalid_event", "unknown_event", "model_not_found":
		return true
	}
	return false
}

func (g *generations) failed(m *dialect.Message, at Span) {
	running := g.s.only()
	switch {
	case slip(m.Err.Word), running == nil && len(g.s.asks) == 0:
		g.s.sessionError(m, at)
		if running != nil {
			running.b.Warn("the server refused a message: " + m.Err.Word)
		}
	case running == nil && refusal(m.Err.Word):
		t := g.turn()
		t.output(m, at)
		g.s.finish(t)
	default:
		g.turn().err = &failure{err: *m.Err, at: at.Last, off: at.End}
	}
}

func (g *generations) sounding(Span) *turn { return g.s.only() }

func (g *generations) end() {
	if len(g.s.asks) > 0 {
		g.turn()
	}
	for _, t := range g.s.open {
		t.unfinished()
	}
}
