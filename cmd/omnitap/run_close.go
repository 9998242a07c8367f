package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/omnitap/omnitap/exporter/experiment"
	"github.com/omnitap/omnitap/exporter/report"
	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/probes/host"
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
	ended = errors.Join(ended, lostOf(run), rundir.CheckExperiment(m.f.Out, &run.Metadata))
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

// lostOf says which lines are not in the directory.
func lostOf(run *rundir.Run) error {
	if run.Metadata.Files == nil {
		return nil
	}
	f, all := run.Metadata.Files, []error(nil)
	for _, c := range []struct {
		name string
		lost int64
	}{
		{rundir.RequestsFile, f.Requests.LostLines},
		{rundir.EventsFile, f.Events.LostLines},
		{rundir.SessionsFile, f.Sessions.LostLines},
		{rundir.QualityFile, f.Quality.LostLines},
	} {
		if c.lost > 0 {
			all = append(all, fmt.Errorf("%s lacks %d lines, which could not be written", c.name, c.lost))
		}
	}
	return errors.Join(all...)
}

// measuredOf are the records of the measured phase.
func measuredOf(records iter.Seq2[*timeline.Record, error]) iter.Seq2[*timeline.Record, error] {
	return func(yield func(*timeline.Record, error) bool) {
		for r, err := range records {
			if err == nil && apart(r) {
				continue
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// apart says that a record is in no figure: it is of the warm-up, or cut off at the end.
func apart(r *timeline.Record) bool {
	return r.RunPhase == phaseWarmup || r.RunPhase == phaseCooldown
}

// measuredQuality are the lines of quality.jsonl of the records that are in the figures.
func measuredQuality(run *rundir.Run) iter.Seq2[*timeline.QualityLine, error] {
	info := run.Metadata.Run
	if info == nil || !slices.ContainsFunc(info.Phases, func(p rundir.RunPhase) bool { return p.Name != phaseMeasured }) {
		return run.Quality()
	}
	left := map[string]int{} // of each id
	for r, err := range run.Records() {
		if err == nil && apart(r) && r.Audio != nil {
			left[r.RequestID]++
		}
	}
	return func(yield func(*timeline.QualityLine, error) bool) {
		for l, err := range run.Quality() {
			if err == nil && left[l.RequestID] > 0 {
				left[l.RequestID]--
				continue
			}
			if !yield(l, err) {
				return
			}
		}
	}
}

// tables prints what was measured.
func (m *measurement) tables(run *rundir.Run) error { return runTables(m.a.out, run, m.f.json) }

// runTables prints the tables of a run directory, above them what was asked and what the
// figures are worth. What is apart is in no table.
func runTables(w io.Writer, run *rundir.Run, asJSON bool) error {
	t := report.Tables(measuredOf(run.Records()))
	t.AddSessions(run.Sessions())
	t.AddQuality(measuredQuality(run))
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
	if line := clockLine(info.Clock); line != "" {
		lines = append(lines, line)
	}
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

// clockLine says that somebody set the clock, empty where nobody did. Points are on the
// other clock: no figure changes.
func clockLine(account json.RawMessage) string {
	var c host.ClockReport
	if err := json.Unmarshal(account, &c); err != nil || c.StepCount == 0 || len(c.Steps) == 0 {
		return ""
	}
	times := "once by"
	if c.StepCount > 1 {
		times = fmt.Sprintf("%d times, first by", c.StepCount)
	}
	return fmt.Sprintf("clock: the wall clock was set while it ran, %s %v: times of day are not comparable", times, time.Duration(c.Steps[0].StepNS).Round(time.Millisecond))
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

// broken says which of the checks that an experiment demands were not passed by every
// success with sound. One that was not measured is not passed.
func broken(run *rundir.Run, invariants []string) (why []string) {
	failed, open := map[string]int{}, map[string]int{}
	for r, err := range measuredOf(run.Records()) {
		if err != nil {
			continue
		}
		for _, name := range r.Quality.Failed {
			failed[name]++
		}
		for _, name := range r.Quality.NotMeasured {
			open[name]++
		}
	}
	for _, name := range invariants {
		if failed[name]+open[name] > 0 {
			why = append(why, fmt.Sprintf("the invariant %s: %d failed, of %d it was not measured", name, failed[name], open[name]))
		}
	}
	return why
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
	} else {
		g := m.q.e.SLO.Goodput(measuredOf(run.Records()), start, end)
		reason, allowed := m.q.e.Allows(g)
		switch {
		case g.Requests > 0 && g.Failed == g.Requests:
			why = append(why, "no request succeeded")
		case !allowed && !info.Exploratory: // nobody has said what may fail
			why = append(why, reason)
		}
		why = append(why, broken(run, m.q.e.Invariants)...)
	}
	if len(why) == 0 {
		return nil
	}
	return errors.New("not usable: " + strings.Join(why, "; "))
}
