package waveform

// Sound that repeats itself, as tones of a whole period and silence do, tells
// nothing where samples come again.
const (
	// steadyMin is how many values must come again within the stretch.
	steadyMin = 64
	// steadyFrom is the shortest period looked for: up to it anything smooth is alike.
	steadyFrom = 8
	// rounding is how far a value that comes again may be off.
	rounding = 2
)

// period returns the shortest period that x has, to the rounding of its values,
// that leaves at least steadyMin of them to come again (half of a shorter x); 0
// for none.
func period(x []int16) int {
	for p := steadyFrom; p <= len(x)-min(steadyMin, len(x)/2); p++ {
		if again(x, p) {
			return p
		}
	}
	return 0
}

func again(x []int16, p int) bool {
	for i := p; i < len(x); i++ {
		if d := int32(x[i]) - int32(x[i-p]); d > rounding || d < -rounding {
			return false
		}
	}
	return true
}
