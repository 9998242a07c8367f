package timeline

import "github.com/omnitap/omnitap/proxy/wire/audio"

// Listener takes the sound of one exchange or turn as it is looked at, for whoever
// keeps it: nobody does unless asked to. Its methods are called by one goroutine
// at a time and must not wait.
type Listener interface {
	// Samples takes bytes of samples, cut anywhere; rate is what seconds are reckoned
	// with, in Hz. p is the caller's.
	Samples(f audio.Format, rate int, p []byte)
	// Chunk ends a logical chunk, as events and records count them.
	Chunk()
	// End ends the sound. r is the record that goes to the sink next; it is not
	// changed afterwards by the Builder.
	End(r *Record)
}

// Listen makes the Listener of an exchange whose first sound arrives, nil for none.
// id is the request's id as far as it is known; q the request, nil where it was not
// kept.
type Listen func(id string, q *Asked) Listener

// Asked is a request as it was sent: it holds prompts and keys.
type Asked struct {
	Method string
	// Target is the request line's, with its query.
	Target string
	// Header holds names and values in order.
	Header [][2]string
	// Body is the whole body without chunk borders.
	Body []byte
}

// Keeps reports whether a request with that id is to be kept as it was sent.
func (c *Config) Keeps(id string) bool { return c.Keep != nil && c.Keep(id) }

// Kept notes the request as it was sent.
func (b *Builder) Kept(q *Asked) { b.asks = q }

// listener makes who listens to the exchange's sound, nil for nobody.
func (b *Builder) listener() Listener {
	if b.cfg.Listen == nil {
		return nil
	}
	return b.cfg.Listen(b.requestID, b.asks)
}
