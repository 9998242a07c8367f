package compare

import (
	"math"

	"gonum.org/v1/gonum/stat"

	"github.com/omnitap/omnitap/exporter/compare/internal/interval"
	"github.com/omnitap/omnitap/exporter/stats"
)

// drift fills in the A/A noise, and what the drift within sides explains.
func (c *comparison) drift(d *Delta, a, b []float64) {
	noise, t := c.noise(logs(a), logs(b))
	d.Noise, d.Carried = finite(math.Expm1(noise)), finite(math.Expm1(math.Abs(t.carried)))
	if t.known() {
		d.LessDrift = &stats.Interval{Lo: math.Expm1(t.lo), Hi: math.Expm1(t.hi), Level: level, Method: "student-t/linear drift"}
	}
}

// noise is by how much the runs of a side differ from early to late, and what of that is
// carried over to the other side; NaN for what cannot be told.
func (c *comparison) noise(a, b []float64) (noise float64, t trend) {
	if c.order.Kind == OrderUnknown {
		return math.NaN(), trend{math.NaN(), math.NaN(), math.NaN()}
	}
	noise = halves(a)
	if n := halves(b); math.IsNaN(noise) || n > noise {
		noise = n
	}
	return noise, c.trend(a, b)
}

// halves is by how much the mean of the later half of some figures differs from that of
// the earlier half; the middle one of an odd number is in neither. NaN for fewer than two.
func halves(v []float64) float64 {
	k := len(v) / 2
	if k == 0 {
		return math.NaN()
	}
	return math.Abs(stat.Mean(v[len(v)-k:], nil) - stat.Mean(v[:k], nil))
}

// trend is what a linear drift within the sides explains of a change between them.
type trend struct {
	// carried is the drift from the middle of A's runs to the middle of B's.
	carried float64
	// lo and hi bound the change less that drift, of OrderSeparate alone: where sides
	// alternate the drift is carried over no distance to speak of.
	lo, hi float64
}

func (t trend) known() bool { return !math.IsNaN(t.lo) }

// explains says whether the drift may be the cause of a change: where the sides came one
// after the other, if nothing of it is sure to be left without the drift; else if it is
// not carriedFactor times as large.
func (t trend) explains(change float64) bool {
	if t.known() {
		return !(t.lo > 0 && change > 0 || t.hi < 0 && change < 0)
	}
	return carriedFactor*math.Abs(t.carried) >= math.Abs(change)
}

// trend fits one slope to the runs of both sides, each with its own level.
func (c *comparison) trend(a, b []float64) trend {
	t := trend{math.NaN(), math.NaN(), math.NaN()}
	xa, xb := places(c.a), places(c.b)
	freedom := float64(len(a) + len(b) - 3)
	if len(a) < 2 || len(b) < 2 {
		return t
	}
	sxy, sxx, syy := 0.0, 0.0, 0.0
	for _, side := range []struct{ x, y []float64 }{{xa, a}, {xb, b}} {
		mx, my := stat.Mean(side.x, nil), stat.Mean(side.y, nil)
		for i, x := range side.x {
			sxy += (x - mx) * (side.y[i] - my)
			sxx += (x - mx) * (x - mx)
			syy += (side.y[i] - my) * (side.y[i] - my)
		}
	}
	distance := stat.Mean(xb, nil) - stat.Mean(xa, nil)
	slope := sxy / sxx
	t.carried = slope * distance
	if c.order.Kind == OrderSeparate {
		variance := max(0, syy-slope*sxy) / freedom * (1/float64(len(a)) + 1/float64(len(b)) + distance*distance/sxx)
		left := stat.Mean(b, nil) - stat.Mean(a, nil) - t.carried
		half := interval.Student(level, freedom) * math.Sqrt(variance)
		t.lo, t.hi = left-half, left+half
	}
	return t
}

func places(p []placed) []float64 {
	out := make([]float64, len(p))
	for i := range p {
		out[i] = p[i].place
	}
	return out
}
