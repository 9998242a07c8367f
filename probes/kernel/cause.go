//go:build linux && amd64

package kernel

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// Reason is why something cannot be probed, with what would grant it.
type Reason struct {
	What, Grant string
	Err         error
}

func (r *Reason) Error() string {
	return fmt.Sprintf("%s (needed: %s): %v", r.What, r.Grant, r.Err)
}

func (r *Reason) Unwrap() error { return r.Err }

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

// cause words the true reason of an error of the kernel, whose own words mislead.
func cause(err error) error {
	var r *Reason
	if err == nil || errors.As(err, &r) {
		return err
	}
	switch {
	case errors.Is(err, ErrNoTracefs):
		return err
	case Lockdown() == "confidentiality":
		return &Reason{"the kernel is locked down: confidentiality", "a kernel without that mode", err}
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES) && !verifier(err):
		return &Reason{"not permitted", "root, or CAP_BPF and CAP_PERFMON (and a seccomp filter that lets bpf through)", err}
	case errors.Is(err, btf.ErrNotFound), errors.Is(err, btf.ErrNotSupported):
		return &Reason{"the kernel has no BTF", "a kernel with CONFIG_DEBUG_INFO_BTF", err}
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, unix.ENOSYS):
		return &Reason{"the kernel is too old or built without it", "Linux 6.6 with BPF_SYSCALL", err}
	case errors.Is(err, os.ErrNotExist):
		return &Reason{"the kernel or library does not have it", "a kernel or library that does", err}
	}
	return err
}

func verifier(err error) bool {
	var v *ebpf.VerifierError
	return errors.As(err, &v)
}
