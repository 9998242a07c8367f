package join

import (
	"sort"
	"strings"

	"github.com/omnitap/omnitap/probes/event"
)

// verb is what a call of the driver is for.
type verb uint8

const (
	other verb = iota
	graphLaunch
	kernelLaunch
	eventSync
	streamSync
	copyToDevice
	copyToHost
	copyOnDevice
	copyAny
	handleIPC
)

// call is one call of the driver. Head and tail of the stack are not told: it is from
// a process's thread, by time.
type call struct {
	enter, at int64
	size      int64
	tid       int32
	verb      verb
}

// tally is several calls of one function, counted in the kernel.
type tally struct {
	first, last, n int64
	verb           verb
}

// verbOf knows a function of the driver by its name. The suffixes of later versions
// (_v2, _ptsz, _ptds) mean the same.
func verbOf(fn string) verb {
	fn, _ = strings.CutSuffix(fn, "_ptsz")
	fn, _ = strings.CutSuffix(fn, "_ptds")
	fn, _ = strings.CutSuffix(fn, "_v2")
	switch fn {
	case "cuGraphLaunch":
		return graphLaunch
	case "cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel":
		return kernelLaunch
	case "cuEventSynchronize":
		return eventSync
	case "cuStreamSynchronize", "cuCtxSynchronize":
		return streamSync
	case "cuMemcpyHtoDAsync", "cuMemcpyHtoD":
		return copyToDevice
	case "cuMemcpyDtoHAsync", "cuMemcpyDtoH":
		return copyToHost
	case "cuMemcpyDtoDAsync", "cuMemcpyDtoD":
		return copyOnDevice
	case "cuMemcpyAsync", "cuMemcpy":
		return copyAny
	case "cuIpcOpenMemHandle", "cuIpcGetMemHandle":
		return handleIPC
	}
	return other
}

// cuda takes a call of the driver. Calls of the runtime are not counted: each of them
// shows again at the driver.
func (j *Joiner) cuda(e *event.Event) {
	p := j.procs[e.PID]
	if p == nil {
		return
	}
	v := verbOf(e.Path)
	if v == other {
		return
	}
	if e.Probe == event.CUDACount {
		p.tally.add(tally{stampOf(e), e.MonoNS, e.Count, v})
		return
	}
	p.calls.add(call{stampOf(e), e.MonoNS, e.Size, e.TID, v})
}

// GPU is what a stage's process asked of the driver over a stretch of time: host
// time alone, never the time on the device.
type GPU struct {
	// Steps is the number of marks of a step's end: see Step.
	Steps int
	// GraphLaunches, Launches and Syncs are counts. LaunchesAtLeast says that launches
	// were counted in the kernel and a count lies partly outside, which is left out.
	GraphLaunches, Launches, Syncs int64
	LaunchesAtLeast                bool
	// SyncNS is the time within calls that wait for the device.
	SyncNS int64
	// ToDevice, ToHost and OnDevice are copies and their bytes; Untold copies do not
	// say their direction.
	ToDevice, ToHost, OnDevice, Untold Copies
	// StepNS is the mean time from a step's first launch to its end, 0 where no step
	// had a launch of its own.
	StepNS int64
}

// Copies counts copies and their bytes.
type Copies struct{ N, Bytes int64 }

func (c *Copies) add(size int64) { c.N, c.Bytes = c.N+1, c.Bytes+size }

// Step is one step of a stage's model as the driver's calls show it. StartNS is its
// first launch of a graph or kernel, 0 where none was seen (a prefill beyond the
// captured sizes whose kernels are not traced); EndNS the return of the call that
// waited for it.
type Step struct {
	StartNS, EndNS int64
	Graphs         int
}

// steps finds a process's steps in its calls. With asynchronous scheduling (thinker,
// talker) a second thread waits for an event exactly once a step. Without it
// (code2wav) the main thread waits for its stream once a chunk.
func steps(calls []call, main int32) []Step {
	mark := func(c *call) bool { return c.verb == streamSync && c.tid == main }
	for i := range calls {
		if calls[i].verb == eventSync && calls[i].tid != main {
			mark = func(c *call) bool { return c.verb == eventSync && c.tid != main }
			break
		}
	}
	var out []Step
	var s Step
	for i := range calls {
		c := &calls[i]
		switch {
		case c.verb == graphLaunch || c.verb == kernelLaunch:
			if s.StartNS == 0 {
				s.StartNS = c.enter
			}
			if c.verb == graphLaunch {
				s.Graphs++
			}
		case mark(c):
			s.EndNS = c.at
			out = append(out, s)
			s = Step{}
		}
	}
	return out
}

// work sums what a process asked of the driver in a stretch of time, nil for nothing.
func (p *process) work(from, to int64) *GPU {
	calls := make([]call, 0, 256)
	// Calls lie in order of their return.
	n := p.calls.len()
	for i := sort.Search(n, func(i int) bool { return p.calls.at(i).at >= from }); i < n; i++ {
		c := p.calls.at(i)
		if c.at > to {
			break
		}
		if c.enter >= from {
			calls = append(calls, *c)
		}
	}
	g := &GPU{}
	found := len(calls) > 0
	for _, t := range p.tally.all() {
		if t.last < from || t.first > to {
			continue
		}
		found = true
		if t.first < from || t.last > to {
			g.LaunchesAtLeast = true
			continue
		}
		g.count(t.verb, t.n)
	}
	if !found {
		return nil
	}
	for i := range calls {
		g.add(&calls[i])
	}
	var sum, launched int64
	for _, s := range steps(calls, p.pid) {
		g.Steps++
		if s.StartNS > 0 {
			sum, launched = sum+s.EndNS-s.StartNS, launched+1
		}
	}
	if launched > 0 {
		g.StepNS = sum / launched
	}
	return g
}

func (g *GPU) count(v verb, n int64) {
	switch v {
	case graphLaunch:
		g.GraphLaunches += n
	case kernelLaunch:
		g.Launches += n
	case eventSync, streamSync:
		g.Syncs += n
	default:
		// Copies are told one by one, with their bytes.
	}
}

func (g *GPU) add(c *call) {
	g.count(c.verb, 1)
	switch c.verb {
	case eventSync, streamSync:
		g.SyncNS += c.at - c.enter
	case copyToDevice:
		g.ToDevice.add(c.size)
	case copyToHost:
		g.ToHost.add(c.size)
	case copyOnDevice:
		g.OnDevice.add(c.size)
	case copyAny:
		g.Untold.add(c.size)
	default:
		// Launches have no more to tell.
	}
}
