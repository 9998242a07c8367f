package upstream

import (
	"bytes"
	"strings"
)

// toText turns OpenMetrics into Prometheus text, which is what expfmt has a parser for: a
// counter's TYPE names its sample (`x_total`), types that text does not know become gauges or
// untyped, exemplars, timestamps and UNIT lines go. What is not OpenMetrics comes out as it
// was, for the parser to complain of.
func toText(body []byte) []byte {
	var out bytes.Buffer
	out.Grow(len(body))
	for line := range bytes.Lines(body) {
		line = bytes.TrimRight(line, "\r\n")
		if bytes.Equal(line, []byte("# EOF")) {
			break
		}
		switch {
		case bytes.HasPrefix(line, []byte("# TYPE ")):
			out.WriteString(typeLine(string(line)))
		case bytes.HasPrefix(line, []byte("#")): // HELP and UNIT: neither is kept
		default:
			out.Write(sampleLine(line))
		}
		out.WriteByte('\n')
	}
	return out.Bytes()
}

func typeLine(line string) string {
	f := strings.Fields(line)
	if len(f) != 4 {
		return line
	}
	name, kind := f[2], f[3]
	switch kind {
	case "counter":
		name = strings.TrimSuffix(name, "_total") + "_total"
	case "unknown":
		kind = "untyped"
	case "info":
		name, kind = name+"_info", "gauge"
	case "stateset":
		kind = "gauge"
	case "gaugehistogram":
		return "" // its samples stay, untyped: they fall as they like
	}
	return "# TYPE " + name + " " + kind
}

// sampleLine keeps the name, the labels and the value.
func sampleLine(line []byte) []byte {
	end := bytes.IndexByte(line, ' ') // of name and labels
	if open := bytes.IndexByte(line, '{'); open >= 0 && (end < 0 || open < end) {
		end = closing(line, open) + 1
	}
	if end <= 0 || end >= len(line) {
		return line
	}
	f := bytes.Fields(line[end:])
	if len(f) == 0 {
		return line
	}
	return append(append(bytes.Clone(line[:end]), ' '), f[0]...)
}

// closing is the index of the brace that closes the one at open, outside quotes; the line's
// last byte where there is none.
func closing(line []byte, open int) int {
	quoted := false
	for i := open + 1; i < len(line); i++ {
		switch c := line[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == '}' && !quoted:
			return i
		}
	}
	return len(line) - 1
}
