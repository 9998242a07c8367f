package waveform

import "math"

// offset finds a constant offset (DC): a mean that nearly all windows share. The
// mean of a slow curve is none, so the windows' means must agree.
type offset struct {
	n, sum, sq float64
}

func (o *offset) add(w window) {
	n := float64(w.n)
	o.n += n
	o.sum += n * w.mean
	o.sq += n * w.mean * w.mean
}

// agree is how many times the spread of the windows' means an offset must be.
const agree = 4

// offsetNeeds is how many seconds of sound it takes: a slow curve looks like an
// offset in less.
const offsetNeeds = 1

// finding is measured in parts of full scale.
func (o *offset) finding(cfg *Config, rate int) Finding {
	if o.n < offsetNeeds*float64(rate) {
		return notMeasured("dc_offset", "less than a second of sound")
	}
	mean := o.sum / max(1, o.n)
	spread := math.Sqrt(max(0, o.sq/max(1, o.n)-mean*mean))
	if v := math.Abs(mean); v > cfg.DCOffset && v > agree*spread {
		return failed("dc_offset", place{}, v, cfg.DCOffset, "a constant offset of %.4f of full scale, %g at most", mean, cfg.DCOffset)
	}
	return passed("dc_offset", math.Abs(mean), cfg.DCOffset)
}
