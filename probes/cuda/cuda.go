//go:build linux && amd64

// Package cuda sees calls of the CUDA driver library in watched processes: host time
// only. The driver's layer sees what the runtime calls too, so that the runtime is not
// probed as well: calls would count twice.
package cuda

import (
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
		k := kernel.Function{Name: fn.Name, Symbol: s, Entry: "enter_told", Return: "exit_told", Cookie: uint64(i)}
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

// countKey and count are the structs of cuda.bpf.c.
type countKey struct{ TGID, Fn uint32 }

type count struct{ First, Last, Count, Bytes, Look uint64 }

// Counter takes what is counted in the kernel. The zero value is ready.
type Counter struct {
	look uint64
	seen map[countKey]seen
}

// seen is what was taken already, and for how many looks nothing came.
type seen struct {
	count
	idle int
}

// forget is after how many looks without a call a process's count is given up.
const forget = 600

// Take returns what was counted since the last time, one event a process and function.
// The kernel's counts only grow and are never reset, so that no call is missed.
func (c *Counter) Take(f *kernel.Family) (out []event.Event, err error) {
	m := f.Map("counted")
	now := map[countKey]seen{}
	var key countKey
	var value count
	it := m.Iterate()
	for it.Next(&key, &value) {
		old, known := c.seen[key]
		next := seen{count: value}
		if known && value.Count == old.Count {
			next.idle = old.idle + 1
		} else if int(key.Fn) < len(Functions) {
			out = append(out, counted(key, value, old.count))
		}
		now[key] = next
	}
	if err := it.Err(); err != nil {
		return out, fmt.Errorf("cuda: reading counts: %w", err)
	}
	for k, s := range now {
		if s.idle > forget {
			delete(now, k)
			_ = m.Delete(k) // it may be gone
		}
	}
	c.seen = now
	c.look++
	return out, f.Set("look", c.look+1)
}

// counted is the event of what came since old.
func counted(k countKey, now, old count) event.Event {
	return event.Event{
		Probe: event.CUDACount, PID: int32(k.TGID), TID: int32(k.TGID), Path: Functions[k.Fn].Name,
		// calls between a look and the next one's number keep the older first
		EnterNS: int64(max(now.First, old.Last)), MonoNS: int64(now.Last),
		Count: int64(now.Count - old.Count), Size: int64(now.Bytes - old.Bytes),
	}
}
