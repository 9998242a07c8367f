//go:build linux && amd64

package kernel

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// First says what a function begins with, which decides what a trap there costs.
type First int

// The kinds of first instructions.
const (
	// Emulated is one that the kernel carries out itself: push, nop, jump, call.
	Emulated First = iota
	// Stepped is one that has to be single-stepped, at some twenty times the cost.
	Stepped
	// Marked is an endbr64 before an emulated one: the trap goes behind it.
	Marked
)

func (k First) String() string { return [...]string{"emulated", "single-stepped", "behind endbr64"}[k] }

// FirstOf tells the kind from a function's first bytes (arch/x86/kernel/uprobes.c,
// branch_setup_xol_ops and push_setup_xol_ops).
func FirstOf(code []byte) First {
	if len(code) >= 5 && binary.LittleEndian.Uint32(code) == 0xfa1e0ff3 {
		if emulated(code[4:]) {
			return Marked
		}
		return Stepped
	}
	if emulated(code) {
		return Emulated
	}
	return Stepped
}

func emulated(code []byte) bool {
	if len(code) == 0 {
		return false
	}
	c := code[0]
	if c == 0x41 && len(code) > 1 { // a REX prefix: push %r8 to %r15
		return code[1] >= 0x50 && code[1] <= 0x57
	}
	switch {
	case c >= 0x50 && c <= 0x57, c >= 0x70 && c <= 0x7f, c == 0xe8, c == 0xe9, c == 0xeb, c == 0x90:
		return true
	}
	return c == 0x0f && len(code) > 1 && (code[1] == 0x1f || code[1]&0xf0 == 0x80) // long nop, long jump
}

// TrapCost is what one hit of an empty program costs the process, nanoseconds, at a
// function's entry and at its entry and return together.
type TrapCost struct{ Entry, Pair float64 }

// calibrationCalls is how often the calibration calls its function: enough that half a
// microsecond each stands out of a process's start.
const calibrationCalls = 5000

// Calibrate measures what a trap costs on this host, on a tiny program of its own that
// calls a function over and over, with and without a probe on it.
func Calibrate(ctx context.Context, multi bool, kinds ...First) (map[First]TrapCost, error) {
	prog, err := emptyProgram(multi)
	if err != nil {
		return nil, err
	}
	defer func() { _ = prog.Close() }()
	dir, err := os.MkdirTemp("", "omnitap-calibrate-")
	if err != nil {
		return nil, fmt.Errorf("calibrating: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := map[First]TrapCost{}
	for _, k := range kinds {
		c, err := calibrate(ctx, filepath.Join(dir, fmt.Sprint(int(k))), k, prog, multi)
		if err != nil {
			return nil, fmt.Errorf("calibrating: %w", cause(err))
		}
		out[k] = c
	}
	return out, nil
}

func emptyProgram(multi bool) (*ebpf.Program, error) {
	spec := &ebpf.ProgramSpec{
		Name: "calibrate", Type: ebpf.Kprobe, License: "Dual MIT/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	}
	if multi {
		spec.AttachType = ebpf.AttachTraceUprobeMulti
	}
	p, err := ebpf.NewProgram(spec)
	if err != nil {
		return nil, fmt.Errorf("calibrating: %w", cause(err))
	}
	return p, nil
}

func calibrate(ctx context.Context, file string, k First, prog *ebpf.Program, multi bool) (c TrapCost, err error) {
	image, at := caller(k, calibrationCalls)
	if err := os.WriteFile(file, image, 0o700); err != nil {
		return c, fmt.Errorf("writing a program: %w", err)
	}
	bare, err := best(ctx, file)
	if err != nil {
		return c, err
	}
	ex, err := link.OpenExecutable(file)
	if err != nil {
		return c, err
	}
	measure := func(rets ...bool) (float64, error) {
		for _, ret := range rets {
			l, err := attachAt(ex, prog, at, ret, multi)
			if err != nil {
				return 0, err
			}
			defer func() { _ = l.Close() }()
		}
		d, err := best(ctx, file)
		return float64(d-bare) / calibrationCalls, err
	}
	if c.Entry, err = measure(false); err != nil {
		return c, err
	}
	c.Pair, err = measure(false, true)
	return c, err
}

func attachAt(ex *link.Executable, prog *ebpf.Program, at uint64, ret, multi bool) (link.Link, error) {
	if multi {
		if ret {
			return ex.UretprobeMulti(nil, prog, &link.UprobeMultiOptions{Addresses: []uint64{at}})
		}
		return ex.UprobeMulti(nil, prog, &link.UprobeMultiOptions{Addresses: []uint64{at}})
	}
	if ret {
		return ex.Uretprobe("calibrate", prog, &link.UprobeOptions{Address: at})
	}
	return ex.Uprobe("calibrate", prog, &link.UprobeOptions{Address: at})
}

// best is the least CPU time of some runs: everything else that happens adds to it.
func best(ctx context.Context, file string) (time.Duration, error) {
	least := time.Duration(0)
	for range 3 {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		d, err := once(file)
		if err != nil {
			return 0, err
		}
		if least == 0 || d < least {
			least = d
		}
	}
	return least, nil
}

// once runs the program, which takes milliseconds, and returns its CPU time.
func once(file string) (time.Duration, error) {
	p, err := os.StartProcess(file, []string{file}, &os.ProcAttr{})
	if err != nil {
		return 0, fmt.Errorf("running the calibration program: %w", err)
	}
	st, err := p.Wait()
	if err != nil {
		return 0, fmt.Errorf("running the calibration program: %w", err)
	}
	if !st.Success() {
		return 0, fmt.Errorf("the calibration program ended with %s", st)
	}
	return st.UserTime() + st.SystemTime(), nil
}

// caller makes a program (ELF64, static, no sections) that calls a function n times and
// ends, and tells the file offset where a probe of the function goes.
func caller(k First, n uint32) (image []byte, at uint64) {
	const base, start, fn = 0x400000, 0x80, 0xc0
	le := binary.LittleEndian
	image = make([]byte, 0x100)
	copy(image, "\x7fELF\x02\x01\x01")
	le.PutUint16(image[16:], 2)  // an executable
	le.PutUint16(image[18:], 62) // for x86-64
	le.PutUint32(image[20:], 1)  // version
	le.PutUint64(image[24:], base+start)
	le.PutUint64(image[32:], 64) // program headers
	le.PutUint16(image[52:], 64)
	le.PutUint16(image[54:], 56)
	le.PutUint16(image[56:], 1)
	ph := image[64:]
	le.PutUint32(ph, 1)     // load
	le.PutUint32(ph[4:], 5) // read, execute
	le.PutUint64(ph[16:], base)
	le.PutUint64(ph[24:], base)
	le.PutUint64(ph[32:], uint64(len(image)))
	le.PutUint64(ph[40:], uint64(len(image)))
	le.PutUint64(ph[48:], 0x1000)

	code := append([]byte{0xbb}, le.AppendUint32(nil, n)...) // mov $n, %ebx
	loop := start + len(code)
	code = append(code, 0xe8) // call fn
	code = le.AppendUint32(code, uint32(int32(fn-(start+len(code)+4))))
	code = append(code, 0xff, 0xcb, 0x75) // dec %ebx; jnz loop
	code = append(code, byte(loop-(start+len(code)+1)))
	code = append(code, 0xb8, 231, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05) // exit_group(0)
	copy(image[start:], code)

	body := map[First][]byte{
		Emulated: {0x55, 0x5d, 0xc3},                         // push %rbp; pop %rbp; ret
		Stepped:  {0x48, 0x89, 0xf8, 0xc3},                   // mov %rdi, %rax; ret
		Marked:   {0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x5d, 0xc3}, // endbr64; push; pop; ret
	}[k]
	copy(image[fn:], body)
	if k == Marked {
		return image, fn + 4
	}
	return image, fn
}
