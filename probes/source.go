package probes

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/omnitap/omnitap/probes/find"
)

// Source says which processes are to be watched; *find.Finder is one.
type Source interface {
	// Scan looks at all processes now.
	Scan() (find.Result, error)
	// Run scans again and again until ctx ends.
	Run(ctx context.Context, every time.Duration, use func(find.Result)) error
	// Exec, Fork and Exit are what the kernel told.
	Exec(pid int)
	Fork(pid, parent int)
	Exit(pid int)
}

// NewFinder makes the Source that looks into /proc for the server that listens on a
// port of this machine, 0 for every server of it. The error names a line of the rule
// file.
func NewFinder(c Config, port int) (*find.Finder, error) {
	var rules []find.Rule
	if c.Rules != "" {
		f, err := os.Open(c.Rules)
		if err != nil {
			return nil, fmt.Errorf("reading stages.rules: %w", err)
		}
		defer func() { _ = f.Close() }()
		if rules, err = find.ParseRules(f); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Rules, err)
		}
	}
	return find.New(find.Config{Port: port, Rules: rules, Names: c.Names}), nil
}
