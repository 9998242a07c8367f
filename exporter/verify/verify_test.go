package verify_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/exporter/verify"
)

func TestVerifiesARealRun(t *testing.T) {
	res := mustVerify(t, sealed(t), verify.Options{})
	older := func(f *verify.Finding) bool {
		return f.Level == verify.Note && strings.Contains(f.Text, "older program")
	}
	if !res.OK() || !res.Passed || find(res, func(f *verify.Finding) bool { return !older(f) }) != nil {
		t.Errorf("findings:%s", list(res))
	}
	c := res.Counts
	if c.Requests != 34 || c.Events < 800 || c.Sessions != 12 || c.Quality != 28 || c.States["success"] != 30 {
		t.Errorf("counts %+v", c)
	}
	if res.Seal == nil || res.Seal.Files != 6 || !strings.HasPrefix(res.RunID, "2026") {
		t.Errorf("seal %+v, run %s", res.Seal, res.RunID)
	}
	// Each of these is there in every run that holds sound, text and stages.
	for field, least := range map[string]int64{
		"points.t_in": 34, "offsets.t_audio": 34, "ttft_ms": 34, "ttfa_ms": 34, "ttfaudible_ms": 34, "jct_ms": 34, "tpot_ms": 30, "audio_s": 28,
		"rtf": 28, "xrt": 28, "audio_gap_ms.p99": 20, "audio_gap_ms.cv": 20, "playback.underruns": 20, "playback.stall_ms": 20,
		"playback.min_prebuffer_ms": 20, "playback.continuity": 80, "audio.samples": 28, "text_units": 34, "terminal.state": 34,
		"critical_path": 3, "critical_path[].ms": 20, "stages[].wait_ms": 9, "transfers[].end_ns": 20, "own_delay_us.p99": 30,
		"quality.failed": 28, "sessions.turns": 12, "bytes_up (connection)": 14,
	} {
		if res.Compared[field] < least {
			t.Errorf("%s was compared %d times, want at least %d", field, res.Compared[field], least)
		}
	}
}

func TestUnsealedRun(t *testing.T) {
	dir := demo(t)
	unsealed := func(f *verify.Finding) bool {
		return f.Kind == verify.KindSeal && strings.Contains(f.Text, "never sealed")
	}
	if res := mustVerify(t, dir, verify.Options{}); res.OK() || res.Errors != 1 || find(res, unsealed) == nil {
		t.Errorf("findings:%s", list(res))
	}
	res := mustVerify(t, dir, verify.Options{AllowUnsealed: true})
	if f := find(res, unsealed); !res.OK() || f == nil || f.Level != verify.Note {
		t.Errorf("allowed: findings:%s", list(res))
	}
}

func TestNoDirectory(t *testing.T) {
	dir := demo(t)
	for _, name := range []string{filepath.Join(dir, "none"), filepath.Join(dir, rundir.RequestsFile)} {
		if _, err := verify.Verify(name, verify.Options{}); err == nil || !strings.Contains(err.Error(), "opening the run") {
			t.Errorf("Verify(%s) = %v", name, err)
		}
	}
	res := mustVerify(t, t.TempDir(), verify.Options{AllowUnsealed: true})
	for _, name := range []string{rundir.MetadataFile, rundir.RequestsFile, rundir.EventsFile} {
		if find(res, func(f *verify.Finding) bool { return f.Kind == verify.KindFile && f.File == name }) == nil {
			t.Errorf("an empty directory: nothing says that %s is missing:%s", name, list(res))
		}
	}
}

// What a killed process leaves is read as far as it goes, and is never verified.
func TestCrashedRun(t *testing.T) {
	dir := demo(t)
	edit(t, dir, rundir.EventsFile, func(s string) string { return s[:len(s)*2/3] })
	edit(t, dir, rundir.RequestsFile, func(s string) string { return s[:len(s)/2] })
	edit(t, dir, rundir.MetadataFile, func(s string) string {
		before, _, _ := strings.Cut(s, `"end": {`)
		return before + `"end": null, "files": null, "sealed": false}`
	})
	res := mustVerify(t, dir, verify.Options{AllowUnsealed: true})
	for _, want := range []string{"requests.jsonl:", "events.jsonl:"} {
		if find(res, func(f *verify.Finding) bool {
			return f.Kind == verify.KindLine && strings.HasPrefix(f.String(), "error: "+want) && strings.Contains(f.Text, "cut")
		}) == nil {
			t.Errorf("nothing names the cut line of %s:%s", want, list(res))
		}
	}
	if f := find(res, func(f *verify.Finding) bool { return f.Kind == verify.KindSeal }); f == nil || f.Level != verify.Error || !strings.Contains(f.Text, "not closed") {
		t.Errorf("the seal of a crashed run: %+v", f)
	}
	if res.OK() || res.Counts.Requests == 0 || res.Compared["jct_ms"] == 0 {
		t.Errorf("ok %t, counts %+v", res.OK(), res.Counts)
	}
}

func TestRenders(t *testing.T) {
	dir := sealed(t)
	edit(t, dir, rundir.RequestsFile, func(s string) string {
		at := strings.Index(s, `"ttft_ms":`) + len(`"ttft_ms":`)
		return s[:at] + string('1'+(s[at]-'0')%9) + s[at+1:]
	})
	res := mustVerify(t, dir, verify.Options{})
	var text, js bytes.Buffer
	if err := res.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(text.String(), "\n")
	if !strings.HasPrefix(lines[0], "run "+res.RunID) || !strings.Contains(lines[0], "NOT verified: 2 errors") {
		t.Errorf("the text begins with %q", lines[0])
	}
	for _, want := range []string{
		"error: requests.jsonl:1: request ", ": ttft_ms: ", " in the record, ", " from the events (1e-9 of it)", "error: requests.jsonl: its hash is ",
		"\nnot derivable: audio.sha256: ", "\nas told, no measurements: ", "values of ", "sealed: 6 files",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, text.String())
		}
	}
	if err := res.WriteJSON(&js); err != nil {
		t.Fatal(err)
	}
	var back verify.Result
	if err := json.Unmarshal(js.Bytes(), &back); err != nil || back.Errors != 2 || len(back.Findings) != len(res.Findings) || back.Passed ||
		find(&back, func(f *verify.Finding) bool { return f.Field == "ttft_ms" && f.Recorded != nil && f.Derived != nil }) == nil {
		t.Errorf("the JSON reads as %+v, %v", back.Findings, err)
	}
}

// Fields are added within a schema version: a run that lacks one altogether is older,
// and no worse for it.
func TestRunOfAnOlderProgram(t *testing.T) {
	dir := demo(t)
	edit(t, dir, rundir.RequestsFile, func(s string) string { return strings.ReplaceAll(s, `"retry_of":null,`, ``) })
	recount(t, dir)
	seal(t, dir)
	res := mustVerify(t, dir, verify.Options{})
	f := find(res, func(f *verify.Finding) bool {
		return strings.Contains(f.String(), "requests.jsonl:1: retry_of is missing in all of the file")
	})
	if !res.OK() || f == nil || f.Level != verify.Note {
		t.Errorf("findings:%s", list(res))
	}
}

// However much is wrong, the list is short and the count is whole.
func TestFindingsAreBounded(t *testing.T) {
	dir := demo(t)
	edit(t, dir, rundir.RequestsFile, func(s string) string { return strings.ReplaceAll(s, `"t_in":`, `"t_in":1`) })
	res := mustVerify(t, dir, verify.Options{MaxFindings: 7})
	if len(res.Findings) != 7 || res.Errors+res.Notes != 7+res.Unlisted || res.Unlisted < 50 {
		t.Errorf("%d listed, %d not, %d errors", len(res.Findings), res.Unlisted, res.Errors)
	}
	var text bytes.Buffer
	if err := res.WriteText(&text); err != nil || !strings.Contains(text.String(), "findings more\n") {
		t.Errorf("the text does not say that there are more: %v", err)
	}
}

// A file may hold anything; a finding is one line for all that.
func TestFindingsArePrintable(t *testing.T) {
	dir := demo(t)
	edit(t, dir, rundir.RequestsFile, func(s string) string {
		return strings.Replace(s, `"state":"success"`, `"state":"\u001b[31m\nerror: forged"`, 1)
	})
	res := mustVerify(t, dir, verify.Options{})
	var text bytes.Buffer
	if err := res.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsRune(text.String(), 0x1b) || strings.Contains(text.String(), "\nerror: forged") {
		t.Errorf("control characters come through:\n%q", text.String())
	}
}

// The order of the findings is the same each time.
func TestDeterministic(t *testing.T) {
	dir := demo(t)
	edit(t, dir, rundir.RequestsFile, func(s string) string { return strings.ReplaceAll(s, `"request_id":"o`, `"request_id":"x`) })
	first := mustVerify(t, dir, verify.Options{})
	for range 3 {
		if again := mustVerify(t, dir, verify.Options{}); !slices.EqualFunc(first.Findings, again.Findings, func(a, b verify.Finding) bool { return a.String() == b.String() }) {
			t.Fatalf("another order:%s\nthen:%s", list(first), list(again))
		}
	}
	if first.OK() {
		t.Error("records without events are verified")
	}
}

func TestVerifyChangesNothing(t *testing.T) {
	dir := sealed(t)
	before, err := rundir.CheckSeal(dir)
	if err != nil {
		t.Fatal(err)
	}
	mustVerify(t, dir, verify.Options{})
	after, err := rundir.CheckSeal(dir)
	if err != nil || !after.OK() || after.Digest != before.Digest {
		t.Errorf("after it: %+v, %v", after, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 7 {
		t.Errorf("%d files, %v", len(entries), err)
	}
}
