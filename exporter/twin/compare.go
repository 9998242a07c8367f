package twin

import (
	"math"
	"strconv"
)

// Bounds of a comparison.
const (
	// maxSeconds and maxFrames bound what is compared of the stream: the first
	// 120 s, and no more than they are at 48 kHz.
	maxSeconds = 120
	maxFrames  = maxSeconds * 48000
	// maxSpan bounds the search for a lag: 1 s either way, which holds a chunk of
	// 0.8 s, and no more than it is at 96 kHz.
	maxSpan = 96000
	// maxBreaks bounds the breaks that are listed; the rest is counted.
	maxBreaks = 8
	// oneTake is the correlation from which two takes are one.
	oneTake = 0.98
	// silent is the level below which there is no shape to compare: -60 dBFS.
	silent = 1e-3
	// block is how many frames are decoded at a time.
	block = 1024
)

// Comparison is what two takes have in common. Frames are sample frames.
type Comparison struct {
	// Came and Twin are the frames of the stream and of its twin, CameRate and
	// TwinRate the rates that their seconds are reckoned with, in Hz.
	Came, Twin         int64
	CameRate, TwinRate int
	// Difference is how much longer the twin plays than the stream, in seconds:
	// above 0 the stream is short. Share is the same of the twin's length, at most 1
	// where the stream is short.
	Difference, Share float64

	// Why says why samples were not compared, empty where they were; what follows is
	// 0 then.
	Why string
	// Compared is the number of the stream's frames that were compared, all or the
	// first 120 s.
	Compared int64
	// Lag is where the takes as a whole correlate best, in samples: frame i of the
	// stream lies at frame i+Lag of the twin. Correlation is the normalised
	// cross-correlation there and Unshifted the one at lag 0, both of the first
	// channel.
	Lag                    int
	Correlation, Unshifted float64

	// Aligned is the correlation where each piece of the stream lies opposite to its
	// own in the twin, and Matched the number of the stream's frames in such pieces.
	Aligned float64
	Matched int64
	// OneTake says that the two are the same take: aligned they correlate at 0.98 or
	// more, over at least half of the shorter one. What follows is 0 otherwise.
	OneTake bool
	// MaxError and RMSError are the differences in matched pieces, of full scale;
	// MaxErrorAt is the stream's frame of the largest one.
	MaxError, RMSError float64
	MaxErrorAt         int64
	// Breaks holds the first few places where matched pieces end, BreakCount is how
	// many there are, and BreakSamples how many samples they concern.
	Breaks       []Break
	BreakCount   int
	BreakSamples int64
}

// Break is a place where a stream stops being its twin.
type Break struct {
	// Frame is the first frame of the stream that does not agree. Where a sample
	// behind the break equals the one it stands for, it is the first that does not.
	Frame int64
	// Missing is the number of the twin's samples that the stream has not; below 0,
	// of samples that were put in: the change of lag behind the break.
	Missing int64
	// Changed is the number of samples that stand in place of others.
	Changed int64
}

// Compare compares the sound that came as a stream with that of its twin. At most
// the first 120 s are compared, of the first channel, and of all channels where
// both takes have as many. Lags are searched up to 1 s either way of where the
// takes agreed last, and where their ends lie opposite.
//
// A tone that stays the same agrees with itself at many lags: how much is missing
// of it is known only up to its period. Memory is 12 MiB at 24 kHz, 24 at 48 kHz and 48
// at most, on top of the takes.
func Compare(came, twin Take) Comparison {
	c := Comparison{Came: int64(came.Frames()), Twin: int64(twin.Frames())}
	c.CameRate, c.TwinRate = rates(came, twin)
	switch {
	case c.Came == 0 && len(came.Samples) > 0, c.Twin == 0 && len(twin.Samples) > 0:
		c.Why = "sound that is not decoded"
		return c
	case c.Twin == 0:
		c.Why = "the twin has no samples"
		return c
	case c.CameRate <= 0 || c.TwinRate <= 0:
		c.Why = "no sample rate is known"
		return c
	}
	c.Difference = float64(c.Twin)/float64(c.TwinRate) - float64(c.Came)/float64(c.CameRate)
	c.Share = c.Difference / (float64(c.Twin) / float64(c.TwinRate))
	switch {
	case c.CameRate != c.TwinRate:
		c.Why = "one take is at " + hertz(c.CameRate) + ", the other at " + hertz(c.TwinRate)
	case c.Came == 0:
		c.Why = "no samples came"
	default:
		c.samples(came, twin)
	}
	return c
}

func hertz(n int) string { return strconv.Itoa(n) + " Hz" }

// rates returns what seconds are reckoned with. A server may declare the rate of
// its stream and not that of a whole answer: the two are of one request.
func rates(came, twin Take) (int, int) {
	a, b := came.Format.Rate, twin.Format.Rate
	switch {
	case a == 0 && b == 0:
		return came.Rate, came.Rate
	case a == 0:
		return b, b
	case b == 0:
		return a, a
	}
	return a, b
}

// samples compares takes of one rate.
func (c *Comparison) samples(came, twin Take) {
	rate := c.CameRate
	n := min(int(c.Came), min(rate, maxFrames/maxSeconds)*maxSeconds)
	c.Compared = int64(n)
	span := min(rate, maxSpan, max(n, int(c.Twin)))
	whole := newCorrelator(came, twin, min(n, 2*span), span)
	c.Lag, c.Correlation, c.Unshifted = whole.whole(n, min(int(c.Twin), n+span))
	w := newWalk(came, twin, n, span, rate)
	w.run()
	c.judge(came, twin, w)
}

// judge tells from the matched pieces whether the takes are one, and where not.
func (c *Comparison) judge(came, twin Take, w *walk) {
	var s sums
	for _, p := range w.pieces {
		c.Matched += int64(p.to - p.from)
		s.add(came, twin, p)
	}
	c.Aligned = s.correlation()
	shorter := min(c.Compared, c.Twin)
	c.OneTake = c.Matched > 0 && 2*c.Matched >= shorter && c.Aligned >= oneTake
	if !c.OneTake {
		return
	}
	c.MaxError, c.MaxErrorAt, c.RMSError = s.most, int64(s.mostAt), math.Sqrt(s.err/float64(s.n))
	c.breaks(w)
}

// breaks lists what lies between the matched pieces, ahead of and behind them.
func (c *Comparison) breaks(w *walk) {
	from, opposite := 0, 0 // where the piece before ended in the stream and in the twin
	note := func(a, b int) {
		came, twin := a-from, b-opposite
		if came == 0 && twin == 0 {
			return
		}
		k := Break{Frame: int64(from), Missing: int64(twin - came), Changed: int64(max(0, min(came, twin)))}
		c.BreakCount++
		c.BreakSamples += max(k.Missing, -k.Missing) + k.Changed
		if len(c.Breaks) < maxBreaks {
			c.Breaks = append(c.Breaks, k)
		}
	}
	for _, p := range w.pieces {
		note(p.from, p.from+p.lag)
		from, opposite = p.to, p.to+p.lag
	}
	switch {
	case c.Compared == c.Came:
		note(int(c.Came), int(c.Twin))
	case from < int(c.Compared): // what follows was not compared
		note(int(c.Compared), min(int(c.Twin), opposite+int(c.Compared)-from))
	}
}

// sums are the moments of matched pieces.
type sums struct {
	ab, aa, bb, err float64
	n               int
	most            float64
	mostAt          int
}

// add takes a piece, of all channels where both takes have as many.
func (s *sums) add(a, b Take, p piece) {
	channels := 1
	if a.Format.Channels == b.Format.Channels {
		channels = a.Format.Channels
	}
	var x, y [block]float64
	for ch := range channels {
		for from := p.from; from < p.to; from += block {
			n := min(block, p.to-from)
			a.read(x[:n], from, ch)
			b.read(y[:n], from+p.lag, ch)
			s.look(x[:n], y[:n], from)
		}
	}
}

func (s *sums) look(x, y []float64, at int) {
	for i, v := range x {
		d := v - y[i]
		s.ab += v * y[i]
		s.aa += v * v
		s.bb += y[i] * y[i]
		s.err += d * d
		if d = math.Abs(d); d > s.most {
			s.most, s.mostAt = d, at+i
		}
	}
	s.n += len(x)
}

// correlation is 1 for pieces without a shape that are the same all the same.
func (s *sums) correlation() float64 {
	if s.quiet() {
		if s.n > 0 && s.most <= same {
			return 1
		}
		return 0
	}
	return max(0, min(s.ab/math.Sqrt(s.aa*s.bb), 1))
}

// quiet reports whether one of the two has no shape.
func (s *sums) quiet() bool { return min(s.aa, s.bb) <= float64(s.n)*silent*silent/16 }
