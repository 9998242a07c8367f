package queue

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages/pickle"
)

// Up to the threshold data stand in the item, above it in a segment that is read once.
func TestThreshold(t *testing.T) {
	for _, size := range []int{0, 99, 100, 101, 70000} {
		want := bytes.Repeat([]byte{7}, size)
		item, err := Close(nil, want, 100, "inline", "shm")
		if err != nil {
			t.Fatal(err)
		}
		d := pickle.Dict{{Key: "request_id", Value: "a"}, item}
		if inline := d.Get("inline") != nil; inline != (size <= 100) {
			t.Errorf("%d bytes: inline %v", size, inline)
		}
		got, err := Open(nil, d, "inline", "shm")
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: Open = %d bytes, %v", size, len(got), err)
		}
		if _, err = Open(nil, d, "inline", "shm"); size > 100 && !errors.Is(err, unix.ENOENT) {
			t.Errorf("%d bytes: a second Open: %v", size, err)
		}
	}
	if _, err := Open(nil, pickle.Dict{}, "inline", "shm"); err == nil {
		t.Error("an item without data is opened")
	}
}
