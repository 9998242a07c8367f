package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/omnitap/omnitap/exporter/calibration"
	"github.com/omnitap/omnitap/exporter/experiment"
	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/probes"
)

// runFlags are the flags of run.
type runFlags struct {
	calibrateFlags
	experiment string
	calibrate  string
	// set says which of calibration's own flags were given: they win over the experiment.
	set func(string) bool
	// around finds what the run is measured among: newSurroundings, and in tests their own.
	around func(ctx context.Context, c probes.Config, upstream string) *surroundings
	// cost measures what the probes cost: measurement.cost, and in tests their own.
	cost func(ctx context.Context) (result calibration.File, why string, err error)
}

func runCmd(a *app) *cobra.Command { return (&runFlags{}).command(a) }

// command is the command that fills in the flags.
func (f *runFlags) command(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run --upstream URL [--experiment FILE] [-- CMD…]",
		Short: "one benchmark run: ledger, calibration, load, seal, tables",
		Long: "run writes down what is asked and what is measured, measures what the probes cost, then\n" +
			"runs CMD, any load generator, with OPENAI_BASE_URL and OMNITAP_URL set to the relay,\n" +
			"and seals a run directory from which every number can be derived again. Without a CMD\n" +
			"it sends the built-in requests. Without an experiment the run is exploratory.",
		RunE: func(cmd *cobra.Command, args []string) error {
			f.set = cmd.Flags().Changed
			if err := f.merge(cmd); err != nil {
				return exitWith(exitUsage, err)
			}
			return a.measure(cmd.Context(), f, args)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.Upstream, "upstream", "", "server to measure: http://HOST:PORT")
	fl.StringVar(&f.Listen, "listen", "127.0.0.1:0", "address of the relay; port 0 picks one")
	fl.StringVar(&f.config, "config", "", "YAML configuration; flags win over it")
	fl.StringVar(&f.Out, "out", "", "run directory (default: omnitap-run-ID here)")
	fl.StringVar(&f.Capture, "capture", "", "folder for raw captures: they hold prompts, sound and keys")
	fl.StringVar(&f.experiment, "experiment", "", "experiment.yaml: the question, written down before the first request")
	fl.StringVar(&f.Probes, "probes", "auto", "stage probes: auto, off or require")
	fl.StringVar(&f.calibrate, "calibrate", "auto", "measure the probes' cost first: auto (where probes are attached) or off")
	fl.BoolVar(&f.demo, "demo", false, "start the fake server with its stage processes and measure that")
	fl.BoolVar(&f.json, "json", false, "print JSON instead of tables")
	f.own(fl)
	return cmd
}

// merge fills in what no flag sets.
func (f *runFlags) merge(cmd *cobra.Command) error {
	asked := f.Probes
	if err := f.calibrateFlags.merge(cmd); err != nil {
		return err
	}
	f.Admin, f.Drain = "off", 5*time.Second
	switch f.Probes = asked; asked {
	case "auto", "off", "require":
	default:
		return fmt.Errorf("--probes must be auto, off or require, not %q", asked)
	}
	if f.calibrate != "auto" && f.calibrate != "off" {
		return fmt.Errorf("--calibrate must be auto or off, not %q", f.calibrate)
	}
	if f.runID = newRunID(); f.Out == "" {
		f.Out = "omnitap-run-" + f.runID
	}
	return nil
}

// asked is what is to be measured.
type asked struct {
	e    experiment.Experiment
	text []byte // of experiment.yaml, nil for an exploratory run
}

// read reads the experiment, and has it fill in what no flag sets.
func (f *runFlags) read() (asked, error) {
	var q asked
	if f.experiment == "" {
		q.e = experiment.Default()
		return q, nil
	}
	text, err := os.ReadFile(f.experiment)
	if err != nil {
		return q, fmt.Errorf("reading the experiment: %w", err)
	}
	if q.e, err = experiment.Parse(text); err != nil {
		return q, fmt.Errorf("%s: %w", f.experiment, err)
	}
	q.text = text
	f.follow(&q.e)
	return q, nil
}

// check looks for what would end the run later: requests that cannot be sent, and a
// directory that could not be sealed. One that holds a run is the writer's to refuse.
func (f *runFlags) check() error {
	if _, err := f.driver(nil, io.Discard); err != nil {
		return err
	}
	there, err := os.ReadDir(f.Out)
	if err != nil || len(there) == 0 || slices.ContainsFunc(there, func(e os.DirEntry) bool { return e.Name() == rundir.RequestsFile }) {
		return nil
	}
	return fmt.Errorf("%s is not empty: it holds %s", f.Out, there[0].Name())
}

// follow takes from the experiment what no flag sets.
func (f *runFlags) follow(e *experiment.Experiment) {
	w, c := &e.Workload, &e.Calibration
	f.captures, f.times, f.timeout = w.Captures, w.Times, w.Timeout
	followed(f, "concurrency", &f.concurrency, w.Concurrency)
	followed(f, "rate", &f.rate, w.Rate)
	followed(f, "seed", &f.seed, w.Seed)
	followed(f, "block", &f.block, c.Requests)
	followed(f, "on-over", &f.onOver, c.OnOver)
	followed(f, "max-duration", &f.limit, c.MaxDuration)
	followed(f, "max-pairs", &f.maxPairs, c.Blocks/2)
	f.minPairs = min(f.minPairs, f.maxPairs)
	if c.Budget > 0 && !f.set("budget") {
		f.budget = strconv.FormatFloat(c.Budget, 'g', -1, 64)
	}
}

// followed sets a flag that was not given to a value that was.
func followed[T comparable](f *runFlags, name string, flag *T, v T) {
	var zero T
	if v != zero && !f.set(name) {
		*flag = v
	}
}

// measure is the command.
func (a *app) measure(ctx context.Context, f *runFlags, args []string) (err error) {
	q, err := f.read()
	if err == nil {
		err = f.check()
	}
	if err != nil {
		return exitWith(exitUsage, err)
	}
	if f.demo {
		server, err := startDemoServer(ctx, a.errOut)
		if err != nil {
			return exitWith(exitEnvironment, err)
		}
		defer func() { err = errors.Join(err, exitWith(exitEnvironment, server.stop())) }()
		f.Upstream, f.Stages.Names = "http://"+server.addr, stageNames()
	}
	m := &measurement{a: a, f: f, q: q, args: args}
	return m.run(ctx)
}

// measurement is one run, from its directory's making to its seal.
type measurement struct {
	a    *app
	f    *runFlags
	q    asked
	args []string

	around *surroundings
	ph     *phases
	relay  *service
	base   string         // the relay's address for clients
	info   rundir.RunInfo // what became of it
	beside *beside        // nil ahead of the load
}

func (m *measurement) run(ctx context.Context) error {
	if err := m.open(ctx); err != nil {
		return err
	}
	ended := errors.Join(m.prepare(ctx), ctx.Err())
	if ended == nil {
		ended = m.load(ctx)
	} else {
		ended = m.abandon(ctx, ended)
	}
	return m.close(ended)
}

// open makes the run directory, with the ledger and the experiment in it.
func (m *measurement) open(ctx context.Context) error {
	f := m.f
	find := newSurroundings
	if f.around != nil {
		find = f.around
	}
	m.around = find(ctx, f.Stages, f.Upstream)
	book, err := m.around.ledger(ctx)
	if err != nil {
		return exitWith(exitEnvironment, err)
	}
	m.info = rundir.RunInfo{State: "running", Exploratory: m.q.text == nil, Ledger: book, Contamination: "not_measured", ContaminationWhy: "the run has not ended"}
	if m.q.text != nil {
		m.info.Experiment = &rundir.Experiment{Question: m.q.e.Question, Primary: m.q.e.Primary}
	}
	m.ph = newPhases(m.q.e.Warmup.Requests, m.q.e.Warmup.Duration)
	g := f.serveFlags
	g.Probes, g.switched, g.phases, g.exported = "off", true, m.ph, true
	g.meta = func(x *rundir.Meta) { x.Run, x.Experiment = &m.info, m.q.text }
	g.Deadline, g.Tap.Timeline.Deadline = m.deadline()
	if len(m.args) == 0 {
		g.plain()
	}
	if m.relay, err = m.a.build(ctx, &g); err == nil {
		m.base = m.relay.base(&g)
	}
	return err
}

// deadline is that of each request.
func (m *measurement) deadline() (mark, same time.Duration) {
	d := m.f.Deadline
	if d == 0 {
		d = m.q.e.Deadline
	}
	return d, d
}

// prepare calibrates and attaches the probes.
func (m *measurement) prepare(ctx context.Context) error {
	if err := m.calibrate(ctx); err != nil {
		return err
	}
	if m.f.Probes == "off" {
		m.relay.unprobed = "--probes off"
		return nil
	}
	err := m.relay.sw.attach(ctx, m.f.Stages)
	if err == nil {
		m.relay.sw.current().st.onServer(func(server string) { m.relay.server.ProbesAttached(server == "vllm-omni") })
		return nil
	}
	if m.relay.unprobed = err.Error(); m.f.Probes == "require" {
		return exitWith(exitEnvironment, fmt.Errorf("--probes require: %w", err))
	}
	_, _ = fmt.Fprintln(m.a.errOut, "no stage probes:", err)
	return nil
}

// calibrate measures what the probes cost, and keeps off what was over budget.
func (m *measurement) calibrate(ctx context.Context) error {
	why := ""
	switch {
	case m.f.calibrate == "off" || m.q.e.Calibration.Off:
		why = "it was switched off: no number of this run is known to be free of the probes' cost"
	case m.f.Probes == "off":
		why = "no probes are used"
	}
	var result calibration.File
	var err error
	if why == "" {
		cost := m.cost
		if m.f.cost != nil {
			cost = m.f.cost
		}
		result, why, err = cost(ctx)
	}
	if err != nil {
		return fmt.Errorf("calibrating: %w", err)
	}
	if why != "" {
		m.relay.out.SetRun(func(r *rundir.RunInfo) { r.NoCalibration = why })
		return nil
	}
	return m.calibrated(&result)
}

// cost measures what the probes cost, or says why there is nothing to measure.
func (m *measurement) cost(ctx context.Context) (result calibration.File, why string, err error) {
	if why = m.attachable(ctx); why == "" {
		result, err = m.a.calibrated(ctx, &m.f.calibrateFlags, nil)
	}
	return result, why, err
}

// calibrated keeps what was measured, and off what was taken away. Over budget it is an
// error, where that is to stop the run.
func (m *measurement) calibrated(result *calibration.File) error {
	result.RunID = m.f.runID
	if err := m.relay.out.Calibration(result); err != nil {
		return exitWith(exitEnvironment, err)
	}
	ref := &rundir.CalibrationRef{Verdict: string(result.Result.Verdict), Budget: result.Config.Budget}
	for _, t := range result.Trimmed {
		ref.Trimmed = append(ref.Trimmed, t.Family)
		m.f.Stages.Family(t.Family).Use = probes.Off
	}
	m.relay.out.SetRun(func(r *rundir.RunInfo) { r.Calibration = ref })
	if result.Result.Verdict == calibration.Over && m.f.onOver != experiment.OnOverReport {
		return exitWith(exitUnusable, fmt.Errorf("the probes cost more than %.3g %%: see %s", 100*result.Config.Budget, rundir.CalibrationFile))
	}
	return nil
}

// attachable says why there is nothing to calibrate, empty where there is.
func (m *measurement) attachable(ctx context.Context) string {
	stages := 0
	for _, p := range m.around.scan() {
		if p.Role != "api" {
			stages++
		}
	}
	if stages == 0 {
		return "no stage process was found: there is nothing for the probes to cost"
	}
	if err := m.relay.sw.attach(ctx, m.f.Stages); err != nil {
		return err.Error()
	}
	if _, err := m.relay.sw.detach(ctx); err != nil {
		return err.Error()
	}
	return ""
}

// abandon closes the directory of a run that ended before its load, and says why.
func (m *measurement) abandon(ctx context.Context, why error) error {
	m.info.State, m.info.Reason = "failed", "it ended before the load began: "+why.Error()
	if ctx.Err() != nil {
		m.info.State, m.info.Reason, why = "interrupted", "a signal, before the load began", nil
	}
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	end()
	m.relay.closing = m.describe
	return errors.Join(why, m.relay.run(serving))
}

// describe writes what became of the run into its metadata.
func (m *measurement) describe(w *rundir.Writer) {
	w.SetRun(func(r *rundir.RunInfo) {
		r.State, r.Reason, r.Child, r.Phases = m.info.State, m.info.Reason, m.info.Child, m.ph.spans()
		m.around.account(r, m.q.e.ForeignCoresLimit)
		if m.beside == nil {
			r.NoEnergy = "the load did not begin"
			return
		}
		m.beside.describe(r)
	})
}
