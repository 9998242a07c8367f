package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Stamp is what a clock's owner answers: when the question came and when the answer left,
// CLOCK_MONOTONIC nanoseconds.
type Stamp struct {
	Node string `json:"node"`
	// BootID is the kernel's (/proc/sys/kernel/random/boot_id), empty where it tells none,
	// or where the process lives in a time namespace with a clock of its own.
	BootID     string `json:"boot_id"`
	ReceivedNS int64  `json:"received_mono_ns"`
	SentNS     int64  `json:"sent_mono_ns"`
}

// Sample is one exchange, as it is written: a line of clock.jsonl. The asker's clock is
// the kernel's.
type Sample struct {
	Peer       string `json:"peer"`
	PeerBootID string `json:"peer_boot_id"`
	// MonoNS is the middle of the exchange, on the asker's clock; OffsetNS is added to the
	// asker's clock for the peer's, and is right within UncertaintyNS: half of what the
	// way there and back took.
	MonoNS        int64 `json:"mono_ns"`
	OffsetNS      int64 `json:"offset_ns"`
	UncertaintyNS int64 `json:"uncertainty_ns"`
	// Same says that both are processes of one kernel, and its clock one clock.
	Same bool `json:"same_clock"`
}

// monotonic is this process's CLOCK_MONOTONIC in nanoseconds: what a relay stamps with.
func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail with this clock
	return t.Nano()
}

// KernelTime is the kernel's own CLOCK_MONOTONIC, nanoseconds: what the events of probes are stamped with. In a time
// namespace a process's clock is another one (time_namespaces(7)).
func KernelTime() int64 { return monotonic() - namespaced() }

// namespaced is by how much this process's monotonic clock is ahead of the kernel's.
func namespaced() int64 {
	text, err := os.ReadFile("/proc/self/timens_offsets")
	if err != nil {
		return 0 // a kernel without them
	}
	return offsetIn(string(text))
}

// offsetIn reads the form of /proc/PID/timens_offsets: clock, seconds, nanoseconds.
func offsetIn(text string) int64 {
	for line := range strings.Lines(text) {
		var clock string
		var sec, ns int64
		if n, _ := fmt.Sscan(line, &clock, &sec, &ns); n == 3 && clock == "monotonic" {
			return sec*1e9 + ns
		}
	}
	return 0
}

// BootID is this kernel's, empty where it tells none.
func BootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// Handler answers with a Stamp of this process's clock, as a relay's records have it.
func Handler(node string) http.Handler {
	boot := BootID()
	if namespaced() != 0 {
		boot = "" // another clock than that of the kernel's other processes
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s := Stamp{Node: node, BootID: boot, ReceivedNS: monotonic()}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		s.SentNS = monotonic()
		_ = json.NewEncoder(w).Encode(s) // who does not take it is gone
	})
}

// maxStamp bounds an answer, bytes.
const maxStamp = 4096

// Ask makes one exchange with the Handler at a URL, for the clock that kernel events are
// stamped with. The first one of a connection also
// sets it up, which its uncertainty says: ask several times and let Clock choose.
func Ask(ctx context.Context, client *http.Client, url string) (Sample, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return Sample{}, fmt.Errorf("asking for a clock: %w", err)
	}
	t0 := KernelTime()
	resp, err := client.Do(req)
	t3 := KernelTime()
	if err != nil {
		return Sample{}, fmt.Errorf("asking for a clock: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return Sample{}, fmt.Errorf("asking %s for a clock: %s", url, resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxStamp))
	if err != nil {
		return Sample{}, fmt.Errorf("asking for a clock: %w", err)
	}
	var s Stamp
	if err := json.Unmarshal(body, &s); err != nil {
		return Sample{}, fmt.Errorf("asking %s for a clock: %w", url, err)
	}
	return sampleOf(&s, t0, t3, BootID())
}

var errNoStamp = errors.New("the answer is no stamp: times that go backwards, or none")

// sampleOf reckons with the four stamps of an exchange.
func sampleOf(s *Stamp, t0, t3 int64, boot string) (Sample, error) {
	if s.ReceivedNS <= 0 || s.SentNS < s.ReceivedNS || t3 < t0 || s.SentNS-s.ReceivedNS > t3-t0 {
		return Sample{}, errNoStamp
	}
	out := Sample{Peer: s.Node, PeerBootID: s.BootID, MonoNS: t0 + (t3-t0)/2}
	if boot != "" && boot == s.BootID {
		out.Same = true
		return out, nil
	}
	out.OffsetNS = ((s.ReceivedNS - t0) + (s.SentNS - t3)) / 2
	out.UncertaintyNS = ((t3-t0)-(s.SentNS-s.ReceivedNS))/2 + 1
	return out, nil
}

// Best asks n times, one after the other, and returns the surest exchange. The error is
// the last one's, where none succeeded.
func Best(ctx context.Context, client *http.Client, url string, n int) (best Sample, err error) {
	found := false
	for range n {
		s, failed := Ask(ctx, client, url)
		if failed != nil {
			err = failed
			continue
		}
		if !found || s.UncertaintyNS < best.UncertaintyNS {
			best, found = s, true
		}
	}
	if found {
		return best, nil
	}
	return Sample{}, err
}

// patience bounds one exchange: an answer that takes longer says little of a clock.
const patience = 2 * time.Second

// Client returns a client for Ask: connections are kept, redirects are not followed.
func Client() *http.Client {
	return &http.Client{
		Timeout:       patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
