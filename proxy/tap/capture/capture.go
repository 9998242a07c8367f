// Package capture writes and reads the bytes of connections as they were read:
// NAME.wire.jsonl, one file a connection (records.md section 4). It is how a bad
// stream is sent in, and how real traffic becomes a test.
//
// It keeps what it is given: prompts, sound and keys are in it. It is never
// written unless asked for.
package capture

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Header is a capture's first line. Keys that are not known are kept in Rest.
type Header struct {
	Capture  int    `json:"capture"`
	Server   string `json:"server,omitempty"`
	Version  string `json:"version,omitempty"`
	Flow     string `json:"flow,omitempty"`
	What     string `json:"what,omitempty"`
	Stamp    string `json:"stamp,omitempty"`
	T0WallNS *int64 `json:"t0_wall_ns,omitempty"`
	T0MonoNS *int64 `json:"t0_mono_ns,omitempty"`

	Rest map[string]json.RawMessage `json:"-"`
}

// Event is one line behind the header: bytes of one read, or an end.
type Event struct {
	// NS counts from the connection's first event.
	NS int64
	// Dir is c for the client's bytes, s for the server's.
	Dir byte
	// Data are the bytes of one read, valid until the next Read.
	Data []byte
	// End is fin, rst, or empty for data.
	End string
}

// ErrNoCapture says that a file is no capture.
var ErrNoCapture = errors.New("no capture")

// DamagedError says that a line could not be read; the lines before it stand.
type DamagedError struct {
	Line int
	Err  error
}

func (e *DamagedError) Error() string { return fmt.Sprintf("line %d is damaged: %v", e.Line, e.Err) }

// Unwrap returns what is wrong with the line.
func (e *DamagedError) Unwrap() error { return e.Err }

// maxLine bounds a line: one read is far smaller.
const maxLine = 1 << 30

// Reader reads a capture.
type Reader struct {
	s    *bufio.Scanner
	line int
	data []byte
}

// NewReader reads the header. Anything but a capture's is ErrNoCapture.
func NewReader(r io.Reader) (*Reader, *Header, error) {
	c := &Reader{s: bufio.NewScanner(r)}
	c.s.Buffer(make([]byte, 0, 64<<10), maxLine)
	if !c.s.Scan() {
		return nil, nil, ErrNoCapture
	}
	c.line = 1
	h := &Header{}
	if json.Unmarshal(c.s.Bytes(), h) != nil || h.Capture != 1 {
		return nil, nil, ErrNoCapture
	}
	if err := json.Unmarshal(c.s.Bytes(), &h.Rest); err != nil {
		return nil, nil, ErrNoCapture
	}
	return c, h, nil
}

// Read returns the next event, io.EOF at the end, or a DamagedError.
func (c *Reader) Read() (Event, error) {
	if !c.s.Scan() {
		if err := c.s.Err(); err != nil {
			return Event{}, &DamagedError{c.line + 1, err}
		}
		return Event{}, io.EOF
	}
	c.line++
	var l struct {
		NS    *int64 `json:"t_ns"`
		Dir   string `json:"dir"`
		B64   []byte `json:"b64"`
		Event string `json:"event"`
	}
	l.B64 = c.data[:0]
	if err := json.Unmarshal(c.s.Bytes(), &l); err != nil {
		return Event{}, &DamagedError{c.line, err}
	}
	if l.NS == nil || l.Dir != "c" && l.Dir != "s" || l.Event != "" && l.Event != "fin" && l.Event != "rst" || (l.Event == "") == (len(l.B64) == 0) {
		return Event{}, &DamagedError{c.line, errors.New("needs t_ns, dir c or s, and b64 or event")}
	}
	c.data = l.B64
	return Event{NS: *l.NS, Dir: l.Dir[0], Data: l.B64, End: l.Event}, nil
}

// Writer writes a capture. It is not safe for concurrent use.
type Writer struct {
	w   io.Writer
	buf []byte
}

// NewWriter writes the header.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	h.Capture = 1
	b, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("writing a capture's header: %w", err)
	}
	if _, err := w.Write(append(b, '\n')); err != nil {
		return nil, fmt.Errorf("writing a capture's header: %w", err)
	}
	return &Writer{w: w}, nil
}

// Data writes the bytes of one read.
func (c *Writer) Data(ns int64, dir byte, p []byte) error {
	c.start(ns, dir)
	c.buf = append(c.buf, `","b64":"`...)
	c.buf = base64.StdEncoding.AppendEncode(c.buf, p)
	return c.end()
}

// End writes that a side ended: fin or rst.
func (c *Writer) End(ns int64, dir byte, how string) error {
	c.start(ns, dir)
	c.buf = append(c.buf, `","event":"`...)
	c.buf = append(c.buf, how...)
	return c.end()
}

func (c *Writer) start(ns int64, dir byte) {
	c.buf = append(c.buf[:0], `{"t_ns":`...)
	c.buf = strconv.AppendInt(c.buf, ns, 10)
	c.buf = append(c.buf, `,"dir":"`...)
	c.buf = append(c.buf, dir)
}

func (c *Writer) end() error {
	c.buf = append(c.buf, "\"}\n"...)
	if _, err := c.w.Write(c.buf); err != nil {
		return fmt.Errorf("writing a capture: %w", err)
	}
	return nil
}
