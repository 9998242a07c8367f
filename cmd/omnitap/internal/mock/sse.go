package mock

import (
	"strings"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
)

const sseType = "text/event-stream; charset=utf-8"

var lineEnds = map[string]string{"lf": "\n", "crlf": "\r\n", "cr": "\r"}

// event renders one SSE event, with the faults that damage it.
func (x *exchange) event(name, data string) []byte {
	x.events++
	if x.events == 1 && x.f.Huge > len(data) && strings.HasPrefix(data, "{") {
		data = `{"pad":"` + strings.Repeat("x", x.f.Huge-len(data)) + `",` + data[1:]
	}
	if x.events == x.f.BadJSON {
		data = data[:len(data)/2]
	}
	eol := lineEnds[x.script.LineEnd]
	var b strings.Builder
	b.Grow(len(data) + 64)
	if name != "" {
		b.WriteString("event: " + name + eol)
	}
	prefix := "data: "
	if x.f.NoSpace {
		prefix = "data:"
	}
	for _, part := range x.dataLines(data) {
		b.WriteString(prefix)
		b.WriteString(part)
		b.WriteString(eol)
	}
	b.WriteString(eol)
	return []byte(b.String())
}

// dataLines cuts JSON behind its first two commas that are not in a string:
// the line feed that SSE puts there is white space to JSON.
func (x *exchange) dataLines(data string) []string {
	if !x.f.MultiLine {
		return []string{data}
	}
	var out []string
	from, quoted := 0, false
	for i := 0; i < len(data) && len(out) < 2; i++ {
		switch {
		case data[i] == '\\':
			i++
		case data[i] == '"':
			quoted = !quoted
		case data[i] == ',' && !quoted:
			out = append(out, data[from:i+1])
			from = i + 1
		}
	}
	return append(out, data[from:])
}

func (x *exchange) comment(text string) []byte {
	eol := lineEnds[x.script.LineEnd]
	return []byte(":" + text + eol + eol)
}

// ending wraps the end marker of a stream: missing, doubled, not the last.
func (x *exchange) ending(marker []byte, more func() plan.Piece) []plan.Piece {
	end := plan.Piece{Kind: plan.End, Data: marker, Raw: plan.NotRaw}
	var out []plan.Piece
	if !x.f.NoDone {
		out = append(out, end)
	}
	if x.f.DoubleDone {
		out = append(out, end)
	}
	if x.f.AfterDone {
		out = append(out, more())
	}
	return out
}

// plain renders the items that look alike in every dialect.
func (x *exchange) plain(it plan.Item) plan.Piece {
	p := plan.Piece{Kind: it.Kind, Wait: it.Wait, Data: []byte(it.Text), Raw: plan.NotRaw}
	if it.Kind == plan.Comment {
		p.Data = x.comment(it.Text)
	}
	return p
}

// file wraps samples in a WAV file as its declared shape and the faults say.
func (x *exchange) file(c plan.Chunk) []byte { return plan.File(&x.f, c) }

func (x *exchange) wavHeader(c plan.Chunk, size uint32) []byte { return plan.WAVHeader(&x.f, c, size) }

// payload is the JSON value of an audio event.
func (x *exchange) payload(it plan.Item, format string) string {
	return plan.Payload(&x.f, it, format == "wav")
}

// finish is the finish_reason as a JSON value.
func (x *exchange) finish() string {
	switch {
	case x.f.NoFinish:
		return "null"
	case x.f.EmptyFinish:
		return `""`
	}
	return quote(x.script.FinishReason)
}
