package verify

import "slices"

// stageGraceNS is how long after a request's end its stages are watched at most: 0.6 s
// where its client left, 2 s for a reader that is late, and the time between looks.
const stageGraceNS = 3_000_000_000

// earlyNS is how far ahead of t_in a stage's stamp may seem to lie.
const earlyNS = 5_000_000

// conserve holds a record to what must come out whatever the events say.
func (j *judge) conserve() {
	r := j.rec
	end := int64(0)
	for _, p := range []*int64{r.Points.TTerm, r.Points.TClose} {
		if p != nil {
			end = max(end, *p)
		}
	}
	for i := range r.Stages {
		j.stageTimes(&r.Stages[i], end)
	}
	if r.BytesUp < 0 || r.BytesDown < 0 {
		j.say(KindConservation, "bytes_up", "%d up and %d down, bytes are not below 0", r.BytesUp, r.BytesDown)
	}
	j.pointOrder()
	j.phase()
	if r.SessionID == nil {
		j.connection()
	}
}

// stageTimes wants a stage's times to be of this request and not below 0.
func (j *judge) stageTimes(s *stage, end int64) {
	for _, c := range []struct {
		field string
		ms    *float64
	}{
		{"wait_ms", s.WaitMS},
		{"service_ms", s.ServiceMS},
		{"queue_ms", s.QueueMS},
		{"starved_ms", s.StarvedMS},
		{"cpu_ms", s.CPUMS},
		{"runq_ms", s.RunqMS},
		{"blocked_ms", s.BlockedMS},
		{"join_wait_ms", s.JoinWaitMS},
	} {
		if c.ms != nil && *c.ms < 0 {
			j.say(KindConservation, "stages[]."+c.field, "%s: %v ms, a time is not below 0", clip(s.Stage), *c.ms)
		}
	}
	in := j.rec.Points.TIn
	if in == nil || end < *in {
		return
	}
	wall := float64(end+stageGraceNS-*in+earlyNS) / 1e6
	if s.WaitMS != nil && s.ServiceMS != nil && *s.WaitMS+*s.ServiceMS > wall {
		j.say(KindConservation, "stages[].service_ms", "%s: %v ms of waiting and service, the request took %v ms", clip(s.Stage),
			*s.WaitMS+*s.ServiceMS, float64(end-*in)/1e6)
	}
	if s.StartNS != nil && (*s.StartNS < *in-earlyNS || *s.StartNS > end+stageGraceNS) {
		j.say(KindConservation, "stages[].start_ns", "%s: %d ns is not within the request (%d to %d ns)", clip(s.Stage), *s.StartNS, *in, end)
	}
}

// pointOrder wants points in an order that can be.
func (j *judge) pointOrder() {
	p := &j.rec.Points
	for _, c := range []struct {
		before, after string
		a, b          *int64
	}{
		{"t_in", "t_body", p.TIn, p.TBody},
		{"t_in", "t_hdr", p.TIn, p.THdr},
		{"t_hdr", "t_text", p.THdr, p.TText},
		{"t_hdr", "t_audio", p.THdr, p.TAudio},
		{"t_hdr", "t_term", p.THdr, p.TTerm},
	} {
		if c.after == "t_term" && j.rec.Terminal.By == "client" {
			continue // a client may leave just ahead of the answer's head
		}
		if c.a != nil && c.b != nil && *c.b < *c.a && j.rec.SessionID == nil {
			j.say(KindConservation, "points."+c.after, "%d ns, ahead of %s at %d ns", *c.b, c.before, *c.a)
		}
	}
}

// phase holds the part of the run that a request began in to when that part began. A
// warm-up of so many requests may overlap with what follows it, where they come at once.
func (j *judge) phase() {
	r := j.rec
	if r.RunPhase == "" {
		return
	}
	at := slices.IndexFunc(j.v.meta.Run.Phases, func(p phase) bool { return p.Name == r.RunPhase })
	switch {
	case len(j.v.meta.Run.Phases) == 0:
		j.v.lacks("run_phase", "metadata.json tells no phases")
		return
	case at < 0:
		j.say(KindValue, "run_phase", "%q is no phase of the run", clip(r.RunPhase))
	case r.Points.TIn != nil && *r.Points.TIn < j.v.meta.Run.Phases[at].StartNS:
		j.say(KindValue, "run_phase", "%s began at %d ns, the request at %d", clip(r.RunPhase), j.v.meta.Run.Phases[at].StartNS, *r.Points.TIn)
	}
	j.v.res.Compared["run_phase"]++
	m := &j.v.measured
	m.phases = true
	if r.RunPhase == "measured" && r.Terminal.State == "success" {
		m.successes++
		m.audioS += orZero(r.AudioS)
	}
}

// connection wants each byte of a connection to belong to one exchange.
func (j *judge) connection() {
	r := j.rec
	c := j.v.conns[r.ConnectionID]
	if c == nil {
		c = &[2]spans{}
		j.v.conns[r.ConnectionID] = c
	}
	for d, x := range [...]struct {
		field string
		from  *int64
		n     int64
	}{{"bytes_up", r.Offsets.TIn, r.BytesUp}, {"bytes_down", r.Offsets.THdr, r.BytesDown}} {
		if x.from == nil || x.n <= 0 {
			continue
		}
		j.v.res.Compared[x.field+" (connection)"]++
		if !c[d].add(*x.from, *x.from+x.n) {
			j.say(KindConservation, x.field, "bytes %d to %d of connection %d belong to another exchange too", *x.from, *x.from+x.n-1, r.ConnectionID)
		}
	}
	if t := r.Offsets.TTerm; t != nil && r.Offsets.THdr != nil && r.BytesDown > 0 && *t > *r.Offsets.THdr+r.BytesDown-1 {
		j.say(KindConservation, "offsets.t_term", "byte %d, the answer ends with byte %d", *t, *r.Offsets.THdr+r.BytesDown-1)
	}
}

// spans are stretches of bytes, in order, those that touch put together.
type spans [][2]int64

// add puts a stretch in, its end left out, and reports whether none of it was there.
func (s *spans) add(from, to int64) bool {
	if from < 0 || to <= from {
		return true // no stretch: told elsewhere
	}
	i, _ := slices.BinarySearchFunc(*s, from, func(e [2]int64, from int64) int {
		if e[1] <= from {
			return -1
		}
		return 1
	})
	if i < len(*s) && (*s)[i][0] < to {
		return false
	}
	before, after := i > 0 && (*s)[i-1][1] == from, i < len(*s) && (*s)[i][0] == to
	switch {
	case before && after:
		(*s)[i-1][1] = (*s)[i][1]
		*s = slices.Delete(*s, i, i+1)
	case before:
		(*s)[i-1][1] = to
	case after:
		(*s)[i][0] = from
	default:
		*s = slices.Insert(*s, i, [2]int64{from, to})
	}
	return true
}
