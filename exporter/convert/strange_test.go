package convert

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/omnitap/omnitap/exporter/rundir"
)

// Lines that are JSON and make no sense are written or counted, every one.
func TestStrangeLines(t *testing.T) {
	for name, c := range map[string]struct {
		requests, events, sessions string
		rows, lost                 int64
	}{
		"times that run back": {
			`{"schema":1,"request_id":"a","points":{"t_in":5,"t_term":2},"critical_path":[{"gap":"x","ms":-1e300},{"gap":"y","ms":1e300}]}` + "\n",
			`{"request_id":"a","event":"output_chunk","mono_ns":9}` + "\n" + `{"request_id":"a","event":"output_chunk","mono_ns":4}` + "\n", "", 1, 0,
		},
		"stages that run back": {
			`{"schema":1,"points":{},"stages":[{"stage":"s","ready_ns":9,"start_ns":3,"finish_ns":1}],"transfers":[{"from":"s","to":"","start_ns":8,"end_ns":2}]}` + "\n",
			"", `{"schema":1,"session_id":"","opened_mono_ns":-1,"duration_ms":1e308}` + "\n", 1, 0,
		},
		"no objects": {"{\n\x00", "[]\n", "null\n", 0, 4},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{rundir.RequestsFile: c.requests, rundir.EventsFile: c.events, rundir.SessionsFile: c.sessions, rundir.QualityFile: "", rundir.MetadataFile: "{}"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, f := range []Format{Perfetto, CSV, Parquet} {
			res, notes := export(t, f, dir)
			if res.Requests != c.rows || res.Lost != c.lost {
				t.Errorf("%s: %+v, want %d and %d lost: %v", name, res, c.rows, c.lost, notes)
			}
			switch f {
			case Perfetto:
				readTrace(t, res.Out)
			case CSV:
				if rows := readCSV(t, filepath.Join(res.Out, "requests.csv"), schemas()["requests"]); int64(len(rows)) != c.rows {
					t.Errorf("%s: %d rows, want %d", name, len(rows), c.rows)
				}
			case Parquet:
				if rows := readParquet(t, filepath.Join(res.Out, "requests.parquet"), schemas()["requests"]); int64(len(rows)) != c.rows {
					t.Errorf("%s: %d rows, want %d", name, len(rows), c.rows)
				}
			}
		}
	}
}
