package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// accept asks for text, which needs no translation. OpenMetrics is not named: Python's client
// answers with it wherever it is, whatever its weight.
const accept = "text/plain;version=0.0.4,*/*;q=0.1"

// errTooLong says that an answer is longer than what is read of one.
var errTooLong = errors.New("the answer is too long")

// StatusError is an answer that is no 200: a redirect, too.
type StatusError struct {
	Status   int
	Location string // of a redirect
}

func (e *StatusError) Error() string {
	if e.Location != "" {
		return fmt.Sprintf("answered %d, to %s: not followed", e.Status, e.Location)
	}
	return fmt.Sprintf("answered %d", e.Status)
}

// newClient makes the client of a Scraper: connections of its own, no proxy, no redirect.
func newClient(c Config, t *tls.Config) *http.Client {
	return &http.Client{
		Timeout: c.Timeout,
		Transport: &http.Transport{
			TLSClientConfig:        t,
			MaxIdleConns:           1,
			IdleConnTimeout:        c.Interval + 5*time.Second,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// answer is what a scrape brought.
type answer struct {
	body        []byte
	contentType string
}

// fetch makes one scrape. It is bounded by the client's time-out and by limit bytes, which
// hold for what a compressed body unpacks to.
func fetch(ctx context.Context, client *http.Client, address string, limit int64) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return answer{}, fmt.Errorf("scraping: %w", err)
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", "omnitap")
	resp, err := client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok { // its address may hold a password
			err = u.Err
		}
		return answer{}, fmt.Errorf("scraping: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		e := &StatusError{Status: resp.StatusCode}
		if resp.StatusCode >= 300 && resp.StatusCode < 400 {
			e.Location = host(resp.Header.Get("Location"))
		}
		return answer{}, fmt.Errorf("scraping: %w", e)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return answer{}, fmt.Errorf("scraping: reading the answer: %w", err)
	}
	if int64(len(body)) > limit {
		return answer{}, fmt.Errorf("scraping: %w: over %d bytes", errTooLong, limit)
	}
	return answer{body, resp.Header.Get("Content-Type")}, nil
}

// host is the host of an address: the rest may hold what is nobody's business.
func host(location string) string {
	u, err := url.Parse(location)
	switch {
	case err != nil || location == "":
		return "an address that cannot be read"
	case u.Host == "":
		return "another path"
	}
	return u.Host
}

// address puts a path behind the server's base address.
func address(base, path string) string { return strings.TrimRight(base, "/") + path }
