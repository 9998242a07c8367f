package timeline

import (
	"time"

	"github.com/omnitap/omnitap/proxy/timeline/waveform"
)

// Config holds what the timeline does not learn from the wire. The zero value
// of each field means its default.
type Config struct {
	// MinPlayableMS is how much sound makes t_audio, in milliseconds: 20.
	MinPlayableMS int `yaml:"min_playable_ms"`
	// SilenceDBFS is the level that t_audible must pass, in dB of full scale: -60.
	SilenceDBFS float64 `yaml:"silence_dbfs"`
	// AssumedRate is the sample rate that seconds are reckoned with where
	// nothing declares one, in Hz: 24000.
	AssumedRate int `yaml:"assumed_sample_rate"`
	// Rates maps a model's name to its sample rate in Hz, for wires that do not
	// say it.
	Rates map[string]int `yaml:"sample_rates"`
	// Hash says whether the sound is hashed (audio.sha256): on, off, or auto, which
	// is on where records are kept. It is the dearest part of looking at sound.
	Hash string `yaml:"hash_audio"`
	// SlowClientMS is how long writes to a client may block in all before its
	// record says client_slow, in milliseconds: 50.
	SlowClientMS int `yaml:"slow_client_ms"`
	// AudioStallMS is how long sound may stay away once a client that plays it as it
	// comes has nothing left, in milliseconds: 1000. Negative is no limit.
	AudioStallMS int `yaml:"audio_stall_ms"`
	// Deadline is how long after t_in an exchange must have come to its end; 0 for
	// no limit.
	Deadline time.Duration `yaml:"-"`
	// Checks holds the thresholds of the checks on the sound.
	Checks waveform.Config `yaml:"checks"`
	// MaxSecondsPerChar bounds the sound of a speech request by its text: seconds for
	// each character of `input`; 0 for no bound.
	MaxSecondsPerChar float64 `yaml:"max_seconds_per_char"`
	// Hops maps a model's name to its frame hop in samples: with it the amount that
	// is lost at chunk borders can be told.
	Hops map[string]int `yaml:"hops"`
	// Listen makes who listens to the sound of an exchange, nil for nobody; Keep says
	// of which requests, by their ids, it is to be told as they were sent.
	Listen Listen            `yaml:"-" json:"-"`
	Keep   func(string) bool `yaml:"-" json:"-"`
	// NoEvents makes no events but alarms: the sink takes records alone.
	NoEvents bool `yaml:"-"`
}

// WithDefaults returns the configuration with defaults filled in.
func (c Config) WithDefaults() Config {
	if c.MinPlayableMS == 0 {
		c.MinPlayableMS = 20
	}
	if c.SilenceDBFS == 0 {
		c.SilenceDBFS = -60
	}
	if c.AssumedRate == 0 {
		c.AssumedRate = 24000
	}
	c.Checks = c.Checks.WithDefaults()
	if c.Hash == "" {
		c.Hash = "auto"
	}
	if c.SlowClientMS == 0 {
		c.SlowClientMS = 50
	}
	if c.AudioStallMS == 0 {
		c.AudioStallMS = 1000
	}
	return c
}

// Sink is given what a Builder finds. It must not keep the pointers.
type Sink interface {
	Event(*Event)
	Record(*Record)
	Session(*Session)
}
