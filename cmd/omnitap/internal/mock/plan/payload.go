package plan

import (
	"encoding/base64"
	"strings"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/tone"
)

// File wraps samples in a WAV file as their declared shape and the faults say.
func File(f *script.Set, c Chunk) []byte {
	return append(WAVHeader(f, c, uint32(len(c.PCM))), c.PCM...)
}

// WAVHeader is the header of a file whose data has a size in bytes.
func WAVHeader(f *script.Set, c Chunk, size uint32) []byte {
	if f.Placeholder != nil {
		size = *f.Placeholder
	}
	h, err := tone.Header(c.Rate, c.Channels, size)
	if err != nil { // the encoder writes to memory
		return nil
	}
	return h
}

// Payload is the JSON value of an audio event: base64 of a WAV file or of bare
// samples.
func Payload(f *script.Set, it Item, wav bool) string {
	c := it.Audio
	if it.Kind == Empty {
		switch it.Text {
		case "null":
			return "null"
		case "header":
			return `"` + base64.StdEncoding.EncodeToString(File(f, c)) + `"`
		}
		return `""`
	}
	b := c.PCM
	if wav || f.HeaderEach {
		b = File(f, c)
	}
	return Encode(f, b, c.N)
}

// Encode is the JSON value of the bytes of audio chunk n, spoiled if a fault
// says so.
func Encode(f *script.Set, b []byte, n int) string {
	text := base64.StdEncoding.EncodeToString(b)
	if n == f.BadBase64 {
		text = damage(f.Base64Form, text)
	}
	return `"` + text + `"`
}

// damage spoils base64 as the fault says.
func damage(form, text string) string {
	half := len(text) / 2
	switch {
	case form == "urlsafe":
		return strings.NewReplacer("+", "-", "/", "_").Replace(text)
	case form == "unpadded":
		return strings.TrimRight(text, "=")
	case form == "newline":
		return text[:half] + `\n` + text[half:]
	case half > 0:
		return text[:half] + "*" + text[half+1:]
	}
	return text
}

// Late are samples of value 1, for audio behind an end.
func Late(channels, frames int) []byte {
	var out []byte
	for range frames * channels {
		out = append(out, 1, 0)
	}
	return out
}
