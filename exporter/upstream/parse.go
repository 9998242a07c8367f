package upstream

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// ErrTooMany says that an answer has more series than are read.
var ErrTooMany = errors.New("too many series")

// Parse reads the body of a scrape, sorted by name and labels. contentType is the answer's;
// what it does not declare as OpenMetrics, and does not end like it, is read as Prometheus
// text. An answer with more than limit series gives ErrTooMany, 0 is no limit; one of
// neither format an error that names the line. An error gives no series: half of an answer
// would look like a server that has fallen back.
func Parse(body []byte, contentType string, limit int) ([]Series, error) {
	if strings.Contains(contentType, "openmetrics") || bytes.HasSuffix(bytes.TrimSpace(body), []byte("\n# EOF")) {
		body = toText(body)
	}
	if len(body) > 0 && body[len(body)-1] != '\n' {
		body = append(slices.Clip(body), '\n') // the parser wants it
	}
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	var out []Series
	for name, f := range families {
		if limit > 0 && len(out)+len(f.GetMetric()) > limit {
			return nil, fmt.Errorf("reading metrics: %w: over %d", ErrTooMany, limit)
		}
		for _, m := range f.GetMetric() {
			out = append(out, series(name, f.GetType(), m))
		}
	}
	slices.SortFunc(out, func(a, b Series) int {
		if c := cmp.Compare(a.Name, b.Name); c != 0 {
			return c // without making keys
		}
		return cmp.Compare(a.key(), b.key())
	})
	return out, nil
}

func series(name string, t dto.MetricType, m *dto.Metric) Series {
	s := Series{Name: name, Type: Untyped}
	for _, l := range m.GetLabel() {
		if s.Labels == nil {
			s.Labels = make(map[string]string, len(m.GetLabel()))
		}
		s.Labels[l.GetName()] = l.GetValue()
	}
	switch t {
	case dto.MetricType_COUNTER:
		s.Type, s.Value = Counter, number(m.GetCounter().GetValue())
	case dto.MetricType_GAUGE:
		s.Type, s.Value = Gauge, number(m.GetGauge().GetValue())
	case dto.MetricType_HISTOGRAM, dto.MetricType_GAUGE_HISTOGRAM:
		h := m.GetHistogram()
		s.Type, s.Count, s.Sum = Histogram, number(float64(h.GetSampleCount())), number(h.GetSampleSum())
		for _, b := range h.GetBucket() {
			s.Buckets = append(s.Buckets, Bucket{LE: Number(b.GetUpperBound()), Count: Number(b.GetCumulativeCount())})
		}
		slices.SortFunc(s.Buckets, func(a, b Bucket) int { return cmp.Compare(a.LE, b.LE) })
	case dto.MetricType_SUMMARY: // its quantiles are over a window of the server's own, and are left out
		s.Type, s.Count, s.Sum = Summary, number(float64(m.GetSummary().GetSampleCount())), number(m.GetSummary().GetSampleSum())
	default:
		s.Value = number(m.GetUntyped().GetValue())
	}
	return s
}

func number(f float64) *Number { return new(Number(f)) }
