package rundir

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Topology replaces topology.json, in one step, with what is known of the server's
// processes and of what watched them.
func (w *Writer) Topology(v any) error { return w.put(TopologyFile, v) }

// Calibration writes calibration.json.
func (w *Writer) Calibration(v any) error { return w.put(CalibrationFile, v) }

// put replaces a file of JSON in one step.
func (w *Writer) put(name string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", name, err)
	}
	next := filepath.Join(w.dir, "."+name+".next")
	if err := os.WriteFile(next, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	if err := os.Rename(next, filepath.Join(w.dir, name)); err != nil {
		return fmt.Errorf("replacing %s: %w", name, err)
	}
	return nil
}
