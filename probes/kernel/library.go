//go:build linux && amd64

package kernel

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
)

// Symbol is a function of a library.
type Symbol struct {
	// Offset is where it begins in the file.
	Offset uint64
	// First says what it begins with.
	First First
}

// At is the offset in the function where a trap is cheapest.
func (s Symbol) At() uint64 {
	if s.First == Marked {
		return 4
	}
	return 0
}

// Symbols finds functions that a library exports. One that is not there is missing
// from the result.
func Symbols(library string, names ...string) (map[string]Symbol, error) {
	f, err := elf.Open(library)
	if err != nil {
		return nil, fmt.Errorf("reading a library: %w", err)
	}
	defer func() { _ = f.Close() }()
	all, err := f.DynamicSymbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return nil, fmt.Errorf("reading a library's symbols: %w", err)
	}
	want := map[string]bool{}
	for _, n := range names {
		want[n] = true
	}
	out := map[string]Symbol{}
	for _, s := range all {
		if !want[s.Name] || elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Section == elf.SHN_UNDEF {
			continue
		}
		if p := segment(f, s.Value); p != nil {
			var code [8]byte
			_, _ = p.ReadAt(code[:], int64(s.Value-p.Vaddr)) // short at the very end: zeros are stepped
			out[s.Name] = Symbol{Offset: s.Value - p.Vaddr + p.Off, First: FirstOf(code[:])}
		}
	}
	return out, nil
}

func segment(f *elf.File, addr uint64) *elf.Prog {
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && addr >= p.Vaddr && addr < p.Vaddr+p.Filesz {
			return p
		}
	}
	return nil
}

// breakpoint is the instruction that a uprobe puts into a text page (int3).
const breakpoint = 0xcc

// Trapped reports whether a trap is in a process's text at a file offset of a mapped
// library. It reads the process's memory and nothing else.
func Trapped(pid int, m *Mapping, offset uint64) (bool, error) {
	if offset < m.Offset || offset >= m.Offset+(m.End-m.Start) {
		return false, fmt.Errorf("offset %#x is not in the mapping", offset)
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return false, fmt.Errorf("reading a text page: %w", err)
	}
	defer func() { _ = f.Close() }()
	var b [1]byte
	if _, err := f.ReadAt(b[:], int64(m.Start+offset-m.Offset)); err != nil {
		return false, fmt.Errorf("reading a text page: %w", err)
	}
	return b[0] == breakpoint, nil
}
