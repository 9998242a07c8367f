package compare

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Setting is a line of metadata.json that is not the same in all runs.
type Setting struct {
	Name string `json:"setting"`
	// A and B are the values that occur on each side, sorted; "(none)" is one that a run
	// does not have.
	A []string `json:"a"`
	B []string `json:"b"`
	// Within says that it differs among the runs of one side: it is not what was
	// changed between A and B, or not that alone.
	Within bool `json:"within_a_side"`
}

const absent = "(none)"

// perRun are the parts of metadata.json that differ in every run: what the run was
// called, when it was, what was measured in it.
var perRun = []string{
	"run_id", "pid", "start", "end", "files", "sealed", "unmeasured", "config.out", "config.capture", "config.saveaudio",
	"run.state", "run.reason", "run.child.exit_code", "run.child.signal", "run.phases", "run.foreign_cpu", "run.clock",
	"run.contamination", "run.contamination_reason", "run.calibration", "run.calibration_unmeasured", "run.goodput", "run.server_found",
}

// changing are the last words of names whose values are new for every process.
var changing = []string{"pid", "ppid", "tid", "inode", "start_ticks", "start_time", "started", "threads", "uptime_s"}

// ownPaths are flags whose value is where a run goes to.
var ownPaths = []string{"--out", "--capture", "--save-audio"}

// settings reads metadata.json into values by dotted name.
func settings(text []byte) (map[string]string, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var tree map[string]any
	if err := d.Decode(&tree); err != nil {
		return nil, err
	}
	out := map[string]string{}
	flatten(out, "", tree)
	return out, nil
}

func flatten(out map[string]string, name string, v any) {
	plain := name
	if strings.HasPrefix(name, "config.") { // its keys are Go's names of fields
		plain = strings.ToLower(strings.ReplaceAll(name, "_", ""))
	}
	if slices.Contains(perRun, plain) || slices.Contains(changing, name[strings.LastIndexByte(name, '.')+1:]) || strings.HasSuffix(name, "_ns") ||
		strings.HasSuffix(name, ".unmeasured") {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			flatten(out, strings.TrimPrefix(name+"."+clean(key), "."), value)
		}
	case []any:
		if words, ok := scalars(v); ok {
			out[name] = clean(strings.Join(withoutPaths(words), " "))
			return
		}
		for i, value := range v {
			flatten(out, name+"."+strconv.Itoa(i), value)
		}
	case nil:
	default:
		out[name] = clean(fmt.Sprint(v))
	}
}

// scalars writes a list of plain values, such as a command line, as words.
func scalars(list []any) ([]string, bool) {
	words := make([]string, len(list))
	for i, v := range list {
		switch v.(type) {
		case map[string]any, []any:
			return nil, false
		}
		words[i] = fmt.Sprint(v)
	}
	return words, true
}

// withoutPaths takes away from a command line where the run was written to.
func withoutPaths(words []string) []string {
	var out []string
	for i := 0; i < len(words); i++ {
		flag, _, joined := strings.Cut(words[i], "=")
		if slices.Contains(ownPaths, flag) {
			if !joined {
				i++
			}
			continue
		}
		out = append(out, words[i])
	}
	return out
}

// differing lists the settings that are not the same in all runs: what differs between
// the sides alone first.
func differing(a, b []*Run) []Setting {
	names := map[string]bool{}
	for _, r := range slices.Concat(a, b) {
		for name := range r.settings {
			names[name] = true
		}
	}
	out := []Setting{}
	for name := range names {
		s := Setting{Name: name, A: distinct(a, name), B: distinct(b, name)}
		s.Within = len(s.A) > 1 || len(s.B) > 1
		if s.Within || s.A[0] != s.B[0] {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(x, y Setting) int {
		if x.Within != y.Within {
			return map[bool]int{false: -1, true: 1}[x.Within]
		}
		return cmp.Compare(x.Name, y.Name)
	})
	return out
}

func distinct(runs []*Run, name string) []string {
	have := map[string]bool{}
	for _, r := range runs {
		v, ok := r.settings[name]
		if !ok {
			v = absent
		}
		have[v] = true
	}
	return slices.Sorted(maps.Keys(have))
}
