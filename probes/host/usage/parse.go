package usage

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// tickNS is the unit of times in /proc: USER_HZ is 100 on every architecture that Go knows.
const tickNS = int64(10_000_000)

// stat is what is used of /proc/PID/stat.
type stat struct {
	state      byte
	start      uint64
	ownTicks   uint64
	threads    int64
	residentPG int64
}

// Fields of stat behind the name, counted from the state.
const (
	statUTime   = 11
	statSTime   = 12
	statThreads = 17
	statStart   = 19
	statRSS     = 21
)

// parseStat reads a line of stat. The name in it may hold anything, also ")".
func parseStat(b []byte) (s stat, err error) {
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return s, errors.New("stat has no name")
	}
	fields := bytes.Fields(b[end+1:])
	if len(fields) <= statRSS || len(fields[0]) != 1 {
		return s, errors.New("stat is short")
	}
	var v [statRSS + 1]uint64
	for _, i := range []int{statUTime, statSTime, statThreads, statStart, statRSS} {
		if v[i], err = strconv.ParseUint(string(fields[i]), 10, 62); err != nil {
			return s, errors.New("stat is no line of numbers")
		}
	}
	return stat{
		state: fields[0][0], start: v[statStart], ownTicks: v[statUTime] + v[statSTime],
		threads: int64(v[statThreads]), residentPG: int64(v[statRSS]),
	}, nil
}

// parseCPU reads the line of all CPUs of /proc/stat. Guests' time is in the users'.
func parseCPU(b []byte) (busy, idle int64, err error) {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) < 5 || string(fields[0]) != "cpu" {
		return 0, 0, errors.New("/proc/stat has no line of all CPUs")
	}
	for i, f := range fields[1:min(len(fields), 9)] {
		ticks, err := strconv.ParseUint(string(f), 10, 58)
		if err != nil {
			return 0, 0, fmt.Errorf("/proc/stat: %w", err)
		}
		if i == 3 || i == 4 { // idle and iowait
			idle += int64(ticks)
		} else {
			busy += int64(ticks)
		}
	}
	return busy * tickNS, idle * tickNS, nil
}

// parseKB finds a line "Name:   123 kB".
func parseKB(b []byte, name string) (int64, error) {
	for line := range bytes.Lines(b) {
		rest, ok := bytes.CutPrefix(line, []byte(name+":"))
		if !ok {
			continue
		}
		kb, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(string(rest)), "kB")), 10, 52)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		return int64(kb) << 10, nil
	}
	return 0, fmt.Errorf("there is no line of %s", name)
}

// traffic is what went through a namespace's interfaces.
type traffic struct{ received, sent, loopback int64 }

// parseNet reads /proc/net/dev.
func parseNet(b []byte) (t traffic, err error) {
	for line := range bytes.Lines(b) {
		name, rest, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			continue // the two lines of titles
		}
		fields := bytes.Fields(rest)
		if len(fields) < 9 {
			return t, errors.New("/proc/net/dev: a line is short")
		}
		received, err := strconv.ParseUint(string(fields[0]), 10, 62)
		if err != nil {
			return t, fmt.Errorf("/proc/net/dev: %w", err)
		}
		sent, err := strconv.ParseUint(string(fields[8]), 10, 62)
		if err != nil {
			return t, fmt.Errorf("/proc/net/dev: %w", err)
		}
		if string(bytes.TrimSpace(name)) == "lo" {
			t.loopback += int64(sent)
			continue
		}
		t.received += int64(received)
		t.sent += int64(sent)
	}
	return t, nil
}
