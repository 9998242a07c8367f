package stats

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// What a Histogram promises.
const (
	// HistogramError bounds the relative error of a histogram's figures, for values
	// from 0.001 on. Below, they are off by half a HistogramUnit at the most.
	HistogramError = 0.001
	// HistogramUnit is the finest difference that is kept, in the values' own unit: a
	// nanosecond where they are milliseconds.
	HistogramUnit = 1e-6
	// HistogramMax is the largest value that is kept.
	HistogramMax = float64(hdrHighest) * HistogramUnit
	// HistogramMethod names how a histogram's percentiles are reckoned.
	HistogramMethod = QuantileMethod + ", of an HDR histogram with three significant figures"
)

// The geometry of all histograms, so that any two of them add up.
const (
	hdrLowest  = 1
	hdrHighest = 1 << 62
	hdrFigures = 3
	// hdrBits is how many bits of a value its bucket tells.
	hdrBits = 11
	// maxRead bounds the number of values that a histogram read from JSON may have.
	maxRead = 1 << 53
)

// Histogram counts values of 0 and above in buckets of three significant figures
// (HdrHistogram, github.com/HdrHistogram): memory goes by how far values spread, not
// by how many there are, and those of several runs add up to what one histogram of all
// values would be, to the last count. The zero value is empty and ready. It is not
// safe for concurrent use, and must not be copied once it holds values.
//
// In JSON the counts are HdrHistogram's own V2 encoding (HISTF…), in units of
// HistogramUnit, which other HDR tools read.
type Histogram struct {
	counts   *hdr.PackedHistogram
	min, max float64
	leftOut  int
}

// Add counts values. Those that are no finite numbers, below 0 or above HistogramMax
// are left out and counted as such.
func (h *Histogram) Add(values ...float64) {
	for _, v := range values {
		if !(v >= 0 && v <= HistogramMax) || h.allocated().RecordValue(int64(math.Round(v/HistogramUnit))) != nil {
			h.leftOut++
			continue
		}
		h.seen(v, v)
	}
}

func (h *Histogram) allocated() *hdr.PackedHistogram {
	if h.counts == nil {
		h.counts = hdr.NewPacked(hdrLowest, hdrHighest, hdrFigures)
		h.min, h.max = math.Inf(1), math.Inf(-1)
	}
	return h.counts
}

func (h *Histogram) seen(low, high float64) { h.min, h.max = min(h.min, low), max(h.max, high) }

// Merge adds what o counted; o stays as it is. It is an error, and nothing is added,
// if the sum of both has no room in an int.
func (h *Histogram) Merge(o *Histogram) error {
	if h.N() > math.MaxInt-o.N() || h.leftOut > math.MaxInt-o.leftOut {
		return fmt.Errorf("histograms of %d and %d values have no room in one", h.N(), o.N())
	}
	h.leftOut += o.leftOut
	if o.N() > 0 {
		low, high := o.min, o.max
		h.allocated().Merge(o.counts)
		h.seen(low, high)
	}
	return nil
}

// N is the number of values counted.
func (h *Histogram) N() int {
	if h.counts == nil {
		return 0
	}
	return int(h.counts.TotalCount())
}

// LeftOut is the number of values left out.
func (h *Histogram) LeftOut() int { return h.leftOut }

// Quantile returns the p-quantile, 0 ≤ p ≤ 1, by HistogramMethod, right to
// HistogramError; NaN of an empty histogram and for a p out of range.
func (h *Histogram) Quantile(p float64) float64 {
	n := h.N()
	if n == 0 || !(p >= 0 && p <= 1) {
		return math.NaN()
	}
	place := float64(n-1) * p
	low := int64(place)
	a, b := h.ranked(low)
	return between(a, b, place-float64(low))
}

// ranked returns the values at a rank, counted from 0, and at the next one, or twice
// the last.
func (h *Histogram) ranked(rank int64) (a, b float64) {
	var passed int64
	found := false
	for low, count := range h.counts.ForEachBucket {
		v := h.value(low)
		passed += count
		if found {
			return a, v
		}
		if passed > rank+1 {
			return v, v
		}
		if passed > rank {
			a, found = v, true
		}
	}
	return a, a
}

// value is the middle of the bucket that begins at low, within what was seen.
func (h *Histogram) value(low int64) float64 {
	wide := int64(1) << max(0, bits.Len64(uint64(low))-hdrBits)
	return min(max((float64(low)+float64(wide-1)/2)*HistogramUnit, h.min), h.max)
}

// Summary describes the values counted; its percentiles are by HistogramMethod. Min
// and Max are exact.
func (h *Histogram) Summary() Summary {
	s := Summary{N: h.N(), LeftOut: h.leftOut, Min: math.NaN(), Mean: math.NaN(), Max: math.NaN()}
	if s.N > 0 {
		s.Min, s.Mean, s.Max = h.min, 0, h.max
		for low, count := range h.counts.ForEachBucket {
			s.Mean += h.value(low) * (float64(count) / float64(s.N))
		}
	}
	s.P50, s.P90, s.P95, s.P99 = h.Quantile(0.50), h.Quantile(0.90), h.Quantile(0.95), h.Quantile(0.99)
	return s
}

type wireHistogram struct {
	N             int      `json:"n"`
	LeftOut       int      `json:"left_out,omitempty"`
	Unit          float64  `json:"unit"`
	RelativeError float64  `json:"relative_error"`
	Min           *float64 `json:"min"`
	Max           *float64 `json:"max"`
	HDR           string   `json:"hdr,omitempty"`
}

// MarshalJSON writes counts, extremes, unit and error bound.
func (h Histogram) MarshalJSON() ([]byte, error) {
	w := wireHistogram{N: h.N(), LeftOut: h.leftOut, Unit: HistogramUnit, RelativeError: HistogramError}
	if w.N > 0 {
		w.Min, w.Max = finite(h.min), finite(h.max)
		text, err := h.counts.Encode()
		if err != nil {
			return nil, fmt.Errorf("encoding histogram: %w", err)
		}
		w.HDR = string(text)
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads what MarshalJSON wrote. Counts of another unit or geometry, or
// that do not agree with n, min and max, are an error, and h stays as it was.
func (h *Histogram) UnmarshalJSON(text []byte) error {
	var w wireHistogram
	if err := json.Unmarshal(text, &w); err != nil {
		return err
	}
	if w.Unit != HistogramUnit {
		return fmt.Errorf("histogram of unit %v, want %v", w.Unit, HistogramUnit)
	}
	if w.LeftOut < 0 {
		return fmt.Errorf("histogram with %d values left out", w.LeftOut)
	}
	read := Histogram{leftOut: w.LeftOut}
	if w.HDR != "" {
		if err := read.decode(w); err != nil {
			return err
		}
	}
	if read.N() != w.N {
		return fmt.Errorf("histogram counts %d values and says %d", read.N(), w.N)
	}
	*h = read
	return nil
}

// decode reads the counts and holds them to what stands beside them.
func (h *Histogram) decode(w wireHistogram) error {
	counts, err := hdr.DecodePacked([]byte(w.HDR))
	if err != nil {
		return fmt.Errorf("decoding histogram: %w", err)
	}
	if counts.LowestTrackableValue() != hdrLowest || counts.HighestTrackableValue() != hdrHighest || counts.SignificantFigures() != hdrFigures {
		return fmt.Errorf("histogram from %d to %d with %d figures, want %d to %d with %d", counts.LowestTrackableValue(),
			counts.HighestTrackableValue(), counts.SignificantFigures(), hdrLowest, int64(hdrHighest), hdrFigures)
	}
	if n := counts.TotalCount(); n < 1 || n > maxRead {
		return fmt.Errorf("histogram of %d values, want 1 to %d", n, int64(maxRead))
	}
	if w.Min == nil || w.Max == nil {
		return errors.New("histogram without min and max")
	}
	if !sameBucket(counts, counts.Min(), *w.Min) || !sameBucket(counts, counts.Max(), *w.Max) || *w.Min > *w.Max {
		return fmt.Errorf("histogram with min %v and max %v beside counts from %v to %v", *w.Min, *w.Max,
			float64(counts.Min())*HistogramUnit, float64(counts.Max())*HistogramUnit)
	}
	h.counts, h.min, h.max = counts, *w.Min, *w.Max
	return nil
}

// sameBucket tells whether a value of JSON is counted where the counts have one.
func sameBucket(counts *hdr.PackedHistogram, have int64, v float64) bool {
	if !(v >= 0 && v <= HistogramMax) {
		return false
	}
	start := func(x int64) int64 {
		return x >> max(0, bits.Len64(uint64(x))-hdrBits) << max(0, bits.Len64(uint64(x))-hdrBits)
	}
	return start(int64(math.Round(v/HistogramUnit))) == start(have) && counts.CountAtValue(have) > 0
}

var (
	_ json.Marshaler   = Histogram{}
	_ json.Unmarshaler = (*Histogram)(nil)
)
