package prometheus

import (
	"bufio"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSchema: what is served is what the schema says, in names, kinds, help and labels.
func TestSchema(t *testing.T) {
	f := newFed(t, Config{})
	f.n = 1
	f.feed()
	type told struct {
		Kind   Kind
		Help   string
		Labels []string
	}
	got, want := map[string]told{}, map[string]told{}
	label := regexp.MustCompile(`(\w+)="`)
	for in := bufio.NewScanner(strings.NewReader(scrape(t, f.sink, "text/plain"))); in.Scan(); {
		line := in.Text()
		words := strings.SplitN(line, " ", 4)
		switch {
		case strings.HasPrefix(line, "# HELP omnitap_"):
			got[words[2]] = told{Help: words[3]}
		case strings.HasPrefix(line, "# TYPE omnitap_"):
			m := got[words[2]]
			m.Kind = Kind(words[3])
			got[words[2]] = m
		case strings.HasPrefix(line, "omnitap_"):
			name, labels, _ := strings.Cut(words[0], "{")
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if short := strings.TrimSuffix(name, suffix); got[short].Kind == Histogram {
					name = short
				}
			}
			m := got[name]
			for _, l := range label.FindAllStringSubmatch(labels, -1) {
				if l[1] != "le" && !slices.Contains(m.Labels, l[1]) {
					m.Labels = append(m.Labels, l[1])
				}
			}
			slices.Sort(m.Labels)
			got[name] = m
		}
	}
	for _, m := range Schema() {
		labels := slices.Clone(m.Labels)
		slices.Sort(labels)
		want[m.Name] = told{m.Kind, m.Help, labels}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-schema +served):\n%s", d)
	}
}

var update = flag.Bool("update", false, "rewrite README's table of metrics")

// TestReadmeHasTheSchema: README's table is the schema.
func TestReadmeHasTheSchema(t *testing.T) {
	const readme, begin, stop = "../../README.md", "<!-- metrics of exporter/prometheus -->\n", "<!-- end of metrics -->"
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	table, after, end := strings.Cut(rest, stop)
	if !ok || !end {
		t.Fatal("README has no table of metrics between its two marks")
	}
	if *update {
		if err := os.WriteFile(readme, []byte(before+begin+Table()+stop+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(Table(), table); d != "" {
		t.Errorf("(-code +README):\n%s", d)
	}
}
