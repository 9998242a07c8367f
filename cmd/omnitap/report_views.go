package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/omnitap/omnitap/exporter/reconcile"
	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/exporter/upstream"
)

// views prints one run as its load generator, the wire and the server tell it.
func (a *app) views(run *rundir.Run, generator string, asJSON bool) error {
	in := reconcile.Input{}
	for r, err := range run.Records() {
		if err != nil {
			_, _ = fmt.Fprintln(a.errOut, "omnitap:", err)
			continue
		}
		in.Records = append(in.Records, r)
	}
	f, err := os.Open(generator)
	if err != nil {
		return exitWith(exitUsage, fmt.Errorf("reading the generator's file: %w", err))
	}
	defer func() { _ = f.Close() }()
	if in.Generator, err = reconcile.ReadGenerator(f); err != nil {
		return exitWith(exitUsage, fmt.Errorf("%s: %w", generator, err))
	}
	if in.Server, err = a.served(run.Dir); err != nil {
		return exitWith(exitUsage, err)
	}
	res := reconcile.Table(in)
	if asJSON {
		return exitWith(exitEnvironment, res.WriteJSON(a.out))
	}
	return exitWith(exitEnvironment, res.Render(a.out))
}

// served is what the server said of itself, nil where it was not asked.
func (a *app) served(dir string) (*upstream.Difference, error) {
	f, err := os.Open(filepath.Join(dir, upstream.File))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading what the server said: %w", err)
	}
	defer func() { _ = f.Close() }()
	scrapes, problems, err := upstream.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", upstream.File, err)
	}
	for _, p := range problems {
		_, _ = fmt.Fprintf(a.errOut, "omnitap: %s: %v\n", upstream.File, p)
	}
	return new(upstream.Between(scrapes)), nil
}
