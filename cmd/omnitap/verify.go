package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/exporter/verify"
)

func verifyCmd(a *app) *cobra.Command {
	var o verify.Options
	asJSON := false
	cmd := &cobra.Command{
		Use:   "verify DIR",
		Short: "hold a run directory to itself: hashes, schemas, and every metric derived again from its events",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := verify.Verify(args[0], o)
			if err != nil {
				return exitWith(exitUsage, err)
			}
			if run, err := rundir.Read(args[0]); err == nil && run.MetadataErr == nil {
				if err := rundir.CheckExperiment(args[0], &run.Metadata); err != nil {
					return exitWith(exitUnusable, err)
				}
			}
			if asJSON {
				err = r.WriteJSON(a.out)
			} else {
				err = r.WriteText(a.out)
			}
			if err != nil {
				return exitWith(exitEnvironment, err)
			}
			if !r.OK() {
				return exitWith(exitUnusable, errors.New("the directory is not what it says"))
			}
			return nil
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&o.AllowUnsealed, "allow-unsealed", false, "a run that is not sealed is no error")
	fl.IntVar(&o.MaxFindings, "max-findings", verify.DefaultMaxFindings, "how many findings are listed; all are counted")
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
