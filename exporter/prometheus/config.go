package prometheus

import (
	"fmt"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// Config holds what a user may choose.
//
//	native_histograms: true
//	models: 8
type Config struct {
	// Native keeps native histograms beside the explicit bounds, for a Prometheus from
	// 2.40 on that is told to take them: every step is 9 %, over all values. False.
	Native bool `yaml:"native_histograms"`
	// Models is how many models have a label of their own: 8. Later ones are `other`.
	Models int `yaml:"models"`
}

// maxModels bounds Config.Models: each has some hundreds of series for each flow.
const maxModels = 64

// WithDefaults returns the configuration with defaults filled in.
func (c Config) WithDefaults() Config {
	if c.Models == 0 {
		c.Models = 8
	}
	return c
}

// Validate says what is wrong.
func (c Config) Validate() error {
	if c.Models < 0 || c.Models > maxModels {
		return fmt.Errorf("prometheus.models must be from 1 to %d, not %d", maxModels, c.Models)
	}
	return nil
}

// Deps is what a Sink takes from its surroundings. All of it may be left out.
type Deps struct {
	// Source is asked at every scrape; without it the metrics of a scrape are absent.
	Source Source
	// TraceID gives the W3C trace id of a record's request, 32 lower-case hex digits, for
	// exemplars; empty where it is not known, or where nobody keeps that trace.
	TraceID func(*timeline.Record) string
	// Version and Revision are the program's.
	Version, Revision string
}
