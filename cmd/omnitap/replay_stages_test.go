package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const stageSets = "../../testdata/stages"

// keysOf are the keys of a JSON object, in the order in which they stand.
func keysOf(t *testing.T, line string) (keys []string) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(line))
	for depth := 0; ; {
		tok, err := d.Token()
		if err == io.EOF {
			return keys
		}
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		switch v := tok.(type) {
		case json.Delim:
			if depth++; v == '}' {
				depth -= 2
			}
		case string:
			if depth == 1 {
				keys = append(keys, v)
				var value any
				if err := d.Decode(&value); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestReplayStages: each recorded set gives a line a transfer, with the names of the
// page on files and records in their order, in order of start, the same each time.
func TestReplayStages(t *testing.T) {
	promised := strings.Fields("transport request from to chunk bytes key tx_start_ns tx_end_ns rx_start_ns rx_end_ns wait_start_ns misses match confidence")
	further := []string{"unread", "empty_polls", "engine_id", "object_id", "message_bytes", "announced_ns", "acked_ns"}
	for set, want := range map[string]int{"vo-basic": 16, "vo-faults": 25, "vo-real": 6, "vo-real-speech": 9, "so-basic": 20, "mc-tcp": 9} {
		code, out, errOut := runApp(t, "replay", "--stages", filepath.Join(stageSets, set))
		lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
		if code != 0 || errOut != "" || len(lines) != want {
			t.Fatalf("%s: exit %d, %d lines, want %d: %s", set, code, len(lines), want, errOut)
		}
		last, unread := 0.0, 0
		for _, line := range lines {
			keys := keysOf(t, line)
			if !slices.Equal(keys[:len(promised)], promised) {
				t.Errorf("%s: keys %q", set, keys)
			}
			for _, k := range keys[len(promised):] {
				if !slices.Contains(further, k) {
					t.Errorf("%s: key %q", set, k)
				}
			}
			var v map[string]any
			if err := json.Unmarshal([]byte(line), &v); err != nil {
				t.Fatal(err)
			}
			if start, ok := v["tx_start_ns"].(float64); ok {
				if start < last {
					t.Errorf("%s: not in order of tx_start_ns: %s", set, line)
				}
				last = start
			}
			if v["unread"] == true {
				unread++
				if v["rx_start_ns"] != nil || v["rx_end_ns"] != nil {
					t.Errorf("%s: unread, and received: %s", set, line)
				}
			}
		}
		if want := map[string]int{"vo-faults": 1}[set]; unread != want {
			t.Errorf("%s: %d unread, want %d", set, unread, want)
		}
		if _, again, _ := runApp(t, "replay", "--stages", filepath.Join(stageSets, set)); again != out {
			t.Errorf("%s: another output at the second time", set)
		}
	}
}

// stageFolder copies a set with its events in plain text, changed.
func stageFolder(t *testing.T, set string, change func([]byte) []byte) string {
	t.Helper()
	dir := t.TempDir()
	raw, err := os.Open(filepath.Join(stageSets, set, "raw.jsonl.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	z, err := gzip.NewReader(raw)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	processes, err := os.ReadFile(filepath.Join(stageSets, set, "processes.json"))
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"raw.jsonl": change(text), "processes.json": processes} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestReplayStagesExits: 0 for a whole capture, 1 where something is damaged, cut off
// or was lost (what there is is printed all the same), 2 for no capture.
func TestReplayStagesExits(t *testing.T) {
	same := func(b []byte) []byte { return b }
	whole := stageFolder(t, "vo-basic", same)
	_, want, _ := runApp(t, "replay", "--stages", whole)
	without := func(dir, name string) string {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	write := func(dir, name, text string) string {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	lost := `{"mono_ns":2014871000000,"pid":0,"tid":0,"comm":"","probe":"loss","args":{"count":12,"family":"shm"}}` + "\n"
	odd := `{"mono_ns":2014871000000,"pid":1,"tid":1,"comm":"x","probe":"brandnew","args":{}}` + "\n"
	cases := map[string]struct {
		dir, complaint string
		code           int
		out            bool
	}{
		"whole":            {whole, "", 0, true},
		"a damaged line":   {stageFolder(t, "vo-basic", func(b []byte) []byte { return append([]byte("{\"mono_ns\":\n"), b...) }), "line 1 is damaged", 1, true},
		"cut off":          {stageFolder(t, "vo-basic", func(b []byte) []byte { return b[:len(b)-7] }), "is unfinished", 1, true},
		"lost events":      {stageFolder(t, "vo-basic", func(b []byte) []byte { return append([]byte(lost), b...) }), "12 events of shm were lost", 1, true},
		"an unknown probe": {stageFolder(t, "vo-basic", func(b []byte) []byte { return append([]byte(odd), b...) }), `unknown probe "brandnew"`, 0, true},
		"no folder":        {filepath.Join(t.TempDir(), "none"), "no capture of stages", 2, false},
		"no events":        {without(stageFolder(t, "vo-basic", same), "raw.jsonl"), "neither raw.jsonl nor raw.jsonl.gz", 2, false},
		"no processes":     {without(stageFolder(t, "vo-basic", same), "processes.json"), "no capture of stages", 2, false},
		"other processes":  {write(stageFolder(t, "vo-basic", same), "processes.json", "[1"), "no capture of stages", 2, false},
		"other events":     {write(stageFolder(t, "vo-basic", same), "raw.jsonl", "hello\nworld\n"), "no capture of stages", 2, false},
	}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		c := cases[name]
		code, out, errOut := runApp(t, "replay", "--stages", c.dir)
		if code != c.code || !strings.Contains(errOut, c.complaint) || (errOut == "") != (c.complaint == "") {
			t.Errorf("%s: exit %d, want %d: %q", name, code, c.code, errOut)
		}
		if c.out && out != want && name != "cut off" || !c.out && out != "" {
			t.Errorf("%s: %d bytes of output, want %d", name, len(out), len(want))
		}
	}
	cutGzip := t.TempDir()
	b, err := os.ReadFile(filepath.Join(stageSets, "vo-basic", "raw.jsonl.gz"))
	if err != nil {
		t.Fatal(err)
	}
	write(cutGzip, "raw.jsonl.gz", string(b[:len(b)/2]))
	p, err := os.ReadFile(filepath.Join(stageSets, "vo-basic", "processes.json"))
	if err != nil {
		t.Fatal(err)
	}
	write(cutGzip, "processes.json", string(p))
	if code, out, errOut := runApp(t, "replay", "--stages", cutGzip); code != 1 || out == "" || !strings.Contains(errOut, "unexpected EOF") {
		t.Errorf("a gzip cut in half: exit %d, %d bytes, %q", code, len(out), errOut)
	}
}

func TestReplayStagesUsage(t *testing.T) {
	dir := filepath.Join(stageSets, "vo-basic")
	for _, args := range [][]string{
		{"replay"},
		{"replay", "--stages", dir, "x.wire.jsonl"},
		{"replay", "--stages", dir, "--out", t.TempDir()},
		{"replay", "--stages", dir, "--format", "xml"},
	} {
		if code, out, errOut := runApp(t, args...); code != 2 || out != "" || errOut == "" {
			t.Errorf("%q: exit %d, %q, %q", args, code, out, errOut)
		}
	}
}

// TestReplayStagesTable: a row an edge and transport with its percentiles.
func TestReplayStagesTable(t *testing.T) {
	code, out, errOut := runApp(t, "replay", "--format", "table", "--stages", filepath.Join(stageSets, "so-basic"))
	if code != 0 || errOut != "" {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	for _, want := range []string{"thinker → talker_ar", "talker_ar → code2wav", "P50", "P95", "P99", "in flight", "unsaid", "360450", "percentiles:"} {
		if !strings.Contains(out, want) {
			t.Errorf("the table has no %q:\n%s", want, out)
		}
	}
	if !bytes.Contains([]byte(out), []byte("inline")) || strings.Contains(out, "NaN") {
		t.Errorf("%s", out)
	}
}
