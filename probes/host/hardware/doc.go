// Package hardware reads what machine a measurement ran on: kernel, CPUs and how their
// frequency is governed, memory, clock source, GPUs with their clocks, limits and modes.
//
// GPUs are asked through NVML, whose library is opened when it is asked for; a program
// that is built without cgo, or runs where there is none, takes what the driver shows in
// /proc and says what is missing. It reads once; sampling a GPU over time is not its job,
// and it sets nothing.
package hardware
