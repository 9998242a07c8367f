package rundir

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// writeRun makes a run directory with the given text of requests.jsonl.
func writeRun(t *testing.T, requests string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{RequestsFile: requests, MetadataFile: `{"schema":1,"run_id":"r1"}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestReadDamage(t *testing.T) {
	long := strings.Repeat("x", 100<<10) // longer than the reader's buffer
	cases := []struct {
		name, text string
		want       []string
	}{
		{"empty", "", nil},
		{"good", `{"request_id":"a"}` + "\n" + `{"request_id":"b"}` + "\n", []string{"a", "b"}},
		{"long", `{"request_id":"` + long + `"}` + "\n", []string{long}},
		{
			"unfinished last", `{"request_id":"a"}` + "\n" + `{"request_`,
			[]string{"a", "requests.jsonl: line 2 (byte 19) is unfinished"},
		},
		{
			"unfinished only", `{"req`, []string{"requests.jsonl: line 1 (byte 0) is unfinished"},
		},
		{
			"damaged", "{\x00}\n" + `{"request_id":"b"}` + "\n",
			[]string{"requests.jsonl: line 1 (byte 0) is damaged: invalid character '\\x00' looking for beginning of object key string", "b"},
		},
		{
			"zeros at the end", `{"request_id":"a"}` + "\n\x00\x00\x00",
			[]string{"a", "requests.jsonl: line 2 (byte 19) is unfinished"},
		},
		{"unknown key", `{"request_id":"a","later":{"x":1}}` + "\n", []string{"a"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			run, err := Read(writeRun(t, c.text))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for r, err := range run.Records() {
				if err == nil {
					got = append(got, r.RequestID)
					continue
				}
				if _, ok := errors.AsType[*LineError](err); !ok || r != nil {
					t.Errorf("got %v with record %v, want a LineError and no record", err, r)
				}
				got = append(got, err.Error())
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("Records (-want +got):\n%s", diff)
			}
			for range run.Records() {
				break // an iteration that is left early closes its file and yields no more
			}
		})
	}
}

func TestReadLongLine(t *testing.T) {
	text := strings.Repeat("x", maxLine+1) + "\n" + `{"request_id":"b"}` + "\n"
	var got []string
	decodeLines(strings.NewReader(text), "f", func(r *timeline.Record, err error) bool {
		if err != nil {
			got = append(got, err.Error())
			return true
		}
		got = append(got, r.RequestID)
		return true
	})
	if diff := cmp.Diff([]string{"f: line 1 (byte 0) is damaged: line too long", "b"}, got); diff != "" {
		t.Errorf("decodeLines (-want +got):\n%s", diff)
	}
}

func TestReadStates(t *testing.T) {
	dir := writeRun(t, "")
	metadata := filepath.Join(dir, MetadataFile)
	for text, want := range map[string][2]bool{
		`{"end":null}`:                                    {false, false},
		`{"end":{"wall_ns":1,"mono_ns":null}}`:            {true, false},
		`{"end":{"wall_ns":1,"mono_ns":2},"sealed":true}`: {true, false}, // without SHA256SUMS
	} {
		if err := os.WriteFile(metadata, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		run, err := Read(dir)
		if err != nil || run.MetadataErr != nil {
			t.Fatalf("Read = %v, %v", err, run.MetadataErr)
		}
		if got := [2]bool{run.Closed, run.Sealed}; got != want {
			t.Errorf("closed, sealed with %s = %v, want %v", text, got, want)
		}
	}
	if err := os.WriteFile(metadata, []byte(`{"end":{"wall`), 0o600); err != nil {
		t.Fatal(err)
	}
	run, err := Read(dir)
	if err != nil || run.MetadataErr == nil || run.Closed {
		t.Errorf("Read with damaged metadata = %+v, %v, want it named in MetadataErr", run, err)
	}
	if _, err := Read(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Read of an empty directory = %v, want fs.ErrNotExist", err)
	}
}

// What a killed process wrote before its last 100 ms is there, in whole lines.
func TestReadAfterKill(t *testing.T) {
	const variable, certain = "OMNITAP_TEST_RUNDIR", 1000
	if dir := os.Getenv(variable); dir != "" {
		writeForever(t, dir, certain)
	}
	dir := filepath.Join(t.TempDir(), "run")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestReadAfterKill$")
	cmd.Env = append(os.Environ(), variable+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, readErr := bufio.NewReader(out).ReadString('\n')
	killErr := cmd.Process.Kill()
	if err := cmd.Wait(); err == nil || readErr != nil || killErr != nil {
		t.Fatalf("the child ended with %v, read: %v, kill: %v", err, readErr, killErr)
	}

	run, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for e, err := range run.Events() {
		if bad, ok := errors.AsType[*LineError](err); ok && bad.Unfinished {
			continue
		}
		if err != nil {
			t.Fatalf("Events: %v", err)
		}
		if e.ChunkID != timeline.N(int64(n)) {
			t.Fatalf("event %d has chunk_id %v", n, e.ChunkID)
		}
		n++
	}
	if n < certain || run.Closed || run.MetadataErr != nil {
		t.Errorf("%d events, closed %t, metadata %v, want at least %d of a run that is not closed", n, run.Closed, run.MetadataErr, certain)
	}
	if _, err := Create(dir, Meta{}); !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), "unfinished") {
		t.Errorf("Create on it = %v, want ErrExists that says unfinished", err)
	}
}

// writeForever is the child: it says so once the first events are in the file.
func writeForever(t *testing.T, dir string, certain int) {
	t.Helper()
	w := mustCreate(t, dir, Meta{}, openExclusive)
	said := false
	for i := 0; ; i++ {
		w.Event(event(i))
		if !said && w.Stats().Events.Lines >= int64(certain) {
			said = true
			fmt.Fprintln(os.Stdout, "written")
		}
		runtime.Gosched()
	}
}
