package experiment

import (
	"fmt"
	"slices"
	"strings"
)

// Metric is a figure of a run.
type Metric struct {
	// Name is a metric of contract section 3, or success_rate.
	Name string
	// P is the percentile over requests as a share, 0 for a metric that is one figure a
	// run.
	P float64
}

// requestMetrics have a value a request, runMetrics one a run. They are what compare's
// gates know.
var (
	requestMetrics = []string{"ttft", "ttfa", "ttfaudible", "jct", "rtf"}
	runMetrics     = []string{"throughput", "goodput", "success_rate"}
	percentiles    = map[string]float64{"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
)

// ParseMetric reads METRIC_pNN, or a metric that has no percentiles. A metric of requests
// without one is an error: which figure decides must be settled ahead.
func ParseMetric(text string) (Metric, error) {
	base, suffix, _ := strings.Cut(text, "_")
	switch {
	case slices.Contains(runMetrics, text):
		return Metric{Name: text}, nil
	case slices.Contains(runMetrics, base) && suffix != "":
		return Metric{}, fmt.Errorf("is %q, but %s is one figure a run: it has no percentiles", text, base)
	case !slices.Contains(requestMetrics, base):
		return Metric{}, fmt.Errorf("is %q: want one of %s with _p50, _p90, _p95 or _p99, or one of %s", text, strings.Join(requestMetrics, ", "), strings.Join(runMetrics, ", "))
	case percentiles[suffix] == 0:
		return Metric{}, fmt.Errorf("is %q: want %s_p50, %s_p90, %s_p95 or %s_p99", text, base, base, base, base)
	}
	return Metric{Name: base, P: percentiles[suffix]}, nil
}
