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
	// code is the byte where the trap goes, as the file has it.
	code byte
}

// At is the offset in the function where a trap is cheapest.
func (s Symbol) At() uint64 {
	if s.First == Marked {
		return 4
	}
	return 0
}

// NotLibraryError is a file that no probe is put into. A return probe changes return
// addresses, which a runtime that moves or walks its stacks does not survive: it never
// goes into a program (an interpreter is one), nor into a library that Go made.
type NotLibraryError struct{ Why string }

// Error says why.
func (e *NotLibraryError) Error() string { return "not a library to be probed: " + e.Why }

// isLibrary checks what Symbols is given.
func isLibrary(f *elf.File) error {
	if f.Class != elf.ELFCLASS64 || f.Machine != elf.EM_X86_64 {
		return &NotLibraryError{fmt.Sprintf("it is for %v %v", f.Class, f.Machine)}
	}
	if f.Type != elf.ET_DYN {
		return &NotLibraryError{fmt.Sprintf("it is %v, a program", f.Type)}
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return &NotLibraryError{"it is a program"}
		}
	}
	for _, s := range f.Sections {
		if s.Name == ".gopclntab" || s.Name == ".go.buildinfo" {
			return &NotLibraryError{"Go made it"}
		}
	}
	return nil
}

// Symbols finds functions that a library exports. One that is not there is missing
// from the result. A *NotLibraryError says what must not be probed at all.
func Symbols(library string, names ...string) (map[string]Symbol, error) {
	f, err := elf.Open(library)
	if err != nil {
		return nil, fmt.Errorf("reading a library: %w", err)
	}
	defer func() { _ = f.Close() }()
	if err := isLibrary(f); err != nil {
		return nil, err
	}
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
			sym := Symbol{Offset: s.Value - p.Vaddr + p.Off, First: FirstOf(code[:])}
			sym.code = code[sym.At()]
			out[s.Name] = sym
		}
	}
	return out, nil
}

func segment(f *elf.File, addr uint64) *elf.Prog {
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && addr >= p.Vaddr && addr < p.Vaddr+p.Filesz {
			return p
		}
	}
	return nil
}

// Trapped reports whether a trap is in a process's text where a symbol of a mapped
// library has its probe: whether the byte there is another one than the file's (int3,
// or a call where the kernel has replaced a nop). It reads the process's memory and
// nothing else.
func Trapped(pid int, m *Mapping, s Symbol) (bool, error) {
	offset := s.Offset + s.At()
	if offset < m.Offset || offset-m.Offset >= m.End-m.Start {
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
	return b[0] != s.code, nil
}
