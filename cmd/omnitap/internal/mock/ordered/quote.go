package ordered

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Quote writes a JSON string as pydantic and orjson do: UTF-8 stays, only
// what must be escaped is.
func Quote(s string) string {
	var b strings.Builder
	b.Grow(len(s) + 2)
	b.WriteByte('"')
	for _, r := range s {
		escape(&b, r)
	}
	b.WriteByte('"')
	return b.String()
}

// QuoteASCII writes a JSON string as Python's json.dumps does: all beyond
// ASCII as \u escapes.
func QuoteASCII(s string) string {
	var b strings.Builder
	b.Grow(len(s) + 2)
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r < utf8.RuneSelf:
			escape(&b, r)
		case r > 0xFFFF:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

var short = map[rune]string{'"': `\"`, '\\': `\\`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}

func escape(b *strings.Builder, r rune) {
	if s, ok := short[r]; ok {
		b.WriteString(s)
	} else if r < 0x20 {
		fmt.Fprintf(b, `\u%04x`, r)
	} else {
		b.WriteRune(r)
	}
}
