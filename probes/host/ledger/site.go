package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/probes/host/internal/null"

	"github.com/omnitap/omnitap/probes/host/internal/jail"
)

// Site is a folder of Python packages with all that is installed in it.
type Site struct {
	Path string `json:"path"`
	PIDs []int  `json:"pids"`
	// Packages are versions by the name that PyPI compares by. SHA256 is that of the
	// sorted lines NAME==VERSION: equal hashes are equal installations.
	Packages map[string]string `json:"packages"`
	SHA256   string            `json:"sha256"`
	// Cut says that the folder holds more than was read.
	Cut string `json:"cut,omitempty"`
}

// site is a Site while it is read.
type site struct {
	path  string
	pids  []int
	dists []dist
	cut   string
}

// siteCache has the sites by folder: processes share them.
type siteCache map[jail.ID]*site

// Bounds of the folders.
const (
	maxEntries = 32768
	maxDists   = 4096
	maxSites   = 32 // of one process
	maxPth     = 64 << 10
)

// packages finds and reads the site-packages of a process.
func (r *reader) packages(s *subject) {
	todo := sitesOf(s)
	for i := 0; i < len(todo) && i < maxSites; i++ {
		st, more := r.site(s, todo[i])
		if st == nil {
			continue
		}
		if !slices.Contains(s.sites, st) {
			s.sites = append(s.sites, st)
		}
		if !slices.Contains(st.pids, s.pid) {
			st.pids = append(st.pids, s.pid)
		}
		for _, m := range more {
			if !slices.Contains(todo, m) {
				todo = append(todo, m)
			}
		}
	}
}

// site reads one folder, once, and which others its .pth files name.
func (r *reader) site(s *subject, folder string) (*site, []string) {
	f, err := s.jail.List(folder, maxEntries)
	if err != nil {
		return nil, nil // a guess that is not there
	}
	slices.Sort(f.Names)
	more := pthSites(s.jail, folder, f.Names)
	if st := r.sites[f.ID]; st != nil {
		return st, more
	}
	st := &site{path: folder}
	for _, name := range f.Names {
		if !strings.HasSuffix(name, ".dist-info") && !strings.HasSuffix(name, ".egg-info") {
			continue
		}
		if len(st.dists) >= maxDists {
			f.Cut = true
			break
		}
		if d, ok := readDist(s.jail, folder, name); ok {
			st.dists = append(st.dists, d)
		}
	}
	if f.Cut {
		st.cut = fmt.Sprintf("only %d names and %d distributions are read", maxEntries, maxDists)
	}
	r.sites[f.ID] = st
	return st, more
}

// pthSites are the site-packages of others that .pth files put on the path. Folders that
// are developed in are none: their distribution lies beside the .pth.
func pthSites(j *jail.Jail, folder string, names []string) (out []string) {
	for _, name := range names {
		if !strings.HasSuffix(name, ".pth") {
			continue
		}
		b, err := j.Whole(path.Join(folder, name), maxPth)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			line = strings.TrimSpace(line)
			if line == "" || line[0] == '#' || strings.HasPrefix(line, "import ") || strings.HasPrefix(line, "import\t") {
				continue
			}
			if !path.IsAbs(line) {
				line = path.Join(folder, line)
			}
			if line = path.Clean(line); isSite(line) && len(out) < maxSites {
				out = append(out, line)
			}
		}
	}
	return out
}

func isSite(folder string) bool {
	base := path.Base(folder)
	return base == "site-packages" || base == "dist-packages"
}

var (
	siteIn = regexp.MustCompile(`^(.*?/(?:site|dist)-packages)/`)
	libIn  = regexp.MustCompile(`^(.*)/lib(?:64)?/python(\d+\.\d+)/`)
	pyName = regexp.MustCompile(`^(?:lib)?python(\d+\.\d+)`)
)

// sitesOf lists where the packages of a process lie, the surest first: folders that it
// maps files of; those that PYTHONPATH names; its virtual environment's; and its
// interpreter's own, unless the environment shuts that out.
func sitesOf(s *subject) []string {
	var out []string
	add := func(folder string) {
		if folder != "" && !slices.Contains(out, folder) {
			out = append(out, folder)
		}
	}
	for _, f := range s.files {
		if m := siteIn.FindStringSubmatch(s.jail.Name(f.path)); m != nil {
			add(m[1])
		}
	}
	for p := range strings.SplitSeq(s.env["PYTHONPATH"], ":") {
		if path.IsAbs(p) {
			add(path.Clean(p))
		}
	}
	version := pythonOf(s)
	if version == "" {
		return out
	}
	closed := false
	for _, root := range environments(s, out) {
		config, err := s.jail.Whole(path.Join(root, "pyvenv.cfg"), maxPth)
		if err != nil {
			continue
		}
		add(path.Join(root, "lib", "python"+version, "site-packages"))
		closed = closed || !strings.EqualFold(setting(config, "include-system-site-packages"), "true")
	}
	if closed {
		return out
	}
	for _, prefix := range prefixes(s) {
		add(path.Join(prefix, "lib", "python"+version, "site-packages"))
		if prefix == "/usr" { // Debian's
			add("/usr/local/lib/python" + version + "/dist-packages")
			add("/usr/lib/python3/dist-packages")
		}
	}
	return out
}

// environments are folders that may be virtual environments of the process.
func environments(s *subject, sites []string) (out []string) {
	for _, site := range sites {
		if m := libIn.FindStringSubmatch(site + "/"); m != nil {
			out = append(out, m[1])
		}
	}
	program := ""
	if len(s.args) > 0 {
		program = s.args[0]
	}
	if path.IsAbs(program) {
		return append(out, path.Dir(path.Dir(path.Clean(program))))
	}
	if v := s.env["VIRTUAL_ENV"]; path.IsAbs(v) {
		out = append(out, path.Clean(v))
	}
	return out
}

// prefixes are where the interpreter is installed.
func prefixes(s *subject) (out []string) {
	for _, f := range s.files {
		name := s.jail.Name(f.path)
		m := libIn.FindStringSubmatch(name)
		if m != nil && !siteIn.MatchString(name) && !slices.Contains(out, m[1]) {
			out = append(out, m[1])
		}
	}
	if len(out) == 0 && path.IsAbs(s.exe) {
		out = append(out, path.Dir(path.Dir(s.exe)))
	}
	return out
}

// setting reads KEY = value of a pyvenv.cfg.
func setting(config []byte, key string) string {
	for line := range strings.Lines(string(config)) {
		k, v, ok := strings.Cut(line, "=")
		if ok && strings.EqualFold(strings.TrimSpace(k), key) {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// list is what is told of the sites, by path.
func (c siteCache) list() (out []Site) {
	for _, st := range c {
		s := Site{Path: null.Text(st.path), PIDs: st.pids, Packages: map[string]string{}, Cut: st.cut}
		lines := make([]string, 0, len(st.dists))
		for _, d := range st.dists {
			if _, twice := s.Packages[d.name]; !twice { // as importlib.metadata: the first counts
				s.Packages[d.name] = d.version
			}
			lines = append(lines, d.name+"=="+d.version+"\n")
		}
		slices.Sort(lines)
		sum := sha256.Sum256([]byte(strings.Join(lines, "")))
		s.SHA256 = hex.EncodeToString(sum[:])
		slices.Sort(s.PIDs)
		if len(lines) > 0 {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b Site) int {
		if c := strings.Compare(a.Path, b.Path); c != 0 {
			return c
		}
		return slices.Compare(a.PIDs, b.PIDs)
	})
	return out
}
