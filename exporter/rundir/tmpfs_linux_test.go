package rundir

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// messages is a slog.Handler that hands its messages to a test.
type messages chan string

func (m messages) Enabled(context.Context, slog.Level) bool { return true }
func (m messages) WithAttrs([]slog.Attr) slog.Handler       { return m }
func (m messages) WithGroup(string) slog.Handler            { return m }

func (m messages) Handle(_ context.Context, r slog.Record) error {
	m <- r.Message
	return nil
}

// wait blocks until a message with that text comes.
func (m messages) wait(t *testing.T, text string) {
	t.Helper()
	for {
		select {
		case got := <-m:
			if strings.Contains(got, text) {
				return
			}
		case <-t.Context().Done():
			t.Fatalf("no message %q", text)
		}
	}
}

func mountTmpfs(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a tmpfs needs root; the same is tested on a made disk")
	}
	dir := t.TempDir()
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=128k,mode=0700")
	if errors.Is(err, unix.EPERM) && os.Getenv("REQUIRE_KERNEL") != "1" {
		t.Skip("root without CAP_SYS_ADMIN cannot mount a tmpfs; the same is tested on a made disk")
	}
	if err != nil {
		t.Fatalf("mounting a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmounting: %v", err)
		}
	})
	return dir
}

// fillUp takes all room that is left and returns the file that holds it.
func fillUp(t *testing.T, dir string) string {
	t.Helper()
	ballast := filepath.Join(dir, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for page := make([]byte, 4096); err == nil; _, err = f.Write(page) {
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling the disk ended with %v", err)
	}
	return ballast
}

func TestFullTmpfsRecovers(t *testing.T) {
	disk := mountTmpfs(t)
	dir := filepath.Join(disk, "run")
	log := make(messages, 16)
	w := mustCreate(t, dir, Meta{Logger: slog.New(log)}, openExclusive)
	ballast := fillUp(t, disk)
	const n = 300
	for i := range n {
		w.Event(event(i))
	}
	log.wait(t, "not writable")
	if lost := w.Stats().Events.LostLines; lost != 0 {
		t.Errorf("%d lines lost, want all to wait", lost)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	log.wait(t, "writable again")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, EventsFile))
	if err != nil {
		t.Fatal(err)
	}
	checkLines(t, string(text), n)
}

// The disk is full to the end: what is in the file are whole lines, and
// metadata.json still gets to say how many are missing.
func TestFullTmpfsAtClose(t *testing.T) {
	disk := mountTmpfs(t)
	dir := filepath.Join(disk, "run")
	w := mustCreate(t, dir, Meta{}, openExclusive)
	const n = 3000 // more than the disk holds
	for i := range n {
		w.Event(event(i))
	}
	if err := w.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Close = %v, want ENOSPC", err)
	}
	run, err := Read(dir)
	if err != nil || run.MetadataErr != nil || !run.Closed {
		t.Fatalf("Read = %v, metadata %v, want a closed run", err, run.MetadataErr)
	}
	files := run.Metadata.Files
	if got := len(ids(t, run)); int64(got) != files.Events.Lines || got == 0 || int64(got)+files.Events.LostLines != n {
		t.Errorf("%d events read, files %+v, want the counts to agree", got, files)
	}
}
