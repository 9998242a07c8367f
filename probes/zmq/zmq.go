//go:build linux && amd64

// Package zmq sees ZMQ messages at libzmq's own calls in watched processes: the first
// 1 KiB and the last 64 bytes of every frame.
package zmq

import (
	"fmt"
	"maps"
	"slices"

	"github.com/omnitap/omnitap/probes/kernel"
)

// Load loads the family; Attach gives it libraries.
func Load(w *kernel.Watch, ringBytes int, multi bool) (*kernel.Family, error) {
	spec, err := loadBpf()
	if err != nil {
		return nil, err
	}
	return kernel.Load(kernel.Config{Name: "zmq", Spec: spec, Watch: w, RingBytes: ringBytes, Multi: multi})
}

// functions are what is probed, by symbol; zmq_send is the buffer form of a send.
var functions = map[string]kernel.Function{
	"zmq_msg_send": {Entry: "enter_msg_send", Return: "exit_send"},
	"zmq_msg_recv": {Entry: "enter_msg_recv", Return: "exit_msg_recv"},
	"zmq_send":     {Entry: "enter_send", Return: "exit_send"},
	"zmq_bind":     {Entry: "enter_bind"},
	"zmq_connect":  {Entry: "enter_connect"},
}

// Attach probes one libzmq, given by a path that omnitap can open, and returns what it
// found there. A library that hides the two message calls cannot be probed.
func Attach(f *kernel.Family, library string) (map[string]kernel.Symbol, error) {
	found, err := kernel.Symbols(library, slices.Collect(maps.Keys(functions))...)
	if err != nil {
		return nil, fmt.Errorf("zmq: %w", err)
	}
	for _, need := range []string{"zmq_msg_send", "zmq_msg_recv"} {
		if _, ok := found[need]; !ok {
			return nil, fmt.Errorf("zmq: the library does not export %s: it is stripped or linked statically", need)
		}
	}
	var fns []kernel.Function
	for _, name := range slices.Sorted(maps.Keys(found)) {
		fn := functions[name]
		fn.Name, fn.Symbol = name, found[name]
		fns = append(fns, fn)
	}
	return found, f.Functions(library, fns)
}
