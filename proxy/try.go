package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// TryStamps makes a connection on loopback and reports why its reads carry no
// receive stamps of the kernel, nil if they do.
func TryStamps(ctx context.Context) error {
	ln, err := Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("trying stamps: %w", err)
	}
	defer func() { _ = ln.Close() }()
	var d net.Dialer
	out, err := d.DialContext(ctx, "tcp", ln.Addr().String())
	if err != nil {
		return fmt.Errorf("trying stamps: %w", err)
	}
	defer func() { _ = out.Close() }()
	in, err := ln.Accept()
	if err != nil {
		return fmt.Errorf("trying stamps: %w", err)
	}
	defer func() { _ = in.Close() }()
	s, err := newSocket(in.(*net.TCPConn), newClock())
	if err != nil {
		return fmt.Errorf("trying stamps: %w", err)
	}
	s.rx.b = make([]byte, 1)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range stampTries { // the kernel turns them on beside, the first time
		if _, err := out.Write([]byte("x")); err != nil {
			return fmt.Errorf("trying stamps: %w", err)
		}
		if _, err := s.receive(); err != nil {
			return fmt.Errorf("trying stamps: %w", err)
		}
		if s.rx.wall != 0 {
			return nil
		}
		<-tick.C
	}
	return errors.New("the kernel gives none on TCP")
}

// stampTries is how many reads, a millisecond apart, may come without a stamp.
const stampTries = 200
