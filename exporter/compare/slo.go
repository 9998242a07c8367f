package compare

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/omnitap/omnitap/exporter/experiment"
	"github.com/omnitap/omnitap/exporter/rundir"
)

// slo is what an experiment asks of each request.
type slo struct {
	experiment.SLO
	why string // why there is none
}

// sloOf reads experiment.yaml; nil is none.
func sloOf(text []byte) slo {
	if text == nil {
		return slo{why: "the run has no experiment, hence no SLO"}
	}
	e, err := experiment.Parse(text)
	switch {
	case err != nil:
		return slo{why: clean(rundir.ExperimentFile + ": " + err.Error())}
	case e.SLO.Empty():
		return slo{why: rundir.ExperimentFile + " has no SLO"}
	}
	return slo{SLO: e.SLO}
}

// String names the limits.
func (s slo) String() string {
	text, err := json.Marshal(s.SLO)
	if err != nil || s.why != "" {
		return ""
	}
	return strings.NewReplacer("{", "", "}", "", `"`, "", ":", " <= ", ",", ", ").Replace(string(text))
}

// commonSLO is the SLO that the experiments of all runs have.
func commonSLO(runs []*Run) slo {
	first := runs[0].slo
	for _, r := range runs {
		if r.slo.why != "" {
			return slo{why: r.slo.why}
		}
		if r.slo.String() != first.String() {
			return slo{why: fmt.Sprintf("the runs' experiments have different SLOs: %s, and %s", first, r.slo)}
		}
	}
	return first
}
