package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/omnitap/omnitap/exporter/prometheus"
	"github.com/omnitap/omnitap/exporter/twin"
	"github.com/omnitap/omnitap/exporter/upstream"
	"github.com/omnitap/omnitap/probes"
	"github.com/omnitap/omnitap/proxy/tap"
)

// fileConfig is the form of --config. Flags win over it. An unknown key is an
// error that names its line.
//
//	upstream: http://127.0.0.1:8091
//	listen: :8090
//	correlation: passive
//	tap:
//	  timeline:
//	    min_playable_ms: 20
//	    sample_rates: {my-tts: 16000}
type fileConfig struct {
	Upstream    string        `yaml:"upstream"`
	Listen      string        `yaml:"listen"`
	Admin       string        `yaml:"admin"`
	Out         string        `yaml:"out"`
	Capture     string        `yaml:"capture"`
	Correlation string        `yaml:"correlation"`
	Probes      string        `yaml:"probes"`
	Log         string        `yaml:"log"`
	Drain       time.Duration `yaml:"drain"`
	// Deadline is how long after its first byte a request must have ended, 0 for no
	// limit; DeadlineAction what happens to one that has not: mark or abort.
	Deadline       time.Duration `yaml:"deadline"`
	DeadlineAction string        `yaml:"deadline_action"`
	TLSCert        string        `yaml:"tls_cert"`
	TLSKey         string        `yaml:"tls_key"`
	UpstreamCA     string        `yaml:"upstream_ca"`
	// Role is relay or agent, Node what this machine is called, Clock whose clock an agent
	// asks for.
	Role  string `yaml:"role"`
	Node  string `yaml:"node"`
	Clock string `yaml:"clock"`
	// SaveAudio is a folder for the sound of every stream as WAV: off unless asked for.
	SaveAudio string      `yaml:"save_audio"`
	Twin      twin.Config `yaml:"twin"`
	Tap       tap.Config  `yaml:"tap"`
	// Stages are the stage probes' settings.
	Stages probes.Config `yaml:"stages"`
	// Resources and UpstreamMetrics are what `omnitap run` measures beside its requests.
	Resources       resourcesConfig `yaml:"resources"`
	UpstreamMetrics upstream.Config `yaml:"upstream_metrics"`
	// Prometheus is of GET /metrics on the admin listener.
	Prometheus prometheus.Config `yaml:"prometheus"`
}

func loadConfig(path string) (fileConfig, error) {
	var c fileConfig
	if path == "" {
		return c, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return c, fmt.Errorf("reading the configuration: %w", err)
	}
	defer func() { _ = f.Close() }()
	dec := yaml.NewDecoder(f)
	dec.KnownFields(true)
	if err := dec.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return c, fmt.Errorf("reading %s: %w", path, err)
	}
	return c, nil
}
