package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/omnitap/omnitap/exporter/rundir"
)

func reportCmd(a *app) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "report DIR",
		Short: "tables of a run directory",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			run, err := rundir.Read(args[0])
			if err != nil {
				return exitWith(exitUsage, err)
			}
			if !run.Closed {
				_, _ = fmt.Fprintln(a.errOut, "omnitap: the run was not closed: it may be running, or a crash ended it")
			}
			return exitWith(exitEnvironment, runTables(a.out, run, asJSON))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
