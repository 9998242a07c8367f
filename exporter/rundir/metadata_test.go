package rundir

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// A run of events that another program wrote says so.
func TestMetadataOfOlderEvents(t *testing.T) {
	dir := t.TempDir()
	w := mustCreate(t, dir, Meta{RunID: "r1", EventForm: 1}, openExclusive)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if run, err := Read(dir); err != nil || run.Metadata.EventForm != 1 {
		t.Errorf("event_form %d, %v", run.Metadata.EventForm, err)
	}
}

func TestMetadata(t *testing.T) {
	dir := t.TempDir()
	before := time.Now().UnixNano()
	w := mustCreate(t, dir, Meta{
		RunID: "r1", Node: "n1",
		Args:     []string{"omnitap", "serve", "--upstream", "http://u:p@host:8091", "--api-key", "abc"},
		Upstream: "http://u:p@host:8091/v1?api_key=abc&x=1",
		Config:   map[string]any{"listen": ":8090", "max_tokens": 5, "headers": map[string]string{"Authorization": "Basic abc"}},
	}, openExclusive)
	running, err := Read(dir)
	if err != nil || running.MetadataErr != nil {
		t.Fatalf("Read while running: %v, %v", err, running.MetadataErr)
	}
	if running.Closed || running.Metadata.End != nil || running.Metadata.Files != nil {
		t.Errorf("metadata while running has an end: %+v", running.Metadata)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	run, err := Read(dir)
	if err != nil || run.MetadataErr != nil {
		t.Fatalf("Read: %v, %v", err, run.MetadataErr)
	}
	m := run.Metadata
	if diff := cmp.Diff([]string{"omnitap", "serve", "--upstream", "http://host:8091", "--api-key", Redacted}, m.CommandLine); diff != "" {
		t.Errorf("command line (-want +got):\n%s", diff)
	}
	if want := "http://host:8091/v1?api_key=" + Redacted + "&x=1"; m.Upstream != want {
		t.Errorf("upstream = %q, want %q", m.Upstream, want)
	}
	var config map[string]any
	if err := json.Unmarshal(m.Config, &config); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"listen": ":8090", "max_tokens": 5.0, "headers": map[string]any{"Authorization": Redacted}}
	if diff := cmp.Diff(want, config); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	if m.Schema != 1 || m.EventForm != timeline.EventForm || m.RunID != "r1" || m.Node != "n1" || m.PID != os.Getpid() || m.Sealed {
		t.Errorf("metadata = %+v", m)
	}
	if m.Start.WallNS < before || m.End == nil || m.End.WallNS < m.Start.WallNS {
		t.Errorf("start %+v, end %+v, want both after %d and in order", m.Start, m.End, before)
	}
	checkMeasured(t, m)
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 5 {
		t.Errorf("directory holds %v, %v, want five files", entries, err)
	}
}

// checkMeasured wants every null to have its reason, and on Linux the host's facts.
func checkMeasured(t *testing.T, m Metadata) {
	t.Helper()
	for name, measured := range map[string]bool{
		"start.mono_ns": m.Start.MonoNS != nil, "end.mono_ns": m.End.MonoNS != nil,
		"host.hostname": m.Host.Hostname != nil, "host.kernel_release": m.Host.KernelRelease != nil,
		"host.cpu_model": m.Host.CPUModel != nil, "program.commit": m.Program.Commit != nil,
		"program.commit_time": m.Program.CommitTime != nil, "program.modified": m.Program.Modified != nil,
	} {
		if reason := m.Unmeasured[name]; measured == (reason != "") {
			t.Errorf("%s: measured %t with reason %q", name, measured, reason)
		}
	}
	if runtime.GOOS == "linux" && (m.Start.MonoNS == nil || m.Host.KernelRelease == nil || *m.End.MonoNS < *m.Start.MonoNS) {
		t.Errorf("start %+v, end %+v, host %+v, want them measured and in order", m.Start, m.End, m.Host)
	}
}

func TestCreateRefuses(t *testing.T) {
	dir := t.TempDir()
	w := mustCreate(t, dir, Meta{}, openExclusive)
	if _, err := Create(dir, Meta{}); !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), "unfinished") {
		t.Errorf("Create on a running run = %v, want ErrExists that says unfinished", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(dir, Meta{}); !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), "closed") {
		t.Errorf("Create on a closed run = %v, want ErrExists that says closed", err)
	}
	if _, err := Create(t.TempDir(), Meta{Config: func() {}}); err == nil {
		t.Error("Create with a configuration that JSON cannot hold succeeded")
	}
	file := filepath.Join(dir, MetadataFile)
	if _, err := Create(filepath.Join(file, "x"), Meta{}); err == nil {
		t.Error("Create below a file succeeded")
	}
}
