package ledger

import (
	"context"
	"fmt"

	"github.com/omnitap/omnitap/probes/host"
	"github.com/omnitap/omnitap/probes/host/hardware"
	"github.com/omnitap/omnitap/probes/host/internal/null"
)

// Target is a process of the server, and what the caller calls it.
type Target struct {
	PID int
	// Role and Stage are put down as they are: "api", "stage", "worker"; "talker".
	Role, Stage string
	// StartTicks, the start in clock ticks since boot, tells the process from a later
	// one of the same number. 0 takes whoever has the number.
	StartTicks uint64
}

// Config says what to read. The zero value reads the machine alone.
type Config struct {
	// Targets are the server's processes. Those over 512 are left out, and named.
	Targets []Target
	// Redact returns a command line, or a list of NAME=value, with the secrets
	// replaced. It must return as many strings as it gets. Nil leaves out command lines,
	// environment and models, with that reason.
	Redact func([]string) []string
	// Root is where the files of the machine lie, Clocks are its clocks. Tests set them.
	Root   host.Root
	Clocks host.Clocks
	// SkipGPU leaves NVML alone; GPU is then null with that reason.
	SkipGPU bool
}

// Ledger is what was read. Values that could not be read are nil; Unmeasured then has
// their dotted name ("host.cpu_model", "software.nccl") with the reason. Processes and
// devices have an Unmeasured of their own.
type Ledger struct {
	// WallNS and MonoNS are when it was read.
	WallNS int64 `json:"wall_ns"`
	MonoNS int64 `json:"mono_ns"`
	// Software has a component a line, by name; each that the contract asks for is
	// there or in Unmeasured.
	Software []Component `json:"software"`
	Models   []Model     `json:"models"`
	// Sites are the folders of Python packages that the processes use, each with all
	// that is installed in it.
	Sites      []Site            `json:"site_packages"`
	Processes  []Process         `json:"processes"`
	Host       hardware.Machine  `json:"host"`
	GPU        hardware.GPU      `json:"gpu"`
	Unmeasured map[string]string `json:"unmeasured"`
}

// maxTargets bounds what is read in all.
const maxTargets = 512

// Read reads the ledger. It fails only when the context ends first: a file system that
// hangs then keeps one goroutine of it waiting.
func Read(ctx context.Context, c Config) (Ledger, error) {
	done := make(chan Ledger, 1)
	go readInto(ctx, c, done)
	select {
	case l := <-done:
		if err := ctx.Err(); err != nil {
			return l, fmt.Errorf("reading the ledger: %w", err)
		}
		return l, nil
	case <-ctx.Done():
		return Ledger{}, fmt.Errorf("reading the ledger: %w", ctx.Err())
	}
}

func readInto(ctx context.Context, c Config, done chan<- Ledger) { done <- read(ctx, c) }

// reader reads one ledger.
type reader struct {
	Config
	nulls null.Reasons
	sites siteCache
	soft  *software
}

func read(ctx context.Context, c Config) Ledger {
	if c.Clocks.Mono == nil {
		c.Clocks = host.SystemClocks()
	}
	r := &reader{Config: c, nulls: null.Reasons{}, sites: siteCache{}, soft: newSoftware()}
	now := c.Clocks.Reading()
	l := Ledger{WallNS: now.WallNS, MonoNS: now.MonoNS, Processes: []Process{}, Models: []Model{}, Sites: []Site{}}
	l.Host, l.GPU = hardware.Read(c.Root, c.SkipGPU, r.nulls)
	if len(c.Targets) > maxTargets {
		r.nulls["processes"] = fmt.Sprintf("%d processes were given, the first %d are read", len(c.Targets), maxTargets)
		c.Targets = c.Targets[:maxTargets]
	}
	models := modelList{}
	for _, t := range c.Targets {
		if ctx.Err() != nil {
			break
		}
		l.Processes = append(l.Processes, r.process(t, &models))
	}
	l.Models = append(l.Models, models.list...)
	l.Sites = append(l.Sites, r.sites.list()...)
	l.Software = r.soft.list(r.nulls, len(c.Targets))
	if len(models.list) == 0 {
		r.nulls["models"] = models.reason(len(c.Targets))
	}
	l.Unmeasured = r.nulls
	return l
}
