package convert

import (
	"fmt"

	"github.com/omnitap/omnitap/exporter/convert/internal/column"
	"github.com/omnitap/omnitap/exporter/convert/internal/columnar"
	"github.com/omnitap/omnitap/exporter/convert/internal/delimited"
	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/proxy/timeline"
	"github.com/omnitap/omnitap/proxy/timeline/waveform"
)

// tableNames are the tables of an export.
var tableNames = []string{"runs", "requests", "stages", "transfers", "path", "events", "sessions", "quality"}

// The rows. What is embedded by value is the key; what is embedded by pointer is written
// as it is in the run.
type (
	runKey struct {
		RunDir string `json:"run_dir"`
	}
	requestKey struct {
		RunDir    string  `json:"run_dir"`
		RunID     string  `json:"run_id,omitempty"`
		Record    int64   `json:"record"`
		RequestID string  `json:"request_id"`
		SessionID *string `json:"session_id"`
		Attempt   int     `json:"attempt"`
		Flow      string  `json:"flow"`
		State     string  `json:"state"`
		Place     int64   `json:"place"` // in the record's list, from 0
	}
	recordKey struct {
		RunDir string `json:"run_dir"`
		Record int64  `json:"record"`
	}
	lineKey struct {
		RunDir string `json:"run_dir"`
		RunID  string `json:"run_id,omitempty"`
		ID     string `json:"request_id"`
	}

	runRow struct {
		runKey
		*runFacts
	}
	requestRow struct {
		recordKey
		*timeline.Record
	}
	stageRow struct {
		requestKey
		*timeline.Stage
	}
	transferRow struct {
		requestKey
		*timeline.Transfer
	}
	pathRow struct {
		requestKey
		*timeline.PathStep
	}
	eventRow struct {
		runKey
		*timeline.Event
	}
	sessionRow struct {
		runKey
		*timeline.Session
	}
	checkRow struct {
		lineKey
		*waveform.Finding
	}
)

// runFacts is what the table of runs has of metadata.json.
type runFacts struct {
	RunID      string            `json:"run_id,omitempty"`
	Node       string            `json:"node,omitempty"`
	Schema     int               `json:"schema"`
	EventForm  int               `json:"event_form"`
	Program    programFacts      `json:"program"`
	Upstream   string            `json:"upstream,omitempty"`
	Host       *rundir.Host      `json:"host"`
	Start      *rundir.Stamp     `json:"start"`
	End        *rundir.Stamp     `json:"end"`
	Closed     bool              `json:"closed"`
	Sealed     bool              `json:"sealed"`
	Experiment *experimentFacts  `json:"experiment"`
	Run        *outcomeFacts     `json:"run"`
	Unmeasured map[string]string `json:"unmeasured"`
}

type programFacts struct {
	Version string  `json:"version,omitempty"`
	Commit  *string `json:"commit"`
}

type experimentFacts struct {
	Question string `json:"question"`
	Primary  string `json:"primary_metric"`
	SHA256   string `json:"sha256"`
}

type outcomeFacts struct {
	State         string `json:"state,omitempty"`
	Reason        string `json:"reason,omitempty"`
	Contamination string `json:"contamination,omitempty"`
}

func factsOf(r *rundir.Run) *runFacts {
	m := &r.Metadata
	f := &runFacts{
		RunID: m.RunID, Node: m.Node, Schema: m.Schema, EventForm: m.EventForm, Upstream: m.Upstream,
		Program: programFacts{m.Program.Version, m.Program.Commit},
		End:     m.End, Closed: r.Closed, Sealed: r.Sealed, Unmeasured: m.Unmeasured,
	}
	if r.MetadataErr != nil {
		f.Unmeasured = map[string]string{rundir.MetadataFile: r.MetadataErr.Error()}
		return f
	}
	f.Host, f.Start = &m.Host, &m.Start
	if m.Run != nil {
		f.Run = &outcomeFacts{m.Run.State, m.Run.Reason, m.Run.Contamination}
		if x := m.Run.Experiment; x != nil {
			f.Experiment = &experimentFacts{x.Question, x.Primary, x.SHA256}
		}
	}
	return f
}

// schemas are the columns of each table.
func schemas() map[string][]column.Column {
	return map[string][]column.Column{
		"runs":      column.Of[runRow](""),
		"requests":  column.Of[requestRow](""),
		"stages":    column.Of[stageRow]("stages[]."),
		"transfers": column.Of[transferRow]("transfers[]."),
		"path":      column.Of[pathRow]("critical_path[]."),
		"events":    column.Of[eventRow](""),
		"sessions":  column.Of[sessionRow](""),
		"quality":   column.Of[checkRow]("checks[]."),
	}
}

// writer writes the rows of one table.
type writer interface {
	Write(row []column.Value) error
	Close() error
}

// table is one table that is written.
type table struct {
	writer
	cols []column.Column
	row  []column.Value
}

// put appends a row, a pointer to the table's row type.
func (t *table) put(row any) error {
	t.row = column.Read(t.row[:0], t.cols, row)
	return t.Write(t.row)
}

// tables is the sink of Parquet and CSV.
type tables struct {
	by    map[string]*table
	dir   string
	runID string
}

func newTables(t *target, f Format) (*tables, error) {
	s := &tables{by: map[string]*table{}}
	cols := schemas()
	for _, name := range tableNames {
		file, err := t.create(name + "." + string(f))
		if err != nil {
			return nil, err
		}
		var w writer = columnar.NewWriter(file, name, cols[name])
		if f == CSV {
			if w, err = delimited.NewWriter(file, cols[name]); err != nil {
				return nil, err
			}
		}
		s.by[name] = &table{writer: w, cols: cols[name]}
	}
	return s, nil
}

func (s *tables) run(src *source) error {
	s.dir, s.runID = src.dir, src.run.Metadata.RunID
	return s.by["runs"].put(&runRow{runKey{s.dir}, factsOf(src.run)})
}

func (s *tables) record(number int64, r *timeline.Record) error {
	if err := s.by["requests"].put(&requestRow{recordKey{s.dir, number}, r}); err != nil {
		return err
	}
	key := requestKey{
		RunDir: s.dir, RunID: r.RunID, Record: number, RequestID: r.RequestID, SessionID: r.SessionID,
		Attempt: r.Attempt, Flow: r.Flow, State: string(r.Terminal.State),
	}
	for i := range r.Stages {
		key.Place = int64(i)
		if err := s.by["stages"].put(&stageRow{key, &r.Stages[i]}); err != nil {
			return err
		}
	}
	for i := range r.Transfers {
		key.Place = int64(i)
		if err := s.by["transfers"].put(&transferRow{key, &r.Transfers[i]}); err != nil {
			return err
		}
	}
	for i := range r.CriticalPath {
		key.Place = int64(i)
		if err := s.by["path"].put(&pathRow{key, &r.CriticalPath[i]}); err != nil {
			return err
		}
	}
	return nil
}

func (s *tables) session(_ int64, v *timeline.Session) error {
	return s.by["sessions"].put(&sessionRow{runKey{s.dir}, v})
}

func (s *tables) event(_ int64, e *timeline.Event) error {
	return s.by["events"].put(&eventRow{runKey{s.dir}, e})
}

func (s *tables) quality(_ int64, q *timeline.QualityLine) error {
	for i := range q.Checks {
		if err := s.by["quality"].put(&checkRow{lineKey{s.dir, s.runID, q.RequestID}, &q.Checks[i]}); err != nil {
			return err
		}
	}
	return nil
}

// close ends every table; a full disk is told once.
func (s *tables) close() error {
	for _, name := range tableNames {
		if err := s.by[name].Close(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
