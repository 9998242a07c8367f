package experiment

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/exporter/twin"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// Validate returns all complaints, joined.
func (e Experiment) Validate() error {
	var all []error
	for _, c := range e.complaints() {
		all = append(all, c)
	}
	return errors.Join(all...)
}

// complaint is what is wrong with the value of a key.
type complaint struct{ key, text string }

func (c complaint) Error() string { return c.key + " " + c.text }

// complaints are gathered key by key.
type complaints []complaint

// unless adds a complaint unless ok.
func (c *complaints) unless(ok bool, key, format string, args ...any) {
	if !ok {
		*c = append(*c, complaint{key, fmt.Sprintf(format, args...)})
	}
}

// Bounds of what an experiment may ask.
const (
	maxRequests = 1_000_000 // as package load's
	maxAtOnce   = 4096
	maxRate     = 1e6
	maxCores    = 1e5
	leastBlocks = 8 // four pairs: fewer have no noise floor
	mostBlocks  = 2048
	maxRuns     = 1000
	maxVariants = 64
)

var (
	hashForm = regexp.MustCompile(`^[0-9a-f]{64}$`)
	nameForm = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._-]{0,63}$`)
)

// upTo says that a value is a number from 0 to most.
func upTo(v, most float64) bool { return v >= 0 && v <= most } // false for NaN

func (e *Experiment) complaints() (c complaints) {
	c.unless(strings.TrimSpace(e.Question) != "", "question", "is missing: what is the run to answer?")
	if _, err := ParseMetric(e.Primary); err != nil {
		c.unless(false, "primary", "%v", err)
	}
	c.unless(e.Primary != "goodput" || !e.SLO.Empty(), "primary", "is goodput, which needs an slo")
	known := append(timeline.CheckNames(), twin.Names()...)
	for i, check := range e.Invariants {
		c.unless(slices.Contains(known, check), "invariants", "has %q, which is no check on the sound: known are %s", check, strings.Join(known, ", "))
		c.unless(!slices.Contains(e.Invariants[:i], check), "invariants", "has %q twice", check)
	}
	c.unless(upTo(e.AllowedFailureRate, 1), "allowed_failure_rate", "must be a share from 0 to 1, not %v", e.AllowedFailureRate)
	c.unless(e.Deadline >= 0, "deadline", "must not be negative, it is %v", e.Deadline)
	c.unless(e.ForeignCoresLimit > 0 && upTo(e.ForeignCoresLimit, maxCores), "foreign_cores_limit", "must be a number of cores above 0, not %v", e.ForeignCoresLimit)
	e.SLO.complain(&c)
	e.Stop.complain(&c)
	e.Workload.complain(&c)
	e.Warmup.complain(&c, "warmup")
	e.Measured.complain(&c, "measured")
	e.Calibration.complain(&c)
	e.complainOfVariants(&c)
	return c
}

func (w *Workload) complain(c *complaints) {
	c.unless(strings.TrimSpace(w.Reference) != "", "workload.reference", "is missing: which load is it, so that others can make it again?")
	c.unless(!secret(w.Reference), "workload.reference", "holds what looks like a secret: this file is stored with the run")
	c.unless(w.SHA256 == "" || hashForm.MatchString(w.SHA256), "workload.sha256", "must be 64 hex digits in lower case")
	c.unless(!slices.Contains(w.Captures, ""), "workload.captures", "has an empty path")
	ways := 0
	for _, used := range []bool{w.Concurrency != 0, w.Rate != 0, len(w.Times) > 0} {
		if used {
			ways++
		}
	}
	c.unless(ways == 1, "workload", "must have exactly one of concurrency, rate and times, not %d", ways)
	c.unless(w.Concurrency >= 0 && w.Concurrency <= maxAtOnce, "workload.concurrency", "must lie between 1 and %d, not %d", maxAtOnce, w.Concurrency)
	c.unless(upTo(w.Rate, maxRate), "workload.rate", "must be a number of requests a second up to %g, not %v", maxRate, w.Rate)
	c.unless(slices.IsSorted(w.Times) && (len(w.Times) == 0 || w.Times[0] >= 0), "workload.times", "must be offsets in ascending order from 0 on")
	c.unless(len(w.Times) <= maxRequests, "workload.times", "has more than %d", maxRequests)
	c.unless(w.Timeout >= 0, "workload.timeout", "must not be negative, it is %v", w.Timeout)
}

func (p *Phase) complain(c *complaints, key string) {
	c.unless(p.Requests >= 0 && p.Requests <= maxRequests, key+".requests", "must lie between 0 and %d, not %d", maxRequests, p.Requests)
	c.unless(p.Duration >= 0, key+".duration", "must not be negative, it is %v", p.Duration)
}

func (k *Calibration) complain(c *complaints) {
	c.unless(k.Budget > 0 && k.Budget < 1, "calibration.budget", "must be a share between 0 and 1, not %v", k.Budget)
	c.unless(slices.Contains([]string{OnOverTrim, OnOverStop, OnOverReport}, k.OnOver), "calibration.on_over", "must be trim, stop or report, not %q", k.OnOver)
	c.unless(k.MaxDuration >= 0, "calibration.max_duration", "must not be negative, it is %v", k.MaxDuration)
	c.unless(k.Blocks >= leastBlocks && k.Blocks <= mostBlocks && k.Blocks%2 == 0, "calibration.blocks", "must be an even number from %d to %d, not %d", leastBlocks, mostBlocks, k.Blocks)
	c.unless(k.Requests >= 1 && k.Requests <= maxRequests, "calibration.requests", "must lie between 1 and %d, not %d", maxRequests, k.Requests)
}

func (e *Experiment) complainOfVariants(c *complaints) {
	c.unless(e.Runs >= 1 && e.Runs <= maxRuns, "runs", "must lie between 1 and %d, not %d", maxRuns, e.Runs)
	c.unless(len(e.Variants) != 1, "variants", "has one alone: there is nothing to alternate with")
	c.unless(len(e.Variants) <= maxVariants, "variants", "has more than %d", maxVariants)
	seen := map[string]bool{}
	for _, v := range e.Variants {
		c.unless(nameForm.MatchString(v.Name), "variants", "has a name of other than letters, digits, dots, hyphens and underscores: %q", v.Name)
		c.unless(!seen[v.Name], "variants", "has two that are called %q", v.Name)
		seen[v.Name] = true
		c.unless(len(v.Command)+len(v.Env) > 0, "variants", "has %q, which says neither command nor env", v.Name)
		c.unless(!secret(v.Command...), "variants", "has %q, whose command holds what looks like a secret: this file is stored with the run", v.Name)
		for key, value := range v.Env {
			c.unless(key != "" && !strings.ContainsAny(key, "=\x00"), "variants", "has %q, whose env has a variable that cannot be", v.Name)
			c.unless(!secret(key+"="+value), "variants", "has %q, whose env holds what looks like a secret: this file is stored with the run", v.Name)
		}
	}
}

// secret says that arguments hold what a run directory redacts.
func secret(args ...string) bool { return !slices.Equal(rundir.RedactArgs(args), args) }
