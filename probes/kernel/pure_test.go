//go:build linux && amd64

package kernel

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestFirstOf(t *testing.T) {
	for _, tt := range []struct {
		name, code string
		want       First
	}{
		{"push %rbp", "\x55\x48\x89\xe5", Emulated},
		{"push %r15 (libcuda)", "\x41\x57\x41\x56", Emulated},
		{"REX and no push", "\x41\x89\xf0\xc3", Stepped},
		{"nop", "\x90\xc3", Emulated},
		{"nopw (5 bytes)", "\x0f\x1f\x44\x00\x00", Emulated},
		{"jmp", "\xe9\x00\x00\x00\x00", Emulated},
		{"jmp short", "\xeb\x02", Emulated},
		{"call", "\xe8\x00\x00\x00\x00", Emulated},
		{"je", "\x74\x02", Emulated},
		{"je near", "\x0f\x84\x00\x00\x00\x00", Emulated},
		{"syscall", "\x0f\x05", Stepped},
		{"mov %rdi,%rax", "\x48\x89\xf8", Stepped},
		{"sub $8,%rsp", "\x48\x83\xec\x08", Stepped},
		{"cmp", "\x83\xff\x01", Stepped},
		{"ret", "\xc3", Stepped},
		{"endbr64, push %rbp", "\xf3\x0f\x1e\xfa\x55\x48\x89\xe5", Marked},
		{"endbr64, push %r12 (libzmq of Debian)", "\xf3\x0f\x1e\xfa\x41\x54\x55\x53", Marked},
		{"endbr64, mov", "\xf3\x0f\x1e\xfa\x48\x89\xf8\xc3", Stepped},
		{"endbr64 and no more", "\xf3\x0f\x1e\xfa", Stepped},
		{"nothing", "", Stepped},
		{"half a REX", "\x41", Stepped},
	} {
		if got := FirstOf([]byte(tt.code)); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

const someMaps = `55d0c0000000-55d0c0001000 r-xp 00000000 fd:01 123 /usr/bin/python3.11
7f0000000000-7f0000010000 r--p 00000000 fd:01 42                         /opt/v/lib/libzmq-2f02442c.so.5.2.5
7f0000010000-7f0000080000 r-xp 00010000 fd:01 42                         /opt/v/lib/libzmq-2f02442c.so.5.2.5
7f0000090000-7f00000a0000 r-xp 00001000 00:2a 18446744073709551615       /a b/libzmq.so.5 (deleted)
7f00000b0000-7f00000c0000 r-xp 00000000 00:00 0                          [vdso]
7f00000c0000-7f00000d0000 rwxs 00000000 00:01 9 anon_inode:libzmq
7f00000d0000-7f00000e0000 r-xp 00000000 fd:01 43 /odd\012name/libzmq.so
short line
`

func TestParseMaps(t *testing.T) {
	got, err := parseMaps(strings.NewReader(someMaps), func(p string) bool { return strings.Contains(p, "libzmq") })
	if err != nil {
		t.Fatal(err)
	}
	want := []Mapping{
		{Start: 0x7f0000010000, End: 0x7f0000080000, Offset: 0x10000, Dev: "fd:01", Inode: 42, Path: "/opt/v/lib/libzmq-2f02442c.so.5.2.5"},
		{Start: 0x7f0000090000, End: 0x7f00000a0000, Offset: 0x1000, Dev: "00:2a", Inode: 1<<64 - 1, Path: "/a b/libzmq.so.5", Deleted: true},
		{Start: 0x7f00000d0000, End: 0x7f00000e0000, Dev: "fd:01", Inode: 43, Path: `/odd\012name/libzmq.so`},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, bad := range []string{"x-2 r-xp 0 fd:01 1 /l", "1-x r-xp 0 fd:01 1 /l", "1-2 r-xp x fd:01 1 /l", "1-2 r-xp 0 fd:01 x /l", strings.Repeat("a", 1<<17)} {
		if m, err := parseMaps(strings.NewReader(bad), func(string) bool { return true }); err == nil {
			t.Errorf("%.20q gave %+v", bad, m)
		}
	}
}

func FuzzParseMaps(f *testing.F) {
	f.Add([]byte(someMaps))
	f.Add([]byte("1-2 r-xp 0 fd:01 1 /" + deletedMark))
	f.Fuzz(func(t *testing.T, in []byte) {
		maps, err := parseMaps(bytes.NewReader(in), func(string) bool { return true })
		if err != nil && maps != nil {
			t.Fatal("mappings beside an error")
		}
		for _, m := range maps {
			if !strings.HasPrefix(m.Path, "/") {
				t.Fatalf("%+v", m)
			}
		}
	})
}

// TestCallerIsAProgram: the program that is calibrated on is well formed, and its
// function is where it says.
func TestCallerIsAProgram(t *testing.T) {
	for _, k := range []First{Emulated, Stepped, Marked} {
		image, at := caller(k, 7)
		f, err := elf.NewFile(bytes.NewReader(image))
		if err != nil {
			t.Fatal(err)
		}
		if f.Type != elf.ET_EXEC || f.Machine != elf.EM_X86_64 || len(f.Progs) != 1 || f.Progs[0].Filesz != uint64(len(image)) {
			t.Errorf("%v: %+v", k, f.FileHeader)
		}
		fn := at
		if k == Marked {
			fn -= 4
		}
		if got := FirstOf(image[fn:]); got != k {
			t.Errorf("%v: the function begins %v", k, got)
		}
		if err := isLibrary(f); err == nil {
			t.Error("a program passes for a library")
		}
		file := filepath.Join(t.TempDir(), "caller")
		if err := os.WriteFile(file, image, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := once(file); err != nil {
			t.Errorf("%v: %v", k, err)
		}
	}
}

// TestNotALibrary: programs, interpreters and what Go made are refused.
func TestNotALibrary(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{self, "/proc/self/exe", "/bin/sh"} {
		var no *NotLibraryError
		if _, err := Symbols(file, "main"); !errors.As(err, &no) || no.Why == "" {
			t.Errorf("%s: %v", file, err)
		}
	}
	if program, err := IsProgram(os.Getpid(), self); err != nil || !program {
		t.Errorf("our own program: %t %v", program, err)
	}
	if program, err := IsProgram(os.Getpid(), "/bin/sh"); err != nil || program {
		t.Errorf("another program: %t %v", program, err)
	}
	if _, err := IsProgram(os.Getpid(), "/nowhere"); err == nil {
		t.Error("no error for a file that is not there")
	}
}

func TestLockdown(t *testing.T) {
	old := lockdownFile
	t.Cleanup(func() { lockdownFile = old })
	lockdownFile = filepath.Join(t.TempDir(), "lockdown")
	if got := Lockdown(); got != "unknown" {
		t.Errorf("without the file: %q", got)
	}
	for in, want := range map[string]string{
		"[none] integrity confidentiality\n": "none", "none integrity [confidentiality]\n": "confidentiality",
		"": "unknown", "none\n": "unknown", "[none": "unknown", "]none[": "unknown",
	} {
		if err := os.WriteFile(lockdownFile, []byte(in), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := Lockdown(); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if err := os.WriteFile(lockdownFile, []byte("none integrity [confidentiality]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cause(unix.EPERM); !strings.Contains(err.Error(), "locked down: confidentiality") || !errors.Is(err, unix.EPERM) {
		t.Error(err)
	}
}

// TestCause: every reason names what is missing and what grants it, on one line.
func TestCause(t *testing.T) {
	oldLock, oldStatus, oldBTF := lockdownFile, statusFile, btfFile
	t.Cleanup(func() { lockdownFile, statusFile, btfFile = oldLock, oldStatus, oldBTF })
	lockdownFile = filepath.Join(t.TempDir(), "none")
	statusFile = filepath.Join(t.TempDir(), "status")
	const bpf = 1<<unix.CAP_BPF | 1<<unix.CAP_PERFMON
	const all = 1<<41 - 1
	for _, tt := range []struct {
		name    string
		err     error
		caps    uint64
		seccomp int
		btf     string
		want    []string
	}{
		{"no rights", unix.EPERM, 0, 0, "/", []string{"not permitted", "CAP_BPF and CAP_PERFMON"}},
		{"one of two", unix.EPERM, 1 << unix.CAP_BPF, 0, "/", []string{"not permitted", "CAP_BPF and CAP_PERFMON"}},
		{"a filter", unix.EPERM, all, 2, "/", []string{"a seccomp filter forbids it"}},
		{"a filter beside two", unix.EACCES, bpf, 2, "/", []string{"a seccomp filter forbids it"}},
		{"both", unix.EPERM, bpf, 0, "/", []string{"CAP_BPF and CAP_PERFMON alone", "CAP_SYS_ADMIN"}},
		{"root", unix.EPERM, all, 0, "/", []string{"although CAP_SYS_ADMIN"}},
		{"no BTF", fmt.Errorf("x: %w", btf.ErrNotFound), all, 0, "/nowhere", []string{"no BTF", "CONFIG_DEBUG_INFO_BTF"}},
		{"a type is not there", btf.ErrNotFound, all, 0, "/", []string{"does not have it", "Linux 6.6"}},
		{"BTF unsupported", ebpf.ErrNotSupported, all, 0, "/nowhere", []string{"no BTF"}},
		{"old", ebpf.ErrNotSupported, all, 0, "/", []string{"too old", "Linux 6.6"}},
		{"no bpf", unix.ENOSYS, all, 0, "/", []string{"too old or built without"}},
		{"gone", os.ErrNotExist, all, 0, "/", []string{"does not have it"}},
		{"no tracefs", fmt.Errorf("%w (%w)", ErrNoTracefs, unix.EPERM), all, 0, "/", []string{"tracefs", "mount -t tracefs"}},
	} {
		status := fmt.Sprintf("Name:\tx\nCapEff:\t%016x\nSeccomp:\t%d\n", tt.caps, tt.seccomp)
		if err := os.WriteFile(statusFile, []byte(status), 0o600); err != nil {
			t.Fatal(err)
		}
		btfFile = tt.btf
		got := cause(tt.err)
		for _, want := range tt.want {
			if !strings.Contains(got.Error(), want) || strings.Contains(got.Error(), "\n") {
				t.Errorf("%s: %v", tt.name, got)
			}
		}
		if again := cause(got); !errors.Is(got, tt.err) || again.Error() != got.Error() {
			t.Errorf("%s: %v is not %v any more, or is worded twice", tt.name, got, tt.err)
		}
	}
	if err := cause(unix.E2BIG); !errors.Is(err, unix.E2BIG) || err.Error() != unix.E2BIG.Error() {
		t.Errorf("an error that says enough: %v", err)
	}
	if cause(nil) != nil {
		t.Error("no error has a cause")
	}
	statusFile = filepath.Join(t.TempDir(), "none")
	if err := cause(unix.EPERM); !strings.Contains(err.Error(), "not permitted") {
		t.Error(err)
	}
}
