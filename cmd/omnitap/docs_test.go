package main

import (
	"bytes"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/omnitap/omnitap/exporter/twin"
	"github.com/omnitap/omnitap/probes"
	"github.com/omnitap/omnitap/proxy/tap"
	"github.com/omnitap/omnitap/proxy/timeline"
)

func readme(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// column gives the code words in the first column of the table under a header cell.
func column(t *testing.T, text, header string) []string {
	t.Helper()
	_, rest, ok := strings.Cut(text, "| "+header+" |")
	if !ok {
		t.Fatalf("README has no table %q", header)
	}
	var out []string
	for i, line := range strings.Split(rest, "\n") {
		if i < 2 { // the rest of the header, and the rule
			continue
		}
		if !strings.HasPrefix(line, "|") {
			break
		}
		cell, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
			out = append(out, m[1])
		}
	}
	slices.Sort(out)
	return out
}

func TestReadmeNamesTheFlagsOfServe(t *testing.T) {
	var want []string
	serveCmd(&app{io.Discard, io.Discard}).Flags().VisitAll(func(f *pflag.Flag) { want = append(want, "--"+f.Name) })
	slices.Sort(want)
	got := slices.DeleteFunc(column(t, readme(t), "flag of serve"), func(s string) bool { return !strings.HasPrefix(s, "--") })
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-code +README):\n%s", d)
	}
}

func TestReadmeNamesTheCommands(t *testing.T) {
	text := readme(t)
	for _, c := range newRoot(&app{io.Discard, io.Discard}).Commands() {
		if !strings.Contains(text, "omnitap "+c.Name()) && !strings.Contains(text, "make "+c.Name()) {
			t.Errorf("README does not show %q", c.Name())
		}
	}
}

// sources gives the text of the packages that flags come from.
func sources(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, dir := range []string{"../../proxy/timeline", "../../proxy/timeline/session", "../../proxy/tap", "../../proxy/wire/audio"} {
		list, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if strings.HasSuffix(e.Name(), ".go") && !strings.HasSuffix(e.Name(), "_test.go") {
				text, err := os.ReadFile(dir + "/" + e.Name())
				if err != nil {
					t.Fatal(err)
				}
				b.Write(text)
			}
		}
	}
	return b.String()
}

func TestReadmeNamesTheFlagsOfRecords(t *testing.T) {
	want := []string{"byte_rate_wrong", "repeated_header", "stages_partial"} // by the name of their problem, or from the join
	for _, m := range regexp.MustCompile(`\.Flag\("([a-z0-9_]+)"\)`).FindAllStringSubmatch(sources(t), -1) {
		want = append(want, m[1])
	}
	slices.Sort(want)
	want = slices.Compact(want)
	if d := cmp.Diff(want, column(t, readme(t), "flag")); d != "" {
		t.Errorf("(-code +README):\n%s", d)
	}
}

// TestReadmeNamesTheFlagsOfSessions: the same of sessions.jsonl.
func TestReadmeNamesTheFlagsOfSessions(t *testing.T) {
	want := []string{"no_close_frame"} // told at the end
	for _, m := range regexp.MustCompile(`\.flag\("([a-z0-9_]+)"\)`).FindAllStringSubmatch(sources(t), -1) {
		want = append(want, m[1])
	}
	slices.Sort(want)
	want = slices.Compact(want)
	if d := cmp.Diff(want, column(t, readme(t), "flag of a session")); d != "" {
		t.Errorf("(-code +README):\n%s", d)
	}
}

func TestReadmeNamesChecksStatesAndFlows(t *testing.T) {
	text := readme(t)
	checks := slices.Sorted(slices.Values(slices.Concat(timeline.CheckNames(), twin.Names())))
	if d := cmp.Diff(checks, column(t, text, "check on the sound (`quality`)")); d != "" {
		t.Errorf("checks (-code +README):\n%s", d)
	}
	for _, s := range timeline.States() {
		if !strings.Contains(text, "`"+string(s)+"`") {
			t.Errorf("README does not name the state %s", s)
		}
	}
	if d := cmp.Diff(timeline.Flows(), column(t, text, "flow")); d != "" {
		t.Errorf("flows (-code +README):\n%s", d)
	}
}

func TestReadmeNamesTheProbes(t *testing.T) {
	if d := cmp.Diff(probes.FamilyNames(), column(t, readme(t), "probe")); d != "" {
		t.Errorf("(-code +README):\n%s", d)
	}
}

// TestExampleConfiguration: configs/serve.yaml loads strictly, names every key,
// and shows the defaults.
func TestExampleConfiguration(t *testing.T) {
	c, err := loadConfig("../../configs/serve.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := c.Tap.WithDefaults()
	c.Tap.Timeline.Rates = nil
	want.Timeline.Rates = nil
	if d := cmp.Diff(want, c.Tap, cmpopts.IgnoreUnexported(tap.Config{})); d != "" {
		t.Errorf("not the defaults (-default +file):\n%s", d)
	}
	if d := cmp.Diff(probes.Config{}.WithDefaults(), c.Stages, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("stages: not the defaults (-default +file):\n%s", d)
	}
	b, err := os.ReadFile("../../configs/serve.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := yaml.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	named(t, "", reflect.TypeFor[fileConfig](), doc)
}

// named checks that each key of a struct stands in the document.
func named(t *testing.T, at string, typ reflect.Type, doc map[string]any) {
	t.Helper()
	for f := range typ.Fields() {
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if !f.IsExported() || key == "-" {
			continue
		}
		v, ok := doc[key]
		if !ok {
			t.Errorf("configs/serve.yaml does not show %s%s", at, key)
			continue
		}
		if sub, isMap := v.(map[string]any); isMap && f.Type.Kind() == reflect.Struct {
			named(t, at+key+".", f.Type, sub)
		}
	}
}

func TestUnknownConfigurationKey(t *testing.T) {
	name := t.TempDir() + "/c.yaml"
	if err := os.WriteFile(name, []byte("upstream: x\nlisten: y\nlissen: z\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	code := run([]string{"serve", "--config", name}, &out, &errOut)
	if code != exitUsage || !strings.Contains(errOut.String(), "line 3") || !strings.Contains(errOut.String(), "lissen") {
		t.Errorf("exit %d, %q; want %d and the line", code, errOut.String(), exitUsage)
	}
}
