package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/probes/host/internal/null"
)

// Model is a model that a process serves.
type Model struct {
	// ID is the repository's name, or the path of a local folder (Local), redacted.
	ID    string `json:"id"`
	Local bool   `json:"local"`
	// Source is where the id stands: "command_line", or "mapped" for a file of the
	// Hugging Face cache that a process maps.
	Source     string  `json:"source"`
	ServedName *string `json:"served_name"`
	// Revision is the commit of the repository; RevisionSource is "command_line",
	// "path" (of a snapshot), or "cache" (what the cache's refs name now).
	Revision       *string `json:"revision"`
	RevisionSource string  `json:"revision_source,omitempty"`
	// ConfigSHA256 is that of a local folder's config.json.
	ConfigSHA256 *string           `json:"config_sha256"`
	PIDs         []int             `json:"pids"`
	Unmeasured   map[string]string `json:"unmeasured"`
}

const (
	maxModels = 64
	maxConfig = 4 << 20
)

var (
	snapshotPath = regexp.MustCompile(`/models--([^/]+)/snapshots/([0-9a-f]{40})(?:/|$)`)
	cachedPath   = regexp.MustCompile(`/models--([^/]+)/(?:blobs|snapshots)/`)
)

// modelList collects models.
type modelList struct {
	list    []Model
	hidden  bool // a command line was there, and nothing to redact it with
	unknown bool // a command line was there, and named no model
}

// reason says why there is no model.
func (l *modelList) reason(targets int) string {
	switch {
	case targets == 0:
		return "no process of a server was given"
	case l.hidden:
		return errNoRedact.Error()
	case l.unknown:
		return "no command line names a model, and no process maps a file of the Hugging Face cache"
	default:
		return "no command line could be read"
	}
}

// add looks for the models of one process.
func (l *modelList) add(r *reader, s *subject) {
	if len(s.args) > 0 {
		l.hidden = l.hidden || r.Redact == nil
		l.unknown = true
	}
	if r.Redact == nil {
		return
	}
	named := modelArgs(s.args)
	if named.model != "" {
		if words, err := r.redacted([]string{named.model, named.served}); err == nil {
			l.put(r.model(s, named, words))
		}
	}
	for _, f := range s.files {
		m := cachedPath.FindStringSubmatch(f.path)
		if m == nil {
			continue
		}
		model := Model{ID: null.Text(repository(m[1])), Source: evidenceMapped, PIDs: []int{s.pid}}
		n := null.Reasons{"served_name": "no command line names it", "config_sha256": "it is no local folder"}
		if m := snapshotPath.FindStringSubmatch(f.path); m != nil {
			model.Revision, model.RevisionSource = &m[2], "path"
		} else {
			n["revision"] = "the cache keeps its files by content, not by revision"
		}
		model.Unmeasured = n
		l.put(model)
	}
}

// put adds a model; one that is known gets one more process.
func (l *modelList) put(m Model) {
	for i := range l.list {
		o := &l.list[i]
		// What is mapped says nothing new of what a command line has named.
		same := o.ID == m.ID && (o.Source == m.Source || m.Revision == nil || o.Revision != nil && *o.Revision == *m.Revision)
		if same {
			if !slices.Contains(o.PIDs, m.PIDs[0]) {
				o.PIDs = append(o.PIDs, m.PIDs[0])
			}
			return
		}
	}
	if len(l.list) < maxModels {
		l.list = append(l.list, m)
	}
}

// repository turns the cache's ORG--NAME back.
func repository(folder string) string { return strings.ReplaceAll(folder, "--", "/") }

// namedModel is what a command line says of a model.
type namedModel struct{ model, served, revision, cache string }

// modelArgs reads the command lines of the servers: --model or --model-path, or what
// follows "serve". The last one counts, as argparse has it.
func modelArgs(args []string) (n namedModel) {
	positional := ""
	for i, a := range args {
		if a == "serve" && positional == "" && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			positional = args[i+1]
		}
		flag, value, has := strings.Cut(a, "=")
		if !strings.HasPrefix(flag, "--") {
			continue
		}
		if !has && i+1 < len(args) && !strings.HasPrefix(args[i+1], "--") {
			value = args[i+1]
		}
		switch strings.ReplaceAll(flag[2:], "_", "-") {
		case "model", "model-path":
			n.model = value
		case "served-model-name":
			n.served = value
		case "revision":
			n.revision = value
		case "download-dir":
			n.cache = value
		}
	}
	if n.model == "" {
		n.model = positional
	}
	return n
}

// model is what is known of a model that a command line names.
func (r *reader) model(s *subject, named namedModel, words []string) Model {
	n := null.Reasons{}
	m := Model{ID: null.Text(words[0]), Source: "command_line", PIDs: []int{s.pid}, Unmeasured: n}
	if named.served != "" {
		served := null.Text(words[1])
		m.ServedName = &served
	} else {
		n["served_name"] = "the command line gives none: it is the id"
	}
	config, err := r.localConfig(s, named.model)
	m.Local = err == nil || strings.HasPrefix(named.model, "/") || strings.HasPrefix(named.model, ".")
	switch {
	case m.Local:
		m.ConfigSHA256 = null.Value(n, "config_sha256", config, err)
	default:
		n["config_sha256"] = "it is no local folder"
	}
	var revision string
	revision, m.RevisionSource, err = r.revision(s, named, m.Local)
	m.Revision = null.Value(n, "revision", revision, err)
	return m
}

// localConfig hashes a local model's config.json.
func (r *reader) localConfig(s *subject, model string) (string, error) {
	if s.jail == nil {
		return "", errors.New("the process's files cannot be opened")
	}
	folder, err := r.inside(s, model)
	if err != nil {
		return "", err
	}
	b, err := s.jail.Whole(path.Join(folder, "config.json"), maxConfig)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// revision is the commit of a model's repository, and where it stands.
func (r *reader) revision(s *subject, named namedModel, local bool) (revision, source string, err error) {
	if m := snapshotPath.FindStringSubmatch(named.model); m != nil {
		return m[2], "path", nil
	}
	switch {
	case commit(named.revision) != "":
		return named.revision, "command_line", nil
	case local:
		return "", "", errors.New("a local folder has none; config_sha256 tells it from another one")
	case s.jail == nil:
		return "", "", errors.New("the process's files cannot be opened")
	}
	ref := named.revision
	if ref == "" {
		ref = "main"
	}
	folder := "models--" + strings.ReplaceAll(named.model, "/", "--")
	if strings.Contains(ref, "..") || strings.ContainsAny(ref+folder, "\x00") || len(ref)+len(folder) > 2*null.MaxText {
		return "", "", errors.New("it names no repository")
	}
	for _, cache := range caches(s, named.cache) {
		b, err := s.jail.Whole(path.Join(cache, folder, "refs", ref), 4096)
		if id := commit(strings.TrimSpace(string(b))); err == nil && id != "" {
			return id, "cache", nil
		}
	}
	return "", "", errors.New("the command line gives no commit, and the Hugging Face cache of the process has none under that name")
}

// caches are where a process's Hugging Face cache may be, in the library's own order.
func caches(s *subject, flag string) (out []string) {
	under := func(name, rest string) {
		if v := s.env[name]; path.IsAbs(v) {
			out = append(out, path.Join(v, rest))
		}
	}
	if path.IsAbs(flag) {
		out = append(out, flag)
	}
	under("HF_HUB_CACHE", "")
	under("HUGGINGFACE_HUB_CACHE", "")
	under("HF_HOME", "hub")
	under("XDG_CACHE_HOME", "huggingface/hub")
	under("HOME", ".cache/huggingface/hub")
	return out
}
