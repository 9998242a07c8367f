package event

import (
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"
)

// AppendJSON appends the event as one line of raw.jsonl, without the line's end. An
// Unknown event keeps the name that stands in Path, and no arguments.
func (e *Event) AppendJSON(b []byte) []byte {
	b = appendInt(b, `{"mono_ns":`, e.MonoNS)
	b = appendInt(b, `,"pid":`, int64(e.PID))
	b = appendInt(b, `,"tid":`, int64(e.TID))
	b = appendString(append(b, `,"comm":`...), e.Comm)
	b = append(b, `,"probe":`...)
	if e.Probe.String() == "unknown" {
		b = appendString(b, e.Path)
		return append(b, `,"args":{}}`...)
	}
	b = appendString(b, e.Probe.String())
	b = append(b, `,"args":{`...)
	start := len(b)
	for _, a := range specs[e.Probe].args {
		if a.optional && e.isZero(a.in) {
			continue
		}
		if len(b) > start {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = append(b, a.name...)
		b = append(b, `":`...)
		b = e.appendValue(b, a.in)
	}
	return append(b, "}}"...)
}

// isZero says whether an optional argument has nothing to say.
func (e *Event) isZero(in field) bool {
	switch in {
	case inPath:
		return e.Path == ""
	case inTail:
		return len(e.Tail) == 0
	default:
		return e.number(in) == 0
	}
}

// number is the value of a field that holds one.
func (e *Event) number(in field) int64 {
	switch in {
	case inEnter:
		return e.EnterNS
	case inFD:
		return int64(e.FD)
	case inRet:
		return e.Ret
	case inFlags:
		return e.Flags
	case inSize:
		return e.Size
	case inCount:
		return e.Count
	case inMsgType:
		return int64(e.MsgType)
	default:
		return e.Args[in-inArgs]
	}
}

func (e *Event) appendValue(b []byte, in field) []byte {
	switch in {
	case inPath:
		return appendString(b, e.Path)
	case inSource:
		source, _, _ := strings.Cut(e.Path, " ")
		return appendString(b, source)
	case inDestination:
		_, destination, _ := strings.Cut(e.Path, " ")
		return appendString(b, destination)
	case inCall:
		return appendString(b, e.Call)
	case inSock:
		b = append(b, `"0x`...)
		b = strconv.AppendUint(b, e.Sock, 16)
		return append(b, '"')
	case inMore:
		return strconv.AppendBool(b, e.More)
	case inHead:
		return appendBase64(b, e.Head)
	case inTail:
		return appendBase64(b, e.Tail)
	default:
		return strconv.AppendInt(b, e.number(in), 10)
	}
}

func appendInt(b []byte, key string, n int64) []byte {
	return strconv.AppendInt(append(b, key...), n, 10)
}

func appendBase64(b, data []byte) []byte {
	b = append(b, '"')
	b = base64.StdEncoding.AppendEncode(b, data)
	return append(b, '"')
}

const hexDigits = "0123456789abcdef"

// appendString writes a JSON string. File and process names are bytes: a byte that
// is no UTF-8 is written as the lone surrogate U+DC80…U+DCFF, as Python does
// (PEP 383), so that it comes back.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	plain := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= 0x20 && c != '"' && c != '\\' {
				i++
				continue
			}
			b = append(b, s[plain:i]...)
			b = appendEscape(b, c)
			i++
			plain = i
			continue
		}
		if r, n := utf8.DecodeRuneInString(s[i:]); r != utf8.RuneError || n > 1 {
			i += n
			continue
		}
		b = append(b, s[plain:i]...)
		b = append(b, `\udc`...)
		b = append(b, hexDigits[c>>4], hexDigits[c&15])
		i++
		plain = i
	}
	b = append(b, s[plain:]...)
	return append(b, '"')
}

func appendEscape(b []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(b, '\\', c)
	case '\n':
		return append(b, `\n`...)
	case '\r':
		return append(b, `\r`...)
	case '\t':
		return append(b, `\t`...)
	default:
		return append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
	}
}
