package truth

import (
	"slices"
	"sync"
	"time"
)

const maxRecords = 10000 // the oldest are forgotten

// Log holds the records of a server. The zero value is ready to use.
type Log struct {
	mu      sync.Mutex // protects all below
	records []*Record
	seq     int
}

// Register opens a record and numbers it.
func (l *Log) Register(t Truth) *Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	t.Seq = l.seq
	r := newRecord(t)
	if len(l.records) == maxRecords {
		l.records = slices.Delete(l.records, 0, 1)
	}
	l.records = append(l.records, r)
	return r
}

// Reset forgets all records and numbers from 1 again.
func (l *Log) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records, l.seq = nil, 0
}

const settleTime = time.Second // that All waits for a last write to be booked

// All returns the truths, oldest first. Requests under way have the ending
// Running; a client that has just seen the end finds it booked.
func (l *Log) All() []Truth {
	l.mu.Lock()
	records := slices.Clone(l.records)
	l.mu.Unlock()
	out := make([]Truth, 0, len(records))
	for _, r := range records {
		if r.closing.Load() {
			r.await(settleTime)
		}
		out = append(out, r.snapshot())
	}
	return out
}

func (r *Record) await(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-r.settled:
	case <-timer.C:
	}
}
