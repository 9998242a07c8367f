package stats

import (
	"encoding/json"
	"fmt"
	"math"
)

// Interval of a statistic, in its unit (of a change, as a share). Lo and Hi are NaN
// where nothing is known, and null in JSON.
type Interval struct {
	Lo, Hi float64
	// Level is the share of experiments whose interval holds the truth: 0.95.
	Level float64
	// Method names how it was reckoned:
	//   - "student-t", "welch-t": on the logarithms of the blocks' figures, of pairs
	//     or of two groups;
	//   - "student-t/blocks": Student's t with the standard error that resampling
	//     blocks gives;
	//   - "bca": percentiles of resampled blocks, bias-corrected and accelerated;
	//   - any of them with "/hierarchical": the values inside blocks resampled too.
	Method string
}

// Names of methods, parts of Interval.Method.
const (
	methodStudent      = "student-t"
	methodWelch        = "welch-t"
	methodBCa          = "bca"
	suffixBlocks       = "/blocks"
	suffixHierarchical = "/hierarchical"
)

// unknown is the interval of which nothing is known.
func unknown(level float64) Interval {
	return Interval{Lo: math.NaN(), Hi: math.NaN(), Level: level}
}

// Defaults of Design, and its bounds.
const (
	DefaultResamples = 2000
	DefaultLevel     = 0.95

	minResamples = 100
	maxResamples = 1_000_000
	// resampleWork is the number of drawn values over which the default number of
	// resamples falls, to fewResamples at the least: a standard error from 400 is
	// right to 4 %.
	resampleWork = 200_000_000
	fewResamples = 400
)

// Design says how blocks lie to each other and how they are resampled.
type Design struct {
	// Paired: block i of a and block i of b belong together (neighbours in A B B A,
	// the same requests), so pairs are the unit. What both of a pair share cancels.
	Paired bool `json:"paired"`
	// Within resamples the values inside a drawn block too (a hierarchical
	// bootstrap). The values' own spread then counts on top of the blocks', so
	// intervals come out wider, up to 1.5 times: for blocks so few (2, 3) that their
	// agreement may be chance. It says nothing about blocks of one value.
	Within bool `json:"within"`
	// Resamples is the number of draws, where any are made: 100 to 1 000 000. Default
	// 2000, and down to 400 where 2000 draws would take over 200 million values.
	Resamples int `json:"resamples"`
	// Level of the interval, between 0 and 1. Default 0.95.
	Level float64 `json:"level"`
	// Seed of the draws; every value is a seed, 0 too.
	Seed uint64 `json:"seed"`
}

// withDefaults fills in what is zero; values is how many there are to draw from.
// The reason says what in the design cannot be.
func (d Design) withDefaults(values int) (Design, string) {
	if d.Resamples == 0 {
		d.Resamples = min(DefaultResamples, max(fewResamples, resampleWork/max(values, 1)))
	}
	if d.Level == 0 {
		d.Level = DefaultLevel
	}
	if d.Resamples < minResamples || d.Resamples > maxResamples {
		return d, fmt.Sprintf("resamples %d: from %d to %d are possible", d.Resamples, minResamples, maxResamples)
	}
	if !(d.Level > 0 && d.Level < 1) {
		return d, fmt.Sprintf("level %v is not between 0 and 1", d.Level)
	}
	return d, ""
}

// BlocksNeeded returns how many further blocks a side would bring the half width of
// an interval from half at n blocks down to want, as it falls with √n; 0 if it is
// there. With few blocks this is on the safe side, since Student's t falls too.
// It is −1 where that cannot be told: n < 1, or a width that is no positive number.
func BlocksNeeded(n int, half, want float64) int {
	if n < 1 || !(half >= 0) || !(want > 0) || math.IsInf(half, 1) {
		return -1
	}
	if half <= want {
		return 0
	}
	ratio := half / want
	need := math.Ceil(float64(n)*ratio*ratio*(1-1e-12)) - float64(n)
	if need >= math.MaxInt32 {
		return math.MaxInt32
	}
	return int(need)
}

type wireInterval struct {
	Lo     *float64 `json:"lo"`
	Hi     *float64 `json:"hi"`
	Level  float64  `json:"level"`
	Method string   `json:"method"`
}

// MarshalJSON writes null for a bound that is not a number.
func (i Interval) MarshalJSON() ([]byte, error) {
	return json.Marshal(wireInterval{Lo: finite(i.Lo), Hi: finite(i.Hi), Level: i.Level, Method: i.Method})
}

// UnmarshalJSON reads null as NaN.
func (i *Interval) UnmarshalJSON(text []byte) error {
	var w wireInterval
	if err := json.Unmarshal(text, &w); err != nil {
		return err
	}
	*i = Interval{Lo: orNaN(w.Lo), Hi: orNaN(w.Hi), Level: w.Level, Method: w.Method}
	return nil
}

var (
	_ json.Marshaler   = Interval{}
	_ json.Unmarshaler = (*Interval)(nil)
)
