package find

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Rule tells the processes of a server that discovery does not know. All conditions
// that a rule has must hold; their named groups stage, replica and rank, where they
// matched, say which stage it is.
//
//	rules:
//	  - server: my-server          # what records call it
//	    role: stage                # api, stage (default) or worker
//	    title: '^my-(?P<stage>[a-z]+)-r(?P<replica>\d+)$'
//	    cmdline: 'my_server\.worker'
//	    env: {name: MY_STAGE, match: '^(?P<stage>\d+)$'}
//	    listen: '/my/(?P<stage>[a-z]+)\.sock$'
//	    names: {0: encoder, 1: decoder}
//
// title is the first argument, cmdline all of them joined by spaces, env a variable
// of the environment at exec, listen the path of a Unix socket or HOST:PORT that the
// process listens on. A stage that is a number is the stage's id.
type Rule struct {
	Server  string         `yaml:"server"`
	Role    string         `yaml:"role"`
	Title   *Pattern       `yaml:"title"`
	Cmdline *Pattern       `yaml:"cmdline"`
	Env     *EnvRule       `yaml:"env"`
	Listen  *Pattern       `yaml:"listen"`
	Names   map[int]string `yaml:"names"`
}

// EnvRule is the condition on one variable of the environment.
type EnvRule struct {
	Name  string   `yaml:"name"`
	Match *Pattern `yaml:"match"`
}

// Pattern is a regular expression (RE2) of a rule.
type Pattern struct {
	re *regexp.Regexp
}

// groups are the names that a pattern may give to its parts.
var groups = []string{"stage", "replica", "rank"}

// UnmarshalYAML compiles the expression; an error names the line.
func (p *Pattern) UnmarshalYAML(node *yaml.Node) error {
	var text string
	if err := node.Decode(&text); err != nil {
		return err
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return fmt.Errorf("line %d: %w", node.Line, err)
	}
	for _, name := range re.SubexpNames() {
		if name != "" && !slices.Contains(groups, name) {
			return fmt.Errorf("line %d: a group is called %q; known are %s", node.Line, name, strings.Join(groups, ", "))
		}
	}
	if re.MatchString("") {
		return fmt.Errorf("line %d: %q matches everything", node.Line, text)
	}
	p.re = re
	return nil
}

// maxRules bounds a rule file.
const maxRules = 1 << 20

// ParseRules reads a rule file. A key that it does not know is an error with its
// line.
func ParseRules(r io.Reader) ([]Rule, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxRules+1))
	if err != nil {
		return nil, fmt.Errorf("reading the rules: %w", err)
	}
	if len(b) > maxRules {
		return nil, fmt.Errorf("rules: longer than %d bytes", maxRules)
	}
	var file struct {
		Rules []Rule `yaml:"rules"`
	}
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("rules: %w", err)
	}
	var bad []error
	for i := range file.Rules {
		if err := file.Rules[i].validate(); err != nil {
			bad = append(bad, fmt.Errorf("rule %d: %w", i+1, err))
		}
	}
	return file.Rules, errors.Join(bad...)
}

// validate says what a rule lacks, and fills in its default.
func (r *Rule) validate() error {
	if r.Role == "" {
		r.Role = RoleStage
	}
	var bad []error
	if !isName(r.Server) {
		bad = append(bad, errors.New("server needs a name"))
	}
	if r.Role != RoleAPI && r.Role != RoleStage && r.Role != RoleWorker {
		bad = append(bad, fmt.Errorf("role is %q, not api, stage or worker", r.Role))
	}
	if r.Env != nil && (r.Env.Name == "" || r.Env.Match == nil) {
		bad = append(bad, errors.New("env needs name and match"))
	}
	if r.Title == nil && r.Cmdline == nil && r.Env == nil && r.Listen == nil {
		bad = append(bad, errors.New("it has no condition: title, cmdline, env or listen"))
	}
	for id, name := range r.Names {
		if !isName(name) {
			bad = append(bad, fmt.Errorf("stage %d has the name %q", id, name))
		}
	}
	return errors.Join(bad...)
}

// match holds a rule against a process. found are the groups, why the conditions.
func (r *Rule) match(s *Snapshot) (found map[string]string, why string, ok bool) {
	found = map[string]string{}
	var held []string
	try := func(what string, p *Pattern, texts ...string) bool {
		for _, text := range texts {
			if p.find(text, found) {
				held = append(held, what)
				return true
			}
		}
		return false
	}
	if r.Title != nil && !try("title", r.Title, s.title()) ||
		r.Cmdline != nil && !try("cmdline", r.Cmdline, strings.Join(s.Args, " ")) ||
		r.Env != nil && !try("env "+r.Env.Name, r.Env.Match, s.Env[r.Env.Name]) ||
		r.Listen != nil && !try("listen", r.Listen, listens(s)...) {
		return nil, "", false
	}
	return found, "rule for " + r.Server + ": " + strings.Join(held, ", "), true
}

// find matches one text and keeps the groups.
func (p *Pattern) find(text string, found map[string]string) bool {
	m := p.re.FindStringSubmatch(text)
	if m == nil {
		return false
	}
	for i, name := range p.re.SubexpNames() {
		if name != "" && m[i] != "" {
			found[name] = m[i]
		}
	}
	return true
}

// listens are the addresses that a process listens on, as a rule sees them.
func listens(s *Snapshot) []string {
	out := slices.Clone(s.Unix)
	for _, a := range s.TCP {
		out = append(out, a.String())
	}
	return out
}
