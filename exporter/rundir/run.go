package rundir

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/omnitap/omnitap/exporter/energy"
)

// Names of the files that `omnitap run` adds (contract section 8).
const (
	ExperimentFile  = "experiment.yaml"
	CalibrationFile = "calibration.json"
	StdoutFile      = "stdout.log"
	StderrFile      = "stderr.log"
)

// RunInfo is what `omnitap run` knows of a run beside what every run directory has.
type RunInfo struct {
	// Experiment is what was written down before the first request, null for an
	// exploratory run.
	Experiment  *Experiment `json:"experiment"`
	Exploratory bool        `json:"exploratory"`
	// State is running until the end; then complete, stopped (a stop condition held),
	// interrupted or failed. Reason says more.
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	Child  *Child `json:"child"`
	// Phases are the warm-up, where there was one, the measured part, and the cooldown: what
	// was under way when the load was told to end.
	Phases []RunPhase `json:"phases"`
	// ServerFound says how the server's processes were told from others, or why none were.
	ServerFound string `json:"server_found"`
	// Ledger is what was found in the server's processes and of the machine, as
	// probes/host/ledger has it; null where nothing could be read.
	Ledger json.RawMessage `json:"ledger"`
	// ForeignCPU and Clock are probes/host's accounts of the measured part: null where
	// they were not kept.
	ForeignCPU json.RawMessage `json:"foreign_cpu"`
	Clock      json.RawMessage `json:"clock"`
	// Contamination is clean, contaminated or not_measured, with the reason.
	Contamination    string `json:"contamination"`
	ContaminationWhy string `json:"contamination_reason,omitempty"`
	// Calibration is the verdict on the probes, null where none was made: NoCalibration
	// says why.
	Calibration   *CalibrationRef `json:"calibration"`
	NoCalibration string          `json:"calibration_unmeasured,omitempty"`
	// Resources says what was sampled beside the requests, at what cost, and what was not.
	Resources json.RawMessage `json:"resources,omitempty"`
	// Energy is what the cards took over the measured part (contract section 3), null where
	// that was not measured: NoEnergy says why.
	Energy   *energy.Result `json:"energy"`
	NoEnergy string         `json:"energy_unmeasured,omitempty"`
}

// Experiment names the experiment of a run.
type Experiment struct {
	SHA256   string `json:"sha256"`
	Question string `json:"question"`
	Primary  string `json:"primary_metric"`
}

// Child is the command that made the load. ExitCode is null while it runs, and where a
// signal ended it.
type Child struct {
	Args     []string `json:"args"`
	ExitCode *int     `json:"exit_code"`
	Signal   string   `json:"signal,omitempty"`
	// Lost says what stdout.log and stderr.log lack of what it said, empty for nothing.
	Lost string `json:"logs_lost,omitempty"`
}

// RunPhase is a part of a run, CLOCK_MONOTONIC nanoseconds; EndNS is 0 while it lasts.
type RunPhase struct {
	Name    string `json:"name"`
	StartNS int64  `json:"start_ns"`
	EndNS   int64  `json:"end_ns"`
}

// CalibrationRef is what calibration.json says in short.
type CalibrationRef struct {
	Verdict string   `json:"verdict"`
	Budget  float64  `json:"budget"`
	Trimmed []string `json:"trimmed"`
}

// runGrowth is how much longer metadata.json may get at Close with a RunInfo in it.
const runGrowth = 256 << 10

// SetRun changes what is known of the run. It is written by Close.
func (w *Writer) SetRun(change func(*RunInfo)) {
	w.describing.Lock()
	defer w.describing.Unlock()
	if w.metadata.Run == nil {
		w.metadata.Run = &RunInfo{}
	}
	change(w.metadata.Run)
}

// writeExperiment writes experiment.yaml as it is given, and returns its hash.
func writeExperiment(dir string, text []byte) (string, error) {
	f, err := os.OpenFile(filepath.Join(dir, ExperimentFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("creating %s: %w", ExperimentFile, err)
	}
	defer func() { _ = f.Close() }()
	if _, err = f.Write(text); err == nil {
		err = f.Sync()
	}
	if err != nil {
		return "", fmt.Errorf("writing %s: %w", ExperimentFile, err)
	}
	sum := sha256.Sum256(text)
	return fmt.Sprintf("%x", sum), nil
}

// CheckExperiment reports whether experiment.yaml is still the one that was hashed ahead
// of the first request.
func CheckExperiment(dir string, m *Metadata) error {
	if m.Run == nil || m.Run.Experiment == nil {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(dir, ExperimentFile))
	if err != nil {
		return fmt.Errorf("reading %s: %w", ExperimentFile, err)
	}
	if sum := sha256.Sum256(text); fmt.Sprintf("%x", sum) != m.Run.Experiment.SHA256 {
		return fmt.Errorf("%s was changed after the run began: it is not the one whose hash metadata.json has", ExperimentFile)
	}
	return nil
}
