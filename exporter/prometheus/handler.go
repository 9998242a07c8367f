package prometheus

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// maxScrapes is how many scrapes are answered at once; a further one gets a 503.
const maxScrapes = 4

// Handler answers GET /metrics. It speaks the text format, OpenMetrics, which alone has
// exemplars, and protobuf, which alone has native histograms, as the scraper asks. What
// cannot be gathered is left out and counted (promhttp_metric_handler_errors_total).
func (s *Sink) Handler() http.Handler {
	return promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{
		EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes, ErrorHandling: promhttp.ContinueOnError, Registry: s.registry,
	})
}
