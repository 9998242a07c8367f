package ledger

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/omnitap/omnitap/probes/host/internal/hosttest"
)

func briefModels(l Ledger) (out []string) {
	for _, m := range l.Models {
		s := fmt.Sprint(m.ID, " ", m.Source, " ", m.PIDs)
		if m.Local {
			s += " local"
		}
		if m.Revision != nil {
			s += " " + *m.Revision + " of " + m.RevisionSource
		}
		if m.ServedName != nil {
			s += " as " + *m.ServedName
		}
		if m.ConfigSHA256 != nil {
			s += " config " + (*m.ConfigSHA256)[:8]
		}
		out = append(out, s)
	}
	return out
}

func TestModels(t *testing.T) {
	for _, test := range []struct {
		name      string
		args, env string
		maps      []string
		want      []string
	}{
		{"the cache in the home", "vllm serve a/b --omni", "HOME=/home/u", nil, []string{"a/b command_line [7] " + commitA + " of cache"}},
		{"a branch of it", "vllm serve a/b --revision dev", "HOME=/home/u", nil, []string{"a/b command_line [7] " + commitB + " of cache"}},
		{"HF_HUB_CACHE comes first", "vllm serve a/b", "HF_HUB_CACHE=/other HOME=/home/u", nil, []string{"a/b command_line [7] " + commitB + " of cache"}},
		{"a commit on the command line", "vllm serve a/b --revision " + commitB, "HOME=/home/u", nil, []string{"a/b command_line [7] " + commitB + " of command_line"}},
		{"no cache", "x --model-path a/b --served-model-name c", "HF_HOME=/none", nil, []string{"a/b command_line [7] as c"}},
		{"a revision that leads out", "vllm serve a/b --revision ../../../../secret", "HOME=/home/u", nil, []string{"a/b command_line [7]"}},
		{"a local folder", "vllm serve /models/m", "", nil, []string{"/models/m command_line [7] local config 44136fa3"}},
		{"a relative one", "vllm serve m", "", nil, []string{"m command_line [7] local config 44136fa3"}},
		{"a local one that is not there", "vllm serve ./none", "", nil, []string{"./none command_line [7] local"}},
		{"a snapshot", "vllm serve /c/models--a--b/snapshots/" + commitA, "", nil, []string{"/c/models--a--b/snapshots/" + commitA + " command_line [7] local " + commitA + " of path"}},
		{
			"mapped", "VLLM::Worker", "",
			[]string{"/c/models--a--b--c/blobs/12", "/c/models--a--b--c/blobs/34", "/c/models--d/snapshots/" + commitB + "/x.safetensors"},
			[]string{"a/b/c mapped [7]", "d mapped [7] " + commitB + " of path"},
		},
		{
			"named and mapped", "vllm serve a/b", "HOME=/home/u",
			[]string{"/home/u/.cache/huggingface/hub/models--a--b/blobs/12"},
			[]string{"a/b command_line [7] " + commitA + " of cache"},
		},
		{
			"named, and another revision mapped", "vllm serve a/b", "HOME=/home/u",
			[]string{"/x/models--a--b/snapshots/" + commitB + "/m"},
			[]string{"a/b command_line [7] " + commitA + " of cache", "a/b mapped [7] " + commitB + " of path"},
		},
		{"none", "python -m http.server", "", nil, nil},
	} {
		f := newFixture(t)
		f.Write("secret", commitA)
		f.Write("box/home/u/.cache/huggingface/hub/models--a--b/refs/main", commitA+"\n")
		f.Write("box/home/u/.cache/huggingface/hub/models--a--b/refs/dev", commitB)
		f.Write("box/other/models--a--b/refs/main", commitB)
		f.Write("box/models/m/config.json", "{}")
		f.process(procSpec{
			pid: 7, container: "box", exe: "/x", cwd: "/models", maps: test.maps,
			args: strings.Fields(test.args), env: strings.Fields(test.env),
		})
		l := f.read(7)
		if diff := cmp.Diff(test.want, briefModels(l)); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
		for _, m := range l.Models {
			hosttest.Holds(t, m, m.Unmeasured, "")
		}
		if (l.Unmeasured["models"] != "") != (len(test.want) == 0) {
			t.Errorf("%s: reason %q", test.name, l.Unmeasured["models"])
		}
	}
}

// Two processes with one model are one entry, with two they are two.
func TestModelsOfMoreProcesses(t *testing.T) {
	f := newFixture(t)
	for pid, model := range map[int]string{7: "a/b", 8: "a/b", 9: "c/d"} {
		f.process(procSpec{pid: pid, container: "box", exe: "/x", args: []string{"x", "--model", model, "--served-model-name", "sekret"}})
	}
	f.Write("box/x", "")
	want := []string{"a/b command_line [7 8] as HIDDEN", "c/d command_line [9] as HIDDEN"}
	if diff := cmp.Diff(want, briefModels(f.read(7, 8, 9))); diff != "" {
		t.Error(diff)
	}
}

func TestModelsAreBounded(t *testing.T) {
	f := newFixture(t)
	var maps []string
	for i := range maxModels + 5 {
		maps = append(maps, fmt.Sprintf("/c/models--o--m%d/blobs/1", i))
	}
	f.process(procSpec{pid: 7, container: "box", exe: "/x", args: []string{"x"}, maps: maps})
	f.Write("box/x", "")
	if n := len(f.read(7).Models); n != maxModels {
		t.Errorf("%d models", n)
	}
}
