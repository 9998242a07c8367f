package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/term"

	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// fanOut sends records and events to each of its sinks.
type fanOut []timeline.Sink

func (f fanOut) Event(e *timeline.Event) {
	for _, s := range f {
		s.Event(e)
	}
}

func (f fanOut) Record(r *timeline.Record) {
	for _, s := range f {
		s.Record(r)
	}
}

func (f fanOut) Session(x *timeline.Session) {
	for _, s := range f {
		s.Session(x)
	}
}

// runSink writes into a run directory.
type runSink struct{ w *rundir.Writer }

func (s runSink) Event(e *timeline.Event)   { s.w.Event(e) }
func (s runSink) Record(r *timeline.Record) { s.w.Record(r) }

func (s runSink) Session(x *timeline.Session) { s.w.Session(x) }

// keeper keeps records in memory.
type keeper struct {
	mu       sync.Mutex // protects what follows
	records  []*timeline.Record
	sessions []*timeline.Session
}

func (k *keeper) Event(*timeline.Event) {}

func (k *keeper) Record(r *timeline.Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.records = append(k.records, r)
}

func (k *keeper) Session(s *timeline.Session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sessions = append(k.sessions, s)
}

// quality returns the lines of quality.jsonl that the records make.
func (k *keeper) quality() (out []*timeline.QualityLine) {
	for _, r := range k.records {
		if r.Quality.Checks != nil {
			out = append(out, &timeline.QualityLine{Schema: timeline.Schema, RequestID: r.RequestID, Checks: r.Quality.Checks})
		}
	}
	return out
}

// logMode settles --log: a terminal gets text, anything else nothing.
func logMode(mode string, f *os.File) (string, error) {
	switch mode {
	case "text", "json", "off":
		return mode, nil
	case "":
		if term.IsTerminal(int(f.Fd())) {
			return "text", nil
		}
		return "off", nil
	}
	return "", fmt.Errorf("--log must be text, json or off, not %q", mode)
}

// lineLog writes a line for each request: no prompt, no text, no key.
type lineLog struct {
	mu   sync.Mutex // protects w
	w    io.Writer
	json bool
}

func newLineLog(w io.Writer, mode string) *lineLog { return &lineLog{w: w, json: mode == "json"} }

// Event writes a line for what a person who watches wants to know at once.
func (l *lineLog) Event(e *timeline.Event) {
	if !e.Alarm() {
		return
	}
	line := fmt.Sprintf("%-13s %s  %s\n", e.Event, e.Status, e.RequestID)
	if l.json {
		b, err := json.Marshal(map[string]any{"request_id": e.RequestID, "event": e.Event, "phase": e.Status, "mono_ns": e.MonoNS})
		if err != nil {
			return
		}
		line = string(b) + "\n"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = io.WriteString(l.w, line)
}

func (l *lineLog) Record(r *timeline.Record) {
	var line string
	if l.json {
		b, err := json.Marshal(map[string]any{
			"request_id": r.RequestID, "flow": r.Flow, "dialect": r.Dialect, "status": r.Status, "state": r.Terminal.State, "reason": r.Terminal.Reason,
			"ttft_ms": r.TTFTMS, "ttfa_ms": r.TTFAMS, "jct_ms": r.JCTMS, "audio_s": r.AudioS, "rtf": r.RTF, "analysis": r.Analysis,
		})
		if err != nil {
			return
		}
		line = string(b) + "\n"
	} else {
		line = textLine(r)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = io.WriteString(l.w, line)
}

// Session writes a line for the end of a session.
func (l *lineLog) Session(s *timeline.Session) {
	var line string
	if l.json {
		b, err := json.Marshal(map[string]any{
			"session_id": s.SessionID, "flow": s.Flow, "dialect": s.Dialect, "duration_ms": s.DurationMS, "turns": s.Turns, "close": s.Close, "analysis": s.Analysis,
		})
		if err != nil {
			return
		}
		line = string(b) + "\n"
	} else {
		line = fmt.Sprintf("%-13s session of %d turns, %.1f s, closed by %s  %s\n", s.Flow, s.Turns, s.DurationMS/1e3, s.Close.By, s.SessionID)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = io.WriteString(l.w, line)
}

func textLine(r *timeline.Record) string {
	status := "-"
	if r.Status != nil {
		status = fmt.Sprint(*r.Status)
	}
	return fmt.Sprintf("%-13s %s %-17s ttft %s ttfa %s jct %s audio %s  %s\n", r.Flow, status, r.Terminal.State,
		figure(r.TTFTMS, "ms"), figure(r.TTFAMS, "ms"), figure(r.JCTMS, "ms"), figure(r.AudioS, "s"), r.RequestID)
}

func figure(v *float64, unit string) string {
	if v == nil {
		return fmt.Sprintf("%9s", "-")
	}
	if unit == "s" {
		return fmt.Sprintf("%7.2f%s", *v, unit)
	}
	return fmt.Sprintf("%7.1f%s", *v, unit)
}
