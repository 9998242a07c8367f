package main

import (
	"errors"
	"fmt"
	"iter"
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
		var code *exitError
		if errors.As(ended, &code) {
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
func (m *measurement) tables(run *rundir.Run) error {
	t := report.Tables(measuredOf(run.Records()))
	t.AddSessions(run.Sessions())
	t.AddQuality(run.Quality())
	if m.f.json {
		return t.WriteJSON(m.a.out)
	}
	for _, line := range m.head(run) {
		if _, err := fmt.Fprintln(m.a.out, line); err != nil {
			return err
		}
	}
	return t.Render(m.a.out)
}

// head is what stands above the tables: what was asked, and what the figures are worth.
func (m *measurement) head(run *rundir.Run) (lines []string) {
	info := run.Metadata.Run
	if info == nil {
		return nil
	}
	if info.Exploratory {
		lines = append(lines, "exploratory: no experiment was written down ahead of the first request")
	} else {
		lines = append(lines, fmt.Sprintf("question: %s (%s)", info.Experiment.Question, info.Experiment.Primary))
		if open := m.q.e.Exploratory(); len(open) > 0 {
			lines = append(lines, "not settled ahead, so exploratory: "+strings.Join(open, ", "))
		}
	}
	switch {
	case info.Calibration != nil:
		line := fmt.Sprintf("probes: %s (%.3g %%)", info.Calibration.Verdict, 100*info.Calibration.Budget)
		if len(info.Calibration.Trimmed) > 0 {
			line += ", without " + strings.Join(info.Calibration.Trimmed, ", ")
		}
		lines = append(lines, line)
	case info.NoCalibration != "":
		lines = append(lines, "probes: not calibrated: "+info.NoCalibration)
	}
	lines = append(lines, "foreign CPU: "+info.Contamination+because(info.ContaminationWhy))
	if g := m.goodput(run); g != nil {
		lines = append(lines, goodputLine(g))
	}
	return lines
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return " (" + why + ")"
}

// goodput counts the measured requests within the SLO, nil without one.
func (m *measurement) goodput(run *rundir.Run) *experiment.Goodput {
	spans := m.ph.spans()
	if m.q.e.SLO.Empty() || len(spans) == 0 {
		return nil
	}
	last := spans[len(spans)-1]
	g := m.q.e.SLO.Goodput(measuredOf(run.Records()), last.StartNS, last.EndNS)
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
	var why []string
	info := run.Metadata.Run
	switch {
	case info == nil:
		return errors.New("metadata.json says nothing of the run")
	case info.State != "complete" && info.State != "stopped":
		why = append(why, "the run is "+info.State+because(info.Reason))
	}
	if info.Contamination == string(foreign.Contaminated) {
		why = append(why, "contaminated"+because(info.ContaminationWhy))
	}
	spans := m.ph.spans()
	if len(spans) == 0 {
		why = append(why, "no request came through the relay")
	} else {
		last := spans[len(spans)-1]
		if reason, ok := m.q.e.Allows(m.q.e.SLO.Goodput(measuredOf(run.Records()), last.StartNS, last.EndNS)); !ok {
			why = append(why, reason)
		}
	}
	if len(why) == 0 {
		return nil
	}
	return errors.New("not usable: " + strings.Join(why, "; "))
}
