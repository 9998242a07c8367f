package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/load"
	"github.com/omnitap/omnitap/exporter/calibration"
	"github.com/omnitap/omnitap/exporter/experiment"
	"github.com/omnitap/omnitap/probes/event"
)

// calibrateFlags are the flags of calibrate, and those of run's calibration.
type calibrateFlags struct {
	serveFlags
	demo        bool
	requests    string
	block       int
	concurrency int
	rate        float64
	budget      string
	onOver      string
	minPairs    int
	maxPairs    int
	limit       time.Duration
	json        bool
	seed        uint64
	// captures, times and timeout are an experiment's.
	captures []string
	times    []time.Duration
	timeout  time.Duration
}

func calibrateCmd(a *app) *cobra.Command {
	f := &calibrateFlags{}
	cmd := &cobra.Command{
		Use:   "calibrate --upstream URL [-- CMD…]",
		Short: "measure what the stage probes cost: the same requests with them and without, in turns",
		Long: "calibrate sends the same requests through the relay with the stage probes detached and\n" +
			"attached, in blocks A B B A…, and says what the probes cost of TTFT, TTFA, JCT and\n" +
			"throughput, with an interval, beside A against A. With a command it runs that once a\n" +
			"block, with OPENAI_BASE_URL and OMNITAP_URL set.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.merge(cmd); err != nil {
				return exitWith(exitUsage, err)
			}
			return a.calibrate(cmd.Context(), f, args)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.Upstream, "upstream", "", "server to measure: http://HOST:PORT on this machine")
	fl.StringVar(&f.config, "config", "", "YAML configuration; flags win over it")
	fl.StringVar(&f.Out, "out", "", "folder to write calibration.json to")
	fl.BoolVar(&f.demo, "demo", false, "start the fake server with its stage processes and measure that")
	fl.BoolVar(&f.json, "json", false, "print JSON instead of a table")
	f.own(fl)
	return cmd
}

// own adds the flags that are calibration's own.
func (f *calibrateFlags) own(fl flagSet) {
	fl.StringVar(&f.requests, "requests-from", "", "capture, or folder of captures, whose requests are sent (default: a small streaming chat)")
	fl.IntVar(&f.block, "block", 32, "requests of a block")
	fl.IntVar(&f.concurrency, "concurrency", 4, "requests at once")
	fl.Float64Var(&f.rate, "rate", 0, "requests a second, at random times, instead of so many at once")
	fl.StringVar(&f.budget, "budget", "1%", "the most that the probes may cost of any metric that decides")
	fl.StringVar(&f.onOver, "on-over", "stop", "over budget: stop, trim (take the costliest family away and begin again), or report (go on all the same)")
	fl.IntVar(&f.minPairs, "min-pairs", calibration.DefaultMinPairs, "pairs of blocks before the first look")
	fl.IntVar(&f.maxPairs, "max-pairs", calibration.DefaultMaxPairs, "pairs of blocks at most")
	fl.DurationVar(&f.limit, "max-duration", 0, "begin no pair of blocks after this long, 0 for no limit")
	fl.Uint64Var(&f.seed, "seed", 1, "of random times")
}

// flagSet is what own needs of a set of flags.
type flagSet interface {
	StringVar(p *string, name, value, usage string)
	IntVar(p *int, name string, value int, usage string)
	Float64Var(p *float64, name string, value float64, usage string)
	DurationVar(p *time.Duration, name string, value time.Duration, usage string)
	Uint64Var(p *uint64, name string, value uint64, usage string)
}

// merge fills in from the file what no flag sets, and checks what is asked.
func (f *calibrateFlags) merge(cmd *cobra.Command) error {
	f.Probes, f.Log, f.DeadlineAction, f.Correlation = "off", "off", "mark", "passive"
	if f.demo {
		if f.Upstream != "" {
			return errors.New("--demo starts its own server: it goes without --upstream")
		}
		f.Upstream = "http://127.0.0.1:1" // until it has started
	}
	if err := f.serveFlags.merge(cmd); err != nil {
		return err
	}
	_, err := f.asked()
	return err
}

// asked is what the flags ask of the statistics.
func (f *calibrateFlags) asked() (calibration.Config, error) {
	budget, err := share(f.budget)
	if err != nil {
		return calibration.Config{}, fmt.Errorf("--budget: %w", err)
	}
	switch f.onOver {
	case experiment.OnOverStop, experiment.OnOverTrim, experiment.OnOverReport:
	default:
		return calibration.Config{}, fmt.Errorf("--on-over must be stop, trim or report, not %q", f.onOver)
	}
	if f.block < 1 {
		return calibration.Config{}, fmt.Errorf("--block must be at least 1, not %d", f.block)
	}
	c := calibration.Config{Budget: budget, MinPairs: f.minPairs, MaxPairs: f.maxPairs, Seed: f.seed}
	return c, c.Validate()
}

// share reads a share: 1% or 0.01.
func share(text string) (float64, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no share: 1%% or 0.01", text)
	}
	if percent {
		v /= 100
	}
	return v, nil
}

// calibrate is the command.
func (a *app) calibrate(ctx context.Context, f *calibrateFlags, args []string) (err error) {
	if f.demo {
		server, err := startDemoServer(ctx, a.errOut)
		if err != nil {
			return exitWith(exitEnvironment, err)
		}
		defer func() { err = errors.Join(err, exitWith(exitEnvironment, server.stop())) }()
		f.Upstream = "http://" + server.addr
		f.Stages.Names = stageNames()
	}
	var where string
	if f.Out != "" {
		if err := os.MkdirAll(f.Out, 0o700); err != nil {
			return exitWith(exitEnvironment, err)
		}
		where = filepath.Join(f.Out, calibrationFile)
		if _, err := os.Stat(where); err == nil {
			return exitWith(exitUsage, fmt.Errorf("%s is there already", where))
		}
	}
	result, err := a.calibrated(ctx, f, args)
	if err != nil {
		return err
	}
	if where != "" {
		if err := writeJSON(where, &result); err != nil {
			return exitWith(exitEnvironment, err)
		}
	}
	if f.json {
		enc := json.NewEncoder(a.out)
		enc.SetIndent("", "  ")
		err = enc.Encode(&result)
	} else {
		err = result.Render(a.out)
	}
	if err != nil {
		return exitWith(exitEnvironment, err)
	}
	if result.Result.Verdict != calibration.Within {
		return exitWith(exitUnusable, fmt.Errorf("the probes are not shown to be within %.3g %%: %s", 100*result.Config.Budget, result.Result.Verdict))
	}
	return nil
}

// calibrationFile is the file's name in a run directory (contract section 8).
const calibrationFile = "calibration.json"

// calibrated runs a calibration with a relay of its own.
func (a *app) calibrated(ctx context.Context, f *calibrateFlags, args []string) (calibration.File, error) {
	cfg, err := f.asked()
	if err != nil {
		return calibration.File{}, exitWith(exitUsage, err)
	}
	driver, err := f.driver(args, a.errOut)
	if err != nil {
		return calibration.File{}, exitWith(exitUsage, err)
	}
	kept := &keeper{}
	sf := f.serveFlags
	if len(args) == 0 {
		sf.plain()
	}
	relay, err := a.calibrationRelay(ctx, &sf, kept)
	if err != nil {
		return calibration.File{}, err
	}
	// The relay outlives the blocks, whatever ends them: the probes are taken away first.
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- relay.run(serving) }()
	stages := f.Stages
	c := &calibrator{
		cfg: cfg, base: relay.base(&sf), onOver: f.onOver, limit: f.limit, probes: probeToggle{relay.sw, &stages}, driver: driver, relay: relay, kept: kept,
		finder: func() ([]event.Process, error) { return stageProcesses(f.Stages, f.Upstream) },
		say:    func(line string) { _, _ = fmt.Fprintln(a.errOut, "calibration:", line) },
	}
	result, err := c.run(ctx)
	end()
	if err = errors.Join(err, <-done); err != nil {
		return result, exitWith(exitEnvironment, err)
	}
	return result, nil
}

// driver is who sends a block's requests.
func (f *calibrateFlags) driver(args []string, out io.Writer) (blockDriver, error) {
	if len(args) > 0 {
		if f.requests != "" || f.rate > 0 {
			return nil, errors.New("a command sends its own requests: --requests-from and --rate go without one")
		}
		return &commandDriver{args: args, out: out}, nil
	}
	d := &loadDriver{set: load.Demo(), what: "the built-in chat"}
	if from := append(slices.Clone(f.captures), nonEmpty(f.requests)...); len(from) > 0 {
		set, err := load.FromCaptures(from)
		if err != nil {
			return nil, err
		}
		d.set, d.what = set, strings.Join(from, ", ")
	}
	d.plan = load.Plan{Requests: f.block, Concurrency: f.concurrency, Seed: f.seed, Timeout: f.timeout}
	switch {
	case f.rate > 0:
		d.plan.Concurrency, d.plan.Rate = 0, f.rate
	case len(f.times) > 0: // which say how many, too
		d.plan.Requests, d.plan.Concurrency, d.plan.Times = 0, 0, f.times
	}
	return d, d.plan.Validate()
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// writeJSON writes a file of a run directory.
func writeJSON(name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return os.WriteFile(name, append(b, '\n'), 0o600)
}
