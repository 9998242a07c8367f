package timeline

import (
	"slices"
	"testing"
	"time"

	"github.com/omnitap/omnitap/proxy/wire/audio"
	"github.com/omnitap/omnitap/proxy/wire/dialect"
)

// limited returns a builder of a request that came at 10 ms and has a deadline of
// 500 ms.
func limited(k *kept) *Builder {
	cfg := Config{Deadline: 500 * time.Millisecond}.WithDefaults()
	b := New(&cfg, Identity{OwnID: "r", Replay: true}, k, 10*msec, 1)
	b.Request("POST", "/v1/audio/speech", "application/json", "")
	return b
}

// TestDeadlineAndWhatEndedBefore: what ended in time stays what it was, whatever is
// seen of the connection later; and nothing more is due then.
func TestDeadlineAndWhatEndedBefore(t *testing.T) {
	answer := func(b *Builder, ms int64) {
		at(b, ms).AnswerStart(ms*msec, 1)
		b.AnswerHead(200, Answer{ContentType: "application/json", Whole: true})
	}
	for _, c := range []struct {
		name   string
		do     func(*Builder)
		state  State
		reason string
	}{
		{"refused, and the client stays", func(b *Builder) { b.Unreachable("connect_refused", "ECONNREFUSED", 11*msec) }, TransportError, "connect_refused"},
		{"our own fault", func(b *Builder) { b.Harness("out_of_descriptors", "EMFILE") }, HarnessError, "out_of_descriptors"},
		{"half closed in time, cut late", func(b *Builder) {
			answer(b, 50)
			b.ClientEnd(FIN, 100*msec)
			at(b, 900).ServerEnd(FIN, 900*msec)
		}, ClientCancelled, "half_closed"},
		{"the last byte in time, its end mark late", func(b *Builder) {
			answer(b, 50)
			at(b, 450).Body(10, 500)
			b.Trouble("malformed_json", "x")
			at(b, 600).Complete()
		}, InvalidOutput, "malformed_json"},
		{"two lengths", func(b *Builder) {
			answer(b, 100)
			b.Ambiguous()
			at(b, 900).ServerEnd(FIN, 900*msec)
		}, InvalidOutput, "ambiguous_framing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := &kept{}
			b := limited(k)
			c.do(b)
			due := b.Due()
			late := b.Check(800 * msec)
			b.Finish()
			if k.record.Terminal.State != c.state || k.record.Terminal.Reason != c.reason {
				t.Errorf("terminal = %+v, want %s/%s", k.record.Terminal, c.state, c.reason)
			}
			if open := c.name == "half closed in time, cut late" || c.name == "the last byte in time, its end mark late"; !open && (due != 0 || late) {
				t.Errorf("due at %d, late %v, want neither", due, late)
			}
		})
	}
}

// TestNothingIsDueOfWhatCannotBeSeen: where the end could pass unseen, nobody is cut
// off for it.
func TestNothingIsDueOfWhatCannotBeSeen(t *testing.T) {
	for name, do := range map[string]func(*Builder){
		"bytes dropped": func(b *Builder) { b.Unread("bytes were not analysed") },
		"lost":          func(b *Builder) { b.Analysis("lost", "x") },
		"malformed":     func(b *Builder) { b.Malformed("bad_chunk") },
		"two lengths":   func(b *Builder) { b.Ambiguous() },
		"a tunnel":      func(b *Builder) { b.Tunnel() },
	} {
		t.Run(name, func(t *testing.T) {
			b := limited(&kept{})
			if b.Due() != 510*msec || !b.Waits() {
				t.Fatalf("due at %d, want 510 ms", b.Due())
			}
			do(b)
			if b.Due() != 0 || b.Check(900*msec) || b.Waits() {
				t.Errorf("due at %d, late %v; want neither", b.Due(), b.Check(900*msec))
			}
		})
	}
	b := limited(&kept{}) // an event that was too long to be read has an end all the same
	b.Analysis("truncated", "event of 17 MB")
	if b.Due() == 0 || !b.Check(900*msec) {
		t.Error("a request with an event that was too long has no deadline")
	}
}

// TestErrorAheadOfAnAbort: the server's word is the end, not the cut behind it.
func TestErrorAheadOfAnAbort(t *testing.T) {
	k := &kept{}
	b := limited(k)
	at(b, 50).AnswerStart(50*msec, 1)
	b.AnswerHead(200, Answer{ContentType: "text/event-stream", Events: true})
	at(b, 100)
	b.Said(ServerError, "boom", 100)
	b.Aborted(600 * msec)
	b.Finish()
	if r := k.record; r.Terminal.State != ServerError || *r.JCTMS != 90 {
		t.Errorf("terminal = %+v, jct %v; want the error's at 90 ms", r.Terminal, *r.JCTMS)
	}
}

// TestStallByTheSamples: sound that trickles in one chunk is no stall, whatever the
// chunk's length; without a limit there is none.
func TestStallByTheSamples(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit int
		gap   int64 // between pieces of 100 ms, in ms
		want  bool
	}{
		{"in real time", 1000, 100, false},
		{"slower, by less than the limit", 1000, 900, false},
		{"a stall", 1000, 1500, true},
		{"no limit", -1, 5000, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := &kept{}
			cfg := Config{AudioStallMS: c.limit}.WithDefaults()
			b := New(&cfg, Identity{OwnID: "r", Replay: true}, k, 10*msec, 1)
			b.Request("POST", "/v1/audio/speech", "application/json", "")
			at(b, 20).AnswerStart(20*msec, 1)
			b.AnswerHead(200, Answer{ContentType: "audio/pcm", Sound: true, Unit: "http_chunk", Rate: 24000, RateFrom: "header"})
			b.SoundStart()
			b.SoundChunkStart()
			p := tone(24000)
			for i := range int64(10) {
				at(b, 30+i*c.gap).Sound(p[4800*i:4800*(i+1)], audio.Pos{Off: 100 + 4800*i, Wire: true})
			}
			b.SoundChunkEnd(48100)
			b.SoundEnd(48100)
			b.Complete()
			b.Finish()
			if got := slices.Contains(k.record.Flags, "audio_stall"); got != c.want {
				t.Errorf("audio_stall = %v, want %v; flags %q", got, c.want, k.record.Flags)
			}
			told := 0
			for _, e := range k.events {
				if e.Event == "audio_stall" {
					told++
				}
			}
			if (told > 0) != c.want {
				t.Errorf("%d stalls told, want some %v", told, c.want)
			}
		})
	}
}

// TestRelayLag: what the relay itself took is told apart from a client that does not
// read.
func TestRelayLag(t *testing.T) {
	for _, c := range []struct {
		name          string
		took, blocked int64
		want          bool
	}{{"quick", 1, 0, false}, {"slow", 60, 0, true}, {"held up by the client", 60, 30, false}} {
		t.Run(c.name, func(t *testing.T) {
			k := &kept{}
			cfg := Config{}.WithDefaults()
			b := New(&cfg, Identity{OwnID: "r"}, k, 10*msec, 1)
			b.Request("POST", "/v1/chat/completions", "application/json", "")
			at(b, 20).AnswerStart(20*msec, 1)
			b.AnswerHead(200, Answer{ContentType: "text/event-stream", Events: true})
			at(b, 30).Event(&dialect.Event{Tokens: -1, Text: []byte("Hi")}, 100)
			b.Wrote((30+c.took)*msec, c.blocked*msec)
			b.Finish()
			if got := slices.Contains(k.record.Flags, "relay_lag"); got != c.want {
				t.Errorf("relay_lag = %v, want %v", got, c.want)
			}
		})
	}
}
