package compare

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"math"
	"slices"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// group is what is told together: latencies of turns that count from different kinds of
// events mean different things.
type group struct{ flow, tIn string }

func groupOf(r *timeline.Record) group {
	g := group{flow: clean(cmp.Or(r.Flow, "unknown"))}
	switch {
	case r.Turn == nil:
	case r.TInSource == nil:
		g.tIn = "unasked"
	default:
		g.tIn = clean(*r.TInSource)
	}
	return g
}

func (g group) label() string {
	if g.tIn == "" {
		return g.flow
	}
	return g.flow + " (" + g.tIn + ")"
}

func (g group) compare(o group) int {
	return cmp.Or(cmp.Compare(g.flow, o.flow), cmp.Compare(g.tIn, o.tIn))
}

// row is what is kept of an initial attempt.
type row struct {
	id, body uint64 // keys that pair it across runs; 0 for none
	in       int64  // t_in
	ok       bool
	met      bool // within the run's SLO
	v        [nLatencies]float64
}

// digest is what one run did in one group.
type digest struct {
	attempts, requests, success int
	failed                      map[string]int // initial attempts by state/reason
	quality                     map[string]int // attempts with sound by verdict
	checks                      map[string]int // checks on the sound that failed
	traits                      map[string]int // successes by what they are
	start, end                  int64          // first t_in, last t_term; 0 for none
	busy                        float64        // the sum of all JCTs, ms
	rows                        []row
	lengths                     [nLengths]moments
	work                        work
}

func newDigest() *digest {
	return &digest{failed: map[string]int{}, quality: map[string]int{}, checks: map[string]int{}, traits: map[string]int{}, work: newWork()}
}

// moments sum values up for their mean and variance (Welford).
type moments struct {
	n        int
	mean, m2 float64
}

func (m *moments) add(v float64) {
	m.n++
	d := v - m.mean
	m.mean += d / float64(m.n)
	m.m2 += d * (v - m.mean)
}

// average is the mean, NaN of nothing.
func (m *moments) average() float64 {
	if m.n == 0 {
		return math.NaN()
	}
	return m.mean
}

// deviation is the standard error of the mean, NaN below two values.
func (m *moments) deviation() float64 {
	if m.n < 2 {
		return math.NaN()
	}
	return math.Sqrt(m.m2 / float64(m.n-1) / float64(m.n))
}

// add takes one attempt.
func (d *digest) add(r *timeline.Record, s slo) {
	d.attempts++
	d.span(r)
	if r.Audio != nil {
		d.quality[clean(cmp.Or(r.Quality.Verdict, "not_measured"))]++
		for _, name := range r.Quality.Failed {
			d.checks[clean(name)]++
		}
	}
	if r.Attempt > 1 || r.RetryOf != nil {
		return // it adds cost, never a success (contract section 3)
	}
	d.requests++
	paced := slices.Contains(r.Flags, "paced")
	w := row{id: idKey(r), body: bodyKey(r), ok: r.Terminal.State == timeline.Success, v: values(r, paced)}
	if r.Points.TIn != nil {
		w.in = *r.Points.TIn
	}
	w.met, _, _ = s.Met(r)
	d.rows = append(d.rows, w)
	if !w.ok {
		d.failed[clean(string(cmp.Or(r.Terminal.State, "unknown"))+"/"+r.Terminal.Reason)]++
		return
	}
	d.success++
	d.traitsOf(r, paced)
	for i := range lengthsOf {
		if v := lengthsOf[i].value(r); v != nil {
			d.lengths[i].add(*v)
		}
	}
	d.work.add(r)
}

// span widens the window of the group.
func (d *digest) span(r *timeline.Record) {
	in, term := r.Points.TIn, r.Points.TTerm
	if in != nil && (d.start == 0 || *in < d.start) {
		d.start = *in
	}
	if term != nil && *term > d.end {
		d.end = *term
	}
	if in != nil && term != nil && *term > *in {
		d.busy += float64(*term-*in) / 1e6
	}
}

// seconds is the length of the window, NaN where it is not known.
func (d *digest) seconds() float64 {
	if d.start == 0 || d.end <= d.start {
		return math.NaN()
	}
	return float64(d.end-d.start) / 1e9
}

// traits of a success.
const (
	traitText        = "with text"
	traitAudio       = "with audio"
	traitStream      = "asked for a stream"
	traitPaced       = "paced by the server"
	traitRateAssumed = "sample rate assumed"
	traitStages      = "stages seen"
)

func (d *digest) traitsOf(r *timeline.Record, paced bool) {
	for _, t := range [...]struct {
		name string
		has  bool
	}{
		{traitText, r.TextBytes != nil && *r.TextBytes > 0},
		{traitAudio, r.Audio != nil && r.Audio.Bytes > 0},
		{traitStream, r.Stream != nil && *r.Stream},
		{traitPaced, paced},
		{traitRateAssumed, slices.Contains(r.Flags, "rate_assumed")},
		{traitStages, len(r.Stages) > 0},
	} {
		if t.has {
			d.traits[t.name]++
		}
	}
	if r.Model != nil {
		d.traits["model "+clean(*r.Model)]++
	}
	form := r.Dialect
	if r.DialectVariant != nil {
		form += "/" + *r.DialectVariant
	}
	d.traits["form "+clean(form)]++
}

// idKey tells a request that its client named. Names that the relay made are new in
// every run.
func idKey(r *timeline.Record) uint64 {
	if r.RequestIDSource != "client" || r.RequestID == "" {
		return 0
	}
	return hash(r.RequestID, turnOf(r))
}

func turnOf(r *timeline.Record) uint64 {
	if r.Turn == nil {
		return 0
	}
	return uint64(*r.Turn) + 1
}

func bodyKey(r *timeline.Record) uint64 {
	if r.RequestSHA256 == nil || *r.RequestSHA256 == "" {
		return 0
	}
	return hash(*r.RequestSHA256, 0)
}

// hash is never 0. It has no seed: the same runs give the same result.
func hash(text string, n uint64) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, n))
	_, _ = h.Write([]byte(text))
	return max(1, h.Sum64())
}

// finish numbers requests with the same body in the order in which they came, so that
// the k-th of one run pairs with the k-th of another.
func (d *digest) finish() {
	slices.SortStableFunc(d.rows, func(a, b row) int { return cmp.Compare(a.in, b.in) })
	times := map[uint64]uint64{}
	for i := range d.rows {
		if w := &d.rows[i]; w.body != 0 {
			n := times[w.body]
			times[w.body]++
			w.body = max(1, (w.body^n)*0x9e3779b97f4a7c15)
		}
	}
}
