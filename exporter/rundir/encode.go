package rundir

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// AppendRecord appends a record's line to b, without its line feed. It fails on
// values that JSON cannot hold (NaN, infinity) and then returns b as it was.
func AppendRecord(b []byte, r *timeline.Record) ([]byte, error) {
	var buf bytes.Buffer
	if err := encodeLine(&buf, r); err != nil {
		return b, err
	}
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte{'\n'})...), nil
}

// AppendEvent appends an event's line to b, without its line feed: the bytes of
// encoding/json without HTML escapes. It is written out by hand because there is
// an event for every output chunk, on the path that bytes travel.
func AppendEvent(b []byte, e *timeline.Event) []byte {
	b = append(b, '{')
	b = text(b, `"run_id":`, e.RunID)
	b = member(b, `"request_id":`, e.RequestID)
	b = text(b, `"session_id":`, e.SessionID)
	b = text(b, `"stage":`, e.Stage)
	b = integer(b, `"attempt":`, int64(e.Attempt))
	b = number(b, `"chunk_id":`, e.ChunkID)
	b = member(b, `"event":`, e.Event)
	b = integer(b, `"mono_ns":`, e.MonoNS)
	b = number(b, `"wall_ns":`, e.WallNS)
	b = text(b, `"node":`, e.Node)
	b = text(b, `"device":`, e.Device)
	b = number(b, `"bytes":`, e.Bytes)
	b = number(b, `"batch":`, e.Batch)
	b = text(b, `"status":`, e.Status)
	b = optional(b, `"offset":`, e.Offset)
	b = optional(b, `"samples":`, e.Samples)
	b = optional(b, `"sample_rate":`, e.Rate)
	b = optional(b, `"channels":`, e.Channels)
	b = optionalText(b, `"transport":`, e.Transport)
	b = optionalText(b, `"peer":`, e.Peer)
	b = optionalText(b, `"match":`, e.Match)
	b = optional(b, `"chars":`, e.Chars)
	b = optional(b, `"wire_bytes":`, e.WireBytes)
	b = optional(b, `"count":`, e.Count)
	b = optional(b, `"wait_ns":`, e.WaitNS)
	b = optional(b, `"transfer":`, e.Transfer)
	b = optional(b, `"empty_polls":`, e.EmptyPolls)
	b = optional(b, `"cpu_ns":`, e.CPUNS)
	b = optional(b, `"runq_ns":`, e.RunqNS)
	b = optional(b, `"blocked_ns":`, e.BlockedNS)
	b[len(b)-1] = '}' // every member ends in a comma
	return b
}

func member(b []byte, key, value string) []byte {
	b = append(b, key...)
	b = appendString(b, value)
	return append(b, ',')
}

// null appends a member that does not apply.
func null(b []byte, key string) []byte {
	return append(append(b, key...), "null,"...)
}

func text(b []byte, key string, value timeline.Text) []byte {
	if value == "" {
		return null(b, key)
	}
	return member(b, key, string(value))
}

func number(b []byte, key string, value timeline.Number) []byte {
	v, ok := value.Get()
	if !ok {
		return null(b, key)
	}
	return integer(b, key, v)
}

func integer(b []byte, key string, value int64) []byte {
	b = append(b, key...)
	b = strconv.AppendInt(b, value, 10)
	return append(b, ',')
}

// optional leaves a member out that is not there.
func optional(b []byte, key string, value timeline.Number) []byte {
	v, ok := value.Get()
	if !ok {
		return b
	}
	return integer(b, key, v)
}

// optionalText leaves a member out that is not there.
func optionalText(b []byte, key string, value timeline.Text) []byte {
	if value == "" {
		return b
	}
	return member(b, key, string(value))
}

// appendString quotes as encoding/json does with SetEscapeHTML(false): invalid
// UTF-8 becomes U+FFFD, and the two line separators that JavaScript trips over
// are escaped.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	begin := 0
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			if c >= ' ' && c != '"' && c != '\\' {
				i++
				continue
			}
			b = append(b, s[begin:i]...)
			b = appendEscape(b, c)
			i++
			begin = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if bad := r == utf8.RuneError && size == 1; bad || r == '\u2028' || r == '\u2029' {
			b = append(b, s[begin:i]...)
			b = append(b, `\u`...)
			b = append(b, hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
			begin = i + size
		}
		i += size
	}
	b = append(b, s[begin:]...)
	return append(b, '"')
}

const hex = "0123456789abcdef"

func appendEscape(b []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(b, '\\', c)
	case '\b':
		return append(b, `\b`...)
	case '\f':
		return append(b, `\f`...)
	case '\n':
		return append(b, `\n`...)
	case '\r':
		return append(b, `\r`...)
	case '\t':
		return append(b, `\t`...)
	default:
		return append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
	}
}
