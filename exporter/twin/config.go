package twin

import (
	"errors"
	"fmt"
	"time"
)

// Config says which requests get a twin and how the two are judged. The zero value
// of each field means its default.
//
//	twin:
//	  sample: 0.01
//	  deterministic: false
type Config struct {
	// Sample is the share of requests that get a twin, 0 to 1: 0, none.
	Sample float64 `yaml:"sample"`
	// MaxConcurrent bounds the twins under way: 1.
	MaxConcurrent int `yaml:"max_concurrent"`
	// MaxPerMinute bounds the twins sent in a minute: 10.
	MaxPerMinute int `yaml:"max_per_minute"`
	// Timeout bounds one twin from its first byte out to its last byte in: 120s.
	Timeout time.Duration `yaml:"timeout"`
	// MaxBytes bounds an answer in bytes: 64 MiB. A twin takes at most three times
	// that in memory, and 48 MiB.
	MaxBytes int64 `yaml:"max_bytes"`
	// LengthTolerance is the share of the twin's length by which the stream's may
	// differ: 0.05. Generation is sampled: two good takes of a sentence differ in
	// pauses and pace by a few percent, while what is lost at borders or at an end
	// that was cut off is more in short answers and lasting in long ones. A server
	// whose takes differ more needs more here, or its good streams fail.
	LengthTolerance float64 `yaml:"length_tolerance"`
	// Deterministic says that the server gives the same samples for the same
	// request: any difference in length fails, and another take fails too.
	Deterministic bool `yaml:"deterministic"`
	// MaxError is how far samples of one take may lie apart, of full scale:
	// 2/32768, two steps of 16 bits, which is what two ways to round come to.
	MaxError float64 `yaml:"max_error"`
}

// WithDefaults returns the configuration with defaults filled in.
func (c Config) WithDefaults() Config {
	if c.MaxConcurrent == 0 {
		c.MaxConcurrent = 1
	}
	if c.MaxPerMinute == 0 {
		c.MaxPerMinute = 10
	}
	if c.Timeout == 0 {
		c.Timeout = 120 * time.Second
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 64 << 20
	}
	if c.LengthTolerance == 0 {
		c.LengthTolerance = 0.05
	}
	if c.MaxError == 0 {
		c.MaxError = 2.0 / 32768
	}
	return c
}

// Validate returns all complaints about values that mean nothing, joined.
func (c Config) Validate() error {
	var all []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			all = append(all, fmt.Errorf(format, args...))
		}
	}
	check(c.Sample >= 0 && c.Sample <= 1, "twin: sample %v is not within 0 and 1", c.Sample)
	check(c.MaxConcurrent >= 0, "twin: max_concurrent %d is negative", c.MaxConcurrent)
	check(c.MaxPerMinute >= 0, "twin: max_per_minute %d is negative", c.MaxPerMinute)
	check(c.Timeout >= 0, "twin: timeout %v is negative", c.Timeout)
	check(c.MaxBytes >= 0, "twin: max_bytes %d is negative", c.MaxBytes)
	check(c.LengthTolerance >= 0, "twin: length_tolerance %v is not a share", c.LengthTolerance)
	check(c.MaxError >= 0, "twin: max_error %v is not a share of full scale", c.MaxError)
	return errors.Join(all...)
}
