package prometheus

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// board is what a test needs of a Grafana dashboard.
type board struct {
	UID, Title    string
	SchemaVersion int
	Panels        []panel
	Templating    struct {
		List []struct{ Name, Type, Definition string }
	}
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ H, W, X, Y int }
	Datasource               source
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Targets                  []struct {
		RefID, Expr, LegendFormat string
		Datasource                source
	}
}

type source struct{ Type, UID string }

func readBoard(t *testing.T) *board {
	t.Helper()
	text, err := os.ReadFile("../../configs/grafana/omnitap.json")
	if err != nil {
		t.Fatal(err)
	}
	var b board
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	return &b
}

type expression struct{ panel, expr string }

func (b *board) expressions() (out []expression) {
	for i := range b.Panels {
		for _, x := range b.Panels[i].Targets {
			out = append(out, expression{b.Panels[i].Title, x.Expr})
		}
	}
	return out
}

// substitute fills in what Grafana does, with all chosen.
func substitute(expr string) string {
	return strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*", "$job", ".*", "$flow", ".*", "$model", ".*").Replace(expr)
}

type rule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func readRules(t *testing.T) (out []rule) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(configs, "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	for _, g := range doc.Groups {
		out = append(out, g.Rules...)
	}
	return out
}

// units are Grafana's own names of units that the board uses.
var units = []string{"s", "none", "short", "reqps", "cps", "Bps", "bytes", "percentunit"}

// TestBoard: what Grafana asks of a dashboard that it loads, as far as that can be seen
// without one: it installs from no registry that this repository uses.
func TestBoard(t *testing.T) {
	b := readBoard(t)
	if b.UID == "" || b.Title == "" || b.SchemaVersion < 36 || len(b.Panels) == 0 {
		t.Fatalf("uid %q, title %q, schema %d, %d panels", b.UID, b.Title, b.SchemaVersion, len(b.Panels))
	}
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for i := range b.Panels {
		p := &b.Panels[i]
		if ids[p.ID] || p.ID == 0 || p.Title == "" {
			t.Errorf("panel %q has the id %d", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if at := [2]int{x, y}; x > 23 || cells[at] != "" {
					t.Fatalf("panel %q lies over %q or beyond the edge", p.Title, cells[at])
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		if p.GridPos.W < 4 || p.GridPos.H < 1 {
			t.Errorf("panel %q is %d by %d", p.Title, p.GridPos.W, p.GridPos.H)
		}
		if p.Type != "row" {
			b.panel(t, p)
		}
	}
	for _, v := range b.Templating.List {
		if v.Type == "query" && !slices.ContainsFunc(b.expressions(), func(x expression) bool { return strings.Contains(x.expr, "$"+v.Name) }) {
			t.Errorf("no panel uses the variable %s", v.Name)
		}
	}
}

func (b *board) panel(t *testing.T, p *panel) {
	t.Helper()
	own := source{"prometheus", "${datasource}"}
	if p.Datasource != own || p.Description == "" || len(p.Targets) == 0 || p.Type != "timeseries" && p.Type != "table" {
		t.Errorf("panel %q: type %s, source %v, %q, %d targets", p.Title, p.Type, p.Datasource, p.Description, len(p.Targets))
	}
	if unit := p.FieldConfig.Defaults.Unit; p.Type == "timeseries" && !slices.Contains(units, unit) {
		t.Errorf("panel %q has the unit %q", p.Title, unit)
	}
	refs := map[string]bool{}
	for _, x := range p.Targets {
		if x.Datasource != own || x.RefID == "" || refs[x.RefID] || p.Type == "timeseries" && x.LegendFormat == "" {
			t.Errorf("panel %q: target %+v", p.Title, x)
		}
		refs[x.RefID] = true
		known := regexp.MustCompile(`\$(__rate_interval|instance|job|flow|model)\b`).ReplaceAllString(x.Expr, "")
		if strings.Contains(known, "$") {
			t.Errorf("panel %q uses a variable that the board does not have: %s", p.Title, x.Expr)
		}
	}
}

// TestBoardShowsWhatIsLost: every metric is on the board or in an alert, so that nothing
// is counted that nobody sees.
func TestBoardShowsWhatIsLost(t *testing.T) {
	var all strings.Builder
	for _, x := range readBoard(t).expressions() {
		all.WriteString(x.expr + "\n")
	}
	for _, m := range schema {
		if !regexp.MustCompile(m.Name + `(_bucket|_count)?\b`).MatchString(all.String()) {
			t.Errorf("%s is not on the board", m.Name)
		}
	}
	for _, name := range regexp.MustCompile(`omnitap_\w+`).FindAllString(all.String(), -1) {
		if !slices.ContainsFunc(schema, func(m Metric) bool {
			return m.Name == regexp.MustCompile(`_(bucket|count)$`).ReplaceAllString(name, "")
		}) {
			t.Errorf("the board shows %s, which nothing makes", name)
		}
	}
}

// TestAlerts: each alert says what, how bad and for how long, and has a unit test in which
// it fires and one in which it does not.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("testdata/alerts_test.yml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Tests []struct {
			Cases []struct {
				Alert string `yaml:"alertname"`
				Fires []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, group := range doc.Tests {
		for _, c := range group.Cases {
			fires[c.Alert] = fires[c.Alert] || len(c.Fires) > 0
			quiet[c.Alert] = quiet[c.Alert] || len(c.Fires) == 0
		}
	}
	for _, r := range readRules(t) {
		if !fires[r.Alert] || !quiet[r.Alert] {
			t.Errorf("%s: tested where it fires %v, where it does not %v", r.Alert, fires[r.Alert], quiet[r.Alert])
		}
		if r.For == "" || r.Annotations["summary"] == "" || !slices.Contains([]string{"info", "warning", "critical"}, r.Labels["severity"]) {
			t.Errorf("%s: for %q, severity %q, summary %q", r.Alert, r.For, r.Labels["severity"], r.Annotations["summary"])
		}
	}
}
