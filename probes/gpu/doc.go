// Package gpu samples NVIDIA cards while a server works: power, the energy counter, use,
// memory, clocks, temperature, what throttles them, and the memory of each process.
//
//	s, err := gpu.New(gpu.Config{Sink: write})
//	err = s.Run(ctx)
//
// What a card or its driver does not say is nil with a reason, never 0: a function that
// an old driver lacks, an answer of "not supported", an answer whose bits are all ones
// (NVML's "not available"), a memory of 0 bytes in all. Use of a card that is split into
// instances (MIG) is not said by NVML: the card is shown with MIG set, and its instances
// as devices of their own. A lost card is named, all it said before is nil, and the others
// go on.
//
// The energy counter of a card is read as often as a hundredth of a core allows, or once in
// 0.9 s: with some drivers a reading takes milliseconds. Samples without it say so.
//
// NVML is opened by Run, and nothing of it ends the program: functions are looked up one
// by one before they are called, a library that cannot be opened or breaks is tried again
// slowly and a bounded number of times, and a call that never returns holds the sampler
// alone. Without cgo, or off Linux, the reason is that it was built so.
//
// Out of scope: what a card is and how it was set (probes/host/hardware reads that once),
// energy over a run (exporter/energy), and changing any setting.
package gpu
