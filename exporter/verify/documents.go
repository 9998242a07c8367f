package verify

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/exporter/rundir"
)

// metadata is what is used of metadata.json.
type metadata struct {
	Schema int64 `json:"schema"`
	// EventForm is what events tell: 0 and 1 are of older programs.
	EventForm int64 `json:"event_form"`

	RunID  string          `json:"run_id"`
	Start  stamp           `json:"start"`
	End    *stamp          `json:"end"`
	Files  *files          `json:"files"`
	Config json.RawMessage `json:"config"`
	Run    struct {
		Experiment *struct {
			SHA256 string `json:"sha256"`
		} `json:"experiment"`
		Phases []phase `json:"phases"`
		Energy *spent  `json:"energy"`
		// Resources is what their writer counted.
		Resources struct {
			File *struct {
				RowsWritten int64 `json:"rows_written"`
				RowsLost    int64 `json:"rows_lost"`
			} `json:"file"`
		} `json:"resources"`
	} `json:"run"`

	read bool
	// Milliseconds of the configuration, 0 for not known.
	minPlayable, slowClient int64
}

// phase is a part of an `omnitap run`.
type phase struct {
	Name    string `json:"name"`
	StartNS int64  `json:"start_ns"`
	EndNS   int64  `json:"end_ns"`
}

type stamp struct {
	WallNS int64  `json:"wall_ns"`
	MonoNS *int64 `json:"mono_ns"`
}

// files is what the writer counted.
type files struct {
	Requests written `json:"requests"`
	Events   written `json:"events"`
	Sessions written `json:"sessions"`
	Quality  written `json:"quality"`
}

type written struct {
	Lines     int64 `json:"lines"`
	Bytes     int64 `json:"bytes"`
	LostLines int64 `json:"lost_lines"`
}

// minPlayableMS is contract section 2's default for min_playable_ms, slowClientMS that
// of slow_client_ms.
const (
	minPlayableMS = 20
	slowClientMS  = 50
)

// maxDocument bounds a JSON document of a run, maxDepth how deep it is looked into.
const (
	maxDocument = 16 << 20
	maxDepth    = 32
)

// documents reads the files that are one JSON text.
func (v *verifier) documents() {
	v.meta.minPlayable = minPlayableMS
	if text := v.document(rundir.MetadataFile, true); text != nil {
		v.metadata(text)
	}
	for _, name := range []string{rundir.TopologyFile, rundir.CalibrationFile} {
		v.document(name, false)
	}
}

// document reads a JSON text and looks at what all of them have; nil for none.
func (v *verifier) document(name string, needed bool) []byte {
	path := filepath.Join(v.dir, name)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) && !needed {
		return nil
	}
	var text []byte
	switch {
	case err == nil && info.Size() > maxDocument:
		err = errLong
	case err == nil:
		text, err = os.ReadFile(path)
	}
	var tree any
	if err == nil {
		err = json.Unmarshal(text, &tree)
	}
	if err != nil {
		v.say(Error, KindFile, name, 0, "%v", err)
		return nil
	}
	if top, ok := tree.(map[string]any); ok {
		if n, there := top["schema"]; there && n != float64(version) {
			v.say(Error, KindVersion, name, 0, "schema %v, this program reads %d", n, version)
		}
	}
	v.energy(name, "", tree, maxDepth)
	return text
}

// energy wants amounts of energy that are not below 0, wherever they stand.
func (v *verifier) energy(file, path string, tree any, depth int) {
	if depth == 0 {
		return
	}
	switch t := tree.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(t)) {
			inner := strings.TrimPrefix(path+"."+key, ".")
			if n, ok := t[key].(float64); ok && n < 0 && isEnergy(key) {
				v.say(Error, KindConservation, file, 0, "%s: %v, energy is not below 0", inner, n)
			}
			v.energy(file, inner, t[key], depth-1)
		}
	case []any:
		for i, e := range t {
			v.energy(file, path+"["+itoa(int64(i))+"]", e, depth-1)
		}
	}
}

// isEnergy tells amounts of energy by name and unit. What a baseline was taken off of
// (net_j) may lie below 0.
func isEnergy(key string) bool {
	switch key {
	case "total_j", "counter_j", "power_j":
		return true
	}
	if !strings.Contains(key, "energy") {
		return false
	}
	for _, unit := range []string{"energy", "_j", "_mj", "_uj", "_wh", "_kwh"} {
		if strings.HasSuffix(key, unit) {
			return true
		}
	}
	return false
}

func (v *verifier) metadata(text []byte) {
	m := &v.meta
	if err := json.Unmarshal(text, m); err != nil {
		v.say(Error, KindSchema, rundir.MetadataFile, 0, "%v", err)
		return
	}
	m.read = true
	v.res.RunID = m.RunID
	type limits struct{ MinPlayableMS, SlowClientMS int64 }
	var config struct {
		Tap      struct{ Timeline limits }
		Timeline limits // of a replay
	}
	if json.Unmarshal(m.Config, &config) == nil {
		m.minPlayable = cmp.Or(max(config.Tap.Timeline.MinPlayableMS, config.Timeline.MinPlayableMS, 0), minPlayableMS)
		m.slowClient = cmp.Or(max(config.Tap.Timeline.SlowClientMS, config.Timeline.SlowClientMS, 0), slowClientMS)
	}
	v.experiment()
	if m.End == nil {
		v.say(Error, KindLost, rundir.MetadataFile, 0, "the run was not closed: it is still being written, or its process died")
		return
	}
	if m.End.WallNS < m.Start.WallNS && m.End.MonoNS == nil || m.End.MonoNS != nil && m.Start.MonoNS != nil && *m.End.MonoNS < *m.Start.MonoNS {
		v.say(Error, KindConservation, rundir.MetadataFile, 0, "the run ended before it began")
	}
}

// experiment holds experiment.yaml to the hash that was taken of it ahead of the first
// request: what was not in it then is exploratory (contract section 8).
func (v *verifier) experiment() {
	if v.meta.Run.Experiment == nil {
		return
	}
	text, err := os.ReadFile(filepath.Join(v.dir, rundir.ExperimentFile))
	if err != nil {
		v.say(Error, KindFile, rundir.ExperimentFile, 0, "%v", err)
		return
	}
	if got := fmt.Sprintf("%x", sha256.Sum256(text)); got != v.meta.Run.Experiment.SHA256 {
		v.say(Error, KindValue, rundir.ExperimentFile, 0, "its hash is %s, the one of before the first request is %s: it was changed", got, clip(v.meta.Run.Experiment.SHA256))
	}
}

// written holds the files to what their writer counted.
func (v *verifier) written() {
	f := v.meta.Files
	if f == nil {
		return
	}
	for _, c := range []struct {
		name string
		want written
	}{{rundir.RequestsFile, f.Requests}, {rundir.EventsFile, f.Events}, {rundir.SessionsFile, f.Sessions}, {rundir.QualityFile, f.Quality}} {
		got := v.counted[c.name]
		if got == nil {
			continue
		}
		if got.lines != c.want.Lines || got.bytes != c.want.Bytes {
			v.say(Error, KindConservation, c.name, 0, "%d lines and %d bytes, %s says %d and %d", got.lines, got.bytes, rundir.MetadataFile, c.want.Lines, c.want.Bytes)
		}
		if c.want.LostLines > 0 {
			v.say(Error, KindLost, c.name, 0, "%d lines were lost when the run was written: what they held cannot be derived", c.want.LostLines)
		}
	}
}
