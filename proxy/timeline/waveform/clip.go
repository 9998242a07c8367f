package waveform

// clip counts sample frames in runs at full scale.
type clip struct {
	run   int
	total int64
	at    place // where the first run is
}

// clipRun is how many frames in a row at full scale are clipped: a peak alone may
// lie there.
const clipRun = 3

func (c *clip) add(x []int16, at place) {
	for i, v := range x {
		if magnitude(v) < full {
			c.run = 0
			continue
		}
		switch c.run++; {
		case c.run > clipRun:
			c.total++
		case c.run == clipRun:
			if c.total == 0 {
				c.at = place{at.chunk, at.frame + int64(i) - clipRun + 1}
			}
			c.total += clipRun
		}
	}
}

// finding is measured as a share of all frames.
func (c *clip) finding(cfg *Config, frames int64) Finding {
	share := float64(c.total) / float64(max(1, frames))
	if share > cfg.ClippedShare {
		return failed("clipping", c.at, share, cfg.ClippedShare, "%d of %d sample frames are at full scale, in runs of %d or more", c.total, frames, clipRun)
	}
	return passed("clipping", share, cfg.ClippedShare)
}
