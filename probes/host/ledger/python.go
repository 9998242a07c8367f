package ledger

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"strings"

	"github.com/omnitap/omnitap/probes/host/internal/null"
)

// maxELF bounds the executable that is looked into.
const maxELF = 256 << 20

// Versions of Python, the surest first.
const (
	sourceSymbol = "symbol" // Py_Version in the executable that runs
	sourceHeader = "header" // patchlevel.h beside the interpreter
	sourceVenv   = "venv"   // pyvenv.cfg, as of when the environment was made
)

// pythonOf is the X.Y of the Python that a process is, or "".
func pythonOf(s *subject) string {
	names := []string{path.Base(s.exe)}
	for _, f := range s.files {
		names = append(names, path.Base(f.path))
	}
	for _, name := range names {
		if m := pyName.FindStringSubmatch(name); m != nil {
			return m[1]
		}
	}
	for _, f := range s.files { // an executable called "python3"
		if m := libIn.FindStringSubmatch(f.path); m != nil {
			return m[2]
		}
	}
	return ""
}

// python finds the version of the interpreter that a process is.
func (r *reader) python(s *subject) {
	short := pythonOf(s)
	if short == "" {
		return
	}
	f := Finding{Evidence: evidenceExecutable, Path: null.Text(s.exe), Source: sourceSymbol}
	version, where, err := r.symbolVersion(s)
	if err == nil {
		f.Path = null.Text(where)
	}
	if err != nil && s.jail != nil {
		version, f.Source, err = besideVersion(s, short)
	}
	if err != nil {
		version, f.Source = short, sourceFile
		f.Reason = "only the first two numbers are known: " + err.Error()
	}
	f.Version = &version
	r.soft.add(python, f, s.pid)
}

// symbolVersion reads Py_Version (since 3.11) from the interpreter that runs: from
// libpython where one is mapped, else from the executable, by its own link, which also
// works when the file was replaced.
func (r *reader) symbolVersion(s *subject) (version, where string, err error) {
	err = errors.New("its files cannot be opened")
	for _, f := range s.files {
		if !strings.HasPrefix(path.Base(f.path), "libpython") || f.deleted || s.jail == nil {
			continue
		}
		var file *os.File
		if file, err = s.jail.OpenFile(s.jail.Name(f.path)); err == nil {
			version, err = pyVersion(file)
			_ = file.Close()
		}
		if err == nil {
			return version, f.path, nil
		}
	}
	file, openErr := os.Open(r.Root.Path(proc(s.pid, "exe")))
	if openErr != nil {
		return "", "", errors.Join(err, openErr)
	}
	defer func() { _ = file.Close() }()
	version, err = pyVersion(file)
	return version, s.exe, err
}

// pyVersion reads the version in a file of an interpreter.
func pyVersion(file *os.File) (string, error) {
	if info, err := file.Stat(); err != nil || info.Size() > maxELF || !info.Mode().IsRegular() {
		return "", errors.Join(errors.New("no executable of a size to look into"), err)
	}
	return elfVersion(file)
}

// elfVersion reads the number that CPython exports as Py_Version. The library for ELF
// files is not made for hostile ones: what it panics of is an error here.
func elfVersion(file io.ReaderAt) (version string, err error) {
	defer func() {
		if p := recover(); p != nil {
			version, err = "", fmt.Errorf("no ELF file: %v", p)
		}
	}()
	e, err := elf.NewFile(file)
	if err != nil {
		return "", err
	}
	symbols, err := e.DynamicSymbols()
	if err != nil {
		return "", err
	}
	for _, s := range symbols {
		if s.Name == "Py_Version" {
			n, err := numberAt(e, s.Value)
			if err != nil {
				return "", err
			}
			return hexVersion(n)
		}
	}
	return "", errors.New("it has no symbol Py_Version (before 3.11)")
}

// numberAt reads four bytes of what the file has at an address. The number is a long,
// but all of it is in the low half.
func numberAt(e *elf.File, address uint64) (uint32, error) {
	for _, p := range e.Progs {
		if p.Type != elf.PT_LOAD || address < p.Vaddr || address-p.Vaddr+8 > p.Filesz {
			continue
		}
		var b [8]byte
		if _, err := p.ReadAt(b[:], int64(address-p.Vaddr)); err != nil {
			return 0, err
		}
		if e.Class == elf.ELFCLASS64 {
			return uint32(e.ByteOrder.Uint64(b[:])), nil
		}
		return e.ByteOrder.Uint32(b[:4]), nil
	}
	return 0, errors.New("Py_Version lies outside of the file")
}

// hexVersion reads PY_VERSION_HEX: 0x030b07f0 is 3.11.7.
func hexVersion(n uint32) (string, error) {
	major, minor, micro, level, serial := n>>24, n>>16&0xff, n>>8&0xff, n>>4&0xf, n&0xf
	kind := map[uint32]string{0xa: "a", 0xb: "b", 0xc: "rc", 0xf: ""}
	name, ok := kind[level]
	if !ok || major < 2 || major > 9 {
		return "", fmt.Errorf("%#x is no version of Python", n)
	}
	version := fmt.Sprintf("%d.%d.%d%s", major, minor, micro, name)
	if name != "" {
		version += fmt.Sprint(serial)
	}
	return version, nil
}

var (
	patchLevel  = regexp.MustCompile(`(?m)^#define\s+PY_VERSION\s+"([0-9][0-9A-Za-z.+]{0,30})"`)
	fullVersion = regexp.MustCompile(`^([0-9]+\.[0-9]+\.[0-9]+[0-9A-Za-z.+]{0,20})`)
)

// besideVersion looks into the files that lie with an interpreter.
func besideVersion(s *subject, short string) (version, source string, err error) {
	for _, prefix := range prefixes(s) {
		b, err := s.jail.Head(path.Join(prefix, "include", "python"+short, "patchlevel.h"), maxPth)
		if m := patchLevel.FindSubmatch(b); err == nil && m != nil && strings.HasPrefix(string(m[1]), short+".") {
			return string(m[1]), sourceHeader, nil
		}
	}
	for _, root := range environments(s, sitesOf(s)) {
		b, err := s.jail.Whole(path.Join(root, "pyvenv.cfg"), maxPth)
		if err != nil {
			continue
		}
		v := setting(b, "version")
		if v == "" {
			v = setting(b, "version_info")
		}
		if m := fullVersion.FindStringSubmatch(v); m != nil && strings.HasPrefix(m[1], short+".") {
			return m[1], sourceVenv, nil
		}
	}
	return "", "", errors.New("neither the executable nor a file beside it says more")
}
