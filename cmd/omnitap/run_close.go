package main

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/omnitap/omnitap/exporter/experiment"
	"github.com/omnitap/omnitap/exporter/report"
	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/probes/host/foreign"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// close seals the directory, prints its tables, and says whether the run can be used.
func (m *measurement) close(ended error) error {
	sealed := rundir.Seal(m.f.Out)
	run, err := rundir.Read(m.f.Out)
	if err != nil {
		return exitWith(exitEnvironment, errors.Join(ended, sealed, err))
	}
	verdict := m.verdict(run)
	if err := m.tables(run); err != nil {
		return exitWith(exitEnvironment, errors.Join(ended, sealed, err))
	}
	where := m.a.out
	if m.f.json {
		where = m.a.errOut // standard output is the JSON alone
	}
	_, _ = fmt.Fprintln(where, m.f.Out)
	if ended != nil || sealed != nil {
		if code, ok := errors.AsType[*exitError](ended); ok {
			return exitWith(code.code, errors.Join(ended, sealed))
		}
		return exitWith(exitUnusable, errors.Join(ended, sealed))
	}
	return exitWith(exitUnusable, verdict)
}

// measuredOf are the records of the measured phase.
func measuredOf(records iter.Seq2[*timeline.Record, error]) iter.Seq2[*timeline.Record, error] {
	return func(yield func(*timeline.Record, error) bool) {
		for r, err := range records {
			if err == nil && r.RunPhase == phaseWarmup {
				continue
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// tables prints what was measured.
func (m *measurement) tables(run *rundir.Run) error { return runTables(m.a.out, run, m.f.json) }

// runTables prints the tables of a run directory, above them what was asked and what the
// figures are worth. The warm-up is in no table.
func runTables(w io.Writer, run *rundir.Run, asJSON bool) error {
	t := report.Tables(measuredOf(run.Records()))
	t.AddSessions(run.Sessions())
	t.AddQuality(run.Quality())
	if asJSON {
		return t.WriteJSON(w)
	}
	for _, line := range headOf(run) {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return t.Render(w)
}

// experimentOf is a run's experiment, that which asks nothing for an exploratory one.
func experimentOf(run *rundir.Run) (experiment.Experiment, error) {
	info := run.Metadata.Run
	if info == nil || info.Experiment == nil {
		return experiment.Default(), nil
	}
	if err := rundir.CheckExperiment(run.Dir, &run.Metadata); err != nil {
		return experiment.Default(), err
	}
	text, err := os.ReadFile(filepath.Join(run.Dir, rundir.ExperimentFile))
	if err != nil {
		return experiment.Default(), err
	}
	return experiment.Parse(text)
}

// headOf is what stands above the tables, nothing for a directory that `omnitap run` did
// not make.
func headOf(run *rundir.Run) (lines []string) {
	info := run.Metadata.Run
	if info == nil {
		return nil
	}
	e, err := experimentOf(run)
	switch {
	case err != nil:
		lines = append(lines, "experiment: "+err.Error())
	case info.Exploratory:
		lines = append(lines, "exploratory: no experiment was written down ahead of the first request")
	default:
		lines = append(lines, fmt.Sprintf("question: %s (%s)", e.Question, e.Primary))
		if open := e.Exploratory(); len(open) > 0 {
			lines = append(lines, "not settled ahead, so exploratory: "+strings.Join(open, ", "))
		}
	}
	lines = append(lines, "state: "+info.State+because(info.Reason))
	lines = append(lines, probesLine(info), "foreign CPU: "+info.Contamination+because(info.ContaminationWhy))
	if g := goodputOf(run, &e); g != nil {
		lines = append(lines, goodputLine(g))
	}
	return append(lines, "")
}

// probesLine is what is known of the probes' cost.
func probesLine(info *rundir.RunInfo) string {
	switch c := info.Calibration; {
	case c != nil && len(c.Trimmed) > 0:
		return fmt.Sprintf("probes: %s (%.3g %%), without %s", c.Verdict, 100*c.Budget, strings.Join(c.Trimmed, ", "))
	case c != nil:
		return fmt.Sprintf("probes: %s (%.3g %%)", c.Verdict, 100*c.Budget)
	}
	return "probes: not calibrated" + because(info.NoCalibration)
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return " (" + why + ")"
}

// windowOf is the measured phase, CLOCK_MONOTONIC nanoseconds.
func windowOf(run *rundir.Run) (start, end int64, ok bool) {
	for _, p := range run.Metadata.Run.Phases {
		if p.Name == phaseMeasured {
			return p.StartNS, p.EndNS, true
		}
	}
	return 0, 0, false
}

// goodputOf counts the measured requests within the SLO, nil without one.
func goodputOf(run *rundir.Run, e *experiment.Experiment) *experiment.Goodput {
	start, end, ok := windowOf(run)
	if e.SLO.Empty() || !ok {
		return nil
	}
	g := e.SLO.Goodput(measuredOf(run.Records()), start, end)
	return &g
}

func goodputLine(g *experiment.Goodput) string {
	line := fmt.Sprintf("goodput: %d of %d requests within the SLO, %d missed it, %d not measured, %d failed", g.Met, g.Requests, g.Missed, g.NotMeasured, g.Failed)
	if g.RatePerS != nil && g.ThroughputPerS != nil {
		line += fmt.Sprintf("; %.3g a second of %.3g", *g.RatePerS, *g.ThroughputPerS)
	}
	return line
}

// verdict is an error where the run's figures are not to be used.
func (m *measurement) verdict(run *rundir.Run) error {
	info := run.Metadata.Run
	if info == nil {
		return errors.New("metadata.json says nothing of the run")
	}
	var why []string
	if info.State != "complete" && info.State != "stopped" {
		why = append(why, "the run is "+info.State+because(info.Reason))
	}
	if info.Contamination == string(foreign.Contaminated) {
		why = append(why, "contaminated"+because(info.ContaminationWhy))
	}
	if start, end, ok := windowOf(run); !ok {
		why = append(why, "no request was measured")
	} else if reason, ok := m.q.e.Allows(m.q.e.SLO.Goodput(measuredOf(run.Records()), start, end)); !ok {
		why = append(why, reason)
	}
	if len(why) == 0 {
		return nil
	}
	return errors.New("not usable: " + strings.Join(why, "; "))
}
