package upstream

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// Options are what a Scraper works with beside its Config; each may be left out.
type Options struct {
	// TLS is for an https server.
	TLS *tls.Config
	// Clock gives CLOCK_MONOTONIC and wall-clock nanoseconds; nil leaves MonoNS 0.
	Clock func() (monoNS, wallNS int64)
	Log   *slog.Logger
}

// Scraper scrapes one server and writes a line a scrape. Before, Run and After may be called
// from different goroutines; scrapes never overlap. A nil Scraper does nothing.
type Scraper struct {
	config  Config
	address string
	client  *http.Client
	clock   func() (int64, int64)
	log     *slog.Logger

	mu      sync.Mutex // protects what follows
	w       io.Writer
	written int64
	scrapes int // during the run
	dropped int
	last    map[string]Series // as the file's reader has them, nil before the first
	absent  bool              // there is nothing to scrape
	err     error             // of w
}

// New makes a Scraper of the server at base (http://HOST:PORT), which writes to w; it starts
// nothing. It is nil where the configuration says that the server is to be left alone. w gets
// one Write a line, and is the caller's to close.
func New(c Config, base string, w io.Writer, o Options) *Scraper {
	if c.Disabled {
		return nil
	}
	c = c.withDefaults()
	s := &Scraper{config: c, address: address(base, c.Path), client: newClient(c, o.TLS), clock: o.Clock, log: o.Log, w: w}
	if s.clock == nil {
		s.clock = func() (int64, int64) { return 0, time.Now().UnixNano() }
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	return s
}

// Before makes the scrape ahead of the load. Its error is for the log: the run goes on.
func (s *Scraper) Before(ctx context.Context) error {
	if s == nil {
		return nil
	}
	return s.scrape(ctx, Before)
}

// Run makes a scrape every Interval until ctx ends or MaxScrapes were made. A server that has
// no metrics is not asked again.
func (s *Scraper) Run(ctx context.Context) {
	if s == nil {
		return
	}
	tick := time.NewTicker(s.config.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if !s.wanted() {
				return
			}
			_ = s.scrape(ctx, During) // its line says so
		}
	}
}

// wanted says whether the run is to be scraped on.
func (s *Scraper) wanted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.absent && s.scrapes < s.config.MaxScrapes
}

// After makes the scrape behind the load, and lets the connection go. Its error is that of
// the scrape, or of a line that could not be written.
func (s *Scraper) After(ctx context.Context) error {
	if s == nil {
		return nil
	}
	defer s.client.CloseIdleConnections()
	return s.scrape(ctx, After)
}

// Dropped is the number of scrapes during the run that were not written, for the size of
// the file.
func (s *Scraper) Dropped() int {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}

func (s *Scraper) scrape(ctx context.Context, p Phase) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p == During {
		s.scrapes++
	}
	start := time.Now()
	line := Scrape{Schema: Schema, Phase: p, Series: []Series{}}
	a, err := fetch(ctx, s.client, s.address, s.config.MaxBytes)
	if ctx.Err() != nil && p == During { // the run is over: no fault of the server's
		return nil
	}
	line.TookMS = float64(time.Since(start).Nanoseconds()) / 1e6
	line.MonoNS, line.WallNS = s.clock()
	line.Bytes = len(a.body)
	var series []Series
	if err == nil {
		series, err = Parse(a.body, a.contentType, s.config.MaxSeries)
	}
	if err != nil {
		line.Error = err.Error()
		status, ok := errors.AsType[*StatusError](err)
		s.absent = ok && status.Status < 500
		s.log.Debug("upstream metrics", "phase", string(p), "error", err)
		return errors.Join(err, s.write(line))
	}
	s.absent = false
	line.Series, line.Whole = changes(s.last, series, p != During)
	if werr := s.write(line); werr != nil {
		return werr
	}
	return nil
}

// write writes a line, and remembers what a reader of the file now knows.
func (s *Scraper) write(line Scrape) error {
	if s.err != nil {
		return s.err
	}
	b, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("writing metrics: %w", err)
	}
	if line.Phase == During && s.written+int64(len(b)) > s.config.MaxFileBytes {
		s.dropped++
		return nil
	}
	n, err := s.w.Write(append(b, '\n'))
	s.written += int64(n)
	if err != nil {
		s.err = fmt.Errorf("writing metrics: %w", err)
		return s.err
	}
	if line.Error == "" {
		if line.Whole || s.last == nil {
			s.last = make(map[string]Series, len(line.Series))
		}
		for _, x := range line.Series {
			s.last[x.key()] = x
		}
	}
	return nil
}

// changes is what a line has to say of the series where the reader knows last: all of them if
// whole is asked for or one of last is gone, else those that changed.
func changes(last map[string]Series, series []Series, whole bool) ([]Series, bool) {
	if whole || last == nil {
		return series, true
	}
	out := []Series{}
	found := 0
	for _, x := range series {
		old, ok := last[x.key()]
		if ok {
			found++
		}
		if !ok || !old.same(&x) {
			out = append(out, x)
		}
	}
	if found < len(last) {
		return series, true
	}
	return out, false
}
