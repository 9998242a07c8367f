package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/omnitap/omnitap/exporter/convert"
)

func exportCmd(a *app) *cobra.Command {
	var o convert.Options
	format := ""
	cmd := &cobra.Command{
		Use:   "export --format perfetto|parquet|csv DIR [PART…]…",
		Short: "write run directories as a Perfetto trace, or as tables in Parquet or CSV",
		Long: "export writes what other tools read: a trace for ui.perfetto.dev and trace_processor, or a\n" +
			"folder of flat tables (runs, requests, stages, transfers, path, events, sessions, quality)\n" +
			"for DuckDB, pandas, ClickHouse, Spark.\n\n" +
			"A run that was cut off or damaged is written as far as it is whole; what cannot be used is\n" +
			"named on standard error, and the exit code is then 1. What agents saw of a run on other\n" +
			"machines comes behind its directory, and is joined with it.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Format = convert.Format(format)
			dirs, gone, err := a.joinedDirs(args)
			if err != nil {
				return err
			}
			return errors.Join(a.export(cmd.Context(), dirs, o), gone())
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&format, "format", "", "perfetto, parquet or csv")
	fl.StringVar(&o.Out, "out", "", "file (perfetto) or folder to write; default by the name of the run, in the working directory")
	fl.BoolVar(&o.Force, "force", false, "replace what an earlier export wrote")
	_ = cmd.MarkFlagRequired("format") // the flag is there
	return cmd
}

func (a *app) export(ctx context.Context, dirs []string, o convert.Options) error {
	started := time.Now()
	o.Note = func(n convert.Note) {
		if n.Text == "" {
			return
		}
		if n.Dir != "" {
			n.Dir += ": "
		}
		_, _ = fmt.Fprintf(a.errOut, "omnitap: %s%s\n", n.Dir, n.Text)
	}
	o.Progress = func(run int, dir string) {
		if time.Since(started) > quietFor {
			_, _ = fmt.Fprintf(a.errOut, "[%2d/%d] reading %s\n", run+1, len(dirs), dir)
		}
	}
	res, err := convert.Convert(ctx, dirs, o)
	switch {
	case errors.Is(err, convert.ErrInput), errors.Is(err, convert.ErrExists):
		return exitWith(exitUsage, err)
	case err != nil && ctx.Err() != nil:
		return exitWith(exitUnusable, err)
	case err != nil:
		return exitWith(exitEnvironment, err)
	}
	_, err = fmt.Fprintf(a.out, "runs %d, requests %d, sessions %d, events %d; %d bytes\n%s\n",
		res.Runs, res.Requests, res.Sessions, res.Events, res.Bytes, res.Out)
	if err != nil {
		return exitWith(exitEnvironment, err)
	}
	if res.Lost > 0 {
		return exitWith(exitUnusable, fmt.Errorf("not everything could be read: %d lines or files were left out", res.Lost))
	}
	return nil
}
