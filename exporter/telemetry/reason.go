package telemetry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Reason is why a record or a span was dropped.
type Reason string

// The reasons.
const (
	// QueueFull: the queue held all that it may.
	QueueFull Reason = "queue_full"
	// NoClock: nothing ties the record's clock to the wall clock, or it has no point at all.
	NoClock Reason = "no_clock"
	// Unreachable: no connection to the collector, or it broke.
	Unreachable Reason = "unreachable"
	// TLS: the collector's certificate, or that it speaks no TLS.
	TLS Reason = "tls"
	// Timeout: no answer in time.
	Timeout Reason = "timeout"
	// Busy: the collector went on asking to come again later (429, 502, 503, 504).
	Busy Reason = "busy"
	// Rejected: the collector took the batch and refused part of it.
	Rejected Reason = "rejected"
	// Failed: any other answer.
	Failed Reason = "failed"
	// Shutdown: the program ended before it was sent.
	Shutdown Reason = "shutdown"
	// Closed: it was offered after the end.
	Closed Reason = "closed"
)

// reasons lists them in README's order.
var reasons = [...]Reason{QueueFull, NoClock, Unreachable, TLS, Timeout, Busy, Rejected, Failed, Shutdown, Closed}

// why tells the reason of a failed export. An error may hold several: why it was tried
// again, and that the time for it was over. The cause goes ahead of the time.
func why(err error) Reason {
	switch {
	case secured(err):
		return TLS
	case refused(err):
		return Unreachable
	case busy(err):
		return Busy
	case late(err):
		return Timeout
	}
	return Failed
}

// secured reports whether TLS failed. gRPC has it as text alone.
func secured(err error) bool {
	_, unverified := errors.AsType[*tls.CertificateVerificationError](err)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	return unverified || unknown || plain || says(err, "authentication handshake failed", "server gave HTTP response to HTTPS client", "tls: ")
}

// refused reports whether there was no connection, or it broke. gRPC has it as text alone.
func refused(err error) bool {
	_, name := errors.AsType[*net.DNSError](err)
	return name || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH) ||
		says(err, "connection refused", "no such host", "connection error: desc")
}

// busy reports whether the collector answered that it has no time. The HTTP exporter's
// error has no type that is exported.
func busy(err error) bool {
	switch status.Code(err) {
	case codes.ResourceExhausted, codes.Unavailable:
		return true
	default:
		return says(err, "retry-able request failure: body:")
	}
}

// late reports whether there was no answer in time. The SDK gives its contexts causes of
// its own, which are no DeadlineExceeded.
func late(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded ||
		says(err, "export timeout")
}

func says(err error, words ...string) bool {
	text := err.Error()
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

// partly finds how much of a batch the collector refused. The error's type belongs to an
// internal package of the exporters.
var partly = regexp.MustCompile(`OTLP partial success: .*\((\d+) [a-z ]+ rejected\)`)

// refusedPart tells whether err is a partial success, and how many items were refused.
func refusedPart(err error) (n int, ok bool) {
	m := partly.FindStringSubmatch(err.Error())
	if m == nil {
		return 0, false
	}
	n, err = strconv.Atoi(m[1])
	return n, err == nil
}
