//go:build linux && amd64

// Package zmq sees ZMQ messages at libzmq's own calls in watched processes: the first
// 1 KiB and the last 64 bytes of every frame.
package zmq

import "github.com/omnitap/omnitap/probes/kernel"

// Load loads the family; Attach gives it libraries.
func Load(w *kernel.Watch, ringBytes int, multi bool) (*kernel.Family, error) {
	spec, err := loadBpf()
	if err != nil {
		return nil, err
	}
	return kernel.Load(kernel.Config{Name: "zmq", Spec: spec, Watch: w, RingBytes: ringBytes, Multi: multi})
}

// functions are what is probed; zmq_send and zmq_recv are the buffer forms.
func functions() []kernel.Function {
	return []kernel.Function{
		{Symbol: "zmq_msg_send", Entry: "enter_msg_send", Return: "exit_send"},
		{Symbol: "zmq_msg_recv", Entry: "enter_msg_recv", Return: "exit_msg_recv"},
		{Symbol: "zmq_send", Entry: "enter_send", Return: "exit_send"},
		{Symbol: "zmq_bind", Entry: "enter_bind"},
		{Symbol: "zmq_connect", Entry: "enter_connect"},
	}
}

// Attach probes one libzmq, given by a path that omnitap can open.
func Attach(f *kernel.Family, library string) error {
	return f.Functions(library, functions())
}
