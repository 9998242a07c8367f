package rundir

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// Metadata is metadata.json. A nil pointer is a value that was not measured;
// Unmeasured then holds its dotted name with the reason.
type Metadata struct {
	Schema int `json:"schema"`
	// EventForm is timeline.EventForm: what events tell beyond points and chunks.
	EventForm   int             `json:"event_form"`
	RunID       string          `json:"run_id"`
	Node        string          `json:"node"`
	Program     Program         `json:"program"`
	CommandLine []string        `json:"command_line"`
	PID         int             `json:"pid"`
	Upstream    string          `json:"upstream"`
	Config      json.RawMessage `json:"config"`
	Host        Host            `json:"host"`
	Start       Stamp           `json:"start"`
	// End is null until Close: a run without it is unfinished or crashed.
	End *Stamp `json:"end"`
	// Files counts the lines written and lost, null until Close.
	Files *Stats `json:"files"`
	// Sealed is true once SHA256SUMS holds the hashes of every file.
	Sealed bool `json:"sealed"`
	// Run is what `omnitap run` adds, absent elsewhere.
	Run        *RunInfo          `json:"run,omitempty"`
	Unmeasured map[string]string `json:"unmeasured"`
}

// Program says which build wrote the run.
type Program struct {
	Module  string `json:"module"`
	Version string `json:"version"`
	// Commit and CommitTime are the version control stamps of the build, and
	// Modified says whether the tree had changes on top of it.
	Commit     *string `json:"commit"`
	CommitTime *string `json:"commit_time"`
	Modified   *bool   `json:"modified"`
	Go         string  `json:"go"`
	OS         string  `json:"os"`
	Arch       string  `json:"arch"`
}

// Host says what machine the run was taken on.
type Host struct {
	Hostname      *string `json:"hostname"`
	KernelRelease *string `json:"kernel_release"`
	CPUModel      *string `json:"cpu_model"`
	// CPUs is the number of logical CPUs this process may use.
	CPUs int `json:"cpus"`
}

// Stamp is one moment on both clocks. MonoNS is CLOCK_MONOTONIC.
type Stamp struct {
	WallNS int64  `json:"wall_ns"`
	MonoNS *int64 `json:"mono_ns"`
}

const metadataSchema = 1

func newMetadata(meta Meta) (Metadata, error) {
	config, err := redactConfig(meta.Config)
	if err != nil {
		return Metadata{}, fmt.Errorf("encoding the configuration: %w", err)
	}
	m := Metadata{
		Schema:      metadataSchema,
		EventForm:   cmp.Or(meta.EventForm, timeline.EventForm),
		RunID:       meta.RunID,
		Node:        meta.Node,
		CommandLine: RedactArgs(meta.Args),
		PID:         os.Getpid(),
		Upstream:    RedactURL(meta.Upstream),
		Config:      config,
		Unmeasured:  map[string]string{},
		Run:         meta.Run,
	}
	m.Program = m.program()
	m.Host = m.host()
	m.Start = m.stamp("start")
	return m, nil
}

func (m *Metadata) end(stats Stats) {
	end := m.stamp("end")
	m.End, m.Files = &end, &stats
}

func (m *Metadata) stamp(name string) Stamp {
	mono, err := monotonic()
	return Stamp{WallNS: time.Now().UnixNano(), MonoNS: measured(m, name+".mono_ns", mono, err)}
}

func (m *Metadata) host() Host {
	hostname, hostErr := os.Hostname()
	release, releaseErr := kernelRelease()
	model, modelErr := cpuModel()
	return Host{
		Hostname:      measured(m, "host.hostname", hostname, hostErr),
		KernelRelease: measured(m, "host.kernel_release", release, releaseErr),
		CPUModel:      measured(m, "host.cpu_model", model, modelErr),
		CPUs:          runtime.NumCPU(),
	}
}

func (m *Metadata) program() Program {
	p := Program{Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	p.Module, p.Version = info.Main.Path, info.Main.Version
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	setting := func(name, key string) *string {
		value, ok := settings[key]
		var err error
		if !ok {
			err = errNotStamped
		}
		return measured(m, name, value, err)
	}
	p.Commit = setting("program.commit", "vcs.revision")
	p.CommitTime = setting("program.commit_time", "vcs.time")
	if modified := setting("program.modified", "vcs.modified"); modified != nil {
		is := *modified == "true"
		p.Modified = &is
	}
	return p
}

var errNotStamped = errors.New("the build carries no version control stamp")

// measured returns a pointer to the value, or nil with the reason put down.
func measured[T any](m *Metadata, name string, value T, err error) *T {
	if err != nil {
		m.Unmeasured[name] = err.Error()
		return nil
	}
	return &value
}

// nextFile becomes metadata.json by a rename. Between Create and Close it holds
// the room that the final metadata will take, so that a run that filled its disk
// can still say what it lost. (A copy-on-write file system may refuse even so;
// the run then reads as unfinished.)
const nextFile = ".metadata.json.next"

// growth is how much longer metadata.json may get at Close.
const growth = 4 << 10

// writeMetadata replaces metadata.json in one step: a reader, or a crash, sees
// the old file or the new one.
func writeMetadata(dir string, m Metadata) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", MetadataFile, err)
	}
	next := filepath.Join(dir, nextFile)
	if err := overwrite(next, append(text, '\n')); err != nil {
		return fmt.Errorf("writing %s: %w", MetadataFile, err)
	}
	if err := os.Rename(next, filepath.Join(dir, MetadataFile)); err != nil {
		return fmt.Errorf("replacing %s: %w", MetadataFile, err)
	}
	return nil
}

// reserveMetadata takes the room for the next writeMetadata.
func reserveMetadata(dir string, more int64) error {
	info, err := os.Stat(filepath.Join(dir, MetadataFile))
	if err == nil {
		err = overwrite(filepath.Join(dir, nextFile), make([]byte, info.Size()+more))
	}
	if err != nil {
		return fmt.Errorf("reserving room for %s: %w", MetadataFile, err)
	}
	return nil
}

// overwrite writes a file over the blocks that it has.
func overwrite(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = errors.Join(f.Truncate(int64(len(text))), f.Sync())
	}
	return errors.Join(err, f.Close())
}
