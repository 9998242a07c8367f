package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/omnitap/omnitap/probes"
	"github.com/omnitap/omnitap/probes/event"
)

// unheard takes what probes see and does nothing with it.
type unheard struct{}

func (unheard) Events([]event.Event, int64) {}
func (unheard) Processes(event.Processes)   {}

// checkStages says which stage processes there are and why, and which probes can be
// attached to them. It attaches them all for a moment: features are tried, since what
// kernels say of themselves was seen to be wrong.
func checkStages(ctx context.Context, c probes.Config, upstream string) []finding {
	port := 0
	if upstream != "" {
		p, err := localPort(ctx, upstream)
		if err != nil {
			return []finding{{Name: "stage processes", Found: err.Error(), Needed: "omnitap on the server's machine"}}
		}
		port = p
	}
	finder, err := probes.NewFinder(c, port)
	if err != nil {
		return []finding{{Name: "stage processes", Found: err.Error(), Needed: "a rule file that can be read"}}
	}
	set, err := probes.Open(ctx, c, finder, unheard{}, slog.New(slog.DiscardHandler))
	if err != nil {
		out := []finding{{Name: "stage probes", Found: err.Error(), Needed: "what is named"}}
		if r, serr := finder.Scan(); serr == nil { // they can be found all the same
			out = append(out, checkProcesses(probes.Status{Processes: r.Processes, Why: r.Why, Missing: r.Missing})...)
		}
		return out
	}
	st := set.Status()
	out := append(checkProcesses(st), checkFamilies(st)...)
	if err := set.Close(); err != nil {
		out = append(out, finding{Name: "stage probes", Found: err.Error(), Needed: "that they detach"})
	}
	return out
}

// checkProcesses has a line for what was found, one a process, one a thing that could
// not be read.
func checkProcesses(st probes.Status) []finding {
	f := finding{Name: "stage processes", OK: len(st.Processes) > 0, Found: fmt.Sprintf("%d (%s)", len(st.Processes), st.Why), Needed: "a running server with stage processes"}
	out := []finding{f}
	for i := range st.Processes {
		p := &st.Processes[i]
		out = append(out, finding{
			Name: fmt.Sprintf("  %d", p.PID), OK: true,
			Found: fmt.Sprintf("%s %s %q: %s", p.Server, p.Role, p.Stage, strings.Join(p.Why, "; ")),
		})
	}
	for _, d := range st.Doubts {
		out = append(out, finding{Name: "  not taken", Found: d})
	}
	for _, m := range st.Missing {
		out = append(out, finding{Name: "  unread", Found: m, Needed: "root, or CAP_SYS_PTRACE"})
	}
	return out
}

func checkFamilies(st probes.Status) (out []finding) {
	for _, s := range st.Families {
		f := finding{Name: "probe " + s.Name, OK: s.State == probes.Attached, Found: string(s.State)}
		if s.Reason != "" {
			f.Found += ": " + s.Reason
		}
		switch s.State {
		case probes.Attached:
			f.Found += fmt.Sprintf(" to %d places", len(s.Points))
		case probes.Unused:
			f.Found, f.Needed = "can be attached; there is nothing for it to see now", ""
		case probes.Disabled, probes.Failed, probes.Trimmed, probes.Dead:
		}
		out = append(out, f)
	}
	return out
}
