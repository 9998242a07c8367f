package tap

import (
	"errors"
	"fmt"
	"io"

	"github.com/omnitap/omnitap/proxy/tap/capture"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// Replay reads a capture and sends the records of its exchanges to sink, the
// same each time. id identifies the connection; names of exchanges without an
// id of their own count from it. A damaged line ends the reading: what came
// before it stands, and the error names it.
func Replay(cfg *Config, r io.Reader, id timeline.Identity, sink timeline.Sink) (*capture.Header, error) {
	in, head, err := capture.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("reading a capture: %w", err)
	}
	base := int64(1) // a stamp of 0 means that there is none
	if head.T0MonoNS != nil {
		base = *head.T0MonoNS
		if head.T0WallNS != nil {
			off := *head.T0WallNS - base
			id.WallOffset = &off
		}
	}
	id.Kernel = head.Stamp == "kernel"
	c := NewConn(cfg, func(n int) timeline.Identity {
		id := id
		id.OwnID = fmt.Sprintf("%s-%d", id.OwnID, n)
		return id
	}, sink, nil, true)
	last, err := feed(c, in, base)
	c.stop(last)
	return head, err
}

func feed(c *Conn, in *capture.Reader, base int64) (last int64, err error) {
	last = base
	for {
		e, err := in.Read()
		if errors.Is(err, io.EOF) {
			return last, nil
		}
		if err != nil {
			return last, fmt.Errorf("reading a capture: %w", err)
		}
		dir := Client
		if e.Dir == 's' {
			dir = Server
		}
		last = base + e.NS
		switch e.End {
		case "fin":
			c.End(dir, timeline.FIN, last)
		case "rst":
			c.End(dir, timeline.RST, last)
		default:
			c.Bytes(dir, e.Data, last, 0)
		}
	}
}

// stop ends the reading where a capture ends without the connection's end.
func (c *Conn) stop(mono int64) {
	if c.closed[Client] == timeline.Open && c.closed[Server] == timeline.Open {
		c.each(func(b *timeline.Builder) { b.CaptureEnds(mono) })
		if c.socket != nil {
			c.socket.ses.CaptureEnds(mono)
		}
	}
	c.Close(mono)
}
