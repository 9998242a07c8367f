package mock

import (
	"os"
	"strings"
	"testing"
)

// manualFaults are the names in the fault table of doc.go.
func manualFaults(t *testing.T) map[string]bool {
	t.Helper()
	b, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "//\t"); ok {
			name, _, _ := strings.Cut(strings.Fields(rest + " x")[0], "=")
			out[name] = true
		}
	}
	return out
}
