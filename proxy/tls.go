package proxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// startTLS puts TLS over a socket. Reads go through stamped, so that decrypted
// bytes keep the kernel's stamps.
func (s *socket) startTLS(ctx context.Context, cfg *tls.Config, client bool) error {
	under := stamped{s.Conn.(*net.TCPConn), s}
	var c *tls.Conn
	if client {
		c = tls.Client(under, cfg)
	} else {
		c = tls.Server(under, cfg)
	}
	if err := c.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("tls handshake: %w", err)
	}
	s.Conn, s.tls = c, true
	return nil
}

// upstreamTLS is the configuration towards the server: http/1.1 alone, or the
// upgrade of a WebSocket would not work.
func (s *Server) upstreamTLS() *tls.Config {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.cfg.UpstreamTLS != nil {
		cfg = s.cfg.UpstreamTLS.Clone()
	}
	if cfg.ServerName == "" {
		cfg.ServerName = s.target.host
	}
	cfg.NextProtos = []string{"http/1.1"}
	return cfg
}

// ServerTLS returns a configuration for clients from a certificate and key in
// PEM files, which are read again when they change.
func ServerTLS(certFile, keyFile string) (*tls.Config, error) {
	c := &certificate{cert: certFile, key: keyFile}
	if _, err := c.get(nil); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get, NextProtos: []string{"http/1.1"}}, nil
}

// certificate is a key pair that follows its files.
type certificate struct {
	cert, key string

	mu     sync.Mutex // protects what follows
	loaded *tls.Certificate
	stamp  [2]time.Time
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var stamp [2]time.Time
	for i, name := range []string{c.cert, c.key} {
		fi, err := os.Stat(name)
		if err != nil {
			if c.loaded != nil {
				return c.loaded, nil // being replaced: the old one still holds
			}
			return nil, fmt.Errorf("reading the certificate: %w", err)
		}
		stamp[i] = fi.ModTime()
	}
	if c.loaded != nil && stamp == c.stamp {
		return c.loaded, nil
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		if c.loaded != nil {
			return c.loaded, nil
		}
		return nil, fmt.Errorf("reading the certificate: %w", err)
	}
	c.loaded, c.stamp = &pair, stamp
	return c.loaded, nil
}
