package mock

import (
	"os"
	"strings"
	"testing"
)

// doc.go is the manual: it holds the table of faults word by word.
func TestManualDescribesTheFaults(t *testing.T) {
	b, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range Faults() {
		if f.Where == "" || f.Doc == "" || seen[f.Name] {
			t.Errorf("fault %+v is incomplete or double", f)
		}
		seen[f.Name] = true
		if want := "//\t" + f.Usage() + " (" + f.Where + ")\n//\t\t" + f.Doc + "\n"; !strings.Contains(string(b), want) {
			t.Errorf("doc.go lacks:\n%s", want)
		}
	}
}
