package column

import "strings"

// units are the endings that say what a number is in.
var units = []string{"_ns", "_us", "_ms", "_s"}

// unitless are numbers beside those of a unit that have none.
var unitless = map[string]bool{"n": true, "cv": true}

// renamed are names that say no unit, or that SQL keeps for itself, by their path.
var renamed = map[string]string{
	"from":                      "from_stage",
	"to":                        "to_stage",
	"name":                      "check_name",
	"offset":                    "offset_bytes",
	"t_in_server_offset":        "t_in_server_offset_bytes",
	"t_in_alternatives":         "t_in_alternatives_ns",
	"sample_rate":               "sample_rate_hz",
	"input_sample_rate":         "input_sample_rate_hz",
	"audio.sample_rate":         "audio_sample_rate_hz",
	"audio.assumed_sample_rate": "audio_assumed_sample_rate_hz",
	"input.sample_rate":         "input_sample_rate_hz",
}

// Name returns the name of the column that a path of JSON names makes.
func Name(path []string) string {
	if name, ok := renamed[strings.Join(path, ".")]; ok {
		return name
	}
	last := path[len(path)-1]
	switch {
	case len(path) == 2 && path[0] == "points":
		return last + "_ns"
	case len(path) == 2 && path[0] == "offsets":
		return last + "_offset_bytes"
	}
	unit := ""
	parts := make([]string, 0, len(path))
	for i, p := range path {
		if i < len(path)-1 {
			p, unit = cutUnit(p, unit)
		}
		parts = append(parts, p)
	}
	if unitless[last] {
		unit = ""
	}
	return strings.Join(parts, "_") + unit
}

// cutUnit takes the unit off a name.
func cutUnit(name, unit string) (string, string) {
	for _, u := range units {
		if rest, ok := strings.CutSuffix(name, u); ok {
			return rest, u
		}
	}
	return name, unit
}
