package script

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Forever is a wait that only the client's leaving ends.
const Forever = time.Duration(math.MaxInt64)

// wireFaults are the faults of HTTP and of the connection.
func wireFaults() []Fault {
	return []Fault{
		{Name: "status", Arg: "CODE[+retry-after:SECONDS]", Where: "all", Doc: "the request is refused with CODE in the dialect's error shape", set: setStatus},
		flag("reject-upload", "all", "413 as soon as the head is read, then RST while the upload still runs", func(f *Set) *bool { return &f.RejectUpload }),
		at("cut", "all", "FIN at POINT, without zero chunk; default after:1", Point{AfterAudio, 1}, func(f *Set) *Point { return &f.Cut }),
		at("reset", "all", "RST at POINT; default after:1", Point{AfterAudio, 1}, func(f *Set) *Point { return &f.Reset }),
		{Name: "stall", Arg: "[POINT][+for:DURATION]", Where: "all", Doc: "nothing more at POINT (default after:1), for DURATION or for ever; comment_every_ms goes on", set: setStall},
		at("bad-chunk-size", "all", "a chunk-size line that is no number at POINT, then FIN; default after:1", Point{AfterAudio, 1}, func(f *Set) *Point { return &f.BadSize }),
		count("short-length", "[N]", "all", "Content-Length promises N bytes more than come, then FIN; streams get a Content-Length", 6, func(f *Set) *int { return &f.ShortLength }),
		flag("burst", "all", "no waits: the head and everything in one write", func(f *Set) *bool { return &f.Burst }),
		{Name: "segments", Arg: "N[/N…]|MIN-MAX[+pause:DURATION]", Where: "all", Doc: "the byte stream is cut into writes of these sizes (the last size goes on) or of seeded random ones, whatever the HTTP chunks are", set: setSegments},
		{Name: "merge", Arg: "N", Where: "all", Doc: "N HTTP chunks are held back and go out in one write; 0 means all", set: setMerge},
		{Name: "chunk-bytes", Arg: "N[/N…]", Where: "all", Doc: "events are spread over HTTP chunks of these sizes (the last size goes on)", set: setChunkBytes},
		count("chunk-events", "N", "all", "N events are joined in one HTTP chunk", -1, func(f *Set) *int { return &f.ChunkEvents }),
		{Name: "interim", Arg: "CODE[/CODE…][+gap:DURATION]", Where: "all", Doc: "1xx answers (102, 103) before the real one, DURATION apart; a 103 brings Connection, X-Nom and Link fields", set: setInterim},
		flag("gzip", "all", "Content-Encoding gzip with a sync flush an event, asked for or not", func(f *Set) *bool { return &f.Gzip }),
		flag("gate", "audio", "every audio chunk but the first waits for one POST /mock/step", func(f *Set) *bool { return &f.Gate }),
		flag("half-close", "all", "a client that half-closes is answered; without this fault it counts as gone, as with the real servers", func(f *Set) *bool { return &f.HalfClose }),
		{Name: "idle", Arg: "DURATION", Where: "all", Doc: "an idle connection is closed after DURATION; without it never", set: setIdle},
		count("send-buffer", "BYTES", "all", "SO_SNDBUF, so that a client that does not read is felt early", -1, func(f *Set) *int { return &f.SendBuffer }),
	}
}

func setStatus(f *Set, v string) error {
	a, err := parseArgs(v, "", "retry-after")
	if err != nil {
		return err
	}
	if f.Status, err = parseCount(a[""]); err != nil || f.Status < 400 || f.Status > 599 {
		return fmt.Errorf("status %q, want 400 to 599", a[""])
	}
	if s, ok := a["retry-after"]; ok {
		f.RetryAfter, err = parseCount(s)
	}
	return err
}

func setStall(f *Set, v string) error {
	p, a, err := parsePoint(v, Point{AfterAudio, 1}, "for")
	if err != nil {
		return err
	}
	f.Stall = p
	f.StallFor, err = a.duration("for", Forever)
	return err
}

func setSegments(f *Set, v string) error {
	a, err := parseArgs(v, "", "pause")
	if err != nil {
		return err
	}
	if f.SegmentPause, err = a.duration("pause", 0); err != nil {
		return err
	}
	if lo, hi, isRange := strings.Cut(a[""], "-"); isRange {
		low, err1 := parseCount(lo)
		high, err2 := parseCount(hi)
		if err1 != nil || err2 != nil || low < 1 || high < low {
			return fmt.Errorf("range %q", a[""])
		}
		f.SegmentRange = [2]int{low, high}
		return nil
	}
	f.Segments, err = parseSizes(a[""])
	return err
}

func setChunkBytes(f *Set, v string) error {
	var err error
	f.ChunkBytes, err = parseSizes(v)
	return err
}

// MergeAll is the value of Merge that holds everything back.
const MergeAll = -1

func setMerge(f *Set, v string) error {
	n, err := parseCount(v)
	if f.Merge = n; n == 0 {
		f.Merge = MergeAll
	}
	return err
}

func setInterim(f *Set, v string) error {
	a, err := parseArgs(v, "", "gap")
	if err != nil {
		return err
	}
	if f.Interim, err = parseCounts(a[""]); err != nil {
		return err
	}
	for _, code := range f.Interim {
		if code < 102 || code > 199 {
			return fmt.Errorf("status %d, want 102 to 199", code)
		}
	}
	f.InterimGap, err = a.duration("gap", 0)
	return err
}

func setIdle(f *Set, v string) error {
	d, err := time.ParseDuration(v)
	if err != nil || d <= 0 {
		return fmt.Errorf("%q is not a duration", v)
	}
	f.Idle = d
	return nil
}
