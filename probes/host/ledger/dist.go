package ledger

import (
	"bytes"
	"encoding/json"
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/omnitap/omnitap/probes/host/internal/jail"
)

// Bounds of one distribution's files.
const (
	maxMetadata  = 64 << 10 // of the head: the fields stand in front of the description
	maxDirectURL = 64 << 10
)

var (
	distName = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$`)
	// distVersion is wider than PEP 440, which old packages do not keep to.
	distVersion = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+!_-]{0,127}$`)
	nameBreak   = regexp.MustCompile(`[-_.]+`)
	commitID    = regexp.MustCompile(`^[0-9a-f]{7,64}$`)
)

// canonical is a distribution's name as PyPI compares it.
func canonical(name string) string {
	return strings.ToLower(nameBreak.ReplaceAllString(name, "-"))
}

// dist is an installed distribution.
type dist struct {
	name, version string
	source        string // sourceMetadata or sourceFolder
	folder        string // its .dist-info or .egg-info, a path inside of the jail
	// changed is when the folder was last changed, seconds on the wall clock, 0 unknown.
	changed int64
	// editable is the folder that it is developed in, commit the revision that it was
	// installed from.
	editable, commit string
}

// parseMetadata reads the name and the version in the head of a METADATA file.
func parseMetadata(b []byte) (name, version string) {
	for line := range bytes.Lines(b) {
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		key, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			continue
		}
		v := string(bytes.TrimSpace(value))
		switch {
		case name == "" && bytes.EqualFold(key, []byte("name")) && distName.MatchString(v):
			name = v
		case version == "" && bytes.EqualFold(key, []byte("version")) && distVersion.MatchString(v):
			version = v
		}
	}
	return name, version
}

// parseFolder reads NAME-VERSION.dist-info and NAME-VERSION-py3.11.egg-info.
func parseFolder(base string) (name, version string, ok bool) {
	stem, ok := strings.CutSuffix(base, ".dist-info")
	if !ok {
		stem, ok = strings.CutSuffix(base, ".egg-info")
	}
	if !ok {
		return "", "", false
	}
	name, version, _ = strings.Cut(stem, "-")
	if v, py, more := strings.Cut(version, "-py"); more && py != "" {
		version = v
	}
	if !distName.MatchString(name) {
		return "", "", false
	}
	if !distVersion.MatchString(version) {
		version = ""
	}
	return name, version, true
}

// readDist reads one distribution. Its METADATA counts; where that cannot be read the
// folder's name does.
func readDist(j *jail.Jail, folder, base string) (dist, bool) {
	name, version, ok := parseFolder(base)
	if !ok {
		return dist{}, false
	}
	d := dist{name: canonical(name), version: version, source: sourceFolder, folder: path.Join(folder, base)}
	metadata := d.folder // an .egg-info may be a file
	if at, err := j.Changed(d.folder); err == nil {
		if !at.IsZero() {
			d.changed = at.Unix()
		}
		metadata = path.Join(d.folder, "METADATA")
		if strings.HasSuffix(base, ".egg-info") {
			metadata = path.Join(d.folder, "PKG-INFO")
		}
		d.direct(j)
	}
	if b, err := j.Head(metadata, maxMetadata); err == nil {
		if n, v := parseMetadata(b); n != "" && v != "" {
			d.name, d.version, d.source = canonical(n), v, sourceMetadata
		}
	}
	return d, d.version != ""
}

// directURL is what PEP 610 puts beside what was not installed from an index.
type directURL struct {
	URL string `json:"url"`
	VCS *struct {
		Commit string `json:"commit_id"`
	} `json:"vcs_info"`
	Dir *struct {
		Editable bool `json:"editable"`
	} `json:"dir_info"`
}

// direct reads where a distribution came from, and its commit.
func (d *dist) direct(j *jail.Jail) {
	b, err := j.Whole(path.Join(d.folder, "direct_url.json"), maxDirectURL)
	if err != nil {
		return
	}
	var from directURL
	if json.Unmarshal(b, &from) != nil {
		return
	}
	if from.VCS != nil && commitID.MatchString(from.VCS.Commit) {
		d.commit = from.VCS.Commit
	}
	u, err := url.Parse(from.URL)
	if from.Dir == nil || !from.Dir.Editable || err != nil || u.Scheme != "file" || !path.IsAbs(u.Path) {
		return
	}
	d.editable = path.Clean(u.Path)
	d.commit = headOf(j, d.editable)
}

// headOf reads which commit is checked out in a folder, "" where that cannot be told.
func headOf(j *jail.Jail, folder string) string {
	git := path.Join(folder, ".git")
	read := func(name string) string {
		b, err := j.Whole(path.Join(git, name), 4096)
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	head := read("HEAD")
	ref, ok := strings.CutPrefix(head, "ref: ")
	if !ok {
		return commit(head)
	}
	if !strings.HasPrefix(ref, "refs/") {
		return ""
	}
	if id := commit(read(ref)); id != "" {
		return id
	}
	packed, err := j.Whole(path.Join(git, "packed-refs"), 1<<20)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(packed)) {
		if id, name, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name == ref {
			return commit(id)
		}
	}
	return ""
}

// commit is a full commit id, or "".
func commit(s string) string {
	if len(s) >= 40 && commitID.MatchString(s) {
		return s
	}
	return ""
}
