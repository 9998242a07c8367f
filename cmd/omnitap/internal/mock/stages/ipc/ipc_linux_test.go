package ipc

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-zeromq/zmq4"
)

func pair(t *testing.T) (pull, push zmq4.Socket) {
	t.Helper()
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "s")
	pull, push = zmq4.NewPull(ctx), zmq4.NewPush(ctx)
	t.Cleanup(func() { _, _ = push.Close(), pull.Close() })
	if err := pull.Listen(Endpoint(path, 0)); err != nil {
		t.Fatal(err)
	}
	if err := push.Dial(Endpoint(path, 0)); err != nil {
		t.Fatal(err)
	}
	return pull, push
}

// Messages of every size, in frames or in one, come whole and in order.
func TestMessages(t *testing.T) {
	pull, push := pair(t)
	var want []zmq4.Msg
	for _, n := range []int{0, 1, 255, 256, 8190, 8192, 8200, 300000} {
		want = append(want, zmq4.NewMsg(bytes.Repeat([]byte{byte(n)}, n)),
			zmq4.NewMsgFrom([]byte{0}, bytes.Repeat([]byte{1}, n), nil, []byte("end")))
	}
	failed := make(chan error, 1)
	go func() {
		for _, m := range want {
			if err := push.Send(m); err != nil {
				failed <- err
				return
			}
		}
		failed <- nil
	}()
	for i, w := range want {
		got, err := pull.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Frames) != len(w.Frames) {
			t.Fatalf("message %d: %d frames, want %d", i, len(got.Frames), len(w.Frames))
		}
		for j := range w.Frames {
			if !bytes.Equal(got.Frames[j], w.Frames[j]) {
				t.Errorf("message %d, frame %d: %d bytes, want %d", i, j, len(got.Frames[j]), len(w.Frames[j]))
			}
		}
	}
	if err := <-failed; err != nil {
		t.Error(err)
	}
}

func TestThreadsHaveNames(t *testing.T) {
	pair(t)
	comms, err := filepath.Glob("/proc/self/task/*/comm")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, c := range comms {
		if b, err := os.ReadFile(c); err == nil && strings.TrimSpace(string(b)) == "ZMQbg/IO/0" {
			n++
		}
	}
	if n < 2 {
		t.Errorf("%d threads ZMQbg/IO/0, want one at each end", n)
	}
}

// Whoever closes first, the other end learns of it and no socket file stays.
func TestClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	l, err := transport{"x"}.Listen(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	for _, first := range []int{0, 1} {
		a, err := transport{"a"}.Dial(ctx, nil, path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		ends := []interface {
			Close() error
			Read([]byte) (int, error)
			Write([]byte) (int, error)
		}{a, b}
		_ = ends[first].Close()
		if n, err := ends[1-first].Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("Read = %d, %v", n, err)
		}
		if _, err := ends[first].Write(make([]byte, greeting)); err == nil {
			t.Error("Write to a closed connection succeeds")
		}
		_, _ = a.Close(), b.Close()
	}
	_ = l.Close()
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket's file is still there")
	}
	if _, err := (transport{"a"}).Dial(ctx, nil, path); err == nil {
		t.Error("Dial succeeds where nobody listens")
	}
}

// However the bytes come, they are let through at the same places.
func FuzzWhole(f *testing.F) {
	f.Add([]byte("\x01\x01\x00\x00\x01a\x02\x00\x00\x00\x00\x00\x00\x00\x01b"), 0, uint8(3))
	f.Add(bytes.Repeat([]byte{0xff}, 80), greeting, uint8(7))
	f.Fuzz(func(t *testing.T, b []byte, greet int, step uint8) {
		greet = max(0, min(greet, greeting))
		want, _ := whole(b, greet)
		got, at, left := 0, 0, greet
		for at < len(b) {
			at = min(len(b), at+int(step)+1)
			var n int
			n, left = whole(b[got:at], left)
			got += n
		}
		if got != want || want > len(b) || want < min(greet, len(b)) {
			t.Error(fmt.Sprint("in pieces ", got, ", at once ", want, " of ", len(b)))
		}
	})
}
