package foreign

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/omnitap/omnitap/probes/host"
)

// parseCPUs reads the lines of the CPUs of /proc/stat, which are its first ones.
func parseCPUs(b []byte) (all cpuTimes, cpus map[int]cpuTimes, online host.CPUs, err error) {
	cpus = map[int]cpuTimes{}
	total := false
	for line := range bytes.Lines(b) {
		rest, ok := bytes.CutPrefix(line, []byte("cpu"))
		if !ok {
			break
		}
		fields := bytes.Fields(rest)
		if len(rest) > 0 && rest[0] == ' ' {
			all, err = parseTimes(fields)
			total = true
		} else if len(fields) > 0 {
			var n uint64
			if n, err = strconv.ParseUint(string(fields[0]), 10, 16); err == nil {
				cpus[int(n)], err = parseTimes(fields[1:])
				online = append(online, int(n))
			}
		}
		if err != nil {
			return cpuTimes{}, nil, nil, fmt.Errorf("/proc/stat: line %.60q: %w", line, err)
		}
	}
	if !total || len(online) == 0 {
		return cpuTimes{}, nil, nil, errors.New("/proc/stat lists no CPUs")
	}
	return all, cpus, online.Union(nil), nil
}

// parseTimes reads user nice system idle iowait irq softirq steal, of which old kernels
// lack the last ones.
func parseTimes(fields [][]byte) (t cpuTimes, err error) {
	if len(fields) < 4 {
		return t, errors.New("is short")
	}
	columns := [8]uint64{}
	for i := range min(len(fields), len(columns)) {
		if columns[i], err = strconv.ParseUint(string(fields[i]), 10, 63); err != nil {
			return t, errors.New("holds no number")
		}
	}
	return cpuTimes{idle: columns[3], iowait: columns[4], irq: columns[5], softirq: columns[6], steal: columns[7]}, nil
}

// stat is what is used of /proc/PID/stat; times are ticks.
type stat struct {
	ppid        int
	start       uint64
	own, reaped uint64
}

// Fields of stat behind the name, counted from the state.
const (
	statPPID   = 1
	statUTime  = 11
	statSTime  = 12
	statCUTime = 13
	statCSTime = 14
	statStart  = 19
)

// parseStat reads a line of stat. The name in it may hold anything, also ")".
func parseStat(b []byte) (s stat, err error) {
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return s, errors.New("stat has no name")
	}
	var value [statStart + 1]uint64
	rest := b[end+1:]
	for i := range value {
		rest = bytes.TrimLeft(rest, " ")
		field, after, _ := bytes.Cut(rest, []byte(" "))
		rest = after
		switch i {
		case statPPID, statUTime, statSTime, statCUTime, statCSTime, statStart:
			if value[i], err = strconv.ParseUint(string(bytes.TrimSpace(field)), 10, 62); err != nil {
				return s, errors.New("stat is no line of numbers")
			}
		}
	}
	if value[statPPID] > 1<<31 {
		return s, errors.New("stat has no parent")
	}
	return stat{
		ppid: int(value[statPPID]), start: value[statStart],
		own: value[statUTime] + value[statSTime], reaped: value[statCUTime] + value[statCSTime],
	}, nil
}

// parseAllowed finds the CPUs that a thread may use in its status.
func parseAllowed(status []byte) (host.CPUs, error) {
	for line := range bytes.Lines(status) {
		if list, ok := bytes.CutPrefix(line, []byte("Cpus_allowed_list:")); ok {
			return host.ParseCPUs(string(list))
		}
	}
	return nil, errors.New("status names no CPUs")
}

// covered says whether /proc/stat is a mount of its own, as lxcfs makes it.
func covered(mountinfo []byte) bool {
	for line := range bytes.Lines(mountinfo) {
		if fields := bytes.Fields(line); len(fields) > 4 && string(fields[4]) == "/proc/stat" {
			return true
		}
	}
	return false
}
