//go:build linux && amd64

// Package socket sees connector sockets: who connects to whom, Mooncake's headers and
// acknowledgements over TCP, and ZMTP where libzmq itself cannot be probed.
package socket

import "github.com/omnitap/omnitap/probes/kernel"

// Config says what of the payloads is wanted.
type Config struct {
	// ZMTP copies what stream sockets carry, up to 8 KiB a call.
	ZMTP bool
	// Mooncake tells the 24-byte headers and 8-byte acknowledgements of its TCP transport.
	Mooncake  bool
	RingBytes int
}

// Load loads the family and attaches it.
func Load(w *kernel.Watch, c Config) (*kernel.Family, error) {
	spec, err := loadBpf()
	if err != nil {
		return nil, err
	}
	f, err := kernel.Load(kernel.Config{
		Name: "socket", Spec: spec, Watch: w, RingBytes: c.RingBytes,
		Variables: map[string]any{"zmtp": flag(c.ZMTP), "mooncake": flag(c.Mooncake)},
	})
	if err != nil {
		return nil, err
	}
	names := []string{"enter_bind", "enter_connect", "exit_accept", "exit_accept4", "enter_close"}
	for _, call := range []string{"sendto", "write", "recvfrom", "read", "sendmsg", "recvmsg", "writev", "readv"} {
		names = append(names, "exit_"+call, "enter_"+call)
	}
	err = f.Tracepoints(kernel.Syscalls(names...))
	if err == nil {
		err = f.RawTracepoint("inet_sock_set_state", "sock_state")
	}
	return kernel.Keep(f, err)
}

func flag(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
