package session

import "encoding/binary"

// vad is a voice detector for s16le mono: a window is loud or it is not.
type vad struct {
	rate      int // Hz
	silenceMS int // that ends speech

	buf      []byte
	atMS     int // end of what was judged
	speaking bool
	loudMS   int // end of the last loud window
}

const (
	windowMS  = 32
	paddingMS = 300 // that speech is taken to have begun earlier
	loud      = 300 // mean absolute value of a window
)

// speech is a change that the detector saw.
type speech struct {
	started bool
	ms      int // start or end, in audio time
}

// feed takes audio and returns the changes in it.
func (v *vad) feed(pcm []byte) []speech {
	v.buf = append(v.buf, pcm...)
	var out []speech
	for size := v.rate * windowMS / 1000 * 2; len(v.buf) >= size; v.buf = v.buf[size:] {
		isLoud := level(v.buf[:size]) > loud
		v.atMS += windowMS
		switch {
		case isLoud && !v.speaking:
			v.speaking = true
			out = append(out, speech{started: true, ms: max(0, v.atMS-windowMS-paddingMS)})
		case !isLoud && v.speaking && v.atMS-v.loudMS >= v.silenceMS:
			v.speaking = false
			out = append(out, speech{ms: v.loudMS})
		}
		if isLoud {
			v.loudMS = v.atMS
		}
	}
	return out
}

// level is the mean absolute value of samples.
func level(pcm []byte) int {
	sum := 0
	for i := 0; i+1 < len(pcm); i += 2 {
		n := int(int16(binary.LittleEndian.Uint16(pcm[i:])))
		sum += max(n, -n)
	}
	return sum * 2 / max(len(pcm), 1)
}
