package timeline

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/proxy/wire/audio"
	"github.com/omnitap/omnitap/proxy/wire/dialect"
)

// tells lists the events of some words, each with the numbers that it has.
func (k *kept) tells(words ...string) (out []string) {
	for i := range k.events {
		e := &k.events[i]
		if !slices.Contains(words, e.Event) {
			continue
		}
		text := fmt.Sprintf("%s %d", e.Event, e.MonoNS/1e6)
		for _, n := range []struct {
			name string
			Number
		}{
			{"chunk", e.ChunkID},
			{"bytes", e.Bytes},
			{"off", e.Offset},
			{"samples", e.Samples},
			{"rate", e.Rate},
			{"chars", e.Chars},
			{"count", e.Count},
			{"wait", e.WaitNS},
		} {
			if v, ok := n.Get(); ok {
				text += fmt.Sprintf(" %s=%d", n.name, v)
			}
		}
		if e.Status != "" {
			text += " " + string(e.Status)
		}
		out = append(out, text)
	}
	return out
}

// What a record says of reasoning, of audio events without sound and of what is heard
// has its events: bytes and characters of a delta, never the text.
func TestEventsOfAnAnswer(t *testing.T) {
	k := &kept{}
	b := newTurn(k, nil)
	b.InServer(77)
	b.Asked("speech_stopped", 10*msec, 0)
	b.Also("created", 11*msec)
	b.Also("created", 12*msec) // the first stays
	b.Message(33, 13*msec, 40)
	b.Begin()
	at(b, 20).Event(&dialect.Event{Reasoning: []byte("näh"), Tokens: -1}, 100)
	at(b, 21).Event(&dialect.Event{Reasoning: []byte("!"), Tokens: -1}, 110)
	at(b, 30).Event(&dialect.Event{AudioTyped: true, Tokens: -1}, 200)
	at(b, 40).Event(spoken(2400, 24000), 900)
	at(b, 50).Event(spoken(2400, 24000), 1800)
	at(b, 60).Snapshot([]byte("one"), 1900)
	at(b, 61).Snapshot(nil, 1910)
	at(b, 70).Marker(2000)
	b.Finish()
	want := []string{
		"ingress 10 off=77 server", "ingress_alternative 11 created", "request_message 13 bytes=33 off=40",
		"reasoning_chunk 20 chunk=0 bytes=4 off=100 chars=3", "reasoning_chunk 21 chunk=1 bytes=1 off=110 chars=1",
		"empty_audio 30 chunk=0 off=200", "first_audio 40 off=900 samples=2400", "text_reset 61 chunk=1 off=1910",
		"heard_first 40 chunk=0 samples=1 rate=24000", "heard_last 50 chunk=1 samples=4800 rate=24000",
	}
	got := k.tells("ingress", EventAlternative, EventMessage, EventReasoning, EventEmptyAudio, "first_audio", EventTextReset, EventHeardFirst, EventHeardLast)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	r := k.record
	if r.Reasoning.Units != 2 || r.Reasoning.Chars != 4 || r.Audio.EmptyEvents != 1 || *r.AudibleS != 0.2 || *r.TextBytes != 0 || r.BytesUp != 33 {
		t.Errorf("record: %+v, %d empty, %v s heard, %d bytes of text, %d up", *r.Reasoning, r.Audio.EmptyEvents, *r.AudibleS, *r.TextBytes, r.BytesUp)
	}
	if r.Offsets.TIn != nil || *r.TInServerOffset != 77 {
		t.Errorf("t_in is byte %v of the client's stream, %d of the server's", r.Offsets.TIn, *r.TInServerOffset)
	}
}

// A write that was blocked is told once: with the first chunk that it completed, or
// together with others that completed none.
func TestEventsOfBlockedWrites(t *testing.T) {
	k := &kept{}
	cfg := Config{}.WithDefaults()
	b := New(&cfg, Identity{OwnID: "r"}, k, 10*msec, 1)
	b.Wrote(12*msec, 3)
	b.Wrote(13*msec, 4)
	b.Request("POST", "/v1/chat/completions", "application/json", "")
	at(b, 20).AnswerStart(20*msec, 1)
	b.AnswerHead(200, Answer{ContentType: "text/event-stream", Events: true})
	at(b, 30).Event(written("a"), 100)
	at(b, 30).Event(written("b"), 110)
	b.Wrote(40*msec, 5*msec)
	b.Wrote(41*msec, 0)
	b.Wrote(42*msec, 6)
	at(b, 50)
	b.Blocked(7)
	at(b, 60).Event(&dialect.Event{Done: true, Tokens: -1}, 200)
	b.Finish()
	want := []string{
		"client_wait 13 wait=7", "client_write 40 chunk=0 bytes=1 wait=5000000 text", "client_write 40 chunk=1 bytes=1 text",
		"client_wait 50 wait=13",
	}
	if d := cmp.Diff(want, k.tells("client_write", EventClientWait)); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	if got := *k.record.ClientWaitMS; got != 5.00002 {
		t.Errorf("client_wait_ms = %v", got)
	}
}

// Sound that is read ahead of the end of its chunk is told where the record rests on it.
func TestEventsOfSoundWithinChunks(t *testing.T) {
	k := &kept{}
	cfg := Config{}.WithDefaults()
	b := New(&cfg, Identity{OwnID: "r", Replay: true}, k, 10*msec, 1)
	b.Request("POST", "/v1/audio/speech", "application/json", "")
	at(b, 20).AnswerStart(20*msec, 1)
	b.AnswerHead(200, Answer{ContentType: "audio/pcm", Sound: true, Unit: "http_chunk", Rate: 24000, RateFrom: "header"})
	b.SoundStart()
	b.SoundChunkStart()
	p := tone(4800)
	at(b, 30).Sound(p[:2400], audio.Pos{Off: 100, Wire: true})
	at(b, 35).Sound(p[2400:], audio.Pos{Off: 2500, Wire: true})
	b.SoundChunkEnd(9700)
	b.SoundEnd(9700)
	b.Complete()
	b.Finish()
	want := []string{"first_audio 30 off=1059 samples=1200", "first_sound 30"}
	if d := cmp.Diff(want, k.tells("first_audio", EventFirstSound, EventLastSound)); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	if !*k.record.Incremental {
		t.Error("it came bit by bit")
	}
}
