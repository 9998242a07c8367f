package find

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The example that users begin with must load, and do what its comments say.
func TestExampleRules(t *testing.T) {
	f, err := os.Open(filepath.Join("..", "..", "configs", "stages.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rules, err := ParseRules(f)
	if err != nil {
		t.Fatal(err)
	}
	got := Classify([]Snapshot{
		process(10, 1, "/usr/bin/tts-server|--port|1", tcp(1)),
		process(11, 10, "tts::decoder/1"),
		process(12, 10, "tts::decoder/x"),
		process(20, 1, "python|-m|example_pipeline.worker", env("PIPELINE_STAGE", "1")),
		process(21, 1, "python|-m|example_pipeline.worker"),
		process(30, 1, "x", unix("/run/example/vocoder-3.sock")),
	}, rules, nil)
	want := []string{
		`10 example-tts api "api" id=- replica=0 rank=0 root=10`,
		`11 example-tts stage "decoder" id=- replica=1 rank=0 root=10`,
		`20 example-pipeline stage "decoder" id=1 replica=0 rank=0 root=20`,
		`30 example-sockets stage "vocoder" id=- replica=0 rank=3 root=30`,
	}
	if diff := cmp.Diff(want, brief(got.Processes)); diff != "" {
		t.Error(diff)
	}
}

func TestParseRulesErrors(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"rules:\n - server: a\n   titel: x\n", "line 3: field titel not found"},
		{"rules:\n - server: a\n   title: '('\n", "line 3: error parsing regexp"},
		{"rules:\n - server: a\n   title: '(?P<stag>x)'\n", `line 3: a group is called "stag"`},
		{"rules:\n - server: a\n   title: 'x*'\n", "line 3: \"x*\" matches everything"},
		{"rules:\n - title: x\n", "rule 1: server needs a name"},
		{"rules:\n - server: a\n", "it has no condition"},
		{"rules:\n - server: a\n   role: boss\n   title: x\n", `role is "boss"`},
		{"rules:\n - server: a\n   env: {name: A}\n", "env needs name and match"},
		{"rules:\n - server: a\n   title: x\n   names: {0: \"a\\nb\"}\n", `stage 0 has the name "a\nb"`},
		{"rules: 7", "rules: "},
		{"rules:\n - server: a\n   title: [x]\n", "line 3"},
		{strings.Repeat("#", maxRules+1), "longer than"},
	} {
		if _, err := ParseRules(strings.NewReader(test.in)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("ParseRules(%.60q) = %v, want %q", test.in, err, test.want)
		}
	}
	if rules, err := ParseRules(strings.NewReader("")); err != nil || rules != nil {
		t.Errorf("an empty file: %v, %v", rules, err)
	}
}

func TestRuleWorkerTakesItsParentsStage(t *testing.T) {
	rules, err := ParseRules(strings.NewReader("rules:\n - {server: a, title: '^s-(?P<stage>.+)$'}\n - {server: a, role: worker, title: '^w$'}\n"))
	if err != nil {
		t.Fatal(err)
	}
	got := Classify([]Snapshot{process(2, 1, "s-x"), process(3, 2, "w"), process(4, 1, "w")}, rules, nil)
	want := []string{
		`2 a stage "x" id=- replica=0 rank=0 root=2`,
		`3 a worker "x" id=- replica=0 rank=0 root=2`,
		`4 a worker "stage noid" id=- replica=0 rank=0 root=4`,
	}
	if diff := cmp.Diff(want, brief(got.Processes)); diff != "" {
		t.Error(diff)
	}
}

func FuzzParseRules(f *testing.F) {
	b, err := os.ReadFile(filepath.Join("..", "..", "configs", "stages.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(_ *testing.T, b []byte) {
		rules, err := ParseRules(bytes.NewReader(b))
		if err == nil {
			Classify([]Snapshot{process(2, 1, "tts::decoder/1", unix("/a"), tcp(1), env("A", "b"))}, rules, nil)
		}
	})
}
