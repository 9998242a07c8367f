package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/omnitap/omnitap/exporter/calibration"
	"github.com/omnitap/omnitap/exporter/experiment"
	"github.com/omnitap/omnitap/exporter/stats"
	"github.com/omnitap/omnitap/probes"
	"github.com/omnitap/omnitap/probes/event"
	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// blockDriver sends the requests of one block through the relay.
type blockDriver interface {
	// warm sends what brings caches and connections up; its records are not counted.
	warm(ctx context.Context, base string, block int) (blockLoad, error)
	// block sends a block's requests and returns when all are answered.
	block(ctx context.Context, base string, block int) (blockLoad, error)
	// source says in words what is sent.
	source() string
}

// blockLoad is what the sender of a block knows.
type blockLoad struct {
	// attempts were sent, -1 where only the relay knows.
	attempts int
	lag      stats.Summary
	// mine tells the block's records from others; nil takes all.
	mine func(*timeline.Record) bool
}

// toggle is what is switched on and off in turns, to be measured: the stage probes.
type toggle interface {
	isOn() bool
	on(ctx context.Context) error
	// off says what is left of it, calibration.Verified for nothing.
	off(ctx context.Context) (left string, err error)
	// waiting is how many records wait for it.
	waiting() int
	// describe notes what it says of itself while it is on.
	describe(b *calibration.Block)
	// without keeps a part of it off from now on.
	without(family string)
}

// calibrator measures what the probes cost, block by block.
type calibrator struct {
	cfg    calibration.Config
	base   string        // the relay's address for clients
	onOver string        // what is done over budget, one of experiment's
	limit  time.Duration // of all blocks together, 0 for none
	probes toggle
	driver blockDriver

	relay *service
	kept  *keeper
	say   func(string)
	// finder looks for the stage processes, whose CPU time counts with probes and without.
	finder  func() ([]event.Process, error)
	procs   []event.Process
	left    string // what the last detachment left, calibration.Verified for nothing
	trimmed []calibration.Trim
}

// recordPatience is how long the last records of a block may take to come.
const recordPatience = 10 * time.Second

// run calibrates. The error says what made it impossible; a verdict is no error.
func (c *calibrator) run(ctx context.Context) (calibration.File, error) {
	out := calibration.File{Schema: 1, Config: c.cfg.WithDefaults(), Source: c.driver.source(), OnOver: c.onOver}
	var err error
	if c.procs, err = c.finder(); err != nil {
		return out, err
	}
	c.left = calibration.Verified // none were attached
	began := time.Now()
	for {
		a, again, err := c.attempt(ctx, began)
		out.Attempts = append(out.Attempts, a)
		if err != nil {
			return out, errors.Join(err, c.off(ctx))
		}
		if !again {
			break
		}
	}
	out.Result = out.Attempts[len(out.Attempts)-1].Result
	out.Trimmed = c.trimmed
	err = c.off(ctx)
	if c.left != calibration.Verified {
		c.say("that nothing of the probes is left is not sure: " + c.left)
	}
	return out, err
}

// stageProcesses finds the stage processes of a server on this machine.
func stageProcesses(cfg probes.Config, upstream string) (procs []event.Process, err error) {
	port, err := localPort(context.Background(), upstream)
	if err != nil {
		return nil, err
	}
	finder, err := probes.NewFinder(cfg, port)
	if err != nil {
		return nil, err
	}
	found, err := finder.Scan()
	if err != nil {
		return nil, fmt.Errorf("looking for stage processes: %w", err)
	}
	for _, p := range found.Processes {
		if p.Role != "api" {
			procs = append(procs, p)
		}
	}
	if len(procs) == 0 {
		return nil, errors.New("no stage process was found: there is nothing for the probes to cost")
	}
	return procs, nil
}

// attempt runs blocks until the verdict is settled. again says that a family was taken
// away and all begins anew.
func (c *calibrator) attempt(ctx context.Context, began time.Time) (a calibration.Attempt, again bool, err error) {
	a.Off = c.switchedOff()
	for n := 0; ; n++ {
		late := c.limit > 0 && time.Since(began) >= c.limit && n%2 == 0
		if c.cfg.Due(n) || late {
			a.Result = calibration.Judge(a.Blocks, c.cfg)
			c.say(progressOf(&a.Result, n))
			if a.Result.Settled(c.cfg) || late {
				break
			}
		}
		b, err := c.one(ctx, n)
		if err != nil {
			return a, false, fmt.Errorf("block %d: %w", n, err)
		}
		a.Blocks = append(a.Blocks, b)
		if len(b.Trimmed) > 0 {
			for name, why := range b.Trimmed {
				c.switchOff(name, "its own budget: "+why)
			}
			a.Result = calibration.Judge(a.Blocks, c.cfg)
			return a, true, nil
		}
	}
	if a.Result.Verdict == calibration.Over && c.onOver == experiment.OnOverTrim {
		if name := calibration.Costliest(a.Blocks); name != "" {
			c.switchOff(name, "over budget, and the costliest")
			return a, true, nil
		}
	}
	return a, false, nil
}

// one runs a block.
func (c *calibrator) one(ctx context.Context, n int) (calibration.Block, error) {
	b := calibration.Block{Index: n, Attached: calibration.Attached(n)}
	if err := c.put(ctx, b.Attached); err != nil {
		return b, err
	}
	if !b.Attached {
		b.Detached = c.left
	}
	warm, err := c.driver.warm(ctx, c.base, n)
	if err != nil {
		return b, fmt.Errorf("warming up: %w", err)
	}
	if err := c.settled(ctx, &warm); err != nil {
		return b, err
	}
	c.kept.take()
	before, cpuErr := cpuOf(c.procs)
	b.StartNS = tap.Monotonic()
	sent, err := c.driver.block(ctx, c.base, n)
	b.EndNS = tap.Monotonic()
	after, err2 := cpuOf(c.procs)
	if err != nil {
		return b, err
	}
	if cpuErr = errors.Join(cpuErr, err2); cpuErr != nil {
		b.CPUWhy = cpuErr.Error()
	} else {
		b.CPU = since(before, after)
	}
	if err := c.settled(ctx, &sent); err != nil {
		return b, err
	}
	if c.probes.isOn() {
		c.probes.describe(&b)
	}
	count(&b, &sent, c.kept.take())
	if b.Success == 0 {
		return b, fmt.Errorf("none of %d requests succeeded", b.Attempts)
	}
	return b, nil
}

// probeToggle attaches and detaches the stage probes of a relay.
type probeToggle struct {
	sw  *switched
	cfg *probes.Config
}

func (t probeToggle) isOn() bool                   { return t.sw.current() != nil }
func (t probeToggle) on(ctx context.Context) error { return t.sw.attach(ctx, *t.cfg) }

func (t probeToggle) off(ctx context.Context) (left string, err error) {
	st, err := t.sw.detach(ctx)
	if err != nil {
		return "", err
	}
	switch d := st.Detached; {
	case d.Verified():
		return calibration.Verified, nil
	case d == nil:
		return "nobody looked", nil
	case d.Unchecked != "":
		return d.Unchecked, nil
	default:
		return strings.Join(d.Left, ", "), nil
	}
}

func (t probeToggle) waiting() int {
	if p := t.sw.current(); p != nil {
		return p.st.held()
	}
	return 0
}

func (t probeToggle) without(family string) {
	if f := t.cfg.Family(family); f != nil {
		f.Use = probes.Off
	}
}

// describe notes what the probes say of themselves.
func (t probeToggle) describe(b *calibration.Block) {
	p := t.sw.current()
	if p == nil {
		return
	}
	st := p.st.set.Status()
	b.Cores, b.Lost = map[string]float64{}, st.Lost
	for _, f := range st.Families {
		switch f.State {
		case probes.Attached:
			b.Probes = append(b.Probes, f.Name)
		case probes.Trimmed:
			if b.Trimmed == nil {
				b.Trimmed = map[string]string{}
			}
			b.Trimmed[f.Name] = f.Reason
		case probes.Unused, probes.Disabled, probes.Failed, probes.Dead:
		}
		if f.Cores != nil {
			b.Cores[f.Name] = *f.Cores
		}
	}
}

// count takes the figures of a block's records.
func count(b *calibration.Block, sent *blockLoad, records []*timeline.Record) {
	b.Lag = sent.lag
	add := func(list *[]float64, v *float64) {
		if v != nil {
			*list = append(*list, *v)
		}
	}
	for _, r := range records {
		if sent.mine != nil && !sent.mine(r) {
			continue
		}
		b.Attempts++
		if r.Terminal.State != timeline.Success {
			if b.Failed == nil {
				b.Failed = map[string]int{}
			}
			b.Failed[string(r.Terminal.State)+"/"+r.Terminal.Reason]++
			continue
		}
		b.Success++
		add(&b.TTFT, r.TTFTMS)
		add(&b.TTFA, r.TTFAMS)
		add(&b.JCT, r.JCTMS)
	}
	b.Attempts = max(b.Attempts, sent.attempts)
}

// put attaches or detaches, and makes sure of it.
func (c *calibrator) put(ctx context.Context, attached bool) error {
	switch on := c.probes.isOn(); {
	case attached && !on:
		if err := c.probes.on(ctx); err != nil {
			return fmt.Errorf("attaching the probes: %w", err)
		}
	case !attached && on:
		return c.off(ctx)
	}
	return nil
}

// off detaches, and notes what is left.
func (c *calibrator) off(ctx context.Context) error {
	if !c.probes.isOn() {
		return nil
	}
	left, err := c.probes.off(context.WithoutCancel(ctx))
	if err == nil {
		c.left = left
	}
	return err
}

// settled waits until no request is under way and every record has come: each of the
// sender's own, where it knows. Those of others, of a warm-up say, are none of them.
func (c *calibrator) settled(ctx context.Context, sent *blockLoad) error {
	limit := time.NewTimer(recordPatience)
	defer limit.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		_, busy := c.relay.analyzer.Oldest()
		waiting := c.probes.waiting()
		if busy == 0 && waiting == 0 && c.relay.analyzer.Queued() == 0 && c.kept.count(sent.mine) >= sent.attempts {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-limit.C:
			return fmt.Errorf("%d requests are still under way, %d records wait, %d of %d have come", busy, waiting, c.kept.count(sent.mine), max(sent.attempts, 0))
		case <-tick.C:
		}
	}
}

// switchOff keeps a family off from now on.
func (c *calibrator) switchOff(name, why string) {
	c.probes.without(name)
	c.trimmed = append(c.trimmed, calibration.Trim{Family: name, Why: why})
	c.say(fmt.Sprintf("without the %s probes from now on (%s)", name, why))
}

// switchedOff names the families that are off.
func (c *calibrator) switchedOff() (names []string) {
	for _, t := range c.trimmed {
		names = append(names, t.Family)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func progressOf(r *calibration.Result, blocks int) string {
	words := fmt.Sprintf("%d blocks: %s", blocks, r.Verdict)
	if r.MoreBlocks != nil {
		words += fmt.Sprintf(", some %d more would settle it", *r.MoreBlocks)
	}
	return words
}

// take returns the records kept so far, and keeps them no longer.
func (k *keeper) take() []*timeline.Record {
	k.mu.Lock()
	defer k.mu.Unlock()
	records := k.records
	k.records, k.sessions = nil, nil
	return records
}

// count is how many of the records kept are meant; nil means all.
func (k *keeper) count(mine func(*timeline.Record) bool) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.records {
		if mine == nil || mine(r) {
			n++
		}
	}
	return n
}

// base is the address that clients find the relay at.
func (s *service) base(f *serveFlags) string {
	scheme := "http"
	if f.TLSCert != "" {
		scheme = "https"
	}
	return scheme + "://" + s.listener.Addr().String()
}

// plain takes TLS to clients away: the built-in requests are our own, and go over plain
// HTTP.
func (f *serveFlags) plain() { f.TLSCert, f.TLSKey = "", "" }

// calibrationRelay is a relay whose probes can be attached and detached.
func (a *app) calibrationRelay(ctx context.Context, f *serveFlags, kept *keeper) (*service, error) {
	g := *f
	g.Probes, g.Listen, g.Admin, g.Out, g.Capture, g.SaveAudio, g.Log = "off", "127.0.0.1:0", "off", "", "", "", "off"
	g.switched = true
	s, err := a.build(ctx, &g, kept)
	if err != nil {
		return nil, err
	}
	s.log = slog.New(slog.DiscardHandler)
	return s, nil
}
