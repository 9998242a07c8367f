package nodes

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/omnitap/omnitap/probes/event"
)

// The files of a part: what an agent writes beside raw.jsonl and processes.json.
const (
	AgentFile = "agent.json"
	ClockFile = "clock.jsonl"
)

// Agent is agent.json: whose part it is.
type Agent struct {
	Schema  int    `json:"schema"`
	Role    string `json:"role"` // "agent"
	Node    string `json:"node"`
	BootID  string `json:"boot_id"`
	Version string `json:"version"`
	// Start and End are CLOCK_MONOTONIC and wall nanoseconds; End is null in a part that
	// is still being written, or whose agent died.
	Start Moment  `json:"start"`
	End   *Moment `json:"end"`
	// Clock is the address that was asked for the relay's clock, empty for none; ClockWhy
	// the last reason why an exchange failed.
	Clock    string `json:"clock"`
	ClockWhy string `json:"clock_why,omitempty"`
	// Lost says why the capture of events is not whole.
	Lost string `json:"lost,omitempty"`
}

// Moment is one moment on both clocks of a machine.
type Moment struct {
	MonoNS int64 `json:"mono_ns"`
	WallNS int64 `json:"wall_ns"`
}

// Part is an agent's folder, read but for its events.
type Part struct {
	Dir       string
	Agent     Agent
	Processes []event.Process
	Samples   []Sample
	// Damaged counts the lines of clock.jsonl that could not be read.
	Damaged int
}

// IsPart says that a folder is an agent's.
func IsPart(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, AgentFile))
	return err == nil
}

// ErrNoPart is a folder that is no agent's.
var ErrNoPart = errors.New("no part of an agent")

// ReadPart reads what an agent wrote, but for raw.jsonl.
func ReadPart(dir string) (*Part, error) {
	p := &Part{Dir: dir}
	text, err := os.ReadFile(filepath.Join(dir, AgentFile))
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", dir, ErrNoPart, err)
	}
	if err := json.Unmarshal(text, &p.Agent); err != nil {
		return nil, fmt.Errorf("%s/%s: %w", dir, AgentFile, err)
	}
	if p.Agent.Role != "agent" || p.Agent.Schema != 1 || p.Agent.Node == "" {
		return nil, fmt.Errorf("%s/%s: %w: role %q, schema %d, node %q", dir, AgentFile, ErrNoPart, p.Agent.Role, p.Agent.Schema, p.Agent.Node)
	}
	f, err := os.Open(filepath.Join(dir, "processes.json"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	defer func() { _ = f.Close() }()
	list, err := event.ReadProcesses(f)
	if err != nil {
		return nil, fmt.Errorf("%s/processes.json: %w", dir, err)
	}
	p.Processes = list.Processes
	return p, p.readClock()
}

// readClock reads clock.jsonl; there is none where nobody was asked.
func (p *Part) readClock() error {
	f, err := os.Open(filepath.Join(p.Dir, ClockFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", p.Dir, err)
	}
	defer func() { _ = f.Close() }()
	p.Samples, p.Damaged, err = ReadSamples(f)
	if err != nil {
		return fmt.Errorf("%s/%s: %w", p.Dir, ClockFile, err)
	}
	return nil
}

// A clock counts from a machine's boot: what is said to lie further away is damaged.
const (
	maxClock     = int64(1) << 60 // 36 years
	maxUncertain = int64(3_600_000_000_000)
)

func (s *Sample) sound() bool {
	return s.Peer != "" && s.MonoNS > 0 && s.MonoNS < maxClock && s.OffsetNS > -maxClock && s.OffsetNS < maxClock &&
		s.UncertaintyNS >= 0 && s.UncertaintyNS <= maxUncertain
}

// maxSampleLine bounds a line of clock.jsonl, bytes.
const maxSampleLine = 64 << 10

// ReadSamples reads the lines of clock.jsonl. Damaged ones are counted and passed over.
func ReadSamples(r io.Reader) (list []Sample, damaged int, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxSampleLine)
	for lines.Scan() {
		var s Sample
		if json.Unmarshal(lines.Bytes(), &s) != nil || !s.sound() {
			damaged++
			continue
		}
		list = append(list, s)
	}
	if err := lines.Err(); err != nil {
		return list, damaged, fmt.Errorf("reading samples of a clock: %w", err)
	}
	return list, damaged, nil
}

// ClockTo is the part's clock against that of a node. The error says why it is unknown.
func (p *Part) ClockTo(node string) (*Clock, error) {
	mine := slices.DeleteFunc(slices.Clone(p.Samples), func(s Sample) bool { return s.Peer != node })
	switch {
	case len(mine) > 0:
		return NewClock(mine), nil
	case p.Agent.Clock == "":
		return nil, errors.New("the agent was told no clock to ask (--clock)")
	case p.Agent.ClockWhy != "":
		return nil, errors.New(p.Agent.ClockWhy)
	case len(p.Samples) > 0:
		return nil, fmt.Errorf("the agent asked for the clock of %s, the run is of %s", p.Samples[0].Peer, node)
	}
	return nil, errors.New("no exchange was made")
}
