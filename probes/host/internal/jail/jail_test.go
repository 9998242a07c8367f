package jail

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/omnitap/omnitap/probes/host"
	"github.com/omnitap/omnitap/probes/host/internal/hosttest"
)

// jails are both ways into a container: openat2, and what old kernels have.
func jails(t *testing.T, f *hosttest.Tree, pid int) map[string]*Jail {
	t.Helper()
	out := map[string]*Jail{}
	for _, name := range []string{"openat2", "os.Root"} {
		j, err := Open(f.Root(), pid)
		if err != nil {
			t.Fatal(err)
		}
		if name == "os.Root" {
			if j.old, err = os.OpenRoot(filepath.Join(f.Dir, fmt.Sprintf("proc/%d/root", pid))); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(j.Close)
		out[name] = j
	}
	return out
}

// A process's files are read below its root, whatever links stand there.
func TestJail(t *testing.T) {
	f := hosttest.New(t)
	f.Link(filepath.Join(f.Dir, "box"), "proc/5/root")
	f.Write("secret", "secret")
	f.Write("box/app/file", "inside")
	f.Link("file", "box/app/relative")
	f.Link("/app/file", "box/app/absolute")
	f.Link("../../../secret", "box/app/up")
	f.Link(filepath.Join(f.Dir, "secret"), "box/app/out")
	f.Link("loop", "box/app/loop")
	f.Link("/app", "box/link")
	f.Link("/proc/self/root", "box/magic")
	if err := syscall.Mkfifo(filepath.Join(f.Dir, "box/app/fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, j := range jails(t, f, 5) {
		absolute := name == "openat2" // os.Root follows none of those
		for path, want := range map[string]bool{
			"/app/file": true, "app/file": true, "/app/../app/file": true, "../../app/file": true, "/app/relative": true,
			"/app/absolute": absolute, "/link/file": absolute,
			"/app/up": false, "/app/out": false, "/app/loop": false, "/magic/etc/hostname": false, "/secret": false,
			"../secret": false, "/app/fifo": false, "/app": false, "/none": false, "": false, "/app/file/x": false, "/a\x00b": false,
		} {
			b, err := j.Whole(path, 100)
			if (err == nil) != want || want && string(b) != "inside" {
				t.Errorf("%s: %q: %q, %v", name, path, b, err)
			}
			if err != nil && strings.Contains(err.Error(), f.Dir) {
				t.Errorf("%s: %q: the error names our own path: %v", name, path, err)
			}
		}
		if _, err := j.Whole("/app/file", 5); !errors.Is(err, host.ErrTooLong) {
			t.Errorf("%s: too long: %v", name, err)
		}
		if b, err := j.Head("/app/file", 3); string(b) != "ins" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
		if got, err := j.List("/app", 3); err != nil || len(got.Names) != 3 || !got.Cut {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if got, err := j.List("/", 100); err != nil || len(got.Names) != 3 || got.Cut {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if _, err := j.List("/app/file", 3); err == nil {
			t.Errorf("%s: a file was listed", name)
		}
	}
	if _, err := Open(f.Root(), 6); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no process: %v", err)
	}
}

// A device may do something when it is opened: it is not.
func TestJailOpensNoDevice(t *testing.T) {
	f := hosttest.New(t)
	f.Link(filepath.Join(f.Dir, "box"), "proc/5/root")
	f.Write("box/x", "")
	if err := syscall.Mknod(filepath.Join(f.Dir, "box/zero"), syscall.S_IFCHR|0o666, 1<<8|5); err != nil {
		t.Skipf("making a device needs root: %v", err)
	}
	for name, j := range jails(t, f, 5) {
		if b, err := j.Head("/zero", 4); !errors.Is(err, errNotRegular) {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

// What a process maps that shares our mounts, and has another root, is named from ours.
func TestName(t *testing.T) {
	for _, test := range []struct{ chroot, mapped, want string }{
		{"", "/usr/lib/x.so", "/usr/lib/x.so"},
		{"/srv/box", "/srv/box/usr/lib/x.so", "/usr/lib/x.so"},
		{"/srv/box", "/srv/boxer/x.so", "/srv/boxer/x.so"},
		{"/srv/box", "/srv/box", "/srv/box"},
	} {
		if got := (&Jail{chroot: test.chroot}).Name(test.mapped); got != test.want {
			t.Errorf("%q below %q is %q, want %q", test.mapped, test.chroot, got, test.want)
		}
	}
}

func TestChanged(t *testing.T) {
	f := hosttest.New(t)
	f.Link(filepath.Join(f.Dir, "box"), "proc/5/root")
	f.Write("box/app/file", "inside")
	for name, j := range jails(t, f, 5) {
		at, err := j.Changed("/app")
		if info, statErr := os.Stat(filepath.Join(f.Dir, "box/app")); err != nil || statErr != nil || at.Before(info.ModTime().Add(-time.Second)) {
			t.Errorf("%s: changed at %v, %v, %v", name, at, err, statErr)
		}
		if _, err := j.Changed("/app/file"); err == nil {
			t.Errorf("%s: a file is a folder", name)
		}
		file, err := j.OpenFile("/app/file")
		if err != nil {
			t.Fatal(err)
		}
		file.Close()
		if _, err := j.OpenFile("/app"); err == nil {
			t.Errorf("%s: a folder is a file", name)
		}
	}
}
