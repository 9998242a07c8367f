//go:build linux && amd64

package kernel

import (
	"debug/elf"
	"errors"
	"fmt"
)

// Symbols returns the functions that a library exports.
func Symbols(library string) (map[string]bool, error) {
	f, err := elf.Open(library)
	if err != nil {
		return nil, fmt.Errorf("reading a library: %w", err)
	}
	defer func() { _ = f.Close() }()
	all, err := f.DynamicSymbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return nil, fmt.Errorf("reading a library's symbols: %w", err)
	}
	out := map[string]bool{}
	for _, s := range all {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Section != elf.SHN_UNDEF {
			out[s.Name] = true
		}
	}
	return out, nil
}
