package main

import (
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/omnitap/omnitap/exporter/audiofile"
	"github.com/omnitap/omnitap/exporter/report"
	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/tap/capture"
	"github.com/omnitap/omnitap/proxy/timeline"
)

type replayFlags struct {
	format, out, config, saveAudio, stages string

	deadline time.Duration
}

func replayCmd(a *app) *cobra.Command {
	f := &replayFlags{}
	cmd := &cobra.Command{
		Use:   "replay FILE… | --stages DIR",
		Short: "records of captures, offline: the same bytes and times give the same lines",
		Args: func(cmd *cobra.Command, args []string) error {
			if f.stages != "" {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.MinimumNArgs(1)(cmd, args)
		},
		RunE: func(_ *cobra.Command, args []string) error { return a.replay(f, args) },
	}
	cmd.Flags().StringVar(&f.format, "format", "", "jsonl or table (default: table on a terminal, else jsonl)")
	cmd.Flags().StringVar(&f.out, "out", "", "write a run directory")
	cmd.Flags().StringVar(&f.config, "config", "", "YAML configuration as for serve (its tap section is used)")
	cmd.Flags().StringVar(&f.saveAudio, "save-audio", "", "folder for the sound of every stream as a WAV file, with labels")
	cmd.Flags().StringVar(&f.stages, "stages", "", "folder of captured stage events: a line a transfer")
	cmd.Flags().DurationVar(&f.deadline, "deadline", 0, "how long after its first byte a request must have ended, 0 for no limit")
	for _, other := range [...]string{"out", "config", "save-audio", "deadline"} {
		cmd.MarkFlagsMutuallyExclusive("stages", other)
	}
	return cmd
}

func (a *app) replay(f *replayFlags, files []string) (err error) {
	c, err := loadConfig(f.config)
	if err != nil {
		return exitWith(exitUsage, err)
	}
	if f.format == "" {
		f.format = "jsonl"
		if o, ok := a.out.(*os.File); ok && term.IsTerminal(int(o.Fd())) {
			f.format = "table"
		}
	}
	if f.format != "jsonl" && f.format != "table" {
		return exitWith(exitUsage, fmt.Errorf("--format must be jsonl or table, not %q", f.format))
	}
	if f.stages != "" {
		return a.replayStages(f.format, f.stages)
	}
	kept := &keeper{}
	sinks := fanOut{kept}
	if f.out != "" {
		w, err := rundir.Create(f.out, rundir.Meta{Config: c.Tap})
		if err != nil {
			return exitWith(codeOf(err), err)
		}
		defer func() { _ = w.Close() }()
		sinks = append(sinks, runSink{w})
	}
	cfg := c.Tap.WithDefaults()
	cfg.Timeline.Deadline = max(f.deadline, 0)
	var damaged error
	if f.saveAudio != "" {
		saver, ferr := audiofile.New(f.saveAudio, nil)
		if ferr != nil {
			return exitWith(exitEnvironment, ferr)
		}
		saver.Wait()
		defer func() {
			if cerr := saver.Close(); err == nil {
				err = exitWith(exitEnvironment, cerr)
			}
		}()
		cfg.Timeline.Listen = saver.Listen
	}
	for n, name := range files {
		before := len(kept.records)
		err := replayFile(&cfg, name, uint64(n+1), sinks)
		slices.SortStableFunc(kept.records[before:], byTurn)
		if err != nil {
			if errors.Is(err, capture.ErrNoCapture) || errors.Is(err, os.ErrNotExist) {
				return exitWith(exitUsage, err)
			}
			damaged = errors.Join(damaged, err)
		}
	}
	if err := a.printReplay(f.format, kept); err != nil {
		return exitWith(exitEnvironment, err)
	}
	return exitWith(exitUnusable, errors.Join(damaged, notFull(kept.records)))
}

// byTurn orders the turns of a session, which may end in another order than they
// began; exchanges come in theirs.
func byTurn(a, b *timeline.Record) int {
	if a.Turn == nil || b.Turn == nil {
		return 0
	}
	return cmp.Compare(*a.Turn, *b.Turn)
}

func replayFile(cfg *tap.Config, name string, n uint64, sink timeline.Sink) error {
	file, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("opening a capture: %w", err)
	}
	defer func() { _ = file.Close() }()
	var r io.Reader = file
	if strings.HasSuffix(name, ".gz") {
		if r, err = gzip.NewReader(file); err != nil {
			return fmt.Errorf("%s: %w", name, capture.ErrNoCapture)
		}
	}
	base, _, _ := strings.Cut(filepath.Base(name), ".wire.jsonl")
	if _, err := tap.Replay(cfg, r, timeline.Identity{ConnectionID: n, OwnID: base}, sink); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (a *app) printReplay(format string, kept *keeper) error {
	if format == "table" {
		t := report.Tables(all(kept.records))
		t.AddSessions(all(kept.sessions))
		t.AddQuality(all(kept.quality()))
		return t.Render(a.out)
	}
	var b []byte
	for _, r := range kept.records {
		var err error
		if b, err = rundir.AppendRecord(b[:0], r); err != nil {
			return err
		}
		if _, err := a.out.Write(append(b, '\n')); err != nil {
			return fmt.Errorf("printing: %w", err)
		}
	}
	return nil
}

func all[T any](records []*T) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// notFull is an error when some connection could not be read in full.
func notFull(records []*timeline.Record) error {
	n := 0
	for _, r := range records {
		if r.Analysis != "full" {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d records could not be read in full: see analysis and analysis_reason", n, len(records))
}
