// Package host is the ground that what looks at the machine stands on: where the files
// of /proc and /sys lie (Root), sets of CPUs, and a watch for steps of the wall clock.
//
//   - host/ledger reads once what runs there: versions, command lines, model, machine;
//   - host/foreign measures during a run how much CPU time others took.
//
// Everything is read from outside: nothing of a watched process is run, imported,
// traced or written to. Reads are bounded, and Root makes each of them a fixture's in
// tests.
package host
