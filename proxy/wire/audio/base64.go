package audio

import (
	"encoding/base64"
	"errors"

	simd "github.com/segmentio/asm/base64"
)

// ErrBase64 says that a payload is no base64 of any alphabet in use.
var ErrBase64 = errors.New("malformed base64")

// Decode decodes one payload strictly into dst, which is grown as needed.
// lenient says that it was valid only in the URL-safe alphabet or without its
// padding. Anything else, white space included, is ErrBase64.
func Decode(dst, src []byte) (out []byte, lenient bool, err error) {
	if n := len(src)/4*3 + 3; cap(dst) < n { // room for any of the alphabets, padded or not
		dst = make([]byte, n)
	}
	dst = dst[:cap(dst)]
	if n, err := simd.StdEncoding.Decode(dst, src); err == nil && len(src)%4 == 0 && n == exactLen(src) {
		return dst[:n], false, nil
	}
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if n, err := enc.Strict().Decode(dst, src); err == nil && lineFree(src) {
			return dst[:n], true, nil
		}
	}
	return nil, false, ErrBase64
}

// exactLen is the decoded length of a padded text without line ends in it; a
// decoder that skipped some gives less.
func exactLen(src []byte) int {
	n := len(src) / 4 * 3
	for i := len(src) - 1; i >= 0 && src[i] == '=' && i >= len(src)-2; i-- {
		n--
	}
	return n
}

func lineFree(src []byte) bool {
	for _, c := range src {
		if c == '\n' || c == '\r' {
			return false
		}
	}
	return true
}
