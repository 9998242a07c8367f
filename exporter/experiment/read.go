package experiment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFile bounds experiment.yaml: the library compares each key with each other one.
const maxFile = 256 << 10

// Read reads and checks an experiment.
func Read(r io.Reader) (Experiment, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return Experiment{}, fmt.Errorf("reading the experiment: %w", err)
	}
	return Parse(text)
}

// Parse reads and checks an experiment. It keeps a copy of text.
func Parse(text []byte) (Experiment, error) {
	if len(text) > maxFile {
		return Experiment{}, fmt.Errorf("the experiment is longer than %d bytes", maxFile)
	}
	e := Default()
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	var root yaml.Node
	err := dec.Decode(&root)
	switch {
	case errors.Is(err, io.EOF):
		return Experiment{}, errors.New("the experiment is empty")
	case err != nil:
		return Experiment{}, fmt.Errorf("the experiment: %w", plain(err))
	case root.Content[0].Kind != yaml.MappingNode:
		return Experiment{}, fmt.Errorf("the experiment: line %d: want keys and values", root.Content[0].Line)
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return Experiment{}, errors.New("the experiment: a second document begins behind the first")
	}
	// Once more, into the keys: a node forgets that unknown ones are errors.
	dec = yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&e); err != nil {
		return Experiment{}, fmt.Errorf("the experiment: %w", plain(err))
	}
	if e.Workload.Concurrency == 0 && e.Workload.Rate == 0 && len(e.Workload.Times) == 0 {
		e.Workload.Concurrency = DefaultConcurrency
	}
	if cut := fractions(root.Content[0], reflect.TypeFor[Experiment]()); len(cut) > 0 {
		return Experiment{}, fmt.Errorf("the experiment: %s", some(cut))
	}
	e.source = bytes.Clone(text)
	for i := 0; i < len(root.Content[0].Content); i += 2 {
		e.given = append(e.given, root.Content[0].Content[i].Value)
	}
	var all []error
	for _, c := range e.complaints() {
		if line := lineOf(root.Content[0], c.key); line > 0 {
			all = append(all, fmt.Errorf("the experiment: line %d: %w", line, c))
		} else {
			all = append(all, fmt.Errorf("the experiment: %w", c))
		}
	}
	if len(all) > 0 {
		return Experiment{}, errors.Join(all...)
	}
	return e, nil
}

// unknown is how the library says that a key is unknown.
var unknown = regexp.MustCompile(`field (.*?) not found in type [^\s;]+`)

// plain makes one line of the library's errors, in the words of the file.
func plain(err error) error {
	list := []string{strings.TrimPrefix(err.Error(), "yaml: ")}
	if t, ok := errors.AsType[*yaml.TypeError](err); ok {
		list = t.Errors
	}
	return errors.New(unknown.ReplaceAllString(some(list), "unknown key $1"))
}

// maxNamed bounds what an error lists.
const maxNamed = 5

// some makes one line of the first of many.
func some(list []string) string {
	if more := len(list) - maxNamed; more > 0 {
		list = append(list[:maxNamed:maxNamed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, "; ")
}

// lineOf is the line of a key, given with dots, or of the nearest one above it that is
// there; 0 for none.
func lineOf(n *yaml.Node, key string) (line int) {
	for name := range strings.SplitSeq(key, ".") {
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		at := slices.IndexFunc(n.Content, func(c *yaml.Node) bool { return c.Kind == yaml.ScalarNode && c.Value == name })
		if n.Kind != yaml.MappingNode || at < 0 || at+1 >= len(n.Content) {
			return line
		}
		line, n = n.Content[at].Line, n.Content[at+1]
	}
	return line
}
