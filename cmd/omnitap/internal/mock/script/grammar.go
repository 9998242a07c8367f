package script

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Unit is what a Point in an answer is counted in.
type Unit uint8

// The units of a Point.
const (
	None       Unit = iota // no point at all
	AtStart                // before the first byte of the answer
	AtHead                 // behind the head
	AfterAudio             // behind n audio chunks
	AfterEvent             // behind n body units of any kind
	AfterByte              // behind n body bytes
	AtOutput               // behind the last text or audio, before what ends the stream
	AtEnd                  // behind all body bytes, before the zero chunk
)

// Point is a place in an answer.
type Point struct {
	Unit Unit
	N    int
}

// IsSet reports whether there is a point.
func (p Point) IsSet() bool { return p.Unit != None }

var pointWords = map[string]Unit{"start": AtStart, "head": AtHead, "output": AtOutput, "end": AtEnd}

var pointUnits = map[string]Unit{"after": AfterAudio, "event": AfterEvent, "byte": AfterByte}

// args are the parsed parts of a fault's value: a bare word or key:value
// pairs, joined by "+".
type args map[string]string

// parseArgs splits a value and refuses keys that are not in allowed. A part
// without a colon is kept under the empty key.
func parseArgs(value string, allowed ...string) (args, error) {
	a := args{}
	if value == "" {
		return a, nil
	}
	for part := range strings.SplitSeq(value, "+") {
		key, v, keyed := strings.Cut(part, ":")
		if !keyed {
			key, v = "", part
		}
		if !slices.Contains(allowed, key) {
			return nil, fmt.Errorf("unexpected %q", part)
		}
		if _, twice := a[key]; twice || v == "" {
			return nil, fmt.Errorf("empty or repeated part %q", part)
		}
		a[key] = v
	}
	return a, nil
}

// parsePoint reads "start", "head", "output", "end", "after:3", "event:3" or "byte:3",
// and further keys that the fault allows. An empty value is fallback.
func parsePoint(value string, fallback Point, extra ...string) (Point, args, error) {
	a, err := parseArgs(value, append([]string{"", "after", "event", "byte"}, extra...)...)
	if err != nil {
		return Point{}, nil, err
	}
	p := Point{}
	for key, v := range a {
		u, counted := pointUnits[key]
		if key == "" {
			if u = pointWords[v]; u == None {
				return Point{}, nil, fmt.Errorf("unknown point %q", v)
			}
		} else if !counted {
			continue
		}
		if p.Unit != None {
			return Point{}, nil, fmt.Errorf("two points in %q", value)
		}
		p.Unit = u
		if counted {
			if p.N, err = parseCount(v); err != nil {
				return Point{}, nil, err
			}
		}
	}
	if p.Unit == None {
		p = fallback
	}
	return p, a, nil
}

func parseCount(v string) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is not a count", v)
	}
	return n, nil
}

// duration reads a key's duration; absent is fallback.
func (a args) duration(key string, fallback time.Duration) (time.Duration, error) {
	v, ok := a[key]
	if !ok {
		return fallback, nil
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a duration", v)
	}
	return d, nil
}

// parseSizes reads "3/10/7", all positive.
func parseSizes(v string) ([]int, error) {
	sizes, err := parseCounts(v)
	if err != nil {
		return nil, err
	}
	for _, n := range sizes {
		if n < 1 {
			return nil, fmt.Errorf("size %d", n)
		}
	}
	return sizes, nil
}

// parseCounts reads "3/10/7".
func parseCounts(v string) ([]int, error) {
	var out []int
	for part := range strings.SplitSeq(v, "/") {
		n, err := parseCount(part)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}
