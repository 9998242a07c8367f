package reconcile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// MaxFile is how much of a generator's file is read; a longer one is an error.
const MaxFile = 512 << 20

// ErrUnknownFile says that a file is of no generator that is known.
var ErrUnknownFile = errors.New("neither a result of vllm bench serve nor of AIPerf")

// ReadGenerator reads a result file: the JSON of `vllm bench serve --save-result` (with
// --save-detailed it has requests), AIPerf's profile_export_aiperf.json, or its
// profile_export.jsonl, which has requests. Which of them it is, its content says. Several
// results in one file (`--append-result`) are an error: they are several runs.
func ReadGenerator(r io.Reader) (*Generator, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading the generator's file: %w", err)
	}
	if len(data) > MaxFile {
		return nil, fmt.Errorf("reading the generator's file: it is longer than %d bytes", MaxFile)
	}
	data = finite(data)
	dec := json.NewDecoder(bytes.NewReader(data))
	var first map[string]json.RawMessage
	if err := dec.Decode(&first); err != nil {
		return nil, fmt.Errorf("reading the generator's file: %w", err)
	}
	switch {
	case first["metadata"] != nil && first["metrics"] != nil:
		return aiperfRecords(data)
	case dec.More():
		return nil, errors.New("reading the generator's file: several results in one file")
	case first["completed"] != nil && first["duration"] != nil:
		return benchResult(data)
	case first["request_latency"] != nil || first["request_count"] != nil || first["error_request_count"] != nil:
		return aiperfSummary(data)
	}
	return nil, fmt.Errorf("reading the generator's file: %w", ErrUnknownFile)
}

// sane says that a value can be one of a run, in ms, seconds, requests or bytes.
func sane(v float64) bool { return math.Abs(v) < 1e18 } // false for NaN

// finite turns the NaN and Infinity that Python writes into null, which is what they mean;
// JSON has neither. What stands in strings stays.
func finite(data []byte) []byte {
	if !bytes.Contains(data, []byte("NaN")) && !bytes.Contains(data, []byte("Infinity")) {
		return data
	}
	out := make([]byte, 0, len(data))
	quoted := false
	for i := 0; i < len(data); {
		c := data[i]
		if quoted && c == '\\' && i+1 < len(data) {
			out = append(out, c, data[i+1])
			i += 2
			continue
		}
		if c == '"' {
			quoted = !quoted
		}
		n := 0
		if !quoted {
			n = notFinite(data[i:])
		}
		if n > 0 {
			out = append(out, "null"...)
			i += n
			continue
		}
		out = append(out, c)
		i++
	}
	return out
}

func notFinite(data []byte) int {
	for _, word := range []string{"NaN", "-Infinity", "Infinity"} {
		if bytes.HasPrefix(data, []byte(word)) {
			return len(word)
		}
	}
	return 0
}
