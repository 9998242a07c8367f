package host

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxCPU is the highest CPU number that is believed.
const MaxCPU = 8191

// CPUs is a set of CPU numbers: rising, each once. Nil is the empty set. Its text is
// the kernel's list form, "0-3,8".
type CPUs []int

// ParseCPUs reads the kernel's list form. An empty text is the empty set.
func ParseCPUs(text string) (CPUs, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	var out CPUs
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.ParseUint(first, 10, 16)
		to := from
		if err == nil && isRange {
			to, err = strconv.ParseUint(last, 10, 16)
		}
		if err != nil || to < from || to > MaxCPU {
			return nil, fmt.Errorf("%.40q is no list of CPUs", text)
		}
		if len(out) > 0 && int(from) <= out[len(out)-1] {
			return nil, fmt.Errorf("%.40q is no rising list of CPUs", text)
		}
		for n := from; n <= to; n++ {
			out = append(out, int(n))
		}
	}
	return out, nil
}

// String is the list form.
func (c CPUs) String() string {
	var b strings.Builder
	for i := 0; i < len(c); {
		end := i
		for end+1 < len(c) && c[end+1] == c[end]+1 {
			end++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(c[i]))
		if end > i {
			b.WriteString("-" + strconv.Itoa(c[end]))
		}
		i = end + 1
	}
	return b.String()
}

// MarshalText is String.
func (c CPUs) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText is ParseCPUs.
func (c *CPUs) UnmarshalText(text []byte) (err error) {
	*c, err = ParseCPUs(string(text))
	return err
}

// Has says whether a CPU is in the set.
func (c CPUs) Has(n int) bool {
	_, found := slices.BinarySearch(c, n)
	return found
}

// Union is a new set of what is in either.
func (c CPUs) Union(other CPUs) CPUs {
	out := slices.Concat(c, other)
	slices.Sort(out)
	return slices.Compact(out)
}

// Intersect is a new set of what is in both.
func (c CPUs) Intersect(other CPUs) CPUs {
	var out CPUs
	for _, n := range c {
		if other.Has(n) {
			out = append(out, n)
		}
	}
	return out
}
