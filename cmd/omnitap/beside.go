package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/omnitap/omnitap/exporter/energy"
	"github.com/omnitap/omnitap/exporter/resources"
	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/exporter/upstream"
	"github.com/omnitap/omnitap/probes/gpu"
	"github.com/omnitap/omnitap/probes/host/usage"
	"github.com/omnitap/omnitap/proxy/tap"
)

// resourcesConfig is the block `resources` of the configuration: what a run samples of
// cards, machine and stages.
type resourcesConfig struct {
	Off bool `yaml:"off"`
	// GPUInterval lies between two samples of the cards, 100 ms by default, at least 10 ms;
	// Interval between two of machine and stages, 1 s by default, at least 100 ms.
	GPUInterval time.Duration `yaml:"gpu_interval"`
	Interval    time.Duration `yaml:"interval"`
}

func (c *resourcesConfig) validate() error {
	if c.GPUInterval != 0 && c.GPUInterval < 10*time.Millisecond {
		return fmt.Errorf("resources.gpu_interval must be at least 10ms, not %v", c.GPUInterval)
	}
	if c.Interval != 0 && c.Interval < 100*time.Millisecond {
		return fmt.Errorf("resources.interval must be at least 100ms, not %v", c.Interval)
	}
	return nil
}

// idleTime is the baseline of energy, with the server up and no load, where there is a card.
const idleTime = 5 * time.Second

// beside is what a run measures beside its requests: what cards, machine and stages spent,
// and what the server says of itself. Nothing of it ends a run.
type beside struct {
	m       *measurement
	out     *resources.Writer
	cards   *gpu.Sampler
	host    *usage.Sampler
	scraper *upstream.Scraper
	file    *os.File

	stop    context.CancelFunc
	running sync.WaitGroup
	idle    energy.Window

	mu    sync.Mutex // protects notes: the cards' goroutine has one, too
	notes []string
}

// beginBeside starts it, and returns when the baseline has been taken.
func (m *measurement) beginBeside(ctx context.Context) *beside {
	b := &beside{m: m}
	sampling, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop = stop
	b.note("resources", b.sample(sampling))
	b.note("the server's metrics", b.scrape(ctx, sampling))
	b.baseline(ctx)
	return b
}

// note keeps why something is not measured, and says so.
func (b *beside) note(what string, err error) {
	if err != nil {
		b.keep(what, err)
		b.m.relay.log.Warn("not measured", "what", what, "error", err)
	}
}

// keep keeps it without a word: many servers tell no metrics.
func (b *beside) keep(what string, err error) {
	if err != nil {
		b.mu.Lock()
		b.notes = append(b.notes, what+": "+err.Error())
		b.mu.Unlock()
	}
}

// sample starts the samplers.
func (b *beside) sample(ctx context.Context) (err error) {
	c, r := &b.m.f.Resources, b.m.relay
	if c.Off {
		return nil
	}
	if b.out, err = resources.Create(b.m.f.Out, resources.Config{RunID: r.runID, Node: r.node, Logger: r.log}); err != nil {
		return err
	}
	if b.cards, err = gpu.New(gpu.Config{Interval: c.GPUInterval, Sink: b.out.GPU, Logger: r.log}); err != nil {
		return err
	}
	if b.host, err = usage.New(usage.Config{Interval: c.Interval, Processes: b.processes, Sink: b.out.Usage}); err != nil {
		return err
	}
	b.running.Go(func() { b.note("cards", b.cards.Run(ctx)) })
	b.running.Go(func() { b.host.Run(ctx) })
	return nil
}

func (b *beside) processes() (list []usage.Process) {
	for _, p := range b.m.around.scan() {
		list = append(list, usage.Process{PID: p.PID, StartTicks: p.StartTicks, Stage: p.Stage})
	}
	return list
}

// scrape starts reading the server's own metrics.
func (b *beside) scrape(ctx, running context.Context) (err error) {
	c := b.m.f.UpstreamMetrics
	if c.Disabled {
		return nil
	}
	b.file, err = os.OpenFile(filepath.Join(b.m.f.Out, upstream.File), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	clock := func() (mono, wall int64) { return tap.Monotonic(), time.Now().UnixNano() }
	b.scraper = upstream.New(c, b.m.f.Upstream, b.file, upstream.Options{Clock: clock, TLS: b.m.relay.upstreamTLS, Log: b.m.relay.log})
	b.keep("the server's metrics ahead of the load", b.scraper.Before(ctx))
	b.running.Go(func() { b.scraper.Run(running) })
	return nil
}

// baseline waits for idleTime where there is a card, until ctx ends.
func (b *beside) baseline(ctx context.Context) {
	if b.cards == nil || !b.card(ctx) {
		return
	}
	from := tap.Monotonic()
	limit := time.NewTimer(idleTime)
	defer limit.Stop()
	select {
	case <-ctx.Done():
	case <-limit.C:
	}
	b.idle = energy.Window{FromNS: from, ToNS: tap.Monotonic()}
}

// cardPatience is how long the driver's library may take to tell its cards.
const cardPatience = 5 * time.Second

// card waits until it is known whether there is a card.
func (b *beside) card(ctx context.Context) bool {
	limit := time.NewTimer(cardPatience)
	defer limit.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		switch b.cards.Status().State {
		case gpu.StateSampling:
			return true
		case gpu.StateStarting:
		default:
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-limit.C:
			return false
		case <-tick.C:
		}
	}
}

// end stops it when the load is over and the relay has drained.
func (b *beside) end(ctx context.Context) {
	if b.scraper != nil {
		b.keep("the server's metrics behind the load", b.scraper.After(context.WithoutCancel(ctx)))
	}
	b.stop()
	b.running.Wait()
	if b.file != nil {
		b.note("the server's metrics", b.file.Close())
	}
	if b.out != nil {
		b.note("resources", b.out.Close())
	}
}

// besideInfo is what metadata.json says of it.
type besideInfo struct {
	File *resources.Stats `json:"file"`
	GPU  *gpu.Status      `json:"gpu"`
	Host *usage.Status    `json:"host"`
	// Notes say what was not measured, and why.
	Notes []string `json:"notes"`
}

// describe writes what was spent into a run's metadata: energy over the measured part,
// where there was a card.
func (b *beside) describe(r *rundir.RunInfo) {
	b.mu.Lock()
	info := besideInfo{Notes: slices.Clone(b.notes)}
	b.mu.Unlock()
	if b.out != nil {
		info.File = new(b.out.Stats())
	}
	if b.cards != nil {
		info.GPU = new(b.cards.Status())
	}
	if b.host != nil {
		info.Host = new(b.host.Status())
	}
	if text, err := json.Marshal(info); err == nil {
		r.Resources = text
	}
	spent, err := b.energy()
	if err != nil {
		r.NoEnergy = err.Error()
		return
	}
	r.Energy = spent
}

// energy is what the cards took over the measured part.
func (b *beside) energy() (*energy.Result, error) {
	switch {
	case b.cards == nil:
		return nil, errors.New("resources were not sampled")
	case b.idle.ToNS == 0:
		return nil, errors.New("no card: " + b.cards.Status().Reason)
	}
	load, successes, audio := b.m.ph.spent()
	if load.ToNS == 0 {
		return nil, errors.New("no request was measured")
	}
	edge := energy.Edge(b.cards.Status().IntervalNS)
	window := energy.Window{FromNS: b.idle.FromNS - edge, ToNS: load.ToNS + edge}
	devices, err := resources.Samples(b.m.f.Out, window)
	if err != nil {
		return nil, err
	}
	out := energy.Of(energy.Input{
		Devices: devices, IntervalNS: b.cards.Status().IntervalNS, Idle: b.idle, Load: load,
		IdleState: "the server up, without load", Successes: successes, AudioS: audio,
	})
	return &out, nil
}
