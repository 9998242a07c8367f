package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock"
	fake "github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages"
)

type mockFlags struct {
	listen, dialect, script, stages, truth string
	seed                                   uint64
	faults                                 []string
}

func mockCmd(a *app) *cobra.Command {
	f := &mockFlags{}
	cmd := &cobra.Command{
		Use:   "mock --listen ADDR",
		Short: "a fake omni server with known audio and faults on demand, to test clients against",
		Long:  "A fake omni server: vLLM-Omni, SGLang-Omni and OpenAI wire formats, audio whose every\nsample is known, ground truth at GET /mock/requests, and faults on demand.\n\nFaults (--faults NAME or NAME=VALUE, repeatable):\n" + faultTable(),
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.mock(cmd, f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.listen, "listen", "127.0.0.1:8091", "address to listen on; port 0 picks one")
	fl.Uint64Var(&f.seed, "seed", 0, "seed of everything that varies")
	fl.StringVar(&f.dialect, "dialect", "", "vllm-omni (default), sglang-omni or openai")
	fl.StringVar(&f.script, "script", "", "JSON script for requests that bring none, or @FILE")
	fl.StringArrayVar(&f.faults, "faults", nil, "fault of every request, repeatable")
	fl.StringVar(&f.stages, "stages", "off", "real stage processes behind vLLM-Omni's streaming chat and speech, handing over as in vo-2 (0.26) or vo-1 (queues), or off")
	fl.StringVar(&f.truth, "stages-truth", "", "folder for what the stages did, by their own account")
	return cmd
}

func faultTable() string {
	var b strings.Builder
	for _, f := range mock.Faults() {
		fmt.Fprintf(&b, "  %-34s %s\n", f.Usage(), f.Doc)
	}
	return b.String()
}

func (f *mockFlags) config() (mock.Config, error) {
	script, err := mock.ParseFaults(f.faults)
	if err != nil {
		return mock.Config{}, err
	}
	if f.script != "" {
		text := []byte(f.script)
		if name, ok := strings.CutPrefix(f.script, "@"); ok {
			if text, err = os.ReadFile(name); err != nil {
				return mock.Config{}, fmt.Errorf("reading the script: %w", err)
			}
		}
		faults := script.Faults
		if err := json.Unmarshal(text, &script); err != nil {
			return mock.Config{}, fmt.Errorf("reading the script: %w", err)
		}
		script.Faults = append(faults, script.Faults...)
	}
	return mock.Config{Seed: f.seed, Dialect: f.dialect, Script: script}, nil
}

// stageModes are the generations of vLLM-Omni by the words of --stages.
var stageModes = map[string]fake.Mode{"vo-2": fake.ZMQ, "vo-1": fake.Queues}

func (a *app) mock(cmd *cobra.Command, f *mockFlags) (err error) {
	cfg, err := f.config()
	if err != nil {
		return exitWith(exitUsage, err)
	}
	mode, ok := stageModes[f.stages]
	if !ok && f.stages != "off" {
		return exitWith(exitUsage, fmt.Errorf("--stages must be vo-2, vo-1 or off, not %q", f.stages))
	}
	if ok {
		if cfg.Stages, err = fake.Start(cmd.Context(), fake.Config{Mode: mode, Seed: f.seed, Truth: f.truth}); err != nil {
			return exitWith(exitEnvironment, err)
		}
		defer func() { err = errors.Join(err, exitWith(exitEnvironment, cfg.Stages.Close())) }()
	}
	s, err := mock.New(cfg)
	if err != nil {
		return exitWith(exitUsage, err)
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(cmd.Context(), "tcp", f.listen)
	if err != nil {
		return exitWith(exitEnvironment, fmt.Errorf("listening: %w", err))
	}
	_, _ = fmt.Fprintf(a.errOut, "listening on %s\n", ln.Addr())
	return exitWith(exitEnvironment, s.Serve(cmd.Context(), ln))
}
