package reconcile

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// benchFile is what is read of the JSON of vllm bench serve (0.26.0: vllm/benchmarks/serve.py,
// vllm_omni/benchmarks/patch). The texts that were generated are not among it.
type benchFile struct {
	Backend    string    `json:"backend"`
	Endpoint   string    `json:"endpoint_type"`
	Completed  int       `json:"completed"`
	Failed     *int      `json:"failed"`
	TotalAudio *float64  `json:"total_audio_duration_s"`
	Prompts    int       `json:"num_prompts"`
	StartTimes []float64 `json:"start_times"`
	TTFTs      []float64 `json:"ttfts"`
	Errors     []string  `json:"errors"`
}

// benchFigures are the metrics of the file that others have as well.
var benchFigures = map[string]Quantity{"ttft_ms": TTFT, "audio_ttfp_ms": TTFA, "e2el_ms": JCT, "audio_duration_s": AudioS}

func benchResult(data []byte) (*Generator, error) {
	var f benchFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("reading the result of vllm bench serve: %w", err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("reading the result of vllm bench serve: %w", err)
	}
	g := &Generator{Tool: "vllm bench serve", Backend: f.Backend, Clock: NoClock, Completed: &f.Completed, Failed: f.Failed, Figures: map[Quantity]Figures{}}
	g.Reading = benchReading(f.Backend)
	for key, raw := range all {
		g.benchFigure(key, raw)
	}
	if f.TotalAudio != nil && sane(*f.TotalAudio) {
		a := g.Figures[AudioS]
		a.Total = f.TotalAudio
		g.Figures[AudioS] = a
	}
	if !measuresSound(f.Backend) {
		if _, has := g.Figures[AudioS]; has {
			g.Problems = append(g.Problems, fmt.Sprintf("its backend %s measures no sound: what it says of it is left out", f.Backend))
		}
		delete(g.Figures, AudioS)
		delete(g.Figures, TTFA)
	}
	g.benchRequests(f)
	return g, nil
}

// measuresSound says whether a backend's client looks at sound; the others leave its fields 0.
func measuresSound(backend string) bool {
	return slices.Contains([]string{"openai-chat-omni", "daily-omni", "openai-audio-speech"}, backend)
}

// benchFigure takes mean_X, median_X and pNN_X of the metrics that are known.
func (g *Generator) benchFigure(key string, raw json.RawMessage) {
	kind, name, ok := strings.Cut(key, "_")
	q, known := benchFigures[name]
	if !ok || !known {
		return
	}
	var v *float64
	if json.Unmarshal(raw, &v) != nil || v == nil || !sane(*v) {
		return
	}
	f := g.Figures[q]
	if f.Percentiles == nil {
		f.Percentiles = map[float64]float64{}
	}
	switch p, err := strconv.ParseFloat(strings.TrimPrefix(kind, "p"), 64); {
	case kind == "mean":
		f.Mean = v
	case kind == "median":
		f.Percentiles[50] = *v
	case strings.HasPrefix(kind, "p") && err == nil && p >= 0 && p <= 100:
		f.Percentiles[p] = *v
	}
	g.Figures[q] = f
}

// benchRequests takes the requests one by one. Start times are perf_counter's, seconds. Their
// order is that of the prompts, which is not that of the starts.
func (g *Generator) benchRequests(f benchFile) {
	n := len(f.StartTimes)
	if n == 0 {
		return // without --save-detailed, or an older one
	}
	if len(f.TTFTs) != n || len(f.Errors) != n {
		g.Problems = append(g.Problems, fmt.Sprintf("%d start times, %d TTFTs and %d errors: the requests cannot be told one by one", n, len(f.TTFTs), len(f.Errors)))
		return
	}
	g.Clock = Monotonic
	failed := 0
	for i := range n {
		if !sane(f.StartTimes[i]*1e9) || !sane(f.TTFTs[i]*1e3) {
			g.Problems = append(g.Problems, fmt.Sprintf("request %d: a time that cannot be one", i))
			continue
		}
		r := GeneratorRequest{StartNS: int64(f.StartTimes[i] * 1e9), Failed: f.Errors[i] != ""}
		if r.Failed {
			failed++
		} else {
			r.TTFTMS = new(f.TTFTs[i] * 1e3)
		}
		g.Requests = append(g.Requests, r)
	}
	if f.Failed != nil && *f.Failed != failed {
		g.Problems = append(g.Problems, fmt.Sprintf("%d failed, and %d errors have a text: which requests failed is not known", *f.Failed, failed))
	}
}

// benchReading is what the client of a backend does with what it reads.
func benchReading(backend string) Reading {
	r := Reading{FailuresAsSuccess: true, ZeroForNone: true, EndsEarly: true}
	switch {
	case backend == "openai-audio-speech": // raw bytes: no events, and no end marker
		r.EndsEarly = false
	case measuresSound(backend):
		r.EmptyAudio = true
	case slices.Contains([]string{"openai-chat", "openai-audio"}, backend):
		r.FirstEvent, r.AudioAsText = true, true
	}
	return r
}
