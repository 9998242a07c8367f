package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/omnitap/omnitap/exporter/join"
	"github.com/omnitap/omnitap/exporter/stats"
	"github.com/omnitap/omnitap/probes/event"
)

// errNoStages is a folder that holds no capture of stages.
var errNoStages = errors.New("no capture of stages")

// transferLine is one line of `replay --stages`. What is not known is null; the
// fields of SGLang-Omni's messages are there only where they were seen.
type transferLine struct {
	Transport   *string  `json:"transport"`
	Request     *string  `json:"request"`
	From        *string  `json:"from"`
	To          *string  `json:"to"`
	Chunk       *int64   `json:"chunk"`
	Bytes       *int64   `json:"bytes"`
	Key         *string  `json:"key"`
	TxStartNS   *int64   `json:"tx_start_ns"`
	TxEndNS     *int64   `json:"tx_end_ns"`
	RxStartNS   *int64   `json:"rx_start_ns"`
	RxEndNS     *int64   `json:"rx_end_ns"`
	WaitStartNS *int64   `json:"wait_start_ns"`
	Misses      *int64   `json:"misses"`
	Match       *string  `json:"match"`
	Confidence  *float64 `json:"confidence"`
	Unread      bool     `json:"unread,omitempty"`
	EmptyPolls  *int64   `json:"empty_polls,omitempty"`

	EngineID     *string `json:"engine_id,omitempty"`
	ObjectID     *string `json:"object_id,omitempty"`
	MessageBytes *int64  `json:"message_bytes,omitempty"`
	AnnouncedNS  *int64  `json:"announced_ns,omitempty"`
	AckedNS      *int64  `json:"acked_ns,omitempty"`
}

// some is a value that is not zero, nil for zero.
func some[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// counted is a count, nil for -1.
func counted(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

func lineOf(t *join.Transfer) transferLine {
	l := transferLine{
		Transport: some(t.Transport), Request: some(t.Request), From: some(t.From), To: some(t.To),
		Chunk: counted(t.Chunk), Bytes: counted(t.Bytes), Key: some(t.Key),
		TxStartNS: some(t.TxStart), TxEndNS: some(t.TxEnd), RxStartNS: some(t.RxStart), RxEndNS: some(t.RxEnd),
		WaitStartNS: some(t.WaitStart), Misses: counted(t.Misses),
		Match: some(t.Match), Confidence: some(t.Confidence), Unread: t.Unread, EmptyPolls: counted(t.Empty),
		ObjectID: some(t.Object), MessageBytes: counted(t.MessageBytes), AnnouncedNS: some(t.Announced), AckedNS: some(t.Acked),
	}
	if t.Engine != t.Request {
		l.EngineID = some(t.Engine)
	}
	return l
}

// replayStages joins a captured folder of stage events and prints a line a transfer.
func (a *app) replayStages(format, dir string) error {
	processes, err := readProcesses(dir)
	if err != nil {
		return exitWith(exitUsage, err)
	}
	raw, err := openRaw(dir)
	if err != nil {
		return exitWith(exitUsage, err)
	}
	defer func() { _ = raw.Close() }()
	var transfers []join.Transfer
	j := join.New(join.Config{
		Requests: 1 << 16, Segments: 1 << 18, Each: 1 << 20, Held: 1 << 22,
		Done: func(t join.Transfer) { transfers = append(transfers, t) },
	})
	j.Processes(processes.Processes)
	damaged := a.readStages(raw, j)
	if errors.Is(damaged, errNoStages) {
		return exitWith(exitUsage, fmt.Errorf("%s: %w", dir, damaged))
	}
	j.Close()
	slices.SortStableFunc(transfers, join.ByStart)
	if err := a.printTransfers(format, transfers); err != nil {
		return exitWith(exitEnvironment, err)
	}
	if err := errors.Join(damaged, incomplete(j.Stats())); err != nil {
		return exitWith(exitUnusable, fmt.Errorf("%s: %w", dir, err))
	}
	return nil
}

func readProcesses(dir string) (event.Processes, error) {
	f, err := os.Open(filepath.Join(dir, "processes.json"))
	if err != nil {
		return event.Processes{}, fmt.Errorf("%s: %w: %w", dir, errNoStages, err)
	}
	defer func() { _ = f.Close() }()
	p, err := event.ReadProcesses(f)
	if err != nil {
		return p, fmt.Errorf("%s: %w: %w", dir, errNoStages, err)
	}
	return p, nil
}

// openRaw opens the events, plain or compressed.
func openRaw(dir string) (*os.File, error) {
	for _, name := range [...]string{"raw.jsonl", "raw.jsonl.gz"} {
		f, err := os.Open(filepath.Join(dir, name))
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("opening the events of stages: %w", err)
		}
	}
	return nil, fmt.Errorf("%s: %w: it holds neither raw.jsonl nor raw.jsonl.gz", dir, errNoStages)
}

// maxComplaints bounds the damaged lines that are named.
const maxComplaints = 5

// readStages gives a Joiner the events of a file. Damaged lines are named and the
// rest is used; a file without one good line is no capture.
func (a *app) readStages(r io.Reader, j *join.Joiner) error {
	in := event.NewReader(r)
	var e event.Event
	var complaints []error
	var good, bad int
	for {
		ok, err := in.Next(&e)
		switch line, isLine := errors.AsType[*event.LineError](err); {
		case isLine:
			if bad++; bad <= maxComplaints {
				complaints = append(complaints, line)
			}
			continue
		case err != nil:
			complaints, bad = append(complaints, err), bad+1
		}
		if !ok {
			break
		}
		good++
		j.Add(&e)
	}
	if good == 0 && bad > 0 {
		return fmt.Errorf("%w: %w", errNoStages, errors.Join(complaints...))
	}
	unknown := in.Unknown()
	for _, name := range slices.Sorted(maps.Keys(unknown)) {
		_, _ = fmt.Fprintf(a.errOut, "omnitap: %d events of an unknown probe %q are passed over\n", unknown[name], name)
	}
	if bad > maxComplaints {
		complaints = append(complaints, fmt.Errorf("%d lines more are damaged", bad-maxComplaints))
	}
	return errors.Join(complaints...)
}

// incomplete is an error where events were lost before the capture or in the join.
func incomplete(s join.Stats) error {
	var errs []error
	for _, family := range slices.Sorted(maps.Keys(s.Lost)) {
		errs = append(errs, fmt.Errorf("%d events of %s were lost before they could be written", s.Lost[family], cmp.Or(family, "other families")))
	}
	if n := s.RequestsDropped + s.SegmentsDropped + s.TransfersDropped + s.MissesDropped; n > 0 {
		errs = append(errs, fmt.Errorf("%d requests, segments, transfers or polls were more than are held at once", n))
	}
	return errors.Join(errs...)
}

func (a *app) printTransfers(format string, list []join.Transfer) error {
	if format == "table" {
		_, err := io.WriteString(a.out, edges(list)+"\n")
		return err
	}
	w := bufio.NewWriter(a.out)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for i := range list {
		if err := enc.Encode(lineOf(&list[i])); err != nil {
			return fmt.Errorf("printing: %w", err)
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// edge is what the table says of the transfers between two stages by one transport.
type edge struct {
	from, to, transport string

	n, unread, bytes, unsaid int64
	figures                  [len(figureNames)][]float64
}

// figureNames are what is told of an edge, in milliseconds: the sender's copying, from
// there to the receiver, the receiver's copying, all of it, and its polling before.
var figureNames = [...]string{"write", "in flight", "read", "whole", "wait"}

// edges is the table of all transfers by edge.
func edges(list []join.Transfer) string {
	index := map[[3]string]*edge{}
	var all []*edge
	for i := range list {
		t := &list[i]
		k := [3]string{t.From, t.To, t.Transport}
		if index[k] == nil {
			index[k] = &edge{from: t.From, to: t.To, transport: t.Transport}
			all = append(all, index[k])
		}
		index[k].add(t)
	}
	slices.SortFunc(all, func(a, b *edge) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), cmp.Compare(a.transport, b.transport))
	})
	w := table.NewWriter()
	w.SetStyle(table.StyleLight)
	w.AppendHeader(table.Row{"edge", "transport", "n", "unread", "bytes", "ms", "n", "p50", "p95", "p99", "max"})
	for _, e := range all {
		e.rows(w)
	}
	return w.Render() + "\npercentiles: " + stats.Method
}

func (e *edge) add(t *join.Transfer) {
	e.n++
	if t.Unread {
		e.unread++
	}
	if t.Bytes >= 0 {
		e.bytes += t.Bytes
	} else {
		e.unsaid++
	}
	write := [2]int64{t.TxStart, t.TxEnd}
	if t.Unread {
		e.figure(0, write)
		return
	}
	e.figure(0, write)
	if ns := t.InFlightNS(); ns >= 0 {
		e.figures[1] = append(e.figures[1], float64(ns)/1e6)
	}
	if ns := t.ReadNS(); ns >= 0 {
		e.figures[2] = append(e.figures[2], float64(ns)/1e6)
	}
	e.figure(3, [2]int64{t.Start(), t.Received()})
	e.figure(4, [2]int64{t.WaitStart, t.RxStart})
}

// figure keeps a length of time of which both ends were seen.
func (e *edge) figure(i int, ends [2]int64) {
	if ends[0] > 0 && ends[1] >= ends[0] {
		e.figures[i] = append(e.figures[i], float64(ends[1]-ends[0])/1e6)
	}
}

func (e *edge) rows(w table.Writer) {
	bytes := fmt.Sprint(e.bytes)
	switch {
	case e.unsaid == e.n:
		bytes = "unsaid"
	case e.unsaid > 0:
		bytes += fmt.Sprintf(" (+%d unsaid)", e.unsaid)
	}
	head := table.Row{cmp.Or(e.from, "?") + " → " + cmp.Or(e.to, "?"), e.transport, e.n, e.unread, bytes}
	first := true
	for i, values := range e.figures {
		if len(values) == 0 {
			continue
		}
		s := stats.Summarize(values)
		row := head
		if !first {
			row = table.Row{"", "", "", "", ""}
		}
		first = false
		w.AppendRow(append(slices.Clone(row), figureNames[i], s.N, ms3(s.P50), ms3(s.P95), ms3(s.P99), ms3(s.Max)))
	}
	if first {
		w.AppendRow(head)
	}
}

func ms3(v float64) string { return fmt.Sprintf("%.3f", v) }
