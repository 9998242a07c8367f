package experiment

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"
)

// Experiment is the content of experiment.yaml. Read and Parse give one that is valid;
// Default has no question yet.
type Experiment struct {
	// Question is what the run is to answer, in one sentence.
	Question string `yaml:"question"`
	// Primary is the one figure that answers it: METRIC_pNN (ttfa_p95), or one of
	// throughput, goodput and success_rate, which have no percentiles.
	Primary string `yaml:"primary"`
	// Invariants are checks on the sound, by name, which must have been measured and
	// passed.
	Invariants []string `yaml:"invariants"`
	// AllowedFailureRate is the share of requests that may fail.
	AllowedFailureRate float64  `yaml:"allowed_failure_rate"`
	SLO                SLO      `yaml:"slo"`
	Stop               Stop     `yaml:"stop"`
	Workload           Workload `yaml:"workload"`
	// Warmup is what begins a run and is measured, but is no part of its figures;
	// Measured is what the built-in generator sends behind it. A command ends by itself,
	// or by a stop condition.
	Warmup   Phase `yaml:"warmup"`
	Measured Phase `yaml:"measured"`
	// Deadline is how long after t_in each request must have ended, 0 for no limit.
	Deadline time.Duration `yaml:"deadline"`
	// ForeignCoresLimit is the peak of foreign CPU use, in cores, above which a run is
	// contaminated.
	ForeignCoresLimit float64     `yaml:"foreign_cores_limit"`
	Calibration       Calibration `yaml:"calibration"`
	// Variants are settings of the server that are run in turns, Runs times each.
	Variants []Variant `yaml:"variants"`
	Runs     int       `yaml:"runs"`

	source []byte
	given  []string // keys that the file has
}

// Workload is what load is made. The command that makes it is in metadata.json.
type Workload struct {
	// Reference names the load so that others can make it again: a data set with its
	// revision, a file, the arguments of a generator.
	Reference string `yaml:"reference"`
	// SHA256 is that of the file that Reference names, where it is one.
	SHA256 string `yaml:"sha256"`
	// Captures are files and folders whose requests the built-in generator sends; without
	// any it sends its own small chat.
	Captures []string `yaml:"captures"`
	// Concurrency, Rate (requests a second, at random) and Times (offsets from the start)
	// say when the built-in generator sends; one of them may be set, and without any it
	// is DefaultConcurrency.
	Concurrency int             `yaml:"concurrency"`
	Rate        float64         `yaml:"rate"`
	Times       []time.Duration `yaml:"times"`
	// Seed is that of random times.
	Seed uint64 `yaml:"seed"`
	// Timeout is how long the built-in generator waits for a whole answer; 0 is its
	// default.
	Timeout time.Duration `yaml:"timeout"`
}

// Phase is a part of a run: so many requests or so long, whichever is over first; 0 and 0
// is none.
type Phase struct {
	Requests int           `yaml:"requests"`
	Duration time.Duration `yaml:"duration"`
}

// Calibration says how the cost of the probes is measured ahead of the load.
type Calibration struct {
	// Off leaves it out: no number of the run is then known to be free of the probes' cost.
	Off bool `yaml:"off"`
	// Budget is the most that the probes may cost of any metric that decides, a share.
	Budget float64 `yaml:"budget"`
	// OnOver is what is done over budget: trim (take the costliest family away and begin
	// again), stop, or report (go on, and say so).
	OnOver string `yaml:"on_over"`
	// MaxDuration is after how long no further pair of blocks is begun; 0 for no limit.
	MaxDuration time.Duration `yaml:"max_duration"`
	// Blocks is the most blocks, those with and those without probes together.
	Blocks int `yaml:"blocks"`
	// Requests is how many a block has.
	Requests int `yaml:"requests"`
}

// Variant is one setting of the server. Command and Env are told, not carried out: how it
// is started.
type Variant struct {
	// Name is of letters, digits, dots, hyphens and underscores.
	Name    string            `yaml:"name"`
	Command []string          `yaml:"command"`
	Env     map[string]string `yaml:"env"`
}

// What is done when the probes are over budget.
const (
	OnOverTrim   = "trim"
	OnOverStop   = "stop"
	OnOverReport = "report"
)

// Defaults of an experiment.
const (
	DefaultForeignCores = 2.0
	DefaultBudget       = 0.01
	DefaultBlocks       = 32
	DefaultRequests     = 32
	DefaultConcurrency  = 4
	DefaultRuns         = 4
	DefaultAfter        = 20
)

// Default is an experiment that asks nothing: the defaults of all keys. A run without an
// experiment has it, and is exploratory.
func Default() Experiment {
	return Experiment{
		ForeignCoresLimit: DefaultForeignCores, Runs: DefaultRuns, Stop: Stop{After: DefaultAfter},
		Calibration: Calibration{Budget: DefaultBudget, OnOver: OnOverStop, Blocks: DefaultBlocks, Requests: DefaultRequests},
	}
}

// Source is the file as it was read; nil for an experiment that was not. The caller must
// not write to it.
func (e Experiment) Source() []byte { return e.source }

// SHA256 is the hash of the file's bytes in hex, empty for an experiment that was not read.
func (e Experiment) SHA256() string {
	if e.source == nil {
		return ""
	}
	sum := sha256.Sum256(e.source)
	return hex.EncodeToString(sum[:])
}

// registered are the keys that the contract asks for.
var registered = []string{"question", "primary", "invariants", "allowed_failure_rate", "slo", "stop", "workload"}

// Exploratory lists what the contract asks for and the file does not say: what a run says
// of it was not settled ahead, and must be labelled so.
func (e Experiment) Exploratory() (keys []string) {
	for _, key := range registered {
		if !slices.Contains(e.given, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Order is the order in which variants are run, as places in Variants: each round the
// other way round (A B B A), so that what drifts slowly cancels. A variant against itself,
// between its runs, is the noise.
func (e Experiment) Order() (order []int) {
	for round := range e.Runs {
		for i := range e.Variants {
			if round%2 == 1 {
				i = len(e.Variants) - 1 - i
			}
			order = append(order, i)
		}
	}
	return order
}
