package calibration

import (
	"maps"
	"slices"

	"github.com/omnitap/omnitap/exporter/stats"
)

// Block is what was measured of one block. Times are CLOCK_MONOTONIC nanoseconds; each
// list has a value a successful request that has one.
type Block struct {
	Index int `json:"index"`
	// Attached: with the probes.
	Attached bool  `json:"attached"`
	StartNS  int64 `json:"start_ns"`
	EndNS    int64 `json:"end_ns"`
	// Attempts were sent, Success of them succeeded.
	Attempts int `json:"attempts"`
	Success  int `json:"success"`
	// Failed counts the others by their terminal state and its reason: STATE/REASON.
	Failed map[string]int `json:"failed,omitempty"`
	TTFT   []float64      `json:"ttft_ms"`
	TTFA   []float64      `json:"ttfa_ms"`
	JCT    []float64      `json:"jct_ms"`
	// CPU is the time that each stage's processes ran, milliseconds by stage; nil where
	// it could not be read: CPUWhy says why.
	CPU    map[string]float64 `json:"cpu_ms"`
	CPUWhy string             `json:"cpu_unmeasured,omitempty"`
	// Lag is how late the generator sent, milliseconds; N is 0 in a closed loop.
	Lag stats.Summary `json:"generator_lag_ms"`
	// Probes are the families that were attached, Trimmed those that their budget took
	// away in the block, and why.
	Probes  []string          `json:"probes,omitempty"`
	Trimmed map[string]string `json:"trimmed,omitempty"`
	// Cores is what each family took of its dearest stage, as it measures itself.
	Cores map[string]float64 `json:"cores,omitempty"`
	// Detached says how it was made sure, ahead of a block without probes, that none are
	// there: "verified", or what was found or could not be looked for.
	Detached string `json:"detached,omitempty"`
	// Lost is how many kernel events were lost.
	Lost uint64 `json:"lost,omitempty"`
}

// Verified is Block.Detached of a block that has none of the probes left, for sure.
const Verified = "verified"

// throughput is successes a second, 0 for none.
func (b *Block) throughput() float64 {
	if b.EndNS <= b.StartNS {
		return 0
	}
	return float64(b.Success) / (float64(b.EndNS-b.StartNS) / 1e9)
}

// cpu is the stages' CPU a success, milliseconds, and of one stage where it is named.
func (b *Block) cpu(stage string) (ms float64, ok bool) {
	if b.Success == 0 || len(b.CPU) == 0 {
		return 0, false
	}
	if stage != "" {
		v, ok := b.CPU[stage]
		return v / float64(b.Success), ok
	}
	for _, v := range b.CPU {
		ms += v
	}
	return ms / float64(b.Success), true
}

// stagesOf names the stages of all blocks.
func stagesOf(blocks []Block) []string {
	names := map[string]bool{}
	for i := range blocks {
		for n := range blocks[i].CPU {
			names[n] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
