package telemetry

import (
	"math"
	"slices"
	"strconv"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/exemplar"
)

// decade is preferred numbers (R20 of ISO 3): each is at most 14.3 % more than the one
// before, so that whatever lies between two is within 7 % of their middle.
var decade = [...]float64{1, 1.12, 1.25, 1.4, 1.6, 1.8, 2, 2.24, 2.5, 2.8, 3.15, 3.55, 4, 4.5, 5, 5.6, 6.3, 7.1, 8, 9}

// steps are preferred numbers from lo to hi, every nth of them: n must divide 20.
func steps(lo, hi float64, n int) (out []float64) {
	for e := int(math.Floor(math.Log10(lo))); ; e++ {
		for i := 0; i < len(decade); i += n {
			v := scale(decade[i], e)
			if v > hi*(1+1e-9) {
				return out
			}
			if v >= lo*(1-1e-9) {
				out = append(out, v)
			}
		}
	}
}

// scale is v·10^e, the nearest number to what it is called: arithmetic would add noise.
func scale(v float64, e int) float64 {
	f, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', -1, 64)+"e"+strconv.Itoa(e), 64)
	if err != nil {
		return v * math.Pow10(e)
	}
	return f
}

// Boundaries, in the unit of their metrics.
var (
	// The first three are those of the semantic conventions.
	genDuration = []float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}
	genFirst    = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}
	genPerToken = []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5}

	// latency resolves first output and whole requests alike, seconds.
	latency = slices.Concat([]float64{0.001, 0.002, 0.005}, steps(0.01, 1000, 1))
	// work is what stages wait and take, and the length of sound, seconds.
	work = steps(0.001, 1000, 2)
	// brief is hand-overs and the relay's own delay, seconds.
	brief = steps(0.000001, 10, 5)
	// gap is between chunks, seconds.
	gap = steps(0.001, 10, 2)
	// stall is how long a player stood still, seconds: none is a measurement too.
	stall = slices.Concat([]float64{0}, steps(0.01, 100, 4))
	// factor is of real time.
	factor = steps(0.01, 10, 1)
	// size is bytes of a hand-over.
	size = []float64{256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864, 268435456}
)

// exemplars bounds how many exemplars a series keeps: one for each of a few coarse steps,
// where the SDK would have one for each of a hundred boundaries.
const exemplars = 6

// sparse is the SDK's choice of exemplars with fewer of them.
func sparse(agg sdkmetric.Aggregation) exemplar.ReservoirProvider {
	h, ok := agg.(sdkmetric.AggregationExplicitBucketHistogram)
	if !ok || len(h.Boundaries) <= exemplars {
		return sdkmetric.DefaultExemplarReservoirProviderSelector(agg)
	}
	coarse := make([]float64, 0, exemplars-1)
	for i := 1; i < exemplars; i++ {
		coarse = append(coarse, h.Boundaries[i*len(h.Boundaries)/exemplars])
	}
	return exemplar.HistogramReservoirProvider(coarse)
}
