package energy

import (
	"fmt"
	"strings"
)

// Input is what the energy of a run is derived from.
type Input struct {
	Devices []Device
	// IntervalNS is the time that was meant to be between samples.
	IntervalNS int64
	// Idle is the window of the baseline, before the load and with the server up; Load
	// that of the run. IdleState says what stood on the cards in Idle, in the caller's
	// words.
	Idle, Load Window
	IdleState  string
	// Successes are the requests that succeeded in Load, AudioS the seconds of audio
	// that they brought, nil where that is not known.
	Successes int
	AudioS    *float64
}

// Sensors, as results name them.
const (
	SensorCounter = "nvml_total_energy_counter"
	SensorInstant = "nvml_power_instant"
	SensorUsage   = "nvml_power_usage"
)

// Figures are the energy of a run by one sensor. Nil is not measured, and has a reason.
type Figures struct {
	Sensor string `json:"sensor"`
	// TotalJ is all that the cards took in the load's window, IdleW what they took at
	// idle, NetJ the total less that.
	TotalJ          *float64          `json:"total_j"`
	IdleW           *float64          `json:"idle_w"`
	NetJ            *float64          `json:"net_j"`
	PerSuccessJ     *float64          `json:"per_success_j"`
	PerAudioSecondJ *float64          `json:"per_audio_s_j"`
	Unmeasured      map[string]string `json:"unmeasured,omitempty"`
}

// DeviceResult is one card's part.
type DeviceResult struct {
	Device string  `json:"device"`
	Idle   Reading `json:"idle"`
	Load   Reading `json:"load"`
	// PowerOverCounter is the integral of the load by the counter's difference: 1 where
	// they agree.
	PowerOverCounter *float64 `json:"power_over_counter"`
}

// Result is the energy of a run.
type Result struct {
	// Preferred is "counter", "power", or "" where neither has a net figure.
	Preferred string         `json:"preferred"`
	Counter   Figures        `json:"counter"`
	Power     Figures        `json:"power"`
	Devices   []DeviceResult `json:"devices"`
	// IntervalMS is the sampling interval, Includes what is in the figures.
	IntervalMS float64  `json:"interval_ms"`
	Includes   []string `json:"includes"`
	Idle       Window   `json:"idle"`
	IdleState  string   `json:"idle_state"`
	Load       Window   `json:"load"`
	Successes  int      `json:"successes"`
	AudioS     *float64 `json:"audio_s"`
	// Warnings are facts that change no figure.
	Warnings []string `json:"warnings"`
}

// Of derives the energy of a run.
func Of(in Input) Result {
	r := Result{
		IntervalMS: float64(in.IntervalNS) / 1e6, Includes: []string{"gpu"}, Idle: in.Idle, IdleState: in.IdleState, Load: in.Load,
		Successes: in.Successes, AudioS: in.AudioS, Devices: []DeviceResult{}, Warnings: []string{},
	}
	kinds := map[string]bool{}
	for _, d := range in.Devices {
		one := DeviceResult{Device: d.Name, Idle: Over(d, in.Idle, in.IntervalNS), Load: Over(d, in.Load, in.IntervalNS)}
		if c, p := one.Load.CounterJ, one.Load.PowerJ; c != nil && p != nil && *c > 0 {
			one.PowerOverCounter = new(*p / *c)
		}
		r.Devices = append(r.Devices, one)
		kinds[d.PowerKind] = true
	}
	r.Counter = figures(in, r.Devices, SensorCounter, func(d Reading) (*float64, float64, string) { return d.CounterJ, d.CounterS, d.Unmeasured["counter_j"] })
	sensor := SensorInstant
	if !kinds["instant"] {
		sensor = SensorUsage
	} else if len(kinds) > 1 {
		sensor += " and " + SensorUsage
	}
	r.Power = figures(in, r.Devices, sensor, func(d Reading) (*float64, float64, string) { return d.PowerJ, d.PowerS, d.Unmeasured["power_j"] })
	switch {
	case r.Counter.NetJ != nil:
		r.Preferred = "counter"
	case r.Power.NetJ != nil:
		r.Preferred = "power"
	}
	r.warn(in)
	return r
}

// figures sums one sensor over the cards.
func figures(in Input, devices []DeviceResult, sensor string, of func(Reading) (*float64, float64, string)) Figures {
	f := Figures{Sensor: sensor, Unmeasured: map[string]string{}}
	if len(devices) == 0 {
		for _, name := range []string{"total_j", "idle_w", "net_j", "per_success_j", "per_audio_s_j"} {
			f.Unmeasured[name] = "no card was sampled"
		}
		return f
	}
	var total, idle, net float64
	var noTotal, noIdle []string
	for _, d := range devices {
		load, seconds, why := of(d.Load)
		if load == nil {
			noTotal = append(noTotal, d.Device+": "+why)
		}
		base, baseS, why := of(d.Idle)
		if base == nil {
			noIdle = append(noIdle, d.Device+": "+why)
		}
		if load != nil {
			total += *load
		}
		if base != nil {
			idle += *base / baseS
		}
		if load != nil && base != nil {
			net += *load - *base/baseS*seconds
		}
	}
	f.TotalJ = f.value("total_j", total, strings.Join(noTotal, "; "))
	f.IdleW = f.value("idle_w", idle, strings.Join(noIdle, "; "))
	f.NetJ = f.value("net_j", net, strings.Join(append(noTotal, prefixed("idle baseline: ", noIdle)...), "; "))
	f.per(in)
	return f
}

func prefixed(s string, list []string) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = s + v
	}
	return out
}

func (f *Figures) value(name string, v float64, why string) *float64 {
	if why != "" {
		f.Unmeasured[name] = why
		return nil
	}
	return &v
}

// per divides the net energy by what it brought.
func (f *Figures) per(in Input) {
	net, why := 0.0, f.Unmeasured["net_j"]
	if f.NetJ != nil {
		net = *f.NetJ
	}
	if in.Successes <= 0 {
		f.PerSuccessJ = f.value("per_success_j", 0, "no request succeeded")
	} else {
		f.PerSuccessJ = f.value("per_success_j", net/float64(in.Successes), why)
	}
	switch {
	case in.AudioS == nil:
		f.PerAudioSecondJ = f.value("per_audio_s_j", 0, "the seconds of audio are not known")
	case *in.AudioS <= 0:
		f.PerAudioSecondJ = f.value("per_audio_s_j", 0, "the run brought no audio")
	default:
		f.PerAudioSecondJ = f.value("per_audio_s_j", net / *in.AudioS, why)
	}
}

// warn says what a reader of the figures should know.
func (r *Result) warn(in Input) {
	for _, f := range []Figures{r.Counter, r.Power} {
		if f.NetJ != nil && *f.NetJ < 0 {
			r.Warnings = append(r.Warnings, f.Sensor+": the load took less than the idle baseline: it was not idle")
		}
	}
	for _, d := range r.Devices {
		if q := d.PowerOverCounter; q != nil && (*q < 0.95 || *q > 1.05) {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s: integrated power is %.3f of the energy counter", d.Device, *q))
		}
	}
	if in.Idle.ToNS > in.Load.FromNS && in.Idle.FromNS < in.Load.ToNS {
		r.Warnings = append(r.Warnings, "the idle window overlaps the load's")
	}
}
