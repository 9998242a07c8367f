package telemetry

import (
	"fmt"
	"strings"

	"go.opentelemetry.io/otel/attribute"
)

// Markdown is the schema as README has it.
func Markdown() string {
	var b strings.Builder
	row := func(cells ...string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	head := func(cells ...string) {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		row(cells...)
		b.WriteString("|" + strings.Repeat(" --- |", len(cells)) + "\n")
	}
	head("span", "kind", "from", "to", "what")
	for _, s := range spans {
		row(code(s.Name), s.Kind, s.From, s.To, s.Meaning)
	}
	head("event of a request's span", "point", "what")
	for _, e := range events {
		row(code(e.Name), code(e.Point), e.Meaning)
	}
	head("terminal state", "status of the span", "`error.type`")
	for _, s := range statuses {
		row(s.State, s.Status, or(s.ErrorType))
	}
	head("metric", "unit", "kind", "of", "attributes", "what", "boundaries")
	for i := range metrics {
		m := &metrics[i]
		row(code(m.Name), code(m.Unit), string(m.Kind), string(m.Of), keys(m.Attributes), m.Meaning, span(m.Bounds))
	}
	head("attribute", "on", "what")
	for _, a := range attributes {
		row(code(string(a.Key)), a.On, a.Meaning)
	}
	head("reason of a drop", "what")
	for _, d := range drops {
		row(code(string(d.Reason)), d.Meaning)
	}
	head("vLLM and vLLM-Omni", "omnitap", "what is different there")
	for _, c := range counterparts {
		row(quoted(c.Server), quoted(c.Ours), c.Difference)
	}
	return b.String()
}

func code(s string) string { return "`" + s + "`" }

// quoted quotes each of a list of names; words among them stay as they are.
func quoted(list string) string {
	parts := strings.Split(list, ", ")
	for i, p := range parts {
		name, rest, more := strings.Cut(p, " ")
		if name == "–" {
			continue
		}
		if parts[i] = code(name); more {
			parts[i] += " " + rest
		}
	}
	return strings.Join(parts, ", ")
}

func or(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

func keys(list []attribute.Key) string {
	if len(list) == 0 {
		return "–"
	}
	names := make([]string, len(list))
	for i, k := range list {
		names[i] = code(string(k))
	}
	return strings.Join(names, ", ")
}

// span describes boundaries.
func span(bounds []float64) string {
	if len(bounds) == 0 {
		return "–"
	}
	return fmt.Sprintf("%d, %g to %g", len(bounds), bounds[0], bounds[len(bounds)-1])
}
