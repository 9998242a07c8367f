package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/omnitap/omnitap/exporter/audiofile"
	"github.com/omnitap/omnitap/exporter/prometheus"
	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/exporter/telemetry"
	"github.com/omnitap/omnitap/probes"
	"github.com/omnitap/omnitap/proxy"
	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/tap/capture"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	fileConfig
	config   string
	duration time.Duration
	// runID is the run's, empty for a new one.
	runID string
	// meta adds what a run knows to its directory, phases tags its records; nil for none.
	meta   func(*rundir.Meta)
	phases *phases
	// exported sends records to OpenTelemetry, where the environment asks for it.
	exported bool
	// switched has probes come and go while requests are served.
	switched bool
}

func serveCmd(a *app) *cobra.Command {
	f := &serveFlags{}
	cmd := &cobra.Command{
		Use:   "serve --upstream URL --listen ADDR",
		Short: "relay to an omni server and record every request",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.merge(cmd); err != nil {
				return exitWith(exitUsage, err)
			}
			if f.Role == "agent" {
				return a.agent(cmd.Context(), f)
			}
			return a.serve(cmd.Context(), f)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.Upstream, "upstream", "", "server to relay to: http://HOST:PORT or https://HOST:PORT")
	fl.StringVar(&f.Listen, "listen", "127.0.0.1:8090", "address to accept clients on; port 0 picks one")
	fl.StringVar(&f.Admin, "admin", "127.0.0.1:0", "address of the admin listener (GET /healthz, /metrics, /clock), off for none")
	fl.StringVar(&f.Out, "out", "", "run directory to write requests.jsonl and events.jsonl to")
	fl.StringVar(&f.Capture, "capture", "", "folder for raw captures of every connection: they hold prompts, sound and keys")
	fl.StringVar(&f.Correlation, "correlation", "auto", "X-Request-Id into requests without one: auto, inject or passive")
	fl.StringVar(&f.Probes, "probes", "auto", "stage probes: auto, off or require")
	fl.StringVar(&f.config, "config", "", "YAML configuration; flags win over it")
	fl.DurationVar(&f.duration, "duration", 0, "stop after this long")
	fl.StringVar(&f.Log, "log", "", "a line for each request: text, json or off (default: text on a terminal, else off)")
	fl.DurationVar(&f.Drain, "drain", proxy.DefaultDrain, "how long open exchanges may take to end at shutdown")
	fl.StringVar(&f.SaveAudio, "save-audio", "", "folder for the sound of every stream as a WAV file, with labels: it holds users' sound")
	fl.Float64Var(&f.Twin.Sample, "twin", 0, "share of streaming speech and chat requests, 0 to 1, that are sent once more, not streaming, to compare the sound")
	fl.DurationVar(&f.Deadline, "deadline", 0, "how long after its first byte a request must have ended, 0 for no limit")
	fl.StringVar(&f.DeadlineAction, "deadline-action", "mark", "what a deadline does: mark the record, or abort the connection as well")
	fl.StringVar(&f.TLSCert, "tls-cert", "", "PEM certificate to speak TLS to clients with; read again when it changes")
	fl.StringVar(&f.TLSKey, "tls-key", "", "PEM key of the certificate")
	fl.StringVar(&f.Role, "role", "relay", "relay, or agent: only the stage probes, for a relay on another machine")
	fl.StringVar(&f.Node, "node", "", "what this machine is called in records (default: its host name)")
	fl.StringVar(&f.Clock, "clock", "", "agent: address of the relay's admin listener, whose clock is asked for: http://HOST:PORT")
	fl.StringVar(&f.UpstreamCA, "upstream-ca", "", "PEM certificates to trust of an https upstream, instead of the system's")
	return cmd
}

// merge fills in from the file what no flag sets.
func (f *serveFlags) merge(cmd *cobra.Command) error {
	c, err := loadConfig(f.config)
	if err != nil {
		return err
	}
	sample := f.Twin.Sample
	if f.Tap, f.Twin = c.Tap, c.Twin; cmd.Flags().Changed("twin") {
		f.Twin.Sample = sample
	}
	if err := f.Twin.Validate(); err != nil {
		return err
	}
	f.Stages = c.Stages
	f.Prometheus, f.Resources, f.UpstreamMetrics = c.Prometheus, c.Resources, c.UpstreamMetrics
	if err := errors.Join(f.Prometheus.Validate(), f.Resources.validate(), f.UpstreamMetrics.Validate()); err != nil {
		return err
	}
	if err := f.Stages.Validate(); err != nil {
		return err
	}
	for name, v := range map[string]struct{ flag, file *string }{
		"upstream": {&f.Upstream, &c.Upstream}, "listen": {&f.Listen, &c.Listen}, "admin": {&f.Admin, &c.Admin}, "out": {&f.Out, &c.Out},
		"capture": {&f.Capture, &c.Capture}, "correlation": {&f.Correlation, &c.Correlation}, "probes": {&f.Probes, &c.Probes},
		"log": {&f.Log, &c.Log}, "deadline-action": {&f.DeadlineAction, &c.DeadlineAction},
		"save-audio": {&f.SaveAudio, &c.SaveAudio}, "tls-cert": {&f.TLSCert, &c.TLSCert}, "tls-key": {&f.TLSKey, &c.TLSKey}, "upstream-ca": {&f.UpstreamCA, &c.UpstreamCA},
		"role": {&f.Role, &c.Role}, "node": {&f.Node, &c.Node}, "clock": {&f.Clock, &c.Clock},
	} {
		if !cmd.Flags().Changed(name) && *v.file != "" {
			*v.flag = *v.file
		}
	}
	if !cmd.Flags().Changed("drain") && c.Drain > 0 {
		f.Drain = c.Drain
	}
	if !cmd.Flags().Changed("deadline") {
		f.Deadline = c.Deadline
	}
	if err := f.checkRole(); err != nil {
		return err
	}
	if err := f.deadlines(); err != nil {
		return err
	}
	switch f.Probes {
	case "auto", "off", "require":
	default:
		return fmt.Errorf("--probes must be auto, off or require, not %q", f.Probes)
	}
	if f.Log, err = logMode(f.Log, os.Stderr); err != nil {
		return err
	}
	return nil
}

// deadlines checks what is asked of requests in time.
func (f *serveFlags) deadlines() error {
	switch {
	case f.Deadline < 0:
		return fmt.Errorf("--deadline must not be negative, it is %v", f.Deadline)
	case f.DeadlineAction != "mark" && f.DeadlineAction != "abort":
		return fmt.Errorf("--deadline-action must be mark or abort, not %q", f.DeadlineAction)
	case f.DeadlineAction == "abort" && f.Deadline == 0:
		return errors.New("--deadline-action abort needs a --deadline")
	case f.DeadlineAction == "abort" && f.Tap.Off:
		return errors.New("--deadline-action abort needs the analysis (tap.off)")
	}
	f.Tap.Timeline.Deadline = f.Deadline
	return nil
}

// service is a running relay with everything around it.
type service struct {
	server   *proxy.Server
	analyzer *tap.Analyzer
	out      *rundir.Writer
	twins    *twins           // nil for none
	saver    *audiofile.Saver // nil for none
	stages   *stages          // nil where no probes are attached
	unprobed string           // why they are not
	sw       *switched        // nil where they do not come and go
	last     *probes.Status   // what those saw last
	upstream string
	closing  func(*rundir.Writer) // what is still to be said ahead of the directory's end
	listener net.Listener
	admin    net.Listener
	log      *slog.Logger
	runID    string
	node     string
	metrics  *prometheus.Sink // nil without an admin listener
	// upstreamTLS is what the server's certificate is held to, nil for the system's.
	upstreamTLS *tls.Config
	// telemetry is nil where the environment asks for none.
	telemetry *telemetry.Exporter
}

func newRunID() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return time.Now().UTC().Format("20060102T150405") + "-" + hex.EncodeToString(b[:])
}

// build puts a service together; nothing runs yet.
func (a *app) build(ctx context.Context, f *serveFlags, extra ...timeline.Sink) (*service, error) {
	s := &service{runID: cmp.Or(f.runID, newRunID()), log: slog.New(slog.NewTextHandler(a.errOut, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	s.node = f.nodeName()
	// the port first: a run directory that nothing will be written to is in the way
	if err := s.listen(ctx, f); err != nil {
		return nil, err
	}
	if err := a.assemble(ctx, s, f, extra); err != nil {
		s.hushTelemetry(ctx)
		_ = s.listener.Close()
		if s.admin != nil {
			_ = s.admin.Close()
		}
		if s.stages != nil {
			err = errors.Join(err, s.stages.set.Close())
		}
		return nil, err
	}
	return s, nil
}

// sinks are where records go: the run directory, the log, metrics, OpenTelemetry.
func (a *app) sinks(ctx context.Context, s *service, f *serveFlags, extra []timeline.Sink) (sinks fanOut, err error) {
	sinks = fanOut(extra)
	if f.exported { // ahead of the directory: what the user may have wrong leaves none behind
		if s.telemetry, err = s.newTelemetry(ctx); err != nil {
			return nil, exitWith(exitUsage, err)
		}
		if s.telemetry != nil {
			sinks = append(sinks, s.telemetry)
		}
	}
	if f.Out != "" {
		meta := rundir.Meta{RunID: s.runID, Node: s.node, Upstream: f.Upstream, Config: f.fileConfig, Logger: s.log}
		if f.meta != nil {
			f.meta(&meta)
		}
		s.out, err = rundir.Create(f.Out, meta)
		if err != nil {
			return nil, exitWith(codeOf(err), err)
		}
		sinks = append(sinks, runSink{s.out})
	}
	if f.Log != "off" {
		sinks = append(sinks, newLineLog(a.errOut, f.Log))
	}
	if s.admin != nil {
		if s.metrics, err = s.newMetrics(f.Prometheus); err != nil {
			return nil, exitWith(exitUsage, err)
		}
		sinks = append(sinks, s.metrics)
	}
	return sinks, nil
}

// assemble makes what stands behind the listener.
func (a *app) assemble(ctx context.Context, s *service, f *serveFlags, extra []timeline.Sink) error {
	sinks, err := a.sinks(ctx, s, f, extra)
	if err != nil {
		return err
	}
	kept := f.Out != "" || len(extra) > 0
	cfg := proxy.Config{
		Upstream: f.Upstream, Correlation: proxy.Correlation(f.Correlation), Drain: f.Drain, RunID: s.runID, Node: s.node,
		Log: s.log,
	}
	if f.DeadlineAction == "abort" {
		cfg.AbortAfter = f.Deadline
	}
	if err := f.tls(&cfg); err != nil {
		return exitWith(exitUsage, err)
	}
	s.upstreamTLS = cfg.UpstreamTLS
	var behind timeline.Sink = sinks
	if f.phases != nil {
		f.phases.next = sinks
		behind = f.phases
	}
	if s.upstream = f.Upstream; f.switched {
		s.sw = &switched{next: behind, upstream: f.Upstream, capture: f.Capture, log: s.log}
		behind = s.sw
	}
	if err := s.probe(ctx, f, sinks); err != nil { // it takes a second: what the user may have wrong comes first
		return err
	}
	if s.stages != nil {
		behind = s.stages
	}
	f.Tap.Timeline.NoEvents = !kept && s.stages == nil // a line log takes records alone
	if h := &f.Tap.Timeline.Hash; *h == "" || *h == "auto" {
		*h = map[bool]string{true: "on", false: "off"}[kept]
	}
	sink, err := s.hear(f, cfg.UpstreamTLS, behind)
	if err != nil {
		return err
	}
	s.analyzer = tap.NewAnalyzer(f.Tap, sink, s.log)
	cfg.Analyzer = s.analyzer
	if s.server, err = proxy.New(cfg); err != nil {
		return exitWith(exitUsage, err)
	}
	if s.stages != nil { // vLLM-Omni alone names its work by the header
		s.stages.onServer(func(server string) { s.server.ProbesAttached(server == "vllm-omni") })
	}
	if f.Capture != "" {
		head := capture.Header{Server: "unknown", Version: version(), Flow: "any", What: "captured by omnitap serve", Stamp: "kernel"}
		if err := s.analyzer.Record(tap.Reels{Dir: f.Capture, Head: head, Log: s.log}); err != nil {
			return exitWith(codeOf(err), err)
		}
	}
	return nil
}

// probe attaches the stage probes as --probes says.
func (s *service) probe(ctx context.Context, f *serveFlags, next timeline.Sink) error {
	if f.Probes == "off" || f.Probes == "" {
		s.unprobed = "--probes off"
		return nil
	}
	st, err := openStages(ctx, f.Stages, f.Upstream, f.Capture, next, s.log)
	if err == nil {
		s.stages = st
		return nil
	}
	s.unprobed = err.Error()
	if f.Probes == "require" {
		return exitWith(exitEnvironment, fmt.Errorf("--probes require: %w", err))
	}
	return nil
}

func codeOf(err error) int {
	if errors.Is(err, rundir.ErrExists) {
		return exitUsage
	}
	return exitEnvironment
}

func (f *serveFlags) tls(cfg *proxy.Config) error {
	if (f.TLSCert == "") != (f.TLSKey == "") {
		return errors.New("--tls-cert and --tls-key go together")
	}
	if f.TLSCert != "" {
		c, err := proxy.ServerTLS(f.TLSCert, f.TLSKey)
		if err != nil {
			return err
		}
		cfg.TLS = c
	}
	if f.UpstreamCA != "" {
		pem, err := os.ReadFile(f.UpstreamCA)
		if err != nil {
			return fmt.Errorf("reading --upstream-ca: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return fmt.Errorf("%s holds no PEM certificate", f.UpstreamCA)
		}
		cfg.UpstreamTLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	}
	return nil
}

func (s *service) listen(ctx context.Context, f *serveFlags) (err error) {
	if s.listener, err = proxy.Listen(ctx, f.Listen); err != nil {
		return exitWith(exitEnvironment, fmt.Errorf("listening: %w", err))
	}
	if f.Admin != "off" && f.Admin != "" {
		var lc net.ListenConfig
		if s.admin, err = lc.Listen(ctx, "tcp", f.Admin); err != nil {
			_ = s.listener.Close()
			return exitWith(exitEnvironment, fmt.Errorf("listening for admin: %w", err))
		}
	}
	return nil
}

// run relays until ctx ends, then drains, and closes the run directory.
func (s *service) run(ctx context.Context) error {
	actx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var analysis, admin sync.WaitGroup
	analysis.Go(func() { s.analyzer.Run(actx) })
	if s.admin != nil {
		h := &http.Server{Handler: s.routes(), ReadHeaderTimeout: 5 * time.Second}
		admin.Go(func() { _ = h.Serve(s.admin) })
		defer func() {
			_ = h.Close()
			admin.Wait()
		}()
	}
	probing, detach := context.WithCancel(context.WithoutCancel(ctx))
	defer detach()
	probed := make(chan error, 1)
	if s.stages != nil {
		go func() { probed <- s.stages.run(probing) }()
	} else {
		probed <- nil
	}
	err := s.server.Run(ctx, s.listener)
	stop()
	analysis.Wait()
	if n := s.analyzer.Dropped(); n > 0 {
		s.log.Warn("analysis fell behind", "bytes_dropped", n)
	}
	err = errors.Join(err, s.hush())
	if s.stages != nil {
		patience, cancel := context.WithTimeout(probing, drainLimit)
		s.stages.drain(patience)
		cancel()
	}
	detach()
	err = errors.Join(err, <-probed)
	if s.sw != nil && s.sw.current() != nil {
		st, detaching := s.sw.detach(context.WithoutCancel(ctx))
		s.last, err = &st, errors.Join(err, detaching)
	}
	s.hushTelemetry(ctx)
	if s.out != nil {
		err = errors.Join(err, s.out.Topology(s.topology()))
		if s.closing != nil {
			s.closing(s.out)
		}
		err = errors.Join(err, s.out.Close())
	}
	return err
}

// topology is topology.json: the server's processes, what watched them, what that
// cost, and what is missing.
type topology struct {
	Schema   int            `json:"schema"`
	Stages   *probes.Status `json:"stages"`
	Unprobed string         `json:"stages_missing,omitempty"`
}

func (s *service) topology() topology {
	t := topology{Schema: 1, Unprobed: s.unprobed}
	switch {
	case s.stages != nil:
		t.Stages = new(s.stages.set.Status())
	case s.last != nil:
		t.Stages = s.last
	}
	return t
}

// sayProbes says in one line what became of the probes.
func (s *service) sayProbes(w io.Writer, asked string) {
	switch {
	case s.stages != nil:
		_, _ = fmt.Fprintf(w, "stage probes: %s\n", s.stages.set.Status().Words())
	case asked != "off":
		_, _ = fmt.Fprintf(w, "no stage probes: %s\n", s.unprobed)
	}
}

// drainLimit bounds how long a shutdown waits for the stages of the last records.
const drainLimit = 3 * time.Second

func (a *app) serve(ctx context.Context, f *serveFlags) error {
	if f.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.duration)
		defer cancel()
	}
	f.exported = true
	s, err := a.build(ctx, f)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(a.errOut, "listening on %s, upstream %s\n", s.listener.Addr(), rundir.RedactURL(f.Upstream))
	if s.admin != nil {
		_, _ = fmt.Fprintf(a.errOut, "admin on http://%s\n", s.admin.Addr())
	}
	s.sayProbes(a.errOut, f.Probes)
	err = s.run(ctx)
	if s.out != nil {
		_, _ = fmt.Fprintln(a.errOut, f.Out)
	}
	return exitWith(exitUnusable, err)
}
