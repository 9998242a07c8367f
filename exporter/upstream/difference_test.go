package upstream

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// walk scrapes bodies one after the other, the first ahead and the last behind the load.
func walk(t testing.TB, bodies ...string) []Scrape {
	t.Helper()
	var out []Scrape
	for i, b := range bodies {
		s := Scrape{Schema: Schema, Phase: During, MonoNS: int64(i + 1), Whole: true}
		switch i {
		case 0:
			s.Phase = Before
		case len(bodies) - 1:
			s.Phase = After
		}
		if rest, bad := strings.CutPrefix(b, "error: "); bad {
			s.Error, s.Whole = rest, false
		} else {
			s.Series = parse(t, b, "")
		}
		out = append(out, s)
	}
	return out
}

func delta(t testing.TB, d Difference, name string) Delta {
	t.Helper()
	for _, x := range d.Deltas {
		if x.Name == name {
			return x
		}
	}
	t.Fatalf("no delta of %s", name)
	return Delta{}
}

func body(start, count, hist string) string {
	return "process_start_time_seconds " + start + "\n# TYPE c_total counter\nc_total " + count +
		"\n# TYPE h histogram\nh_bucket{le=\"1\"} " + hist + "\nh_bucket{le=\"+Inf\"} " + hist + "\nh_count " + hist + "\nh_sum " + hist + "\n"
}

func TestBetween(t *testing.T) {
	for _, c := range []struct {
		name     string
		bodies   []string
		increase Number
		count    Number
		resets   int
		restarts int
		missing  string
	}{
		{"grew", []string{body("1", "10", "5"), body("1", "12", "5"), body("1", "17", "9")}, 7, 4, 0, 0, ""},
		{"started anew, and fell", []string{body("1", "10", "5"), body("2", "3", "2")}, 3, 2, 1, 1, ""},
		{"started anew, and counts more than before", []string{body("1", "10", "5"), body("2", "30", "20")}, 30, 20, 1, 1, ""},
		{"twice", []string{body("1", "10", "5"), body("1", "15", "6"), body("2", "3", "2"), body("2", "4", "2"), body("3", "1", "1")}, 5 + 3 + 1 + 1, 1 + 2 + 1, 2, 2, ""},
		{"fell, and nothing says when it began", []string{"# TYPE c_total counter\nc_total 10\n# TYPE h histogram\nh_count 3\nh_sum 1\n", "# TYPE c_total counter\nc_total 4\n# TYPE h histogram\nh_count 4\nh_sum 2\n"}, 4, 1, 1, 1, ""},
		{"created anew", []string{"# TYPE c_total counter\nc_total 10\n# TYPE c_created gauge\nc_created 1\n# TYPE h histogram\nh_count 3\nh_sum 1\n", "# TYPE c_total counter\nc_total 14\n# TYPE c_created gauge\nc_created 2\n# TYPE h histogram\nh_count 4\nh_sum 2\n"}, 14, 1, 1, 1, ""},
		{"first used later", []string{"# TYPE x_total counter\nx_total 1\n", body("1", "4", "2")}, 4, 2, 0, 0, ""},
		{"a scrape failed", []string{body("1", "10", "5"), "error: answered 500", body("1", "12", "6")}, 2, 1, 0, 0, ""},
		{"no first scrape", []string{"error: refused", body("1", "10", "5"), body("1", "12", "6")}, 2, 1, 0, 0, "ahead of the load"},
		{"no last scrape", []string{body("1", "10", "5"), body("1", "12", "6"), "error: refused"}, 2, 1, 0, 0, "behind the load"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Between(walk(t, c.bodies...))
			x, h := delta(t, d, "c_total"), delta(t, d, "h")
			if *x.Increase != c.increase || *h.Count != c.count || x.Resets != c.resets || d.Restarts != c.restarts {
				t.Errorf("counter +%v, histogram +%v, %d resets, %d restarts; want +%v, +%v, %d, %d", *x.Increase, *h.Count, x.Resets, d.Restarts, c.increase, c.count, c.resets, c.restarts)
			}
			if (d.Incomplete == "") != (c.missing == "") || !strings.Contains(d.Incomplete, c.missing) {
				t.Errorf("incomplete is %q, want something of %q", d.Incomplete, c.missing)
			}
		})
	}
	if d := Between(walk(t, "error: a", "error: a", "error: b")); d.Failed != 3 || len(d.Problems) != 2 || d.Incomplete == "" || len(d.Deltas) != 0 {
		t.Errorf("nothing but failures gives %+v", d)
	}
}

func TestBetweenGauges(t *testing.T) {
	g := func(v string) string { return "# TYPE g gauge\ng " + v + "\n" }
	x := delta(t, Between(walk(t, g("2"), g("9"), g("-1"), g("4"))), "g")
	if *x.First != 2 || *x.Last != 4 || *x.Min != -1 || *x.Max != 9 || x.Increase != nil {
		t.Errorf("the gauge is %+v", x)
	}
	if x := delta(t, Between(walk(t, g("2"), "# TYPE c_total counter\nc_total 1\n")), "g"); !x.Gone {
		t.Error("a series that went is not gone")
	}
}

func TestBetweenBuckets(t *testing.T) {
	d := Between(walk(t, body("1", "1", "2"), body("1", "1", "5")))
	if got, want := delta(t, d, "h").Buckets, []Bucket{{1, 3}, {Number(inf), 3}}; !cmp.Equal(got, want) {
		t.Errorf("buckets are %v, want %v", got, want)
	}
	other := strings.Replace(body("1", "1", "9"), `le="1"`, `le="2"`, 1)
	if x := delta(t, Between(walk(t, body("1", "1", "2"), other)), "h"); x.Buckets != nil || *x.Count != 7 {
		t.Errorf("other bounds give buckets %v, count %v", x.Buckets, *x.Count)
	}
}

// TestFile writes with changes alone, and reads the same back; a damaged line costs what it says.
func TestFile(t *testing.T) {
	bodies := []string{body("1", "10", "5"), body("1", "12", "5"), body("1", "12", "6"), "# TYPE c_total counter\nc_total 1\n", body("2", "2", "1")}
	scrapes := walk(t, bodies...)
	var file bytes.Buffer
	s := &Scraper{w: &file, config: Config{}.withDefaults()}
	for _, x := range scrapes {
		x.Series, x.Whole = changes(s.last, x.Series, x.Phase != During)
		if err := s.write(x); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.SplitAfter(file.String(), "\n")
	if len(lines[1]) >= len(lines[0])/2 {
		t.Errorf("a line of one change has %d bytes, the whole %d", len(lines[1]), len(lines[0]))
	}
	got, problems, err := Read(bytes.NewReader(file.Bytes()))
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	if d := cmp.Diff(text(t, Between(scrapes)), text(t, Between(got))); d != "" {
		t.Errorf("what was read differs (-want +got):\n%s", d)
	}
	lines[1] = lines[1][:20] + "\n"
	got, problems, err = Read(strings.NewReader(strings.Join(lines, "")))
	if err != nil || len(problems) != 2 || len(got) != 3 { // line 3 builds on line 2; line 4 is whole
		t.Errorf("a damaged line leaves %d scrapes, problems %q, error %v", len(got), problems, err)
	}
	got, problems, _ = Read(strings.NewReader(lines[0] + lines[4][:30]))
	if len(got) != 1 || len(problems) != 1 {
		t.Errorf("a cut last line leaves %d scrapes, problems %q", len(got), problems)
	}
}

func text(t testing.TB, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestNumber(t *testing.T) {
	for _, want := range []string{"1.5", `"NaN"`, `"+Inf"`, `"-Inf"`} {
		var n Number
		if err := json.Unmarshal([]byte(want), &n); err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(n); err != nil || string(got) != want {
			t.Errorf("%s becomes %s, %v", want, got, err)
		}
	}
	var n Number
	if json.Unmarshal([]byte(`"x"`), &n) == nil {
		t.Error("a word is taken for a number")
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"schema":1,"phase":"before","whole":true,"series":[{"name":"a","type":"counter","value":1}]}` + "\n" + `{"schema":1,"phase":"after","whole":false,"series":[{"name":"a","type":"counter","value":3}]}`))
	f.Add([]byte(`{"schema":1,"series":[{"name":"h","type":"histogram","count":2,"sum":"NaN","buckets":[{"le":"+Inf","n":2}]}],"whole":true}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		scrapes, _, err := Read(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := json.Marshal(Between(scrapes)); err != nil {
			t.Fatal(err)
		}
	})
}
