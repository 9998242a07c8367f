//go:build linux && amd64

package kernel

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// CauseError is why something cannot be probed, with what would grant it.
type CauseError struct {
	What, Grant string
	Err         error
}

// Error is one line. Of the kernel's error it has the number's text alone: what libraries
// add to it are guesses.
func (r *CauseError) Error() string {
	if errno, ok := errors.AsType[unix.Errno](r.Err); ok {
		return fmt.Sprintf("%s (needed: %s): %v", r.What, r.Grant, errno)
	}
	return fmt.Sprintf("%s (needed: %s): %v", r.What, r.Grant, r.Err)
}

// Unwrap returns the kernel's error.

func (r *CauseError) Unwrap() error { return r.Err }

// lockdownFile is where the kernel tells its lockdown; a variable for tests.
var lockdownFile = "/sys/kernel/security/lockdown"

// Lockdown returns the kernel's lockdown mode, "unknown" where it cannot be read.
func Lockdown() string {
	b, err := os.ReadFile(lockdownFile)
	if err != nil {
		return "unknown"
	}
	_, rest, ok := strings.Cut(string(b), "[")
	mode, _, closed := strings.Cut(rest, "]")
	if !ok || !closed {
		return "unknown"
	}
	return mode
}

// btfFile is where the kernel has its BTF; a variable for tests.
var btfFile = "/sys/kernel/btf/vmlinux"

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// cause words the true reason of an error of the kernel, whose own words mislead.
func cause(err error) error {
	var r *CauseError
	if err == nil || errors.As(err, &r) {
		return err
	}
	switch {
	case errors.Is(err, ErrNoTracefs):
		return err
	case Lockdown() == "confidentiality":
		return &CauseError{"the kernel is locked down: confidentiality", "a kernel without that mode", err}
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES) && !verifier(err):
		return denied(err)
	case !exists(btfFile) && (errors.Is(err, btf.ErrNotFound) || errors.Is(err, ebpf.ErrNotSupported)):
		return &CauseError{"the kernel has no BTF", "a kernel with CONFIG_DEBUG_INFO_BTF", err}
	case errors.Is(err, btf.ErrNotFound):
		return &CauseError{"the kernel does not have it", "Linux 6.6", err}
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, unix.ENOSYS):
		return &CauseError{"the kernel is too old or built without it", "Linux 6.6 with BPF_SYSCALL", err}
	case errors.Is(err, os.ErrNotExist):
		return &CauseError{"the kernel or library does not have it", "a kernel or library that does", err}
	}
	return err
}

// statusFile is where the kernel tells a process's rights; a variable for tests.
var statusFile = "/proc/self/status"

// denied says which right is missing, as far as the kernel tells what there is.
func denied(err error) error {
	b, _ := os.ReadFile(statusFile) // without it nothing is known
	caps, seccomp := rights(string(b))
	need := func(bits ...int) bool {
		for _, bit := range bits {
			if caps&(1<<bit) == 0 {
				return true
			}
		}
		return false
	}
	const grant = "root, or CAP_BPF and CAP_PERFMON"
	switch {
	case len(b) == 0:
		return &CauseError{"not permitted", grant, err}
	case need(unix.CAP_SYS_ADMIN) && need(unix.CAP_BPF, unix.CAP_PERFMON):
		return &CauseError{"not permitted", grant, err}
	case seccomp == filtered:
		return &CauseError{"a seccomp filter forbids it", "a filter that lets bpf and perf_event_open through", err}
	case need(unix.CAP_SYS_ADMIN):
		return &CauseError{"not permitted with CAP_BPF and CAP_PERFMON alone", "CAP_SYS_ADMIN", err}
	}
	return &CauseError{"not permitted, although CAP_SYS_ADMIN is there", "a kernel or container that lets bpf through", err}
}

// filtered is the seccomp mode of a process with a filter.
const filtered = "2"

// rights takes effective capabilities and seccomp mode out of /proc/PID/status.
func rights(status string) (caps uint64, seccomp string) {
	for line := range strings.Lines(status) {
		key, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); key {
		case "CapEff":
			caps, _ = strconv.ParseUint(value, 16, 64)
		case "Seccomp":
			seccomp = value
		}
	}
	return caps, seccomp
}

func verifier(err error) bool {
	var v *ebpf.VerifierError
	return errors.As(err, &v)
}
