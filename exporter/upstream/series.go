package upstream

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Type is what a family says it is.
type Type string

// The types. What declares none, or one that is not known, is Untyped and is kept without
// an increase.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
	Summary   Type = "summary"
	Untyped   Type = "untyped"
)

// Number is a float that JSON can hold: NaN and the infinities are strings.
type Number float64

// MarshalJSON writes NaN and the infinities as strings.
func (n Number) MarshalJSON() ([]byte, error) {
	if f := float64(n); math.IsNaN(f) || math.IsInf(f, 0) {
		return json.Marshal(strconv.FormatFloat(f, 'g', -1, 64))
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON reads a number, or one of the strings that MarshalJSON writes.
func (n *Number) UnmarshalJSON(b []byte) error {
	text := strings.Trim(string(b), `"`)
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return fmt.Errorf("a metric's value: %q is no number", text)
	}
	*n = Number(f)
	return nil
}

// Bucket is one of a histogram: Count observations were not above LE.
type Bucket struct {
	LE    Number `json:"le"`
	Count Number `json:"n"`
}

// Series is one series of a scrape. A counter, gauge or untyped one has Value, a histogram or
// summary Count and Sum, a histogram Buckets as well, ascending and cumulative.
type Series struct {
	Name    string            `json:"name"`
	Type    Type              `json:"type"`
	Labels  map[string]string `json:"labels,omitempty"`
	Value   *Number           `json:"value,omitempty"`
	Count   *Number           `json:"count,omitempty"`
	Sum     *Number           `json:"sum,omitempty"`
	Buckets []Bucket          `json:"buckets,omitempty"`
}

// key is the identity of a series: its name and its labels.
func (s *Series) key() string {
	var b strings.Builder
	b.WriteString(s.Name)
	for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
		b.WriteString("\x00" + k + "\x01" + s.Labels[k])
	}
	return b.String()
}

// same says that nothing of the series changed. It is not cmp.Equal: NaN is NaN.
func (s *Series) same(o *Series) bool {
	if s.Type != o.Type || !sameNumber(s.Value, o.Value) || !sameNumber(s.Count, o.Count) || !sameNumber(s.Sum, o.Sum) {
		return false
	}
	return slices.EqualFunc(s.Buckets, o.Buckets, func(x, y Bucket) bool {
		return sameNumber(&x.LE, &y.LE) && sameNumber(&x.Count, &y.Count)
	})
}

func sameNumber(a, b *Number) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b || (math.IsNaN(float64(*a)) && math.IsNaN(float64(*b)))
}
