package twin

const (
	// same is how far samples may lie apart that count as equal: two steps of 16 bits.
	same = 2.0 / 32768
	// giveUp is how many probes in a row may find nothing, before anything was found
	// giveUpEarly; maxProbes is how many there may be in all.
	giveUp      = 32
	giveUpEarly = 12
	maxProbes   = 2000
)

// piece is a part of the stream that agrees with its twin: frame i of it lies at
// frame i+lag there.
type piece struct{ from, to, lag int }

// walk goes along the stream window by window and keeps the lag at which it agrees
// with the twin. Where it stops agreeing, a probe behind that place looks for the
// lag that holds from there on, and locate for the frame where it changed.
type walk struct {
	a, b         Take
	la, lb       int // frames, of the stream those that are compared
	window, long int // frames of a window and of a probe
	cor          *correlator

	pieces []piece
	from   int     // where the piece at hand starts
	lag    int     // its lag
	sure   int     // up to where it surely agrees
	open   bool    // it stopped agreeing
	heard  bool    // there was a window that is not silent
	noise  float64 // mean square of what differs where the takes agree
	misses int     // probes in a row that found nothing
	probes int
	next   int // no probe ahead of this frame
}

func newWalk(a, b Take, la, span, rate int) *walk {
	w := &walk{a: a, b: b, la: la, lb: b.Frames(), window: min(max(256, rate/50), block), open: true}
	w.long = min(la, max(4*w.window, min(rate/10, 16*block)))
	w.cor = newCorrelator(a, b, w.long, span)
	return w
}

func (w *walk) run() {
	for at := 0; at < w.la && !w.lost(); at += w.window {
		n := min(w.window, w.la-at)
		m := w.measure(at, n, w.lag)
		w.heard = w.heard || !m.quiet()
		agrees, little := m.correlation() >= oneTake, m.mean() <= silent*silent
		switch {
		case w.open:
			w.recover(at, n, m)
		case little && (m.quiet() || !agrees): // no evidence of anything
		case !agrees:
			w.open = true
		case !w.suspicious(m) || !w.jump(at+n):
			w.accept(at+n, m)
		}
	}
	w.finish()
}

// lost reports whether the search was given up.
func (w *walk) lost() bool {
	return w.misses >= giveUp || w.misses >= giveUpEarly && w.sure == 0
}

// measure compares n frames at a lag.
func (w *walk) measure(at, n, lag int) (s sums) {
	var x, y [block]float64
	for from := at; from < at+n; from += block {
		k := min(block, at+n-from)
		w.a.read(x[:k], from, 0)
		w.b.read(y[:k], from+lag, 0)
		s.look(x[:k], y[:k], from)
	}
	return s
}

// suspicious reports whether a window that agrees does so much worse than those
// before: a few samples lost hardly change the correlation of what is smooth.
func (w *walk) suspicious(m sums) bool { return m.mean() > max(same*same, 16*w.noise) }

// mean is the mean square of the difference.
func (s *sums) mean() float64 { return s.err / float64(max(s.n, 1)) }

// accept takes a window as part of the piece. One bad window, a click say, must
// not hide what follows it.
func (w *walk) accept(to int, m sums) {
	w.sure = to
	w.noise += (min(m.mean(), 4*w.noise+same*same) - w.noise) / 4
}

// jump looks whether another lag holds from a frame on, ahead of which a window
// was suspicious.
func (w *walk) jump(at int) bool {
	n := min(w.long, w.la-at)
	lag, ok := w.find(at, n)
	if !ok || lag == w.lag {
		return false
	}
	here, there := w.measure(at, n, w.lag), w.measure(at, n, lag)
	if there.err > here.err/4 {
		return false
	}
	w.resolve(lag, at+n, w.calm(at, n, lag))
	return true
}

// recover looks for the lag that holds again behind a place where the takes
// stopped agreeing.
func (w *walk) recover(at, n int, m sums) {
	if m.quiet() {
		if 2*m.aa < float64(n)*silent*silent {
			return // silence lies anywhere
		}
	} else if m.correlation() >= oneTake && !w.suspicious(m) {
		w.resolve(w.lag, at+n, m.mean())
		return
	}
	if at < w.next {
		return
	}
	n = min(w.long, w.la-at)
	lag, ok := w.find(at, n)
	if !ok {
		if m.correlation() >= oneTake { // as well as it gets
			w.resolve(w.lag, at+w.window, m.mean())
			return
		}
		w.misses++
		w.next = at + n
		return
	}
	w.resolve(lag, at+n, w.calm(at, n, lag))
}

// calm returns how far a probe's better half differs: what it found may begin or
// end amid the probe.
func (w *walk) calm(at, n, lag int) float64 {
	first, second := w.measure(at, n/2, lag), w.measure(at+n/2, n-n/2, lag)
	return min(first.mean(), second.mean())
}

// find looks for the lag of n frames: near the one at hand, then near the one at
// which the takes' ends lie opposite.
func (w *walk) find(at, n int) (lag int, ok bool) {
	if 2*n < w.long || w.probes >= maxProbes {
		return 0, false
	}
	w.probes++
	var r float64
	if lag, r = w.cor.probe(at, n, w.lag); r >= oneTake {
		return lag, true
	}
	if end := w.ends(); apart(end, w.lag) > w.cor.span {
		lag, r = w.cor.probe(at, n, end)
	}
	return lag, r >= oneTake
}

// ends is the lag at which the takes' ends lie opposite.
func (w *walk) ends() int { return w.lb - w.a.Frames() }

// resolve ends the piece at hand and starts the next one, which agrees at a lag
// just ahead of frame to but for noise, a mean square.
func (w *walk) resolve(lag, to int, noise float64) {
	w.noise = max(w.noise, min(noise, silent))
	start := w.from
	if len(w.pieces) > 0 || w.sure > 0 {
		start = max(w.from, w.sure-w.window)
	}
	stop, again := w.locate(start, to, lag)
	w.open, w.misses = false, 0
	w.sure = max(w.sure, again)
	if lag == w.lag && stop == again {
		return
	}
	w.close(stop)
	w.from, w.lag = again, lag
}

// close ends the piece at hand.
func (w *walk) close(at int) {
	at = min(at, w.lb-w.lag)
	if at > w.from {
		w.pieces = append(w.pieces, piece{w.from, at, w.lag})
	}
}

// finish closes the accounts at the end of what is compared.
func (w *walk) finish() {
	if !w.heard { // two silences
		w.close(w.la)
		return
	}
	if !w.lost() && w.la == w.a.Frames() {
		w.tail()
	}
	switch {
	case !w.open:
		w.close(w.la)
	case w.sure > 0:
		stop, _ := w.locate(max(w.from, w.sure-w.window), w.la, nowhere)
		w.close(stop)
	}
}

// tail looks whether the last frames, too few for a probe, agree again or lie
// opposite to the twin's last ones.
func (w *walk) tail() {
	lag := w.ends()
	for n := w.window; n >= 16; n /= 2 {
		at := w.la - n
		if at < w.sure-w.window || at < 0 {
			continue
		}
		here, there := w.measure(at, n, w.lag), w.measure(at, n, lag)
		if w.open && w.sure > 0 && w.exact(here) {
			w.resolve(w.lag, w.la, here.mean())
			return
		}
		if lag != w.lag && w.exact(there) && 4*there.err < here.err {
			w.resolve(lag, w.la, there.mean())
			return
		}
	}
}

// exact reports whether a few frames agree as well as those before them.
func (w *walk) exact(m sums) bool {
	return !m.quiet() && m.correlation() >= oneTake && m.mean() <= max(same*same, 4*w.noise)
}
