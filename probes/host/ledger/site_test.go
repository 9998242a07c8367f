package ledger

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func paths(l Ledger) (out []string) {
	for _, s := range l.Sites {
		out = append(out, s.Path)
	}
	return out
}

// Where packages are looked for: each folder has one, and which are read is told.
func TestSites(t *testing.T) {
	all := []string{
		"/opt/py/lib/python3.12/site-packages", "/venv/lib/python3.12/site-packages", "/base/lib/python3.12/site-packages",
		"/usr/lib/python3/dist-packages", "/usr/lib/python3.12/site-packages", "/usr/local/lib/python3.12/dist-packages", "/extra",
	}
	for _, test := range []struct {
		name string
		spec procSpec
		more map[string]string
		want []string
	}{
		{
			"an interpreter's own",
			procSpec{exe: "/opt/py/bin/python3.12", args: []string{"python3"}},
			nil,
			[]string{"/opt/py/lib/python3.12/site-packages"},
		},
		{
			"by its own library",
			procSpec{exe: "/elsewhere/python3", maps: []string{"/opt/py/lib/python3.12/lib-dynload/x.so"}},
			nil,
			[]string{"/opt/py/lib/python3.12/site-packages"},
		},
		{
			"Debian's",
			procSpec{exe: "/usr/bin/python3.12"},
			nil,
			[]string{"/usr/lib/python3.12/site-packages", "/usr/lib/python3/dist-packages", "/usr/local/lib/python3.12/dist-packages"},
		},
		{
			"an environment, by its program",
			procSpec{exe: "/opt/py/bin/python3.12", args: []string{"/venv/bin/python"}},
			map[string]string{"box/venv/pyvenv.cfg": "version = 3.12.1\n"},
			[]string{"/venv/lib/python3.12/site-packages"},
		},
		{
			"an environment, by its variable",
			procSpec{exe: "/opt/py/bin/python3.12", args: []string{"python"}, env: []string{"VIRTUAL_ENV=/venv"}},
			map[string]string{"box/venv/pyvenv.cfg": "include-system-site-packages=FALSE\n"},
			[]string{"/venv/lib/python3.12/site-packages"},
		},
		{
			"one that lets the base in",
			procSpec{exe: "/opt/py/bin/python3.12", args: []string{"/venv/bin/python"}},
			map[string]string{"box/venv/pyvenv.cfg": "Include-System-Site-Packages = True\n"},
			[]string{"/opt/py/lib/python3.12/site-packages", "/venv/lib/python3.12/site-packages"},
		},
		{
			"what PYTHONPATH names, absolute only",
			procSpec{exe: "/none/python3.12", env: []string{"PYTHONPATH=extra:/extra::/none"}},
			nil,
			[]string{"/extra"},
		},
		{
			"what a .pth names",
			procSpec{exe: "/opt/py/bin/python3.12", args: []string{"/venv/bin/python"}},
			map[string]string{
				"box/venv/pyvenv.cfg":                         "",
				"box/venv/lib/python3.12/site-packages/a.pth": "# x\nimport os; os.x()\n../../../../base/lib/python3.12/site-packages\n/extra\n\n",
			},
			[]string{"/base/lib/python3.12/site-packages", "/venv/lib/python3.12/site-packages"},
		},
		{"no Python", procSpec{exe: "/usr/bin/nginx", env: []string{"VIRTUAL_ENV=/venv"}}, nil, nil},
	} {
		f := newFixture(t)
		for _, folder := range all {
			f.dist("box"+folder, "x", "1")
		}
		for name, content := range test.more {
			f.Write(name, content)
		}
		test.spec.pid, test.spec.container = 7, "box"
		f.process(test.spec)
		if diff := cmp.Diff(test.want, paths(f.read(7))); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

// Two processes that see one folder under two names share it.
func TestSitesAreReadOnce(t *testing.T) {
	f := newFixture(t)
	const site = "box/v/lib/python3.12/site-packages"
	f.dist(site, "Some.Thing_x", "1")
	f.dist(site, "b", "2")
	f.Write(site+"/six-1.16.0-py3.12.egg-info", "Metadata-Version: 1.2\nName: six\nVersion: 1.16.0\n")
	f.Link("/v", "box/w")
	f.process(procSpec{pid: 7, container: "box", exe: "/p/python3.12", maps: []string{"/v/lib/python3.12/site-packages/x.so"}})
	f.process(procSpec{pid: 8, container: "box", exe: "/p/python3.12", maps: []string{"/w/lib/python3.12/site-packages/x.so"}})
	l := f.read(8, 7)
	want := []Site{{
		Path: "/w/lib/python3.12/site-packages", PIDs: []int{7, 8},
		Packages: map[string]string{"some-thing-x": "1", "b": "2", "six": "1.16.0"},
		SHA256:   "2c6834f6", // of the lines b==2, six==1.16.0, some-thing-x==1
	}}
	if len(l.Sites) == 1 {
		l.Sites[0].SHA256 = l.Sites[0].SHA256[:8]
	}
	if diff := cmp.Diff(want, l.Sites); diff != "" {
		t.Error(diff)
	}
}

func TestEditable(t *testing.T) {
	const site = "box/v/lib/python3.12/site-packages"
	direct := site + "/vllm-1.0.dist-info/direct_url.json"
	for _, test := range []struct {
		name string
		more map[string]string
		want string
	}{
		{"a branch", map[string]string{"box/src/.git/HEAD": "ref: refs/heads/main\n", "box/src/.git/refs/heads/main": commitA + "\n"}, " | " + commitA + " | /src"},
		{"packed", map[string]string{"box/src/.git/HEAD": "ref: refs/heads/main\n", "box/src/.git/packed-refs": "# pack\n" + commitB + " refs/heads/other\n" + commitA + " refs/heads/main\n"}, " | " + commitA + " | /src"},
		{"a commit", map[string]string{"box/src/.git/HEAD": commitB + "\n"}, " | " + commitB + " | /src"},
		{"a reference that leads out", map[string]string{"box/src/.git/HEAD": "ref: ../../secret\n"}, " | /src"},
		{"a reference that leads out later", map[string]string{"box/src/.git/HEAD": "ref: refs/../../../../secret\n"}, " | /src"},
		{"no repository", nil, " | /src"},
	} {
		f := newFixture(t)
		f.Write("secret", commitA)
		f.dist(site, "vllm", "1.0")
		f.Write(direct, `{"url":"file:///src","dir_info":{"editable":true}}`)
		for name, content := range test.more {
			f.Write(name, content)
		}
		f.process(procSpec{pid: 7, container: "box", exe: "/p/python3.12", maps: []string{"/v/lib/python3.12/site-packages/x.so", "/src/vllm/_C.abi3.so"}})
		if got, want := found(f.read(7), "vllm"), "1.0 mapped metadata [7]"+test.want; len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q, want %q", test.name, got, want)
		}
	}
	for _, not := range []string{`{"url":"file:///src"}`, `{"url":"https://x/src","dir_info":{"editable":true}}`, `{"url":"file://relative","dir_info":{"editable":true}}`, `[]`, `{"url":"%zz","dir_info":{"editable":true}}`} {
		f := newFixture(t)
		f.dist(site, "vllm", "1.0")
		f.Write(direct, not)
		f.process(procSpec{pid: 7, container: "box", exe: "/p/python3.12", maps: []string{"/v/lib/python3.12/site-packages/x.so"}})
		if got := found(f.read(7), "vllm"); len(got) != 1 || got[0] != "1.0 installed metadata [7]" {
			t.Errorf("%s: %q", not, got)
		}
	}
}
