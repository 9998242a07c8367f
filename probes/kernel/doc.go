// Package kernel is what the probe families stand on: it loads their BPF objects,
// attaches programs to tracepoints and library functions, reads their rings and
// counters, and takes everything down again without a trace. It does not know what
// an event means, which processes matter, or what a probe may cost.
//
// Everything here only reads: no program writes to a process, and the traps that
// uprobes put into text pages belong to the kernel, which removes them on Close.
package kernel
