package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxProcesses bounds the bytes of a processes.json.
const maxProcesses = 16 << 20

// MarshalJSON writes [pid, "endpoint"].
func (e Endpoint) MarshalJSON() ([]byte, error) {
	b := appendInt(nil, "[", int64(e.PID))
	b = appendString(append(b, ','), e.Addr)
	return append(b, ']'), nil
}

// UnmarshalJSON reads [pid, "endpoint"].
func (e *Endpoint) UnmarshalJSON(b []byte) error {
	var pair []json.RawMessage
	if err := json.Unmarshal(b, &pair); err != nil || len(pair) != 2 {
		return errors.New(`a ZMQ endpoint is [pid, "endpoint"]`)
	}
	var out Endpoint
	if err := json.Unmarshal(pair[0], &out.PID); err != nil {
		return fmt.Errorf("pid of a ZMQ endpoint: %w", err)
	}
	if err := json.Unmarshal(pair[1], &out.Addr); err != nil {
		return fmt.Errorf("address of a ZMQ endpoint: %w", err)
	}
	*e = out
	return nil
}

// ReadProcesses reads a processes.json. Keys that it does not know are passed over.
func ReadProcesses(r io.Reader) (Processes, error) {
	var p Processes
	b, err := io.ReadAll(io.LimitReader(r, maxProcesses+1))
	if err != nil {
		return p, fmt.Errorf("reading processes.json: %w", err)
	}
	if len(b) > maxProcesses {
		return p, fmt.Errorf("processes.json is longer than %d bytes", maxProcesses)
	}
	if err := json.Unmarshal(b, &p); err != nil {
		return Processes{}, fmt.Errorf("processes.json: %w", err)
	}
	for i, one := range p.Processes {
		if one.PID <= 0 {
			return Processes{}, fmt.Errorf("processes.json: process %d has no pid", i+1)
		}
	}
	return p, nil
}

// WriteProcesses writes a processes.json. Lists are never null.
func WriteProcesses(w io.Writer, p Processes) error {
	if p.Processes == nil {
		p.Processes = []Process{}
	}
	if p.ZMQBind == nil {
		p.ZMQBind = []Endpoint{}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(p); err != nil {
		return fmt.Errorf("writing processes.json: %w", err)
	}
	_, err := w.Write(b.Bytes())
	return err
}

var (
	_ json.Marshaler   = Endpoint{}
	_ json.Unmarshaler = (*Endpoint)(nil)
)

// Stages are the names of the stages that run in the process. SGLang-Omni may put
// several into one, which nothing outside can tell apart: Stage is then their names
// joined with "+".
func (p *Process) Stages() []string {
	if p.Server != "sglang-omni" {
		return []string{p.Stage}
	}
	return strings.Split(p.Stage, "+")
}
