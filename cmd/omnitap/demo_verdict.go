package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// stageWork is what the fake server's stages did by their own account.
type stageWork struct {
	// requests are the HTTP ids of those that got to the stages.
	requests []string
	// sent has the bytes of each segment by its name, taken says that it was read.
	sent  map[string]int64
	taken map[string]bool
	// lost is what the probes lost.
	lost uint64
}

// readStageWork reads a folder of ground truth.
func readStageWork(dir string) (*stageWork, error) {
	w := &stageWork{sent: map[string]int64{}, taken: map[string]bool{}}
	names, err := filepath.Glob(filepath.Join(dir, "truth-*.jsonl"))
	if err == nil && len(names) == 0 {
		err = fs.ErrNotExist
	}
	for _, name := range names {
		if err = w.read(name); err != nil {
			break
		}
	}
	if err != nil {
		return w, fmt.Errorf("reading what the stages did: %w", err)
	}
	return w, nil
}

func (w *stageWork) read(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err //nolint:wrapcheck // it names the file, and readStageWork wraps it
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var e struct {
			Event     string  `json:"event"`
			RequestID *string `json:"request_id"`
			Key       string  `json:"key"`
			Bytes     int64   `json:"bytes"`
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		switch e.Event {
		case "submit":
			w.requests = append(w.requests, *e.RequestID)
		case "write_end":
			w.sent[e.Key] = e.Bytes
		case "read_end":
			w.taken[e.Key] = true
		}
	}
	return lines.Err()
}

// verdict compares what the records say with what the stages did: every transfer once
// with its bytes, and a way to the first audio for every chat and speech that got to
// the stages. nil has nothing to say.
func (w *stageWork) verdict(records []*timeline.Record) error {
	if w == nil {
		return nil
	}
	var errs []error
	if w.lost > 0 {
		errs = append(errs, fmt.Errorf("the probes lost %d events", w.lost))
	}
	seen := map[string]int{}
	staged := 0
	for _, r := range records {
		if r.Stages == nil {
			continue
		}
		staged++
		for i := range r.Transfers {
			errs = append(errs, w.transfer(r, &r.Transfers[i], seen))
		}
		errs = append(errs, wayToAudio(r))
	}
	for _, key := range slices.Sorted(maps.Keys(w.sent)) {
		if seen[key] != 1 {
			errs = append(errs, fmt.Errorf("the transfer %s is in %d records", key, seen[key]))
		}
	}
	if staged != len(w.requests) {
		errs = append(errs, fmt.Errorf("%d records have stages, the stages had %d requests", staged, len(w.requests)))
	}
	return errors.Join(errs...)
}

// transfer checks one transfer of a record.
func (w *stageWork) transfer(r *timeline.Record, t *timeline.Transfer, seen map[string]int) error {
	if t.Path == nil {
		return fmt.Errorf("request %s: a transfer from %s to %s has no name", r.RequestID, t.From, t.To)
	}
	seen[*t.Path]++
	bytes, ok := w.sent[*t.Path]
	switch {
	case !ok:
		return fmt.Errorf("request %s: the stages made no %s", r.RequestID, *t.Path)
	case t.Bytes == nil || *t.Bytes != bytes:
		return fmt.Errorf("request %s: %s has other bytes than the %d that were sent", r.RequestID, *t.Path, bytes)
	case t.Unread == w.taken[*t.Path]:
		return fmt.Errorf("request %s: %s was read: %v", r.RequestID, *t.Path, w.taken[*t.Path])
	}
	return nil
}

// wayToAudio checks that the gaps of a record sum to its time to first audio.
func wayToAudio(r *timeline.Record) error {
	if r.TTFAMS == nil {
		return nil
	}
	if len(r.CriticalPath) == 0 {
		return fmt.Errorf("request %s has no way to first audio: %s", r.RequestID, r.Unmeasured["critical_path"])
	}
	sum := 0.0
	var names []string
	for _, g := range r.CriticalPath {
		sum += g.MS
		names = append(names, g.Gap)
	}
	if math.Abs(sum-*r.TTFAMS) > 1e-3 {
		return fmt.Errorf("request %s: the gaps %s sum to %v ms, not to %v", r.RequestID, strings.Join(names, ", "), sum, *r.TTFAMS)
	}
	return nil
}
