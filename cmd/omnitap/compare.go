package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/omnitap/omnitap/exporter/compare"
	"github.com/omnitap/omnitap/exporter/compare/gate"
)

type compareFlags struct {
	gates        []string
	allow        bool
	junit, flow  string
	github, json bool
	seed         uint64
}

func compareCmd(a *app) *cobra.Command {
	f := &compareFlags{}
	cmd := &cobra.Command{
		Use:   "compare A… -- B…",
		Short: "what changed between two groups of runs, with what is known of it; gates for CI",
		Long: "compare holds the runs B to the runs A. Runs are the unit: give three or more a side,\n" +
			"made in turns (A B B A). The sides are first checked for being alike; a gain that\n" +
			"comes with a shorter output is no speed-up.\n\n" +
			"A gate is METRIC[_pNN] OP LIMIT, as in 'ttfa_p99 <= +5%' (change), 'jct_p50 <= +20ms'\n" +
			"(difference), 'ttfa_p95 <= 300ms' (B's own figure), 'throughput >= -3%',\n" +
			"'success_rate >= 99%'. It holds only where the whole interval does. It is about every\n" +
			"flow that has the metric, or about the one ahead of a colon: 'chat: ttfa_p99 <= +5%'.\n" +
			"--flow leaves all other flows out, of the tables and of the check for being alike too.",
		RunE: func(cmd *cobra.Command, args []string) error {
			at := cmd.ArgsLenAtDash()
			if at < 0 {
				return exitWith(exitUsage, errors.New("-- must stand between the runs of A and those of B"))
			}
			return a.compare(cmd.Context(), f, args[:at], args[at:])
		},
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&f.gates, "gate", nil, "condition that B must meet, else exit 1; may be given again")
	fl.BoolVar(&f.allow, "allow-cannot-tell", false, "a gate that cannot be told does not fail")
	fl.StringVar(&f.junit, "junit", "", "file to write the gates to as JUnit XML")
	fl.BoolVar(&f.github, "github", false, "print the gates as GitHub annotations too")
	fl.BoolVar(&f.json, "json", false, "print JSON instead of tables")
	fl.StringVar(&f.flow, "flow", "", "compare this flow alone (chat, speech, …)")
	fl.Uint64Var(&f.seed, "seed", 0, "seed of the resampling: the same runs and seed give the same result")
	return cmd
}

// options reads what the flags ask for.
func (f *compareFlags) options() (gates []gate.Gate, o compare.Options, err error) {
	o = compare.Options{Flow: f.flow, Seed: f.seed}
	for _, text := range f.gates {
		g, err := gate.Parse(text)
		if err != nil {
			return nil, o, err
		}
		gates = append(gates, g)
	}
	switch {
	case len(gates) == 0 && (f.junit != "" || f.github || f.allow):
		return nil, o, errors.New("--junit, --github and --allow-cannot-tell are about gates: give a --gate")
	case f.json && f.github:
		return nil, o, errors.New("--json and --github both write to standard output: give one of them")
	}
	return gates, o, nil
}

func (a *app) compare(ctx context.Context, f *compareFlags, dirsA, dirsB []string) error {
	gates, opts, err := f.options()
	if err != nil {
		return exitWith(exitUsage, err)
	}
	for _, dir := range dirsB {
		if strings.HasPrefix(dir, "-") {
			return exitWith(exitUsage, fmt.Errorf("%s stands behind --, where the runs of B are: flags go ahead of it", dir))
		}
	}
	if len(dirsA) == 0 || len(dirsB) == 0 {
		return exitWith(exitUsage, errors.New("there must be a run of A and one of B: compare A… -- B…"))
	}
	runs, err := a.loadRuns(ctx, append(append([]string{}, dirsA...), dirsB...))
	if err != nil {
		return err
	}
	result, err := compare.Compare(runs[:len(dirsA)], runs[len(dirsA):], opts)
	if err != nil {
		return exitWith(exitUsage, err)
	}
	outcomes := result.Judge(gates, f.allow)
	if err := a.writeComparison(f, result, outcomes); err != nil {
		return exitWith(exitEnvironment, err)
	}
	switch n := gate.Failures(outcomes); {
	case result.Unusable != "":
		return exitWith(exitUnusable, fmt.Errorf("nothing can be told: %s", result.Unusable))
	case n > 0:
		return exitWith(exitUnusable, fmt.Errorf("gates that failed: %d of %d", n, len(outcomes)))
	}
	return nil
}

// quietFor is how long reading goes on without a word.
const quietFor = 2 * time.Second

// loadRuns reads the directories, and stops at the first that cannot be used.
func (a *app) loadRuns(ctx context.Context, dirs []string) ([]*compare.Run, error) {
	started := time.Now()
	var out []*compare.Run
	for i, dir := range dirs {
		if err := ctx.Err(); err != nil {
			return nil, exitWith(exitUnusable, err)
		}
		if time.Since(started) > quietFor {
			_, _ = fmt.Fprintf(a.errOut, "[%2d/%d] reading %s\n", i+1, len(dirs), dir)
		}
		r, err := compare.Load(dir)
		switch {
		case errors.Is(err, fs.ErrPermission):
			return nil, exitWith(exitEnvironment, err)
		case errors.Is(err, compare.ErrNoRun):
			return nil, exitWith(exitUsage, err)
		case err != nil:
			return nil, exitWith(exitUnusable, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// writeComparison writes what was asked for. The file comes first: a pipe that is closed
// does not keep it from CI.
func (a *app) writeComparison(f *compareFlags, r *compare.Result, outcomes []gate.Outcome) error {
	if f.junit != "" {
		if err := writeTo(f.junit, func(w io.Writer) error { return gate.WriteJUnit(w, outcomes) }); err != nil {
			return err
		}
	}
	if f.json {
		return r.WriteJSON(a.out)
	}
	if err := r.Render(a.out); err != nil {
		return err
	}
	if f.github {
		return gate.WriteGitHub(a.out, outcomes)
	}
	return nil
}

// writeTo makes or replaces a file.
func writeTo(path string, write func(io.Writer) error) error {
	out, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("creating a file: %w", err)
	}
	return errors.Join(write(out), out.Close())
}
