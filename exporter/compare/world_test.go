package compare

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// world makes runs whose truth is known: chat requests that go through a thinker, a
// talker and a code2wav.
type world struct {
	requests int
	sigma    float64 // of the logarithm of each gap of a request
	run      float64 // of what all gaps of a run share
	drift    float64 // of the logarithm, from one run to the next
	steps    int     // runs that share a step of the drift
	// gaps, in ms, of each side; a gap that a side does not name is that of base.
	gaps map[string]float64
	// audio is the mean length of the sound in s, of each side, fixed where audioSigma
	// is 0.
	audio      [2]float64
	audioSigma float64
	// perAudio is how many ms of JCT a second of sound takes.
	perAudio float64
	// fail is the share of requests of each side that fail.
	fail [2]float64
	// client says that requests carry the client's ids.
	client bool
	slo    slo
	// change, if not nil, has the last word on a record.
	change func(side int, r *timeline.Record)
}

// The gaps of the way to first audio, in their order.
var wayGaps = []string{"relay", "api_in", "thinker.queue", "thinker.prefill", "thinker.decode", "thinker->talker.write", inFlight, "thinker->talker.read", "talker.compute", "talker->code2wav.in_flight", "code2wav.compute", "api_out"}

const inFlight = "thinker->talker.in_flight"

var base = map[string]float64{
	"relay": 0.2, "api_in": 2, "thinker.queue": 8, "thinker.prefill": 40, "thinker.decode": 60, "thinker->talker.write": 1, inFlight: 6, "thinker->talker.read": 0.5,
	"talker.compute": 35, "talker->code2wav.in_flight": 4, "code2wav.compute": 25, "api_out": 1,
}

func usual() world {
	return world{requests: 120, sigma: 0.25, run: 0.01, audio: [2]float64{4, 4}, perAudio: 100, client: true, slo: slo{why: "no SLO is known"}}
}

// sim draws the runs of one experiment.
type sim struct {
	world
	rng  *rand.Rand
	next int // the place of the next run in time
}

func (w world) seeded(seed uint64) *sim {
	return &sim{world: w, rng: rand.New(rand.NewPCG(seed, 5))}
}

// series makes runs in the order of a pattern such as "ABBA".
func (s *sim) series(pattern string) (a, b []*Run) {
	for _, side := range pattern {
		if side == 'A' {
			a = append(a, s.runOf(0))
		} else {
			b = append(b, s.runOf(1))
		}
	}
	return a, b
}

// runOf makes a run in memory, as Load makes one of a directory.
func (s *sim) runOf(side int) *Run {
	at := s.next
	records := s.records(side)
	r := &Run{Dir: fmt.Sprintf("run%d", at), settings: map[string]string{}, sealed: true, slo: s.slo}
	r.meta = metadataOf(at, len(records))
	if err := r.digest(yielding(records)); err != nil {
		panic(err)
	}
	return r
}

func metadataOf(at, lines int) rundir.Metadata {
	end := rundir.Stamp{WallNS: startOf(at) + 50e9}
	return rundir.Metadata{
		Schema: timeline.Schema, RunID: fmt.Sprintf("r%d", at), Node: "n", Start: rundir.Stamp{WallNS: startOf(at)}, End: &end,
		Files: &rundir.Stats{Requests: rundir.Counts{Lines: int64(lines)}},
	}
}

func startOf(at int) int64 { return 1_767_348_000e9 + int64(at)*60e9 }

func yielding(records []*timeline.Record) iter.Seq2[*timeline.Record, error] {
	return func(yield func(*timeline.Record, error) bool) {
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func (s *sim) records(side int) []*timeline.Record {
	at := s.next
	s.next++
	level := math.Exp(s.drift*float64(at/max(1, s.steps)) + s.run*s.rng.NormFloat64())
	own := map[string]float64{}
	for _, g := range wayGaps {
		own[g] = level * math.Exp(s.run*s.rng.NormFloat64())
	}
	var out []*timeline.Record
	for i := range s.requests {
		r := s.record(side, i, at, own)
		if s.change != nil {
			s.change(side, r)
		}
		out = append(out, r)
	}
	return out
}

func (s *sim) record(side, i, at int, level map[string]float64) *timeline.Record {
	r := &timeline.Record{
		Schema: timeline.Schema, RunID: fmt.Sprintf("r%d", at), RequestID: fmt.Sprintf("q%d", i), RequestIDSource: "own", Attempt: 1, Flow: "chat", Dialect: "vllm-omni",
		Terminal: timeline.Terminal{State: timeline.Success}, TextBytes: new(int64(200 + i%7)), InputChars: nil, BytesUp: 500, BytesDown: 9000,
		Stream: new(true), Audio: &timeline.Audio{Bytes: 1000, Chunks: 10}, Quality: timeline.Quality{Verdict: "passed"},
	}
	if s.client {
		r.RequestIDSource = "client"
	} else {
		r.RequestID = fmt.Sprintf("own-%d-%d", at, i)
	}
	in := int64(1e12) + int64(i)*400e6
	ttfa := s.way(side, r, level, in)
	audio := s.audio[side] * math.Exp(s.audioSigma*s.rng.NormFloat64())
	jct := ttfa + s.perAudio*audio*math.Exp(s.run*s.rng.NormFloat64())
	r.TTFAMS, r.TTFTMS, r.TTFAudibleMS = &ttfa, new(ttfa*0.4), new(ttfa+15)
	r.JCTMS, r.AudioS, r.AudibleS, r.RTF = &jct, &audio, new(audio-0.1), new(jct/1e3/audio)
	r.Points.TIn, r.Points.TTerm = &in, new(in+int64(jct*1e6))
	if s.rng.Float64() < s.fail[side] {
		r.Terminal = timeline.Terminal{State: timeline.WorkerLost, Reason: "died"}
	}
	return r
}

// way draws the gaps, with the stage and the hand-over that belong to them.
func (s *sim) way(side int, r *timeline.Record, level map[string]float64, in int64) (ttfa float64) {
	ms := map[string]float64{}
	for _, g := range wayGaps {
		mean := base[g]
		if v, ok := s.gaps[g]; ok && side == 1 {
			mean = v
		}
		ms[g] = mean * level[g] * math.Exp(s.sigma*s.rng.NormFloat64())
		r.CriticalPath = append(r.CriticalPath, timeline.PathStep{Gap: g, MS: ms[g]})
		ttfa += ms[g]
	}
	r.Stages = []timeline.Stage{
		{Stage: "thinker", WaitMS: new(ms["thinker.queue"]), ServiceMS: new(ms["thinker.prefill"] + ms["thinker.decode"])},
		{Stage: "talker", WaitMS: new(1.5), ServiceMS: new(ms["talker.compute"])},
		{Stage: "code2wav", WaitMS: new(0.5), ServiceMS: new(ms["code2wav.compute"])},
	}
	took := ms["thinker->talker.write"] + ms[inFlight] + ms["thinker->talker.read"]
	r.Transfers = []timeline.Transfer{
		{From: "thinker", To: "talker", Transport: "shm", StartNS: in, EndNS: new(in + int64(took*1e6))},
		{From: "talker", To: "code2wav", Transport: "shm", StartNS: in, EndNS: new(in + int64(ms["talker->code2wav.in_flight"]*1e6))},
	}
	return ttfa
}

// compared compares and fails the test on an error.
func compared(t testing.TB, a, b []*Run, opts Options) *Result {
	t.Helper()
	r, err := Compare(a, b, opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// figure finds a line of the first flow.
func (r *Result) figure(t testing.TB, name string) *Figure {
	t.Helper()
	for i := range r.Flows[0].Figures {
		if f := &r.Flows[0].Figures[i]; f.Name == name {
			return f
		}
	}
	t.Fatalf("there is no %s", name)
	return nil
}
