package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/omnitap/omnitap/exporter/nodes"
	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/probes"
	"github.com/omnitap/omnitap/probes/event"
)

// How often an agent asks for the relay's clock, and how often each time: the surest of
// the exchanges counts.
const (
	clockEvery = 2 * time.Second
	clockAsks  = 8
)

// agent watches the stages of this machine for a relay on another one. It keeps its raw
// clock; report, export and join put the parts together.
type agent struct {
	dir  string
	node string
	set  *probes.Set
	film *stageFilm
	log  *slog.Logger

	mu    sync.Mutex // protects what follows
	about nodes.Agent
	clock *os.File
	last  *nodes.Sample
}

// checkRole says what does not go with the role that is asked for.
func (f *serveFlags) checkRole() error {
	switch f.Role {
	case "", "relay":
		if f.Clock != "" {
			return errors.New("--clock goes with --role agent: the relay's clock is the one that is asked for")
		}
		if f.Upstream == "" {
			return errors.New("--upstream is required")
		}
		return nil
	case "agent":
		if f.Out == "" {
			return errors.New("--role agent needs --out, the folder for what it sees")
		}
		if f.Probes == "off" {
			return errors.New("--role agent is the stage probes: --probes off leaves nothing of it")
		}
		if f.Clock == "" {
			return nil
		}
		u, err := url.Parse(f.Clock)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return fmt.Errorf("--clock must be the address of the relay's admin listener, http://HOST:PORT, not %q", f.Clock)
		}
		return nil
	default:
		return fmt.Errorf("--role must be relay or agent, not %q", f.Role)
	}
}

// nodeName is what this machine is called in records.
func (f *serveFlags) nodeName() string {
	if f.Node != "" {
		return f.Node
	}
	node, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return node
}

// agent is serve for --role agent.
func (a *app) agent(ctx context.Context, f *serveFlags) (err error) {
	g := &agent{dir: f.Out, node: f.nodeName(), log: slog.New(slog.NewTextHandler(a.errOut, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	if err := os.Mkdir(g.dir, 0o700); err != nil {
		return exitWith(exitUsage, fmt.Errorf("making the agent's folder: %w", err))
	}
	var admin net.Listener
	if f.Admin != "off" && f.Admin != "" {
		var lc net.ListenConfig
		if admin, err = lc.Listen(ctx, "tcp", f.Admin); err != nil {
			return exitWith(exitEnvironment, fmt.Errorf("listening for admin: %w", err))
		}
		_, _ = fmt.Fprintf(a.errOut, "admin on http://%s\n", admin.Addr())
	}
	if err := g.open(ctx, f); err != nil {
		if admin != nil {
			_ = admin.Close()
		}
		return exitWith(exitEnvironment, err)
	}
	_, _ = fmt.Fprintf(a.errOut, "agent on %s, stage probes: %s\n", g.node, g.set.Status().Words())
	if err := g.run(ctx, f.Clock, admin); err != nil {
		return exitWith(exitUnusable, err)
	}
	_, _ = fmt.Fprintln(a.errOut, g.dir)
	return nil
}

// open attaches the probes to all servers of this machine.
func (g *agent) open(ctx context.Context, f *serveFlags) error {
	finder, err := probes.NewFinder(f.Stages, 0)
	if err != nil {
		return err
	}
	if g.film, err = newStageFilmAt(g.dir, g.log); err != nil {
		return err
	}
	if g.set, err = probes.Open(ctx, f.Stages, finder, g, g.log); err != nil {
		return errors.Join(err, g.film.close())
	}
	g.about = nodes.Agent{Schema: 1, Role: "agent", Node: g.node, BootID: nodes.BootID(), Version: version(), Start: moment(), Clock: rundir.RedactURL(f.Clock)}
	if f.Clock != "" {
		g.clock, err = os.OpenFile(filepath.Join(g.dir, nodes.ClockFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	}
	if err = errors.Join(err, g.write()); err != nil {
		return errors.Join(fmt.Errorf("writing the agent's folder: %w", err), g.set.Close(), g.film.close())
	}
	return nil
}

func moment() nodes.Moment {
	return nodes.Moment{MonoNS: nodes.KernelTime(), WallNS: time.Now().UnixNano()}
}

// write writes agent.json anew, by way of another file: a crash leaves the old one.
func (g *agent) write() error {
	text, err := json.MarshalIndent(g.about, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	name := filepath.Join(g.dir, nodes.AgentFile)
	if err := os.WriteFile(name+".new", append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// Processes is part of probes.Sink.
func (g *agent) Processes(p event.Processes) { g.film.processes(p) }

// Events is part of probes.Sink.
func (g *agent) Events(batch []event.Event, _ int64) { g.film.events(batch) }

// run watches until ctx ends.
func (g *agent) run(ctx context.Context, clock string, admin net.Listener) error {
	var beside sync.WaitGroup
	asking, stop := context.WithCancel(ctx)
	defer stop()
	if clock != "" {
		beside.Go(func() { g.ask(asking, clock) })
	}
	h := &http.Server{Handler: g.routes(), ReadHeaderTimeout: 5 * time.Second}
	if admin != nil {
		beside.Go(func() { _ = h.Serve(admin) })
	}
	err := g.set.Run(ctx)
	stop()
	if admin != nil {
		err = errors.Join(err, h.Close())
	}
	beside.Wait()
	lost := g.film.close()
	if g.clock != nil {
		err = errors.Join(err, g.clock.Close())
	}
	if lost != nil {
		g.about.Lost = lost.Error()
	}
	g.about.End = new(moment())
	return errors.Join(err, lost, g.write())
}

// ask asks for the relay's clock until ctx ends: at once, every clockEvery, and once more
// at the end, so that there is no time that no exchange is near to.
func (g *agent) ask(ctx context.Context, base string) {
	at, err := url.JoinPath(base, "clock")
	if err != nil {
		g.unasked(err)
		return
	}
	client := nodes.Client()
	defer client.CloseIdleConnections()
	tick := time.NewTicker(clockEvery)
	defer tick.Stop()
	for over := false; ; {
		// an exchange is bounded by its client, at the end too
		s, err := nodes.Best(context.WithoutCancel(ctx), client, at, clockAsks)
		if err != nil {
			g.unasked(err)
		} else {
			g.sampled(&s)
		}
		if over {
			return
		}
		select {
		case <-ctx.Done():
			over = true
		case <-tick.C:
		}
	}
}

// sampled keeps an exchange.
func (g *agent) sampled(s *nodes.Sample) {
	line, err := json.Marshal(s)
	if err == nil {
		_, err = g.clock.Write(append(line, '\n'))
	}
	if err != nil {
		g.unasked(fmt.Errorf("writing %s: %w", nodes.ClockFile, err))
		return
	}
	g.mu.Lock()
	g.last = s
	g.mu.Unlock()
}

// unasked notes why the clock was not learned; the first time the log says so.
func (g *agent) unasked(why error) {
	g.mu.Lock()
	first := g.about.ClockWhy == ""
	g.about.ClockWhy = why.Error()
	g.mu.Unlock()
	if first {
		g.log.Warn("the relay's clock is not known", "error", why)
	}
}

// agentHealth is what an agent's /healthz says.
type agentHealth struct {
	Status string         `json:"status"`
	Role   string         `json:"role"`
	Node   string         `json:"node"`
	Stages *probes.Status `json:"stages"`
	// Clock is the last exchange with the relay, null before the first; ClockWhy is why
	// there was none since.
	Clock    *nodes.Sample `json:"clock"`
	ClockWhy string        `json:"clock_why,omitempty"`
}

func (g *agent) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		g.mu.Lock()
		h := agentHealth{Status: "ok", Role: "agent", Node: g.node, Clock: g.last, ClockWhy: g.about.ClockWhy}
		g.mu.Unlock()
		h.Stages = new(g.set.Status())
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(h) // who does not take it is gone
	})
	return mux
}
