package twin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/omnitap/omnitap/proxy/timeline/waveform"
)

// Runner sends twins to one server and judges what comes. Make it with New; it is
// safe for concurrent use. It starts nothing and holds no connection between twins.
type Runner struct {
	cfg      Config
	upstream *url.URL
	sampler  *Sampler
	client   *http.Client
}

// New returns a Runner for the server at upstream, of whose URL scheme and host
// count. trust is the configuration towards an https server, nil for the system's
// certificates; it is not changed.
func New(cfg Config, upstream *url.URL, trust *tls.Config) *Runner {
	cfg = cfg.WithDefaults()
	if trust == nil {
		trust = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	trust = trust.Clone()
	trust.NextProtos = []string{"http/1.1"}
	return &Runner{
		cfg: cfg, upstream: upstream, sampler: NewSampler(cfg),
		client: &http.Client{
			// A connection of its own for each twin: none idles, and net/http sends
			// nothing again, which it does on one that was used before.
			Transport: &http.Transport{
				TLSClientConfig: trust, DisableKeepAlives: true, DisableCompression: true,
				MaxResponseHeaderBytes: 64 << 10,
			},
			CheckRedirect: noRedirect,
		},
	}
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Wants reports whether the request with that id gets a twin; a nil Runner wants none.
func (r *Runner) Wants(id string) bool { return r != nil && r.sampler.Wants(id) }

// Compare sends the twin of a request whose sound came, waits for its answer, at
// most for the configured timeout, and returns two findings in the order of Names.
// What goes wrong is a finding that was not measured, with the reason. Call it off
// the client's path: it takes as long as a whole generation, and 0.1 to 0.3 s of a
// core for 10 s of sound.
func (r *Runner) Compare(ctx context.Context, q Request, came Take) []waveform.Finding {
	if came.Format.FrameBytes() == 0 {
		return NotMeasured("the stream's sound is not decoded")
	}
	req, err := q.twin(r.upstream)
	if err != nil {
		return NotMeasured(err.Error())
	}
	release, reason := r.sampler.Begin()
	if release == nil {
		return NotMeasured(reason)
	}
	defer release()
	twin, err := r.fetch(ctx, req)
	if err != nil {
		return NotMeasured(err.Error())
	}
	return Check(r.cfg, Compare(came, twin))
}

// Fetch sends the twin of a request, whatever the sample and the bounds, and returns
// its sound. Errors are those of this package, the context's, or the network's; none
// holds anything of the request.
func (r *Runner) Fetch(ctx context.Context, q Request) (Take, error) {
	req, err := q.twin(r.upstream)
	if err != nil {
		return Take{}, err
	}
	return r.fetch(ctx, req)
}

func (r *Runner) fetch(ctx context.Context, req *http.Request) (Take, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.cfg.Timeout, ErrTimeout)
	defer cancel()
	resp, err := r.client.Do(req.WithContext(ctx))
	if err != nil {
		return Take{}, r.wire(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return Take{}, &StatusError{Code: resp.StatusCode}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, r.cfg.MaxBytes+1))
	if err != nil {
		return Take{}, r.wire(ctx, err)
	}
	if int64(len(body)) > r.cfg.MaxBytes {
		return Take{}, fmt.Errorf("%w: over %d bytes", ErrTooLong, r.cfg.MaxBytes)
	}
	return decode(resp.Header, body)
}

// errHTTP stands for errors that quote what was sent or what came.
var errHTTP = errors.New("sending the twin: request or answer is no valid HTTP")

// wire returns an error of the network without what may hold a key or a prompt: the
// URL, or bytes of the answer.
func (r *Runner) wire(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), ErrTimeout) {
		return fmt.Errorf("%w: over %v", ErrTimeout, r.cfg.Timeout)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	_, network := errors.AsType[*net.OpError](err)
	_, trust := errors.AsType[*tls.CertificateVerificationError](err)
	if network || trust || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("sending the twin: %w", err)
	}
	return errHTTP
}
