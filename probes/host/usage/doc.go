// Package usage samples what the processes of a server's stages take of the machine, and
// what the machine has: CPU time, memory, and the traffic of network namespaces.
//
//	s, err := usage.New(usage.Config{Processes: stages, Sink: write})
//	err = s.Run(ctx)
//
// The caller names the processes, by pid and start: a pid that another process has by now
// is never taken for it. A process that ends is told once more, with the reason, and then
// no more.
//
// CPU time is the process's own clock (all threads, also ended ones, in nanoseconds), or
// the ticks of /proc/PID/stat where that cannot be had. RSS comes with each sample; PSS,
// which shares out what processes map together, makes the kernel walk the page tables: it
// is read every ten seconds, and so seldom that it takes a hundredth of a core at most.
//
// The kernel counts traffic per network namespace and not per process: namespaces are
// rows of their own, and a process says in which it is. Traffic through loopback, as
// between stages on one host, is apart.
//
// Out of scope: finding the processes (probes/find), the time that others took
// (probes/host/foreign), GPUs (probes/gpu). Nothing is attached to or written to; reads
// and the number of processes are bounded.
package usage
