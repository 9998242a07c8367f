package telemetry

import (
	"maps"
	"sync"
)

// Stats counts what became of everything that was offered. At any moment, and for records
// and spans alike,
//
//	Offered = Unsampled + Pending + Exported + the sum of Dropped
//
// A record is a request, a turn or a session. Spans are counted once they are built: what
// is dropped or unsampled before has none.
type Stats struct {
	Records Balance `json:"records"`
	Spans   Balance `json:"spans"`
	// Failures counts exports that failed, by signal: traces or metrics. Metrics are sums
	// since the start, so that one that fails loses nothing if a later one does not.
	Failures map[string]int64 `json:"failures"`
	// Failing is the last reason for as long as exports of traces fail, empty else.
	Failing Reason `json:"failing,omitempty"`
}

// Balance is one kind of item.
type Balance struct {
	Offered   int64            `json:"offered"`
	Unsampled int64            `json:"unsampled"`
	Pending   int64            `json:"pending"`
	Exported  int64            `json:"exported"`
	Dropped   map[Reason]int64 `json:"dropped"`
}

// Lost is the sum of what was dropped.
func (b *Balance) Lost() (n int64) {
	for _, v := range b.Dropped {
		n += v
	}
	return n
}

// ledger keeps the Stats.
type ledger struct {
	mu sync.Mutex // protects s
	s  Stats
}

func newLedger() *ledger {
	return &ledger{s: Stats{
		Records: Balance{Dropped: map[Reason]int64{}}, Spans: Balance{Dropped: map[Reason]int64{}}, Failures: map[string]int64{},
	}}
}

// snapshot copies the Stats.
func (l *ledger) snapshot() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.s
	for _, b := range []*Balance{&s.Records, &s.Spans} {
		b.Dropped = maps.Clone(b.Dropped)
		b.Pending = b.Offered - b.Unsampled - b.Exported - b.Lost()
	}
	s.Failures = maps.Clone(s.Failures)
	return s
}

// unsampled counts a record that the sampler left out.
func (l *ledger) unsampled() {
	l.mu.Lock()
	l.s.Records.Offered++
	l.s.Records.Unsampled++
	l.mu.Unlock()
}

// unbuilt counts a record that was dropped before it had spans.
func (l *ledger) unbuilt(r Reason) {
	l.mu.Lock()
	l.s.Records.Offered++
	l.s.Records.Dropped[r]++
	l.mu.Unlock()
}

// offered counts a record with its spans.
func (l *ledger) offered(spans int) {
	l.mu.Lock()
	l.s.Records.Offered++
	l.s.Spans.Offered += int64(spans)
	l.mu.Unlock()
}

// exported counts what reached the collector.
func (l *ledger) exported(records, spans int) {
	l.mu.Lock()
	l.s.Records.Exported += int64(records)
	l.s.Spans.Exported += int64(spans)
	l.mu.Unlock()
}

// dropped counts what was built and lost.
func (l *ledger) dropped(r Reason, records, spans int) {
	l.mu.Lock()
	if records > 0 {
		l.s.Records.Dropped[r] += int64(records)
	}
	if spans > 0 {
		l.s.Spans.Dropped[r] += int64(spans)
	}
	l.mu.Unlock()
}

// failed counts an export that failed.
func (l *ledger) failed(signal string) {
	l.mu.Lock()
	l.s.Failures[signal]++
	l.mu.Unlock()
}

// turned notes how the last export of traces went, and reports what it was before.
func (l *ledger) turned(now Reason) (before Reason) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, l.s.Failing = l.s.Failing, now
	return before
}
