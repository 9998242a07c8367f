package twin

import (
	"fmt"
	"hash/fnv"
	"math"
	"sync"
	"time"
)

// Sampler says which requests get a twin, and holds back more of them than a server
// should be burdened with. Make it with NewSampler; it is safe for concurrent use.
type Sampler struct {
	share     float64
	most      int
	perMinute int

	mu   sync.Mutex // protects what follows
	busy int
	sent []time.Time // when twins began, of the last minute
}

// NewSampler returns a Sampler with the configuration's share and bounds.
func NewSampler(cfg Config) *Sampler {
	cfg = cfg.WithDefaults()
	return &Sampler{share: cfg.Sample, most: cfg.MaxConcurrent, perMinute: cfg.MaxPerMinute}
}

// Wants reports whether the request with that id is in the sample: always the same
// for the same id.
func (s *Sampler) Wants(id string) bool {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	return s.share > 0 && float64(mix(h.Sum64())) < s.share*math.MaxUint64 || s.share >= 1
}

// mix spreads a hash over all of its bits (the finalizer of MurmurHash3): those of
// ids that differ in their last letters alone are alike.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// Begin takes a place for a twin; call release when it is over, once. Where there
// is no place, release is nil and reason says why.
func (s *Sampler) Begin() (release func(), reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for len(s.sent) > 0 && now.Sub(s.sent[0]) >= time.Minute {
		s.sent = s.sent[1:]
	}
	switch {
	case s.busy >= s.most:
		return nil, fmt.Sprintf("%d twins under way", s.busy)
	case len(s.sent) >= s.perMinute:
		return nil, fmt.Sprintf("%d twins sent within a minute", len(s.sent))
	}
	s.busy++
	s.sent = append(s.sent, now)
	return s.end, ""
}

func (s *Sampler) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
}
