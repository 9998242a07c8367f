package rundir

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Topology replaces topology.json, in one step, with what is known of the server's
// processes and of what watched them.
func (w *Writer) Topology(v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", TopologyFile, err)
	}
	next := filepath.Join(w.dir, "."+TopologyFile+".next")
	if err := os.WriteFile(next, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", TopologyFile, err)
	}
	if err := os.Rename(next, filepath.Join(w.dir, TopologyFile)); err != nil {
		return fmt.Errorf("replacing %s: %w", TopologyFile, err)
	}
	return nil
}
