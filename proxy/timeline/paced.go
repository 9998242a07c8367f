package timeline

import "math"

// What makes arrivals those of a pacer: enough sound, and a lead over real time
// that hardly moves. A model of just that speed would waver.
const (
	pacedSeconds = 3.0
	pacedChunks  = 3
	pacedJitter  = 0.05 // of a second, standard deviation of the lead
)

// paced reports whether sound was let out in real time (contract section 3). The
// first quarter is left out: pacers let a lead go first.
func paced(in []arrival) bool {
	total := 0.0
	for _, a := range in {
		total += a.seconds
	}
	from := max(1, len(in)/4)
	if total < pacedSeconds || len(in)-from < pacedChunks {
		return false
	}
	var sum, sq, before float64
	n := 0.0
	for i, a := range in {
		if i >= from {
			lead := before - a.ms/1e3
			sum += lead
			sq += lead * lead
			n++
		}
		before += a.seconds
	}
	mean := sum / n
	return math.Sqrt(max(0, sq/n-mean*mean)) < pacedJitter
}
