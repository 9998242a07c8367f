package shm

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// fresh is a key that nobody else has, removed at the end.
func fresh(t *testing.T) string {
	t.Helper()
	key := Key(fmt.Sprintf("test-%d-%08x", os.Getpid(), rand.Uint32()), 0, 3)
	t.Cleanup(func() {
		if err := Discard(key); err != nil {
			t.Error(err)
		}
	})
	return key
}

func exists(name string) bool {
	_, err := os.Lstat(filepath.Join(Dir, name))
	return err == nil
}

func TestPutAndGet(t *testing.T) {
	key := fresh(t)
	if _, s, err := Get(nil, key, Hooks{}); s != Missing || err != nil {
		t.Fatalf("Get of nothing = %v, %v", s, err)
	}
	var calls []string
	note := func(what string) func(string, int) {
		return func(k string, n int) { calls = append(calls, fmt.Sprint(what, " ", k == key, " ", n)) }
	}
	h := Hooks{Start: note("start"), End: note("end")}
	want := bytes.Repeat([]byte("0123"), 3000)
	if err := Put(nil, key, want, h); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(filepath.Join(Dir, key)); err != nil || st.Size() != int64(len(want)) || st.Mode().Perm() != 0o600 {
		t.Errorf("the segment: %v, %v", st, err)
	}
	got, s, err := Get(nil, key, h)
	if err != nil || s != Read || !bytes.Equal(got, want) {
		t.Fatalf("Get = %d bytes, %v, %v", len(got), s, err)
	}
	if exists(key) || exists(LockName(key)) {
		t.Error("segment or lock is still there")
	}
	if s := strings.Join(calls, ", "); s != "start true 12000, end true 12000, start true 12000, end true 12000" {
		t.Errorf("hooks: %s", s)
	}
}

// What a crash left is refused until a writer has replaced it.
func TestStale(t *testing.T) {
	key := fresh(t)
	if err := Leave(nil, key, 99); err != nil {
		t.Fatal(err)
	}
	if _, s, err := Get(nil, key, Hooks{}); s != Refused || err != nil {
		t.Fatalf("Get of a stale one = %v, %v", s, err)
	}
	if err := Put(nil, key, []byte("new"), Hooks{}); err != nil {
		t.Fatal(err)
	}
	if got, s, err := Get(nil, key, Hooks{}); string(got) != "new" || s != Read || err != nil {
		t.Fatalf("Get = %q, %v, %v", got, s, err)
	}
}

// A writer has made the lock and not yet replaced what a crash left: both must stay for
// it, or it would lock a file that is gone and nobody would read what it writes.
func TestStaleWithALock(t *testing.T) {
	key := fresh(t)
	if err := Leave(nil, key, 99); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(Dir, LockName(key)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h := Hooks{Valid: func(b []byte) bool { return b[0] != 0 }}
	if _, s, err := Get(nil, key, h); s != Refused || err != nil || !exists(key) || !exists(LockName(key)) {
		t.Fatalf("Get = %v, %v; segment %v, lock %v", s, err, exists(key), exists(LockName(key)))
	}
	if err := Put(nil, key, []byte("new"), h); err != nil {
		t.Fatal(err)
	}
	if got, s, err := Get(nil, key, h); string(got) != "new" || s != Read || err != nil {
		t.Fatalf("Get = %q, %v, %v", got, s, err)
	}
}

func TestEmptyIsAMiss(t *testing.T) {
	key := fresh(t)
	if err := os.WriteFile(filepath.Join(Dir, key), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, s, err := Get(nil, key, Hooks{}); s != Empty || err != nil {
		t.Fatalf("Get = %v, %v", s, err)
	}
	if err := Put(nil, key, []byte("x"), Hooks{}); err != nil { // replaces an empty one as well
		t.Fatal(err)
	}
}

func TestSendAndReceive(t *testing.T) {
	name, err := Send(nil, []byte("abc"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(name, "psm_") || len(name) != 12 {
		t.Errorf("name %q", name)
	}
	if got, err := Receive(nil, name, 2); string(got) != "ab" || err != nil {
		t.Errorf("Receive = %q, %v", got, err)
	}
	if _, err := Receive(nil, name, 2); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a second Receive: %v", err)
	}
	if _, err := Receive(nil, "../shm/"+name, 2); err == nil {
		t.Error("a path is taken for a name")
	}
}

// The tracker removes what was registered last, and the lock beside it.
func TestTrack(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	left, read := fresh(t), fresh(t)
	tr := NewTracker(int(w.Fd()))
	for _, key := range []string{left, read} {
		if err := Put(tr, key, []byte("x"), Hooks{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := Get(tr, read, Hooks{}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(Dir, read), nil, 0o600); err != nil { // somebody else's by now
		t.Fatal(err)
	}
	if _, err := w.WriteString("REGISTER:/../etc:shared_memory\nnonsense\n"); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	if err := Track(r); err != nil {
		t.Fatal(err)
	}
	if exists(left) || exists(LockName(left)) || !exists(read) {
		t.Errorf("left %v, its lock %v, read %v", exists(left), exists(LockName(left)), exists(read))
	}
}

func TestSweep(t *testing.T) {
	mine, other := fresh(t), fresh(t)
	for _, key := range []string{mine, other} {
		if err := Put(nil, key, []byte("x"), Hooks{}); err != nil {
			t.Fatal(err)
		}
	}
	id, ok := engineID(mine)
	if !ok || mine != Key(id, 0, 3) {
		t.Fatalf("engineID(%q) = %q, %v", mine, id, ok)
	}
	if err := Sweep(func(s string) bool { return s == id }); err != nil {
		t.Fatal(err)
	}
	if exists(mine) || exists(LockName(mine)) || !exists(other) {
		t.Error("Sweep took the wrong ones")
	}
}

func FuzzTrack(f *testing.F) {
	f.Add("PROBE:0:noop\nREGISTER:/fuzz-none_0_0:shared_memory\n")
	f.Fuzz(func(t *testing.T, s string) {
		// Only names that cannot be files: the tracker really unlinks.
		s = strings.ReplaceAll(s, "REGISTER:/", "REGISTER:/fuzz-none-")
		_ = Track(strings.NewReader(s))
		if id, ok := engineID(s); ok && !strings.HasPrefix(s, id+"_") {
			t.Errorf("engineID(%q) = %q", s, id)
		}
	})
}
