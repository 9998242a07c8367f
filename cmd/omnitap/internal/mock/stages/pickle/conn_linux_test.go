package pickle

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"golang.org/x/sys/unix"
)

func TestConnection(t *testing.T) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	sizes := []int{0, 1, oneWrite, oneWrite + 1, 300000} // the last is more than a pipe holds
	failed := make(chan error, 1)
	go func() {
		var err error
		for _, n := range sizes {
			err = errors.Join(err, Write(p[1], bytes.Repeat([]byte{byte(n)}, n)))
		}
		failed <- errors.Join(err, unix.Close(p[1]))
	}()
	for _, n := range sizes {
		got, err := Read(p[0])
		if err != nil || !bytes.Equal(got, bytes.Repeat([]byte{byte(n)}, n)) {
			t.Fatalf("Read = %d bytes, %v; want %d", len(got), err, n)
		}
	}
	if _, err := Read(p[0]); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	if err := errors.Join(<-failed, unix.Close(p[0])); err != nil {
		t.Error(err)
	}
}

func TestReadRefusesALength(t *testing.T) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	if err := writeAll(p[1], []byte{0xff, 0xff, 0xff, 0xff}); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(p[0]); err == nil {
		t.Error("4 GiB are read")
	}
	_, _ = unix.Close(p[0]), unix.Close(p[1])
}
