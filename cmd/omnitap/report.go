package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/omnitap/omnitap/exporter/rundir"
)

func reportCmd(a *app) *cobra.Command {
	asJSON, generator := false, ""
	cmd := &cobra.Command{
		Use:   "report DIR [PART…]",
		Short: "tables of a run directory, with what agents saw of it on other machines",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.withParts(args, func(dir string) error {
				run, err := rundir.Read(dir)
				if err != nil {
					return exitWith(exitUsage, err)
				}
				if !run.Closed {
					_, _ = fmt.Fprintln(a.errOut, "omnitap: the run was not closed: it may be running, or a crash ended it")
				}
				if generator != "" {
					return a.views(run, generator, asJSON)
				}
				return exitWith(exitEnvironment, runTables(a.out, run, asJSON))
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&generator, "generator", "", "result file of the load generator (vllm bench serve, AIPerf): one table of what it, the wire and the server tell")
	return cmd
}
