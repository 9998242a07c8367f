//go:build linux && amd64

package pipe_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/probes/event"
	"github.com/omnitap/omnitap/probes/internal/live"
	"github.com/omnitap/omnitap/probes/kernel"
	"github.com/omnitap/omnitap/probes/pipe"
)

func TestMain(m *testing.M) {
	live.Main(m, map[string]live.Act{"writer": writer, "reader": reader})
}

// message is a pickle of a size, as multiprocessing makes them.
func message(n int) []byte {
	b := append([]byte("\x80\x04\x95\x8c\x0arequest_id\x94\x8c\x05omt-1"), make([]byte, n)...)[:n]
	for i := 30; i < n; i++ {
		b[i] = byte(i * 7)
	}
	return b
}

// writer sends messages on descriptor 3 as multiprocessing.connection does: the length
// in front, in one write with bodies up to 16 KiB, in one of its own before longer ones.
// What does not begin with a digit is written as it is.
func writer(args []string) (string, error) {
	for _, a := range args {
		n, err := strconv.Atoi(a)
		if err != nil {
			if _, err := unix.Write(3, []byte(a)); err != nil {
				return "", err
			}
			continue
		}
		head, body := binary.BigEndian.AppendUint32(nil, uint32(n)), message(n)
		writes := [][]byte{append(head, body...)}
		if n > 16384 {
			writes = [][]byte{head, body}
		}
		for _, w := range writes {
			for len(w) > 0 {
				n, err := unix.Write(3, w)
				if err != nil {
					return "", err
				}
				w = w[n:]
			}
		}
	}
	return "written", nil
}

// reader reads a number of bytes from descriptor 3, as much at once as there is.
func reader(args []string) (string, error) {
	n, _ := strconv.Atoi(args[0])
	for b := make([]byte, n); n > 0; {
		got, err := unix.Read(3, b[:n])
		if err != nil || got == 0 {
			return "", fmt.Errorf("reading %d bytes: %d %w", n, got, err)
		}
		n -= got
	}
	return "read", nil
}

// pair is two processes with a pipe between them.
func pair(t *testing.T) (f *kernel.Family, w, r *live.Process, ino uint64) {
	t.Helper()
	watch := live.NewWatch(t)
	f, err := pipe.Load(watch, 0)
	live.Family(t, f, err)
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(pr.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	w, r = live.Start(t, "writer", pw), live.Start(t, "reader", pr)
	pr.Close()
	pw.Close()
	live.Add(t, watch, w)
	live.Add(t, watch, r)
	return f, w, r, st.Ino
}

func TestQueue(t *testing.T) {
	f, w, r, ino := pair(t)
	if err := pipe.Watch(f, []uint64{ino}); err != nil {
		t.Fatal(err)
	}
	const total = 4 + 10 + 4 + 16384 + 4 + 16385 + 4 + 65536
	r.Tell(strconv.Itoa(total))
	w.Do("10", "16384", "16385", "65536")
	r.Answer()
	events := live.Drain(t, f)

	sends := live.Of(events, w.Pid, event.Send)
	want := [][]byte{
		append(binary.BigEndian.AppendUint32(nil, 10), message(10)...),
		append(binary.BigEndian.AppendUint32(nil, 16384), message(16384)...),
		binary.BigEndian.AppendUint32(nil, 16385), message(16385),
		binary.BigEndian.AppendUint32(nil, 65536), message(65536),
	}
	if len(sends) != len(want) {
		t.Fatalf("%d writes of %d were told", len(sends), len(want))
	}
	for i, e := range sends {
		if e.Ret != int64(len(want[i])) || e.Size != e.Ret || e.FD != 3 || e.Call != "write" || e.EnterNS == 0 || e.EnterNS > e.MonoNS {
			t.Errorf("write %d: %+v", i, e)
		}
		if head := want[i][:min(len(want[i]), 4096)]; !bytes.Equal(e.Head, head) {
			t.Errorf("write %d: its head has %d bytes, equal %t", i, len(e.Head), bytes.Equal(e.Head, head))
		}
	}
	var read int64
	for _, e := range live.Of(events, r.Pid, event.Recv) {
		read += e.Ret
		if e.Call != "read" || len(e.Head) != int(min(e.Ret, 4096)) {
			t.Errorf("read: %d bytes, %d of them told, by %q", e.Ret, len(e.Head), e.Call)
		}
	}
	if read != total {
		t.Errorf("%d of %d bytes were seen being read", read, total)
	}
}

// TestTracker: lines to the resource tracker are left out, and only they.
func TestTracker(t *testing.T) {
	f, w, _, ino := pair(t)
	if err := pipe.Watch(f, []uint64{ino}); err != nil {
		t.Fatal(err)
	}
	w.Do("REGISTER:/psm_0123abcd:shared_memory", "UNREGISTER:/x:shared_memory", "PROBE:0:noop", "REGISTER:/"+strings.Repeat("n", 250)+":shared_memory",
		"RE", "REGI", "PROBE", "UNREGISTEX")
	var got []string
	for _, e := range live.Of(live.Drain(t, f), w.Pid) {
		got = append(got, string(e.Head))
	}
	if s := strings.Join(got, " "); s != "RE REGI PROBE" {
		t.Errorf("told %q", got)
	}
}

// TestOtherPipes: what is not watched is not told, nor what is watched no longer, nor a
// FIFO that happens to have a watched pipe's number.
func TestOtherPipes(t *testing.T) {
	f, w, _, ino := pair(t)
	w.Do("100")
	if err := pipe.Watch(f, []uint64{ino, 1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	if err := pipe.Watch(f, []uint64{2, 7}); err != nil {
		t.Fatal(err)
	}
	w.Do("100")
	path := t.TempDir() + "/fifo"
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	fifo, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer fifo.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(fifo.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	if err := pipe.Watch(f, []uint64{st.Ino}); err != nil {
		t.Fatal(err)
	}
	watch := live.Start(t, "writer", fifo)
	watch.Do("100")
	if got := live.Drain(t, f); len(got) > 0 {
		t.Errorf("told %+v", got)
	}
}
