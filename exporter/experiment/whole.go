package experiment

import (
	"fmt"
	"reflect"
	"time"

	"go.yaml.in/yaml/v3"
)

// fractions lists the values with a fraction where the key wants a whole number: the
// library cuts them off and says nothing.
func fractions(n *yaml.Node, t reflect.Type) (out []string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[time.Duration]():
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!float" && (t.Kind() == reflect.Int || t.Kind() == reflect.Uint64):
		out = append(out, fmt.Sprintf("line %d: want a whole number, not %s", n.Line, n.Value))
	case n.Kind == yaml.SequenceNode && t.Kind() == reflect.Slice:
		for _, c := range n.Content {
			out = append(out, fractions(c, t.Elem())...)
		}
	case n.Kind == yaml.MappingNode && t.Kind() == reflect.Struct:
		for i := 0; i+1 < len(n.Content); i += 2 {
			for f := range t.Fields() {
				if f.Tag.Get("yaml") == n.Content[i].Value {
					out = append(out, fractions(n.Content[i+1], f.Type)...)
				}
			}
		}
	}
	return out
}
