package ledger

import (
	"bytes"
	"strings"
)

// Bounds of /proc/PID/maps.
const (
	maxMaps   = 32 << 20
	maxMapped = 16384
)

// mapped is a file that a process maps.
type mapped struct {
	path string
	// deleted says that it was removed or replaced since.
	deleted bool
}

// parseMaps reads the files in /proc/PID/maps, each once. Names may hold anything but a
// line feed, which the kernel writes as \012.
func parseMaps(b []byte) []mapped {
	seen := map[string]bool{}
	var out []mapped
	for line := range bytes.Lines(b) {
		at := bytes.IndexByte(line, '/') // no field before the name has one
		if at < 0 || len(out) >= maxMapped {
			continue
		}
		fields := bytes.Fields(line[:at])
		if len(fields) != 5 || string(fields[4]) == "0" {
			continue
		}
		name := strings.TrimSuffix(string(line[at:]), "\n")
		if seen[name] {
			continue
		}
		seen[name] = true
		m := mapped{}
		m.path, m.deleted = strings.CutSuffix(name, " (deleted)")
		out = append(out, m)
	}
	return out
}
