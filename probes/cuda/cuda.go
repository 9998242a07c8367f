//go:build linux && amd64

// Package cuda sees calls of the CUDA driver library in watched processes: host time
// only. The driver's layer sees what the runtime calls too, so that the runtime is not
// probed as well: calls would count twice.
package cuda

import (
	"encoding/binary"
	"fmt"

	"github.com/omnitap/omnitap/probes/event"
	"github.com/omnitap/omnitap/probes/kernel"
)

// Function is one function of the driver.
type Function struct {
	Name string
	// Bytes says that the third argument is a number of bytes (CUDA Driver API).
	Bytes bool
	// Launch says that it is called at launch rate: it is counted, never told one by
	// one, and off unless asked for.
	Launch bool
}

// Functions are what is probed; their order is the cookie.
var Functions = []Function{
	{Name: "cuGraphLaunch"},
	{Name: "cuStreamSynchronize"},
	{Name: "cuEventSynchronize"},
	{Name: "cuCtxSynchronize"},
	{Name: "cuMemcpyHtoDAsync_v2", Bytes: true},
	{Name: "cuMemcpyDtoHAsync_v2", Bytes: true},
	{Name: "cuMemcpyDtoDAsync_v2", Bytes: true},
	{Name: "cuMemcpyAsync", Bytes: true},
	{Name: "cuIpcGetMemHandle"},
	{Name: "cuIpcOpenMemHandle_v2"},
	{Name: "cuIpcCloseMemHandle"},
	{Name: "cuLaunchKernel", Launch: true},
	{Name: "cuLaunchKernelEx", Launch: true},
}

const cookieBytes = 1 << 16 // of cuda.bpf.c

// Config says what is wanted.
type Config struct {
	// Launches counts kernel launches too.
	Launches bool
	// LeastCopy is the bytes from which a copy is told one by one; smaller ones are
	// counted. 0 for 64 KiB.
	LeastCopy uint64
	RingBytes int
	Multi     bool
}

// Load loads the family; Attach gives it libraries.
func Load(w *kernel.Watch, c Config) (*kernel.Family, error) {
	spec, err := loadBpf()
	if err != nil {
		return nil, err
	}
	vars := map[string]any{}
	if c.LeastCopy > 0 {
		vars["least_copy"] = c.LeastCopy
	}
	return kernel.Load(kernel.Config{Name: "cuda", Spec: spec, Watch: w, RingBytes: c.RingBytes, Variables: vars, Multi: c.Multi})
}

// Attach probes one libcuda, given by a path that omnitap can open, and returns what it
// found there; functions that the library lacks are left out.
func Attach(f *kernel.Family, library string, launches bool) (map[string]kernel.Symbol, error) {
	var names []string
	for _, fn := range Functions {
		if launches || !fn.Launch {
			names = append(names, fn.Name)
		}
	}
	found, err := kernel.Symbols(library, names...)
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	var fns []kernel.Function
	for i, fn := range Functions {
		s, ok := found[fn.Name]
		if !ok {
			continue
		}
		k := kernel.Function{Symbol: fn.Name, Offset: s.At(), Entry: "enter_told", Return: "exit_told", Cookie: uint64(i)}
		if fn.Bytes {
			k.Cookie |= cookieBytes
		}
		if fn.Launch {
			k.Entry, k.Return = "enter_counted", ""
		}
		fns = append(fns, k)
	}
	if len(fns) == 0 {
		return nil, fmt.Errorf("cuda: the library has none of the driver's functions")
	}
	return found, f.Functions(library, fns)
}

// Name words the events of this family: which function a call was.
func Name(e *event.Event) {
	if e.Probe == event.CUDACall && e.Flags >= 0 && int(e.Flags) < len(Functions) {
		e.Path, e.Flags = Functions[e.Flags].Name, 0
	}
}

// Counted takes what was counted since the last time, one event a process and
// function.
func Counted(f *kernel.Family) (out []event.Event, err error) {
	m := f.Map("counted")
	var key, value [32]byte
	var keys [][8]byte
	it := m.Iterate()
	for it.Next((*[8]byte)(key[:8]), &value) {
		keys = append(keys, [8]byte(key[:8]))
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("cuda: reading counts: %w", err)
	}
	for _, k := range keys {
		if err := m.LookupAndDelete(k, &value); err != nil {
			continue // somebody was faster
		}
		u64 := binary.NativeEndian.Uint64
		fn := int(binary.NativeEndian.Uint32(k[4:]))
		if fn >= len(Functions) {
			continue
		}
		pid := int32(binary.NativeEndian.Uint32(k[:]))
		out = append(out, event.Event{
			Probe: event.CUDACount, PID: pid, TID: pid, Path: Functions[fn].Name,
			EnterNS: int64(u64(value[:])), MonoNS: int64(u64(value[8:])), Count: int64(u64(value[16:])), Size: int64(u64(value[24:])),
		})
	}
	return out, nil
}
