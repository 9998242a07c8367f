package convert

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/omnitap/omnitap/exporter/convert/internal/column"
	"github.com/omnitap/omnitap/exporter/rundir"
)

// Every value of every table is held to the JSON that it comes from, read here without
// any type of the program: by the column's Source, which is the path in the JSON.

// cells is a table as text: a row's columns by name; what is null is not there.
type cells []map[string]string

func TestRoundTrip(t *testing.T) {
	for name, dir := range map[string]string{"made": made, "demo": demo(t)} {
		t.Run(name, func(t *testing.T) {
			want := wanted(t, dir)
			asCSV, notes := export(t, CSV, dir)
			if len(notes) != 0 || asCSV.Lost != 0 {
				t.Errorf("notes on a whole run: %v", notes)
			}
			asParquet, _ := export(t, Parquet, dir)
			for _, table := range tableNames {
				if table == "runs" {
					continue // of metadata.json, see TestGolden
				}
				cols := schemas()[table]
				check(t, table+".csv", cols, want[table], readCSV(t, filepath.Join(asCSV.Out, table+".csv"), cols))
				check(t, table+".parquet", cols, want[table], readParquet(t, filepath.Join(asParquet.Out, table+".parquet"), cols))
			}
		})
	}
}

func check(t *testing.T, name string, cols []column.Column, want, got cells) {
	t.Helper()
	if len(want) == 0 || len(want) != len(got) {
		t.Errorf("%s: %d rows, the run has %d", name, len(got), len(want))
		return
	}
	for i := range cols {
		c := &cols[i]
		for n := range want {
			w, there := want[n][c.Name]
			g, is := got[n][c.Name]
			if w != g || there != is {
				t.Errorf("%s: row %d: %s = %q (%t), the run has %q (%t)", name, n, c.Name, g, is, w, there)
				break
			}
		}
	}
}

// wanted makes each table's rows from the files of a run.
func wanted(t *testing.T, dir string) map[string]cells {
	t.Helper()
	w := map[string]cells{}
	all := schemas()
	for n, r := range objects(t, dir, rundir.RequestsFile) {
		key := map[string]any{
			"run_dir": dir, "run_id": r["run_id"], "record": json.Number(fmt.Sprint(n)), "request_id": r["request_id"],
			"session_id": r["session_id"], "attempt": r["attempt"], "flow": r["flow"], "state": r["terminal"].(map[string]any)["state"],
		}
		w["requests"] = append(w["requests"], flat(all["requests"], key, r, ""))
		for table, list := range map[string]string{"stages": "stages", "transfers": "transfers", "path": "critical_path"} {
			items, _ := r[list].([]any)
			for place, item := range items {
				key["place"] = json.Number(fmt.Sprint(place))
				w[table] = append(w[table], flat(all[table], key, item.(map[string]any), list+"[]."))
			}
		}
	}
	for table, file := range map[string]string{"events": rundir.EventsFile, "sessions": rundir.SessionsFile} {
		for _, v := range objects(t, dir, file) {
			w[table] = append(w[table], flat(all[table], map[string]any{"run_dir": dir}, v, ""))
		}
	}
	run, err := rundir.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range objects(t, dir, rundir.QualityFile) {
		key := map[string]any{"run_dir": dir, "run_id": run.Metadata.RunID, "request_id": q["request_id"]}
		for _, c := range q["checks"].([]any) {
			w["quality"] = append(w["quality"], flat(all["quality"], key, c.(map[string]any), "checks[]."))
		}
	}
	return w
}

// flat takes a line's values by the columns' sources.
func flat(cols []column.Column, key, line map[string]any, prefix string) map[string]string {
	row := map[string]string{}
	for i := range cols {
		c := &cols[i]
		path, own := strings.CutPrefix(c.Source, prefix)
		v, ok := key[c.Source]
		if own && (prefix != "" || !ok) {
			v = at(line, strings.Split(path, "."))
		}
		if v != nil {
			row[c.Name] = plain(v)
		} else if !c.Nullable { // left out of the line for being its zero
			row[c.Name] = map[column.Kind]string{column.Int: "0", column.Bool: "false", column.Float: "0"}[c.Kind]
		}
	}
	return row
}

func at(v any, path []string) any {
	for _, name := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}

// plain is a value as a cell, whatever its spelling in the file was.
func plain(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return number(v.String())
	}
	text, _ := json.Marshal(v)
	return string(text)
}

func number(s string) string {
	if !strings.ContainsAny(s, ".eE") {
		return s
	}
	var f float64
	_, _ = fmt.Sscan(s, &f)
	return fmt.Sprint(f)
}

func readCSV(t *testing.T, path string, cols []column.Column) cells {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Count(text, []byte("\n")) != bytes.Count(text, []byte("\r\n")) {
		t.Errorf("%s: a line ends without CR", path)
	}
	r := csv.NewReader(bytes.NewReader(text))
	rows, err := r.ReadAll() // refuses rows of another length, and bare quotes
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	var out cells
	for _, row := range rows[1:] {
		m := map[string]string{}
		for i, v := range row {
			if rows[0][i] != cols[i].Name {
				t.Fatalf("%s: column %d is %q, want %q", path, i, rows[0][i], cols[i].Name)
			}
			if v == "" && (cols[i].Nullable || cols[i].Kind != column.Text) {
				continue
			}
			m[cols[i].Name] = spelled(cols[i].Kind, v)
		}
		out = append(out, m)
	}
	return out
}

func spelled(kind column.Kind, v string) string {
	if kind == column.Float {
		return number(v + "e0")
	}
	return v
}

func readParquet(t *testing.T, path string, cols []column.Column) cells {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	file, err := parquet.OpenFile(f, info.Size())
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	var names []string
	for _, field := range file.Schema().Fields() {
		names = append(names, field.Name())
	}
	var want []string
	for i := range cols {
		want = append(want, cols[i].Name)
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Fatalf("%s: columns (-want +got):\n%s", path, diff)
	}
	var out cells
	for _, group := range file.RowGroups() {
		rows := group.Rows()
		buffer := make([]parquet.Row, 64)
		for {
			n, err := rows.ReadRows(buffer)
			for _, row := range buffer[:n] {
				out = append(out, rowOf(cols, row))
			}
			if err != nil {
				break
			}
		}
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// rowOf puts the leaves of a row back together.
func rowOf(cols []column.Column, row parquet.Row) map[string]string {
	leaves := map[int][]parquet.Value{}
	for _, v := range row {
		leaves[v.Column()] = append(leaves[v.Column()], v)
	}
	m := map[string]string{}
	leaf := 0
	for i := range cols {
		c, values := &cols[i], leaves[leaf]
		leaf++
		first := values[0]
		switch c.Kind {
		case column.Map:
			keys := values
			values = leaves[leaf]
			leaf++
			if first.DefinitionLevel() == 0 {
				continue
			}
			pairs := map[string]string{}
			for i, k := range keys {
				if k.DefinitionLevel() == 2 {
					pairs[k.String()] = values[i].String()
				}
			}
			m[c.Name] = plain(pairs)
		case column.List:
			if first.DefinitionLevel() == 0 {
				continue
			}
			list := []string{}
			for _, v := range values {
				if v.DefinitionLevel() == 2 {
					list = append(list, v.String())
				}
			}
			m[c.Name] = plain(list)
		case column.Text, column.Int, column.Float, column.Bool, column.JSON:
			if first.IsNull() {
				continue
			}
			m[c.Name] = first.String()
			if c.Kind == column.Float {
				m[c.Name] = fmt.Sprint(first.Double())
			}
		}
	}
	return m
}

// The sums of every numeric column of requests are those of requests.jsonl: told apart
// from the above, it adds up what the file says, and knows the columns by their names.
func TestSums(t *testing.T) {
	dir := demo(t)
	res, _ := export(t, Parquet, dir)
	cols := schemas()["requests"]
	got := readParquet(t, filepath.Join(res.Out, "requests.parquet"), cols)
	for column, path := range map[string]string{
		"ttfa_ms": "ttfa_ms", "jct_ms": "jct_ms", "t_audio_ns": "points.t_audio", "t_term_offset_bytes": "offsets.t_term",
		"audio_samples": "audio.samples", "audio_gap_p99_ms": "audio_gap_ms.p99", "own_delay_max_us": "own_delay_us.max", "bytes_down": "bytes_down",
		"playback_vllm_omni_max_late_ms": "playback.vllm_omni.max_late_ms", "audio_gap_cv": "audio_gap_ms.cv", "turn": "turn",
	} {
		var want, sum float64
		wantN, n := 0, 0
		for _, r := range objects(t, dir, rundir.RequestsFile) {
			if v, ok := at(r, strings.Split(path, ".")).(json.Number); ok {
				f, _ := v.Float64()
				want += f
				wantN++
			}
		}
		for _, row := range got {
			if v, ok := row[column]; ok {
				var f float64
				_, _ = fmt.Sscan(v, &f)
				sum += f
				n++
			}
		}
		if want != sum || wantN != n || n == 0 {
			t.Errorf("%s: %d values, sum %v; requests.jsonl has %d, sum %v", column, n, sum, wantN, want)
		}
	}
}

// No two columns of a table have one name, and every name can stand in SQL without quotes.
func TestNames(t *testing.T) {
	reserved := []string{"from", "to", "end", "order", "group", "table", "desc", "check", "offset", "limit", "name"}
	for table, cols := range schemas() {
		seen := map[string]bool{}
		for i := range cols {
			name := cols[i].Name
			if seen[name] || slices.Contains(reserved, name) || name != strings.ToLower(name) || strings.ContainsAny(name, ".- ") {
				t.Errorf("%s: a column by the name %q", table, name)
			}
			seen[name] = true
		}
	}
}
