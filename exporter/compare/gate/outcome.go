package gate

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Outcome is what became of a gate in one flow.
type Outcome struct {
	Gate Gate
	// Flow is the flow's name, empty where there is none to hold it to.
	Flow    string
	Verdict Verdict
	// Allowed says that a gate that cannot be told does not fail.
	Allowed bool
	// Estimate, Lo and Hi are of what the limit is about, in its unit (a share for a
	// change); NaN where nothing is known.
	Estimate, Lo, Hi float64
	// Reason says why it cannot be told, or what is doubtful.
	Reason string
}

// Failed reports whether the outcome is one that a pipeline has to stop for.
func (o *Outcome) Failed() bool {
	return o.Verdict == Broken || o.Verdict != Held && !o.Allowed
}

// Name is the gate with its flow.
func (o *Outcome) Name() string {
	if o.Flow == "" {
		return o.Gate.String()
	}
	return o.Flow + ": " + o.Gate.condition()
}

// Line tells of the outcome in one line, without a line feed.
func (o *Outcome) Line() string {
	return fmt.Sprintf("%-11s  %s  %s", o.Verdict, o.Name(), o.found())
}

// found is what was found, for people.
func (o *Outcome) found() string {
	text := ""
	if !math.IsNaN(o.Estimate) {
		text = o.figure(o.Estimate)
		if !math.IsNaN(o.Lo) && !math.IsNaN(o.Hi) {
			text += " (" + o.figure(o.Lo) + " to " + o.figure(o.Hi) + ")"
		}
	}
	switch {
	case o.Reason == "":
		return text
	case text == "":
		return o.Reason
	}
	return text + ": " + o.Reason
}

// figure writes a number in the unit that the gate is about.
func (o *Outcome) figure(v float64) string {
	decimals, unit := 4, ""
	switch k := o.Gate.Metric.Kind; {
	case o.Gate.About == Change:
		v, decimals, unit = 100*v, 1, " %"
	case k == Time:
		decimals, unit = 2, " ms"
	case k == Rate:
		decimals, unit = 3, "/s"
	case k == Share && o.Gate.About == Difference:
		v, decimals, unit = 100*v, 2, " pp"
	case k == Share:
		v, decimals, unit = 100*v, 2, " %"
	}
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Trim(s, "-0.") == "" {
		s = strings.TrimPrefix(s, "-") // what rounds to nothing
	}
	if o.Gate.About != Figure && s[0] != '-' {
		s = "+" + s
	}
	return s + unit
}

type wireOutcome struct {
	Gate     string   `json:"gate"`
	Flow     string   `json:"flow"`
	Verdict  Verdict  `json:"verdict"`
	Allowed  bool     `json:"allowed"`
	Failed   bool     `json:"failed"`
	Limit    float64  `json:"limit"`
	Estimate *float64 `json:"estimate"`
	Lo       *float64 `json:"lo"`
	Hi       *float64 `json:"hi"`
	Reason   string   `json:"reason"`
}

// MarshalJSON writes null for a number that is not known.
func (o Outcome) MarshalJSON() ([]byte, error) {
	return json.Marshal(wireOutcome{
		Gate: o.Gate.String(), Flow: o.Flow, Verdict: o.Verdict, Allowed: o.Allowed, Failed: o.Failed(), Limit: o.Gate.Limit(),
		Estimate: known(o.Estimate), Lo: known(o.Lo), Hi: known(o.Hi), Reason: o.Reason,
	})
}

func known(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// Failures counts the outcomes that failed.
func Failures(all []Outcome) (n int) {
	for i := range all {
		if all[i].Failed() {
			n++
		}
	}
	return n
}

func itoa(n int) string { return strconv.Itoa(n) }

var _ json.Marshaler = Outcome{}
