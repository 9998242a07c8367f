package gate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// maxText bounds a condition: the longest that means something has 40 bytes, and its flow.
const maxText = 150

// maxNumber bounds its number.
const maxNumber = 20

// Parse reads a condition; see the package comment. The error says what is wrong and
// what would be right.
func Parse(text string) (Gate, error) {
	g, err := parse(text)
	if err != nil {
		return Gate{}, fmt.Errorf("gate %q: %w", clip(text), err)
	}
	return g, nil
}

func clip(s string) string {
	if len(s) <= maxText {
		return s
	}
	return s[:maxText] + "…"
}

func parse(text string) (Gate, error) {
	if len(text) > maxText {
		return Gate{}, fmt.Errorf("%d bytes are no condition", len(text))
	}
	flow, rest, named := strings.Cut(text, ":")
	if named {
		text = rest
		if flow = strings.Trim(flow, " "); flow == "" || strings.ContainsFunc(flow, unfit) {
			return Gate{}, errors.New("a flow's name must stand ahead of the colon, as in chat: ttfa_p99 <= +5%")
		}
	} else {
		flow = ""
	}
	at := strings.IndexAny(text, "<>=")
	if at < 0 || text[at] == '=' {
		return Gate{}, errors.New("one of <=, <, >= and > must stand between metric and limit")
	}
	g := Gate{Flow: flow, Op: Op(text[at : at+1])}
	rest = text[at+1:]
	if strings.HasPrefix(rest, "=") {
		g.Op, rest = g.Op+"=", rest[1:]
	}
	if err := g.figure(strings.Trim(text[:at], " ")); err != nil {
		return Gate{}, err
	}
	if err := g.limit(strings.Trim(rest, " ")); err != nil {
		return Gate{}, err
	}
	return g, nil
}

// unfit are the characters that no flow's name has. Turns are told apart in parentheses.
func unfit(r rune) bool { return r <= ' ' && r != ' ' || r > '~' || strings.ContainsRune("<>=:", r) }

// figure reads METRIC[_pNN].
func (g *Gate) figure(name string) error {
	base := name
	if at := strings.LastIndex(name, "_p"); at >= 0 && digits(name[at+2:]) {
		base = name[:at]
		p, err := strconv.Atoi(name[at+2:])
		if err != nil || p < 1 || p > 99 || name[at+2] == '0' {
			return fmt.Errorf("%q: percentiles are _p1 to _p99", name)
		}
		g.Percentile = p
	}
	var names []string
	for _, m := range Metrics() {
		names = append(names, m.Name)
		if m.Name == base {
			g.Metric = m
		}
	}
	switch {
	case base == "":
		return errors.New("the metric is missing")
	case g.Metric.Name == "":
		return fmt.Errorf("no metric %q; there are %s", base, strings.Join(names, ", "))
	case g.Percentile > 0 && !g.Metric.Requests:
		return fmt.Errorf("%s is one figure a run and has no percentiles", base)
	case g.Percentile == 0 && g.Metric.Requests:
		return fmt.Errorf("%s has a distribution: say which figure of it, as in %s_p95", base, base)
	}
	return nil
}

// units are those that a limit may have, by kind: signed and not.
var units = map[Kind]struct{ signed, plain []string }{
	Time:  {[]string{"%", "ms", "s"}, []string{"ms", "s"}},
	Ratio: {[]string{"%", ""}, []string{""}},
	Rate:  {[]string{"%", "/s"}, []string{"/s"}},
	Share: {[]string{"%", "pp"}, []string{"%"}},
}

// limit reads [+|-]NUMBER[UNIT].
func (g *Gate) limit(text string) error {
	if text == "" {
		return errors.New("the limit is missing")
	}
	signed := text[0] == '+' || text[0] == '-'
	number := strings.TrimLeft(text, "+-")
	end := strings.IndexFunc(number, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if end < 0 {
		end = len(number)
	}
	g.Unit = strings.TrimLeft(number[end:], " ")
	number = number[:end]
	if len(text)-len(strings.TrimLeft(text, "+-")) > 1 || !plain(number) {
		return fmt.Errorf("%q is no limit: a number such as +5%%, -20ms or 300ms is expected", text)
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || v > 1e12 || len(number) > maxNumber {
		return fmt.Errorf("%q is out of range", text)
	}
	if g.Value = v; text[0] == '-' {
		g.Value = -v
	}
	return g.about(text, signed)
}

// about tells what the limit is of from its sign and unit.
func (g *Gate) about(text string, signed bool) error {
	allowed := units[g.Metric.Kind].plain
	g.About = Figure
	if signed {
		allowed = units[g.Metric.Kind].signed
		if g.About = Difference; g.Unit == "%" {
			g.About = Change
		}
	}
	known := false
	for _, u := range allowed {
		known = known || u == g.Unit
	}
	switch {
	case !known && !signed && g.Unit == "%":
		return fmt.Errorf("%q: a change needs its sign: +%s or -%s", text, text, text)
	case !known:
		return fmt.Errorf("%q: the unit of %s is %s", text, g.Metric.Name, named(allowed))
	case g.About == Change && g.Value <= -100:
		return fmt.Errorf("%q: nothing falls by all of it or more", text)
	case g.Metric.Kind == Share && g.Value > 100 || g.Metric.Kind == Share && g.Value < -100:
		return fmt.Errorf("%q: a share goes from 0 to 100%%", text)
	}
	return nil
}

func named(units []string) string {
	out := make([]string, len(units))
	for i, u := range units {
		if out[i] = u; u == "" {
			out[i] = "none"
		}
	}
	return strings.Join(out, " or ")
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// plain says whether s is digits with at most one point among them.
func plain(s string) bool {
	whole, part, point := strings.Cut(s, ".")
	return digits(whole) && (!point || digits(part))
}
