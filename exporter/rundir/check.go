package rundir

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// SealKind is a kind of difference between a run directory and its seal.
type SealKind string

// The kinds of differences.
const (
	// SealMissing is a file that SHA256SUMS names and that is not there.
	SealMissing SealKind = "missing"
	// SealChanged is a file whose hash is another one.
	SealChanged SealKind = "changed"
	// SealForeign is what SHA256SUMS does not name, or, in a run that is not sealed,
	// what is no part of a run.
	SealForeign SealKind = "foreign"
	// SealLink is a symbolic link, or anything else that is no regular file, under
	// the name of a file.
	SealLink SealKind = "link"
	// SealMode is a file or directory with another mode than sealing gave it: its
	// bytes are what they were, but it can be written to.
	SealMode SealKind = "mode"
	// SealSums is a line of SHA256SUMS that is none.
	SealSums SealKind = "sums"
)

// SealProblem is one difference.
type SealProblem struct {
	Kind   SealKind `json:"kind"`
	File   string   `json:"file"`
	Detail string   `json:"detail"`
}

// String names the file and what is wrong with it.
func (p SealProblem) String() string { return p.File + ": " + p.Detail }

// SealState is what CheckSeal finds.
type SealState struct {
	// Sealed says that SHA256SUMS is there; Why says why it is not, empty if it is.
	Sealed bool   `json:"sealed"`
	Why    string `json:"why,omitempty"`
	// Digest is the SHA-256 of SHA256SUMS, in hex: whoever noted it elsewhere can tell
	// whether somebody changed the run and sealed it anew.
	Digest string `json:"digest,omitempty"`
	// Files and Bytes count what was hashed.
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
	// Problems are the differences, by name of file.
	Problems []SealProblem `json:"problems"`
}

// OK reports whether the run is sealed and nothing differs from its seal.
func (s *SealState) OK() bool { return s.Sealed && len(s.Problems) == 0 }

// CheckSeal compares a run directory with its SHA256SUMS. It changes nothing. The
// error is for a directory that cannot be read at all.
func CheckSeal(dir string) (*SealState, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the run directory: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the run directory: %w", err)
	}
	s := &SealState{Problems: []SealProblem{}}
	names := s.sums(dir)
	if !s.Sealed {
		s.unsealed(dir, entries)
		return s, nil
	}
	if m := info.Mode().Perm(); m != sealedDir {
		s.add(SealMode, ".", "mode %04o, sealing gave it %04o", m, sealedDir)
	}
	for _, e := range entries {
		if _, ok := names[e.Name()]; !ok && e.Name() != SumsFile {
			s.add(SealForeign, e.Name(), "%s that %s does not name", kindOf(e.Type()), SumsFile)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		s.file(dir, name, names[name])
	}
	if r := run(dir); r.Dir != "" && r.MetadataErr == nil && !r.Metadata.Sealed {
		s.add(SealChanged, MetadataFile, "it does not say that the run is sealed")
	}
	return s, nil
}

// run is what can be read of a directory, zero for nothing.
func run(dir string) *Run {
	r, err := Read(dir)
	if err != nil {
		return &Run{}
	}
	return r
}

func (s *SealState) add(kind SealKind, file, format string, a ...any) {
	s.Problems = append(s.Problems, SealProblem{kind, file, fmt.Sprintf(format, a...)})
}

// unsealed says how far a run came that has no SHA256SUMS.
func (s *SealState) unsealed(dir string, entries []fs.DirEntry) {
	r := run(dir)
	_, noneLeft := os.Lstat(filepath.Join(dir, nextSums))
	switch {
	case s.Why != "":
	case r.MetadataErr != nil || r.Dir == "":
		s.Why = "unsealed: the directory holds no whole run"
	case r.Metadata.Sealed || noneLeft == nil:
		s.Why = "unsealed: sealing did not come to its end, or " + SumsFile + " was taken away"
	case r.Closed:
		s.Why = "unsealed: the run was closed and never sealed"
	default:
		s.Why = "unsealed: the run was not closed: it is still being written, or its process died"
	}
	for _, e := range entries {
		switch known := slices.Contains(parts, e.Name()); {
		case known && !e.Type().IsRegular():
			s.add(SealLink, e.Name(), "%s in place of a file", kindOf(e.Type()))
		case !known && e.Name() != SumsFile && !slices.Contains(leftovers, e.Name()):
			s.add(SealForeign, e.Name(), "%s that is no part of a run", kindOf(e.Type()))
		}
	}
}

// file compares one file with the hash that SHA256SUMS has for it.
func (s *SealState) file(dir, name, want string) {
	info, err := os.Lstat(filepath.Join(dir, name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.add(SealMissing, name, "%s names it, and it is not there", SumsFile)
		return
	case err == nil && !info.Mode().IsRegular():
		s.add(SealLink, name, "%s in place of a file", kindOf(info.Mode().Type()))
		return
	}
	got, err := sumFile(dir, name, false)
	if err != nil {
		s.add(SealChanged, name, "it cannot be read: %v", err)
		return
	}
	s.Files++
	s.Bytes += got.bytes
	if got.hash != want {
		s.add(SealChanged, name, "its hash is %s, %s says %s", got.hash, SumsFile, want)
	}
	if m := info.Mode().Perm(); m != sealedFile {
		s.add(SealMode, name, "mode %04o, sealing gave it %04o", m, sealedFile)
	}
}

// maxSums bounds SHA256SUMS: it holds a dozen lines.
const maxSums = 64 << 10

// sums reads SHA256SUMS into hashes by name.
func (s *SealState) sums(dir string) map[string]string {
	path := filepath.Join(dir, SumsFile)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var text []byte
	switch {
	case err == nil && !info.Mode().IsRegular():
		err = fmt.Errorf("it is %s", kindOf(info.Mode().Type()))
	case err == nil && info.Size() > maxSums:
		err = fmt.Errorf("%d bytes are no list of a dozen hashes", info.Size())
	case err == nil:
		text, err = os.ReadFile(path)
	}
	if err != nil {
		s.Why = fmt.Sprintf("unsealed: reading %s: %v", SumsFile, err)
		return nil
	}
	digest := sha256.Sum256(text)
	s.Sealed, s.Digest = true, fmt.Sprintf("%x", digest)
	if m := info.Mode().Perm(); m != sealedFile {
		s.add(SealMode, SumsFile, "mode %04o, sealing gave it %04o", m, sealedFile)
	}
	names, faults := parseSums(text)
	for _, f := range faults {
		s.add(SealSums, SumsFile, "%s", f)
	}
	return names
}

// parseSums reads the lines `HASH  NAME` and `HASH *NAME`. A name is of this
// directory and no path.
func parseSums(text []byte) (names map[string]string, faults []string) {
	names = map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxSums+1)
	for n := 1; lines.Scan(); n++ {
		hash, name, ok := strings.Cut(lines.Text(), " ")
		name = strings.TrimLeft(name, " *")
		_, twice := names[name]
		switch {
		case !ok || len(hash) != 2*sha256.Size || strings.Trim(hash, hex) != "":
			faults = append(faults, fmt.Sprintf("line %d is no hash and a name", n))
		case name == "" || name == SumsFile || strings.ContainsAny(name, "/\\\x00") || name == "." || name == "..":
			faults = append(faults, fmt.Sprintf("line %d names no file of a run: %q", n, name))
		case twice:
			faults = append(faults, fmt.Sprintf("line %d names %s again", n, name))
		default:
			names[name] = hash
		}
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		faults = append(faults, "its last line is unfinished")
	}
	if len(names) == 0 {
		faults = append(faults, "it names no file")
	}
	return names, faults
}
