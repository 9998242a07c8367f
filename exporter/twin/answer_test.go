package twin

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/proxy/wire/audio"
)

// wav makes a file of 16-bit samples; its header declares size data bytes, below 0
// the true number.
func wav(pcm []byte, rate, channels, size int) []byte {
	if size < 0 {
		size = len(pcm)
	}
	le := binary.LittleEndian
	b := le.AppendUint32([]byte("RIFF"), uint32(36+size))
	b = le.AppendUint32(append(b, "WAVEfmt "...), 16)
	b = le.AppendUint16(le.AppendUint16(b, 1), uint16(channels))
	b = le.AppendUint32(le.AppendUint32(b, uint32(rate)), uint32(rate*2*channels))
	b = le.AppendUint16(le.AppendUint16(b, uint16(2*channels)), 16)
	return append(le.AppendUint32(append(b, "data"...), uint32(size)), pcm...)
}

func TestDecode(t *testing.T) {
	pcm := []byte{1, 0, 2, 0, 3, 0, 4, 0}
	b64 := base64.StdEncoding.EncodeToString
	chat := func(audio string) []byte {
		return []byte(`{"object":"chat.completion","choices":[{"index":0,"message":{"content":"Hey","audio":null}},{"index":0,"message":{"audio":{"data":"` + audio + `"}}}]}`)
	}
	head := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return h
	}
	s16 := func(rate, channels int) audio.Format {
		return audio.Format{Encoding: audio.S16LE, Rate: rate, Channels: channels}
	}
	for _, v := range []struct {
		name string
		head http.Header
		body []byte
		want audio.Format
		err  error
	}{
		{"wav", head("Content-Type", "audio/wav"), wav(pcm, 24000, 1, -1), s16(24000, 1), nil},
		{"wav of a size not known", head("Content-Type", "audio/wav"), wav(pcm, 16000, 2, 0x7fffffff), s16(16000, 2), nil},
		{"wav without a label", head("Content-Type", "application/octet-stream"), wav(pcm, 16000, 2, -1), s16(16000, 2), nil},
		{"wav labelled mp3", head("Content-Type", "audio/mpeg"), wav(pcm, 16000, 2, -1), s16(16000, 2), nil},
		{"pcm", head("Content-Type", "audio/pcm"), pcm, s16(0, 1), nil},
		{"pcm with headers", head("Content-Type", "audio/pcm", "X-Sample-Rate", "44100", "X-Channels", "2"), pcm, s16(44100, 2), nil},
		{"pcm with a rate", head("Content-Type", "audio/pcm; rate=8000; channels=2"), pcm, s16(8000, 2), nil},
		{"L16", head("Content-Type", "audio/L16;rate=8000"), pcm, audio.Format{Encoding: audio.S16BE, Rate: 8000, Channels: 1}, nil},
		{"chat", head("Content-Type", "application/json"), chat(b64(wav(pcm, 24000, 1, -1))), s16(24000, 1), nil},
		{"chat, bare samples", head("Content-Type", "application/json; charset=utf-8"), chat(b64(pcm)), s16(0, 1), nil},
		{"wav that is cut", head("Content-Type", "audio/wav"), wav(pcm, 24000, 1, 10), audio.Format{}, ErrMalformed},
		{"two files", head("Content-Type", "audio/wav"), append(wav(pcm, 24000, 1, -1), wav(pcm, 24000, 1, -1)...), audio.Format{}, ErrMalformed},
		{"half a frame", head("Content-Type", "audio/pcm"), pcm[:7], audio.Format{}, ErrMalformed},
		{"no wav", head("Content-Type", "audio/wav"), pcm, audio.Format{}, ErrMalformed},
		{"mp3", head("Content-Type", "audio/mpeg"), []byte("ID3abcdefghijkl"), audio.Format{}, ErrFormat},
		{"flac in a chat", head("Content-Type", "application/json"), chat(b64([]byte("fLaCabcdefgh"))), audio.Format{}, ErrFormat},
		{"gzip", head("Content-Type", "audio/pcm", "Content-Encoding", "gzip"), pcm, audio.Format{}, ErrFormat},
		{"events", head("Content-Type", "text/event-stream"), []byte("data: {}\n\n"), audio.Format{}, ErrStreamed},
		{"page", head("Content-Type", "text/html"), pcm, audio.Format{}, ErrNoSound},
		{"empty", head("Content-Type", "audio/pcm"), nil, audio.Format{}, ErrNoSound},
		{"text alone", head("Content-Type", "application/json"), []byte(`{"object":"chat.completion","choices":[{"message":{"content":"Hey"}}]}`), audio.Format{}, ErrNoSound},
		{"bad base64", head("Content-Type", "application/json"), chat("*"), audio.Format{}, ErrMalformed},
		{"bad JSON", head("Content-Type", "application/json"), []byte(`{"a"`), audio.Format{}, ErrMalformed},
	} {
		got, err := decode(v.head, v.body)
		if !errors.Is(err, v.err) {
			t.Errorf("%s: %v, want %v", v.name, err, v.err)
		}
		if err != nil {
			continue
		}
		if d := cmp.Diff(Take{Format: v.want, Rate: v.want.Rate, Samples: pcm}, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", v.name, d)
		}
	}
	_, err := decode(head("Content-Type", "application/json"), []byte(`{"error":{"message":"the prompt","code":503}}`))
	if e, ok := errors.AsType[*StatusError](err); !ok || e.Code != 503 {
		t.Errorf("an error in an answer: %v", err)
	}
}
