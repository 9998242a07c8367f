package convert

import (
	"errors"
	"fmt"
	"time"

	"github.com/omnitap/omnitap/exporter/convert/internal/perfetto"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// oneClock is how far apart wall clocks may be, beside the monotonic ones, to be one.
const oneClock = time.Second

// trace is the sink of Perfetto.
type trace struct {
	t      *perfetto.Trace
	c      *conversion
	clocks bool
}

func newTrace(t *target, c *conversion) (*trace, error) {
	if len(t.files) != 1 {
		return nil, errors.New("a trace is one file")
	}
	return &trace{t: perfetto.New(t.files[0]), c: c, clocks: agree(c.runs)}, nil
}

// agree reports whether wall and monotonic time stand to each other in all runs alike.
func agree(runs []*source) bool {
	var first *int64
	for _, s := range runs {
		start := s.run.Metadata.Start
		if start.MonoNS == nil {
			return false
		}
		offset := start.WallNS - *start.MonoNS
		if first == nil {
			first = &offset
		}
		if d := time.Duration(offset - *first); d.Abs() > oneClock {
			return false
		}
	}
	return first != nil
}

func (s *trace) run(src *source) error {
	m := &src.run.Metadata
	r := perfetto.Run{ID: m.RunID, Node: m.Node, Dir: src.dir, Program: m.Program.Version, Upstream: m.Upstream, StartMonoNS: m.Start.MonoNS}
	if src.run.MetadataErr == nil {
		r.StartWallNS = &m.Start.WallNS
	}
	r.Clocks, s.clocks = s.clocks, false // said once
	return s.t.Run(r)
}

func (s *trace) record(number int64, r *timeline.Record) error { return s.t.Record(number, r) }
func (s *trace) session(_ int64, v *timeline.Session) error    { return s.t.Session(v) }
func (s *trace) event(_ int64, e *timeline.Event) error        { return s.t.Event(e) }

// quality has no time: a trace has the verdict with its request.
func (s *trace) quality(int64, *timeline.QualityLine) error { return nil }

func (s *trace) close() error {
	if n := s.t.Undrawn; n > 0 {
		s.c.note(Note{Text: fmt.Sprintf("%d records have no point in time: they are not drawn", n)})
	}
	return s.t.Close()
}
