package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/omnitap/omnitap/exporter/nodes"
	"github.com/omnitap/omnitap/exporter/rundir"
)

func joinCmd(a *app) *cobra.Command {
	out := ""
	cmd := &cobra.Command{
		Use:   "join --out NEW DIR PART…",
		Short: "put a run and what agents saw on other machines together",
		Long: "join writes a new run directory: that of a relay, with the stages that agents\n" +
			"(`serve --role agent`) saw on other machines, in the relay's time. report and export\n" +
			"take parts behind the directory too, and do the same for themselves.",
		Args: cobra.MinimumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			if out == "" {
				return exitWith(exitUsage, errors.New("--out is required"))
			}
			if err := a.joinParts(args[0], args[1:], out); err != nil {
				return err
			}
			if err := rundir.Seal(out); err != nil {
				return exitWith(exitUnusable, fmt.Errorf("sealing %s: %w", out, err))
			}
			_, _ = fmt.Fprintln(a.out, out)
			return nil
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "directory to make")
	return cmd
}

// withParts has use read a directory: the first one itself, or where parts follow it, one
// that they are joined into and that is gone afterwards.
func (a *app) withParts(dirs []string, use func(dir string) error) error {
	all, gone, err := a.joinedDirs(dirs)
	if err != nil {
		return err
	}
	if len(all) != 1 {
		return errors.Join(exitWith(exitUsage, fmt.Errorf("%s is no agent's part: one run at a time", all[1])), gone())
	}
	return errors.Join(use(all[0]), gone())
}

// joinedDirs are run directories, each joined with the parts behind it. gone removes what
// was made for that.
func (a *app) joinedDirs(dirs []string) (all []string, gone func() error, err error) {
	groups, err := splitParts(dirs)
	if err != nil {
		return nil, nil, exitWith(exitUsage, err)
	}
	tmp := ""
	gone = func() error { return nil }
	for i, g := range groups {
		if len(g) == 1 {
			all = append(all, g[0])
			continue
		}
		if tmp == "" {
			if tmp, err = os.MkdirTemp("", "omnitap-join-"); err != nil {
				return nil, nil, exitWith(exitEnvironment, fmt.Errorf("making a folder to join in: %w", err))
			}
			gone = func() error { return os.RemoveAll(tmp) }
		}
		dir := filepath.Join(tmp, fmt.Sprint(i))
		if err := a.joinParts(g[0], g[1:], dir); err != nil {
			return nil, nil, errors.Join(err, gone())
		}
		all = append(all, dir)
	}
	return all, gone, nil
}

// splitParts parts directories into runs and, behind each, what agents saw of it.
func splitParts(dirs []string) (groups [][]string, err error) {
	for _, d := range dirs {
		switch {
		case !nodes.IsPart(d):
			groups = append(groups, []string{d})
		case len(groups) == 0:
			return nil, fmt.Errorf("%s is an agent's part: the run that it belongs to comes first", d)
		default:
			groups[len(groups)-1] = append(groups[len(groups)-1], d)
		}
	}
	return groups, nil
}

// joinParts makes the run directory out, closed and not sealed: of a sealed one, which
// may be for a moment alone, nobody but root can remove anything.
func (a *app) joinParts(dir string, parts []string, out string) (err error) {
	run, err := rundir.Read(dir)
	if err != nil {
		return exitWith(exitUsage, err)
	}
	if run.MetadataErr != nil {
		return exitWith(exitUsage, fmt.Errorf("%s: whose clock it has is not known: %w", dir, run.MetadataErr))
	}
	if !run.Closed {
		_, _ = fmt.Fprintln(a.errOut, "omnitap: the run was not closed: it may be running, or a crash ended it")
	}
	p, err := openParts(run.Metadata.Node, parts)
	if err != nil {
		return exitWith(exitUsage, err)
	}
	defer func() { err = errors.Join(err, p.close()) }()
	for _, line := range p.says() {
		_, _ = fmt.Fprintln(a.errOut, "omnitap:", line)
	}
	m := &run.Metadata
	w, err := rundir.Create(out, rundir.Meta{RunID: m.RunID, Node: m.Node, Upstream: m.Upstream, Config: m.Config, Run: m.Run, EventForm: max(m.EventForm, 1)})
	if err != nil {
		return exitWith(codeOf(err), err)
	}
	j := newPartsJoin(p, w)
	err = j.run(run)
	if err = errors.Join(err, w.Topology(p.topology()), w.Close()); err != nil {
		return exitWith(exitUnusable, fmt.Errorf("joining %s: %w", strings.Join(parts, ", "), err))
	}
	if left := j.complaints(); left != nil {
		return exitWith(exitUnusable, left)
	}
	return nil
}
