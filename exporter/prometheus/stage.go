package prometheus

import "github.com/omnitap/omnitap/proxy/timeline"

// stage keeps what the stages did: times of successes, bytes of all.
func (s *Sink) stage(r *timeline.Record, times bool) {
	if times {
		for i := range r.Stages {
			t := &r.Stages[i]
			w := s.work.of(s.stages.of(t.Stage, true))
			w.wait.observe(t.WaitMS, 1e-3)
			w.service.observe(t.ServiceMS, 1e-3)
		}
	}
	var seen recent
	for i := range r.Transfers {
		t := &r.Transfers[i]
		h := seen.of(s, edge{t.From, t.To, t.Transport})
		if t.Unread {
			h.unread.Inc()
		}
		if t.Bytes != nil {
			add(h.bytes, float64(*t.Bytes))
		}
		if times && t.EndNS != nil {
			h.took.observe(new(float64(*t.EndNS-t.StartNS)), 1e-9)
		}
	}
}

// recent remembers a record's last few edges: its hundreds of hand-overs take turns
// between two or three.
type recent struct {
	raw [4]edge
	to  [4]*handOver
	n   int
}

func (c *recent) of(s *Sink, raw edge) *handOver {
	for i := range c.raw {
		if c.to[i] != nil && c.raw[i] == raw {
			return c.to[i]
		}
	}
	h := s.edges.of(edge{s.stages.of(raw.from, true), s.stages.of(raw.to, true), s.transports.of(raw.transport, true)})
	i := c.n % len(c.raw)
	c.raw[i], c.to[i] = raw, h
	c.n++
	return h
}
