package upstream

import (
	"cmp"
	"errors"
	"time"
)

// Config says how a server's own metrics are read.
//
//	upstream_metrics:
//	  disabled: false
//	  path: /metrics
//	  interval: 15s
//	  timeout: 5s
//	  max_bytes: 8388608
type Config struct {
	// Disabled leaves the server's metrics alone.
	Disabled bool `yaml:"disabled"`
	// Path is where they are on the server, /metrics by default.
	Path string `yaml:"path"`
	// Interval lies between two scrapes during a run, 15 s by default, at least 1 s.
	Interval time.Duration `yaml:"interval"`
	// Timeout is what one scrape may take, 5 s by default.
	Timeout time.Duration `yaml:"timeout"`
	// MaxBytes bounds one answer, uncompressed, 8 MiB by default; a longer one is not used.
	MaxBytes int64 `yaml:"max_bytes"`
	// MaxSeries bounds the series of one answer, 20,000 by default.
	MaxSeries int `yaml:"max_series"`
	// MaxScrapes bounds the scrapes during a run, 2,000 by default.
	MaxScrapes int `yaml:"max_scrapes"`
	// MaxFileBytes bounds what the scrapes during a run write, 64 MiB by default; the first
	// and the last scrape are always written.
	MaxFileBytes int64 `yaml:"max_file_bytes"`
}

func (c Config) withDefaults() Config {
	c.Path = cmp.Or(c.Path, "/metrics")
	c.Interval = cmp.Or(c.Interval, 15*time.Second)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	c.MaxBytes = cmp.Or(c.MaxBytes, 8<<20)
	c.MaxSeries = cmp.Or(c.MaxSeries, 20_000)
	c.MaxScrapes = cmp.Or(c.MaxScrapes, 2_000)
	c.MaxFileBytes = cmp.Or(c.MaxFileBytes, 64<<20)
	return c
}

// Validate joins all complaints.
func (c Config) Validate() error {
	var errs []error
	d := c.withDefaults()
	if d.Path[0] != '/' {
		errs = append(errs, errors.New("upstream_metrics.path must begin with /"))
	}
	if d.Interval < time.Second {
		errs = append(errs, errors.New("upstream_metrics.interval must be at least 1s"))
	}
	if d.Timeout < 0 || d.MaxBytes < 0 || d.MaxSeries < 0 || d.MaxScrapes < 0 || d.MaxFileBytes < 0 {
		errs = append(errs, errors.New("upstream_metrics: no bound can be negative"))
	}
	return errors.Join(errs...)
}
