package twin

import (
	"math"

	"gonum.org/v1/gonum/dsp/fourier"
)

// correlator finds lags by cross-correlation over the fast Fourier transform.
// Memory is some 60 bytes for each of its points, whatever the takes' lengths.
type correlator struct {
	a, b Take
	span int // lags from -span to span
	size int
	fft  *fourier.FFT
	x, y []float64
	fx   []complex128
	fy   []complex128
}

// newCorrelator returns a correlator that takes spans of the first take up to n
// frames at once.
func newCorrelator(a, b Take, n, span int) *correlator {
	size := 64
	for size < n+2*span {
		size *= 2
	}
	return &correlator{
		a: a, b: b, span: span, size: size, fft: fourier.NewFFT(size),
		x: make([]float64, size), y: make([]float64, size),
		fx: make([]complex128, size/2+1), fy: make([]complex128, size/2+1),
	}
}

// product reads n frames of the first take from a frame on, and of the second
// what may lie opposite around lag centre; it returns the product of their spectra.
func (c *correlator) product(from, n, centre int) []complex128 {
	c.a.read(c.x[:n], from, 0)
	clear(c.x[n:])
	c.b.read(c.y[:n+2*c.span], from+centre-c.span, 0)
	clear(c.y[n+2*c.span:])
	c.fft.Coefficients(c.fx, c.x)
	c.fft.Coefficients(c.fy, c.y)
	for i, v := range c.fx {
		c.fx[i] = complex(real(v), -imag(v)) * c.fy[i]
	}
	return c.fx
}

// probe returns the lag near centre at which n frames correlate best with the
// second take, and the correlation there. Of equals, as in a steady tone, the one
// nearest to centre counts.
func (c *correlator) probe(from, n, centre int) (lag int, best float64) {
	spectrum := c.product(from, n, centre)
	aa := energy(c.x[:n])
	bb := energy(c.y[:n])
	least := float64(n) * silent * silent / 16 // what is that quiet has no shape
	window := c.y[:n+2*c.span]                 // the transform below reuses x alone
	c.fft.Sequence(c.x, spectrum)
	for k := 0; k <= 2*c.span; k++ {
		if k > 0 {
			bb += window[k+n-1]*window[k+n-1] - window[k-1]*window[k-1]
		}
		if bb < least {
			continue
		}
		r := c.x[k] / float64(c.size) / math.Sqrt(aa*bb)
		l := centre - c.span + k
		if r > best+1e-9 || r > best-1e-9 && apart(l, centre) < apart(lag, centre) {
			lag, best = l, r
		}
	}
	return lag, min(best, 1)
}

// whole returns the lag at which the first la frames of the first take and the
// first lb of the second correlate best, with the correlation there and at 0. At
// least half of the shorter one overlaps.
func (c *correlator) whole(la, lb int) (lag int, best, zero float64) {
	sum := make([]complex128, len(c.fx))
	step := c.size - 2*c.span
	for from := 0; from < la; from += step {
		for i, v := range c.product(from, min(step, la-from), 0) {
			sum[i] += v
		}
	}
	c.fft.Sequence(c.x, sum)
	ea, eb := slide{t: c.a}, slide{t: c.b}
	for l := -c.span; l <= c.span; l++ {
		lo, hi := max(0, -l), min(la, lb-l)
		if 2*(hi-lo) < min(la, lb) {
			continue
		}
		d := math.Sqrt(ea.move(lo, hi) * eb.move(lo+l, hi+l))
		if d <= float64(hi-lo)*silent*silent/16 {
			continue
		}
		r := min(c.x[l+c.span]/float64(c.size)/d, 1)
		if l == 0 {
			zero = r
		}
		if r > best+1e-9 || r > best-1e-9 && apart(l, 0) < apart(lag, 0) {
			lag, best = l, r
		}
	}
	return lag, best, zero
}

// slide is the energy of a range of frames that moves by a few at a time.
type slide struct {
	t      Take
	lo, hi int
	sum    float64
}

func (s *slide) move(lo, hi int) float64 {
	if s.lo >= s.hi { // the first time
		s.lo, s.hi, s.sum = lo, hi, 0
		var x [block]float64
		for i := lo; i < hi; i += block {
			n := min(block, hi-i)
			s.t.read(x[:n], i, 0)
			s.sum += energy(x[:n])
		}
	}
	add := func(i int, sign float64) {
		v := s.t.at(i)
		s.sum += sign * v * v
	}
	for ; s.hi < hi; s.hi++ {
		add(s.hi, 1)
	}
	for ; s.lo > lo; s.lo-- {
		add(s.lo-1, 1)
	}
	for ; s.hi > hi; s.hi-- {
		add(s.hi-1, -1)
	}
	for ; s.lo < lo; s.lo++ {
		add(s.lo, -1)
	}
	return max(s.sum, 0)
}

func energy(x []float64) (e float64) {
	for _, v := range x {
		e += v * v
	}
	return e
}

func apart(a, b int) int { return max(a-b, b-a) }
