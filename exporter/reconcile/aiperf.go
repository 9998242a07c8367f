package reconcile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// maxProblems bounds what is told of a file.
const maxProblems = 20

// aiperfRecord is what is read of a line of profile_export.jsonl (AIPerf 0.13.0).
type aiperfRecord struct {
	Metadata struct {
		RequestID string `json:"x_request_id"`
		StartNS   int64  `json:"request_start_ns"`
		Phase     string `json:"benchmark_phase"`
		Cancelled bool   `json:"was_cancelled"`
	} `json:"metadata"`
	Metrics map[string]json.RawMessage `json:"metrics"`
	Error   json.RawMessage            `json:"error"`
}

// aiperfReading: its first token is the first response with content, which its chat endpoint
// takes from delta.content whatever it holds; its end is the last such response.
var aiperfReading = Reading{AudioAsText: true, EndsEarly: true}

func aiperfRecords(data []byte) (*Generator, error) {
	g := &Generator{Tool: "AIPerf", Clock: Wall, Figures: map[Quantity]Figures{}, Reading: aiperfReading}
	failed, n := 0, 0
	for line := range bytes.Lines(data) {
		n++
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var x aiperfRecord
		if err := json.Unmarshal(line, &x); err != nil {
			if len(g.Problems) < maxProblems {
				g.Problems = append(g.Problems, fmt.Sprintf("line %d: %v", n, err))
			}
			continue
		}
		if x.Metadata.Phase == "warmup" {
			g.Warmup++
			continue
		}
		r := GeneratorRequest{ID: x.Metadata.RequestID, StartNS: x.Metadata.StartNS, Failed: x.Metadata.Cancelled || (len(x.Error) > 0 && string(x.Error) != "null")}
		if r.Failed {
			failed++
		} else {
			r.TTFTMS, r.JCTMS = aiperfMS(x.Metrics["time_to_first_token"]), aiperfMS(x.Metrics["request_latency"])
		}
		g.Requests = append(g.Requests, r)
	}
	if len(g.Requests) == 0 {
		return nil, errors.New("reading AIPerf's records: it has none of the measured phase")
	}
	g.Failed, g.Completed = &failed, new(len(g.Requests)-failed)
	return g, nil
}

// aiperfUnits are factors to milliseconds.
var aiperfUnits = map[string]float64{"ns": 1e-6, "us": 1e-3, "ms": 1, "sec": 1e3, "s": 1e3}

// aiperfMS is a value with its unit; nil where there is none, or its unit is not of time.
func aiperfMS(raw json.RawMessage) *float64 {
	var v struct {
		Value *float64 `json:"value"`
		Unit  string   `json:"unit"`
	}
	factor := 0.0
	if len(raw) > 0 && json.Unmarshal(raw, &v) == nil {
		factor = aiperfUnits[v.Unit]
	}
	if v.Value == nil || factor == 0 || !sane(*v.Value*factor) {
		return nil
	}
	return new(*v.Value * factor)
}

func aiperfSummary(data []byte) (*Generator, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("reading AIPerf's summary: %w", err)
	}
	g := &Generator{Tool: "AIPerf", Clock: NoClock, Figures: map[Quantity]Figures{}, Reading: aiperfReading}
	g.Completed, g.Failed = aiperfCount(all["request_count"]), aiperfCount(all["error_request_count"])
	if rate := aiperfCount(all["request_error_rate"]); g.Failed == nil && rate != nil && *rate == 0 && all["error_summary"] != nil {
		g.Failed = rate // it has no count of none
	}
	for name, q := range map[string]Quantity{"time_to_first_token": TTFT, "request_latency": JCT} {
		var m map[string]json.RawMessage
		if all[name] == nil || json.Unmarshal(all[name], &m) != nil {
			continue
		}
		var unit string
		if json.Unmarshal(m["unit"], &unit) != nil || aiperfUnits[unit] == 0 {
			g.Problems = append(g.Problems, fmt.Sprintf("%s: its unit is not known", name))
			continue
		}
		f := Figures{Percentiles: map[float64]float64{}}
		for key, raw := range m {
			var v *float64
			if json.Unmarshal(raw, &v) != nil || v == nil || !sane(*v*aiperfUnits[unit]) {
				continue
			}
			ms := *v * aiperfUnits[unit]
			if p, err := strconv.ParseFloat(strings.TrimPrefix(key, "p"), 64); strings.HasPrefix(key, "p") && err == nil {
				f.Percentiles[p] = ms
			} else if key == "avg" {
				f.Mean = &ms
			}
		}
		g.Figures[q] = f
	}
	return g, nil
}

func aiperfCount(raw json.RawMessage) *int {
	var m struct {
		Avg *float64 `json:"avg"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &m) != nil || m.Avg == nil || !sane(*m.Avg) {
		return nil
	}
	return new(int(*m.Avg))
}
