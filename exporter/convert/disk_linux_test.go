package convert

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A full disk is told once, and leaves nothing.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a tmpfs needs root")
	}
	dir := t.TempDir()
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=32k,mode=0700")
	if errors.Is(err, unix.EPERM) && os.Getenv("REQUIRE_KERNEL") != "1" {
		t.Skip("root without CAP_SYS_ADMIN cannot mount a tmpfs")
	}
	if err != nil {
		t.Fatalf("mounting a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmounting: %v", err)
		}
	})
	run := demo(t)
	for _, f := range []Format{Perfetto, Parquet, CSV} {
		_, err := Convert(t.Context(), []string{run}, Options{Format: f, Out: filepath.Join(dir, "out")})
		if !errors.Is(err, syscall.ENOSPC) || errors.Is(err, ErrInput) || strings.Count(err.Error(), "no space") != 1 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one word of the full disk", f, err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
			t.Errorf("%s left %v, %v", f, entries, err)
		}
	}
}

// An interrupt, here at the second run, leaves nothing.
func TestInterrupt(t *testing.T) {
	run, second := copyRun(t), copyRun(t)
	for _, f := range []Format{Perfetto, Parquet, CSV} {
		out := filepath.Join(t.TempDir(), "out")
		ctx, cancel := context.WithCancel(t.Context())
		o := Options{Format: f, Out: out, Progress: func(n int, _ string) {
			if n == 1 {
				cancel()
			}
		}}
		_, err := Convert(ctx, []string{run, second}, o)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want it cancelled", f, err)
		}
		alone(t, out)
		if _, err := os.Lstat(out); err == nil {
			t.Errorf("%s: half an output is there", f)
		}
	}
}

// What comes up under the output's name meanwhile stays.
func TestComesUpMeanwhile(t *testing.T) {
	for _, f := range []Format{Perfetto, CSV} {
		out := filepath.Join(t.TempDir(), "out")
		o := Options{Format: f, Out: out, Progress: func(int, string) {
			if err := os.WriteFile(out, []byte("mine"), 0o600); err != nil {
				t.Error(err)
			}
		}}
		_, err := Convert(t.Context(), []string{made}, o)
		text, _ := os.ReadFile(out)
		if !errors.Is(err, ErrExists) || string(text) != "mine" {
			t.Errorf("%s: %v, and %q is there, want it left alone", f, err, text)
		}
		alone(t, out)
	}
}
