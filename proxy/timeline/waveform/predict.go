package waveform

import "math"

// Sound is predictable over a few milliseconds: each value lies where the ones
// before it lead, but for a small rest. At a border where samples are missing, were
// repeated or do not belong, the first values behind it surprise who knows what
// came before, and the last ones ahead of it surprise who comes from behind. An
// onset surprises from one side alone.

const (
	// order is that of the prediction (linear, by autocorrelation).
	order = 10
	// predictors bounds the values that a prediction is made from: 10 ms at 48 kHz.
	predictors = 480
	// predictMin is how many it takes.
	predictMin = 64
	// restFloor keeps the noise of quiet passages from being surprises, a value.
	restFloor = 4
)

// surprise says how far the values around a border lie from what both sides lead to
// expect, in units of the largest rest within the side that expects: the smaller
// one of both directions, so that an onset is none. It is 0 where it is not above
// least, which is told far sooner.
func surprise(tail, head []int16, least float64) float64 {
	var ahead, behind [predictors + order]float64
	n, m := min(len(tail), predictors), min(len(head), predictors)
	if n < predictMin || m < predictMin {
		return 0
	}
	x := ahead[:n+lookAhead]
	for i, v := range tail[len(tail)-n:] {
		x[i] = float64(v)
	}
	for i := range lookAhead {
		x[n+i] = float64(head[i])
	}
	first := unexpected(x, least)
	if first == 0 {
		return 0
	}
	y := behind[:m+lookAhead]
	for i, v := range head[:m] {
		y[m-1-i] = float64(v)
	}
	for i := range lookAhead {
		y[m+i] = float64(tail[len(tail)-1-i])
	}
	return min(first, unexpected(y, least))
}

// lookAhead is how many values behind a border are predicted.
const lookAhead = 2

// unexpected is the largest rest of the last values, by a prediction from all
// before them, over the largest rest of those; 0 where it is not above least.
func unexpected(x []float64, least float64) float64 {
	n := len(x) - lookAhead
	a := predictor(x[:n])
	rest := func(i int) float64 {
		r := x[i]
		for j, c := range a {
			r += c * x[i-1-j]
		}
		return math.Abs(r)
	}
	across, inside := 0.0, 0.0
	for i := n; i < len(x); i++ {
		across = max(across, rest(i))
	}
	for i := n - 1; i >= order; i-- {
		if inside = max(inside, rest(i)); across <= least*(inside+restFloor) {
			return 0
		}
	}
	return across / (inside + restFloor)
}

// predictor returns the coefficients with which the next value is expected: minus
// the weighted sum of the last ones, newest first (Levinson and Durbin's recursion
// on the autocorrelation under a Hamming window).
func predictor(x []float64) (a [order]float64) {
	var w [predictors]float64
	n := len(x)
	step := 2 * math.Pi / float64(n)
	// cos by recurrence: cos(t+d) = 2 cos(d) cos(t) - cos(t-d)
	twice, c1, c0 := 2*math.Cos(step), math.Cos(step/2), math.Cos(-step/2)
	for i := range x {
		w[i] = x[i] * (.54 - .46*c1)
		c1, c0 = twice*c1-c0, c1
	}
	var r [order + 1]float64
	for i := range n {
		for k := range min(i, order) + 1 {
			r[k] += w[i] * w[i-k]
		}
	}
	r[0] = r[0]*(1+1e-9) + float64(n)*.1
	e := r[0]
	for i := range order {
		acc := r[i+1]
		for j := range i {
			acc += a[j] * r[i-j]
		}
		k := -acc / e
		b := a
		for j := range i {
			a[j] = b[j] + k*b[i-1-j]
		}
		a[i] = k
		e *= 1 - k*k
	}
	return a
}
