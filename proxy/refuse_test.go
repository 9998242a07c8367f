package proxy

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
)

// TestC61WhyNamesWhoseFaultItIs: what the measuring side lacks is its own fault,
// with the system's name for it; what the server does is the server's.
func TestC61WhyNamesWhoseFaultItIs(t *testing.T) {
	dial := func(e syscall.Errno) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", e)}
	}
	socket := func(e syscall.Errno) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", e)}
	}
	for _, c := range []struct {
		name          string
		err           error
		reason, errno string
		own           bool
	}{
		{"descriptors of the process", socket(syscall.EMFILE), "out_of_descriptors", "EMFILE", true},
		{"descriptors of the machine", socket(syscall.ENFILE), "out_of_descriptors", "ENFILE", true},
		{"no free port", dial(syscall.EADDRNOTAVAIL), "out_of_ports", "EADDRNOTAVAIL", true},
		{"port in use", dial(syscall.EADDRINUSE), "out_of_ports", "EADDRINUSE", true},
		{"name", &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "x.invalid", IsNotFound: true}}, "name_not_resolved", "no such host", true},
		{"name, server silent", &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "i/o timeout", Name: "x.invalid", IsTimeout: true}}, "name_not_resolved", "i/o timeout", true},
		{"memory for a socket", socket(syscall.ENOBUFS), "connect_failed", "ENOBUFS", true},
		{"memory", socket(syscall.ENOMEM), "connect_failed", "ENOMEM", true},
		{"refused", dial(syscall.ECONNREFUSED), "connect_refused", "ECONNREFUSED", false},
		{"reset", dial(syscall.ECONNRESET), "connect_reset", "ECONNRESET", false},
		{"timeout", dial(syscall.ETIMEDOUT), "connect_timeout", "ETIMEDOUT", false},
		{"our own limit", &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}, "connect_timeout", "", false},
		{"no route", dial(syscall.EHOSTUNREACH), "unreachable", "EHOSTUNREACH", false},
		{"no net", dial(syscall.ENETUNREACH), "unreachable", "ENETUNREACH", false},
		{"anything else", errors.New("x"), "connect_failed", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			reason, errno, own := why(c.err)
			if reason != c.reason || errno != c.errno || own != c.own {
				t.Errorf("why(%v) = %s, %s, %v, want %s, %s, %v", c.err, reason, errno, own, c.reason, c.errno, c.own)
			}
		})
	}
}

// TestC61WhyOfADialer: the errors are such as a real dialer gives.
func TestC61WhyOfADialer(t *testing.T) {
	var d net.Dialer
	d.LocalAddr = &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)} // TEST-NET-1: not ours
	_, err := d.DialContext(context.Background(), "tcp", "127.0.0.1:1")
	if reason, errno, own := why(err); reason != "out_of_ports" || errno != "EADDRNOTAVAIL" || !own {
		t.Errorf("why(%v) = %s, %s, %v, want out_of_ports, EADDRNOTAVAIL, true", err, reason, errno, own)
	}
}
