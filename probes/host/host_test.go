package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	r := Root(dir)
	for name, n := range map[string]int{"empty": 0, "one": 1, "page": 4096, "more": 4097, "large": 3 << 20} {
		want := bytes.Repeat([]byte{'x'}, n)
		if err := os.WriteFile(filepath.Join(dir, name), want, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := r.Read(name, n); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if n == 0 {
			continue
		}
		if got, err := r.Append([]byte("ab"), name, n-1); !errors.Is(err, ErrTooLong) || string(got) != "ab" {
			t.Errorf("%s, one byte too long: %d bytes, %v", name, len(got), err)
		}
	}
	if _, err := r.Read("none", 10); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "/none") || strings.Contains(err.Error(), dir) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := r.Read(".", 10); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("a folder: %v", err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Read("fifo", 10); len(got) != 0 {
		t.Errorf("a FIFO that nobody writes to: %q, %v", got, err)
	}
}

func TestRoot(t *testing.T) {
	for root, want := range map[Root]string{"": "/proc/stat", "/": "/proc/stat", "/tmp/x": "/tmp/x/proc/stat"} {
		if got := root.Path("proc/stat"); got != want || root.Real() != (want == "/proc/stat") {
			t.Errorf("Root(%q): %q, real %v", root, got, root.Real())
		}
	}
	r := Root(t.TempDir())
	if err := os.WriteFile(r.Path("a"), []byte(" 5.0\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Text("a"); err != nil || got != "5.0" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestReason(t *testing.T) {
	for want, err := range map[string]error{
		"CAP_SYS_PTRACE": &fs.PathError{Op: "open", Path: "/proc/1/maps", Err: syscall.EACCES},
		"ended":          &fs.PathError{Op: "read", Path: "/proc/1/maps", Err: syscall.ESRCH},
		"no such file":   &fs.PathError{Op: "open", Path: "/proc/1/maps", Err: syscall.ENOENT},
	} {
		if got := Reason(err); !strings.Contains(got, want) || !strings.Contains(got, "/proc/1/maps") {
			t.Errorf("Reason(%v) = %q, want %q in it", err, got, want)
		}
	}
}

func TestParseCPUs(t *testing.T) {
	for in, want := range map[string]CPUs{
		"": nil, "\n": nil, "0": {0}, "0-3": {0, 1, 2, 3}, "0-1,3,8191\n": {0, 1, 3, 8191}, "5-5": {5},
	} {
		got, err := ParseCPUs(in)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("ParseCPUs(%q): %v %s", in, err, diff)
		}
	}
	for _, in := range []string{"x", "0-", "-1", "3-1", "0,,1", "0-9999", "8192", "1,1", "1,0", "0-4294967295", "0 1", "0-3:1/2"} {
		if got, err := ParseCPUs(in); err == nil {
			t.Errorf("ParseCPUs(%q) = %v", in, got)
		}
	}
}

func TestCPUs(t *testing.T) {
	for want, c := range map[string]CPUs{"": nil, "7": {7}, "0-1": {0, 1}, "0-2,4,6-7": {0, 1, 2, 4, 6, 7}} {
		if got := c.String(); got != want {
			t.Errorf("%v is %q, want %q", []int(c), got, want)
		}
	}
	a, b := CPUs{0, 1, 2, 5}, CPUs{2, 3, 5}
	if u, i := a.Union(b).String(), a.Intersect(b).String(); u != "0-3,5" || i != "2,5" {
		t.Errorf("union %s, intersection %s", u, i)
	}
	if a.String() != "0-2,5" || b.String() != "2-3,5" || !a.Has(5) || a.Has(3) || CPUs(nil).Has(0) {
		t.Errorf("%s %s", a, b)
	}
	text, err := json.Marshal(map[string]CPUs{"set": a})
	if err != nil || string(text) != `{"set":"0-2,5"}` {
		t.Errorf("%s, %v", text, err)
	}
	var back map[string]CPUs
	if err := json.Unmarshal(text, &back); err != nil || cmp.Diff(a, back["set"]) != "" {
		t.Errorf("%v, %v", back, err)
	}
}

func FuzzParseCPUs(f *testing.F) {
	f.Add("0-3,8")
	f.Add("1,0")
	f.Fuzz(func(t *testing.T, in string) {
		got, err := ParseCPUs(in)
		if err != nil {
			return
		}
		for i, n := range got {
			if n < 0 || n > MaxCPU || (i > 0 && n <= got[i-1]) {
				t.Fatalf("%q: %v", in, []int(got))
			}
		}
		if again, err := ParseCPUs(got.String()); err != nil || cmp.Diff(got, again) != "" {
			t.Errorf("%q comes back as %v, %v", in, again, err)
		}
	})
}
