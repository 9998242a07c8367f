package energy

import "fmt"

// Request is when one request was at the server: from t_in to t_term.
type Request struct {
	ID string
	Window
}

// Share is one request's energy.
type Share struct {
	ID string `json:"request_id"`
	// NetJ is the energy above idle in its window, nil with Reason where it was not
	// alone or too short. It is by the counter where that can be read.
	NetJ   *float64 `json:"net_j"`
	Sensor string   `json:"sensor,omitempty"`
	Reason string   `json:"reason,omitempty"`
}

// Attribute tells each request's energy by the one rule that needs no guess: a request
// that was alone at the server, the time between two readings before and behind it included, took
// what the cards took above idle. All others are nil. In.Load is not used; foreign are
// the windows in which other programs used the cards.
func Attribute(in Input, requests []Request, foreign []Window) []Share {
	guard := max(in.IntervalNS, apart(in.Devices))
	idle := Of(Input{Devices: in.Devices, IntervalNS: in.IntervalNS, Idle: in.Idle, Load: in.Idle})
	out := make([]Share, 0, len(requests))
	for i, r := range requests {
		guarded := Window{r.FromNS - guard, r.ToNS + guard}
		s := Share{ID: r.ID}
		switch other := company(requests, i, guarded); {
		case other != "":
			s.Reason = fmt.Sprintf("not alone: %s was there, too, and no rule shares a card's energy out", other)
		case overlapsAny(foreign, guarded):
			s.Reason = "not alone: another program used a card"
		default:
			s.take(in, idle, r.Window)
		}
		out = append(out, s)
	}
	return out
}

// apart is the longest time, of up to a second, between two readings of a card's counter:
// what is at the edge of a window comes of readings so far away.
func apart(devices []Device) (longest int64) {
	for i := range devices {
		var last int64
		for k := range devices[i].Samples {
			s := &devices[i].Samples[k]
			if s.EnergyMJ == nil {
				continue
			}
			if d := s.MonoNS - last; last != 0 && d <= leastGap {
				longest = max(longest, d)
			}
			last = s.MonoNS
		}
	}
	return longest
}

func (s *Share) take(in Input, idle Result, w Window) {
	alone := Of(Input{Devices: in.Devices, IntervalNS: in.IntervalNS, Idle: in.Idle, Load: w, Successes: 1})
	switch {
	case alone.Counter.NetJ != nil:
		s.NetJ, s.Sensor = alone.Counter.NetJ, SensorCounter
	case alone.Power.NetJ != nil:
		s.NetJ, s.Sensor = alone.Power.NetJ, alone.Power.Sensor
	case idle.Counter.IdleW == nil && idle.Power.IdleW == nil:
		s.Reason = "no idle baseline: " + idle.Counter.Unmeasured["idle_w"]
	default:
		s.Reason = alone.Counter.Unmeasured["net_j"]
	}
}

// company is the first other request that overlaps a window.
func company(requests []Request, self int, w Window) string {
	for i, r := range requests {
		if i != self && overlaps(r.Window, w) {
			return r.ID
		}
	}
	return ""
}

func overlapsAny(list []Window, w Window) bool {
	for _, x := range list {
		if overlaps(x, w) {
			return true
		}
	}
	return false
}

func overlaps(a, b Window) bool { return a.FromNS < b.ToNS && b.FromNS < a.ToNS }
