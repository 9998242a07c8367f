package compare

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// ErrNoRun is for a directory that is no run at all.
var ErrNoRun = errors.New("no run directory")

// Run is what compare keeps of a run. It is not changed once it is loaded.
type Run struct {
	// Dir is the directory as it was given.
	Dir  string
	meta rundir.Metadata
	// settings is metadata.json by dotted names, without what differs in every run.
	settings map[string]string
	sealed   bool
	// notes are oddities that leave the run usable; unfit says why its figures are not
	// the server's, empty where they are.
	notes []string
	unfit string
	slo   slo

	groups map[group]*digest
	// leftOut counts the records of other phases than the measured one.
	leftOut int
}

// Load reads a run directory, as a stream. The error wraps ErrNoRun for a directory that
// holds no run; all else makes the run unusable: it is not closed, a line is cut or
// damaged or lost, its hashes do not fit, it holds foreign files, records of another
// schema version or run, or none.
func Load(dir string) (*Run, error) {
	r, err := load(dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", clean(dir), err)
	}
	return r, nil
}

func load(dir string) (*Run, error) {
	read, err := rundir.Read(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoRun, err)
	}
	r := &Run{Dir: dir, meta: read.Metadata}
	switch {
	case read.MetadataErr != nil:
		return nil, read.MetadataErr
	case read.Metadata.Schema != timeline.Schema:
		return nil, fmt.Errorf("%s has schema %d, this program reads %d", rundir.MetadataFile, read.Metadata.Schema, timeline.Schema)
	case !read.Closed:
		return nil, errors.New("the run was not closed: it is still being written, or its process died")
	}
	if err := r.seal(dir); err != nil {
		return nil, err
	}
	if err := r.ledger(dir); err != nil {
		return nil, err
	}
	if err := r.digest(read.Records()); err != nil {
		return nil, err
	}
	r.harness()
	return r, nil
}

// seal holds the directory to its hashes, and to the files that a run may have.
func (r *Run) seal(dir string) error {
	s, err := rundir.CheckSeal(dir)
	if err != nil {
		return err
	}
	r.sealed = s.Sealed
	for _, p := range s.Problems {
		if p.Kind == rundir.SealMode {
			continue // a copy seldom keeps modes; its bytes are what counts
		}
		return fmt.Errorf("%s: %s", clean(p.File), clean(p.Detail))
	}
	if !s.Sealed {
		r.notes = append(r.notes, "not sealed: nothing shows that its files are as they were written")
	}
	return nil
}

// digest reads the records. Where some of them belong to phases, those that were
// measured count alone.
func (r *Run) digest(records iter.Seq2[*timeline.Record, error]) error {
	plain, measured := map[group]*digest{}, map[group]*digest{}
	lines, other, phased := int64(0), 0, 0
	for rec, err := range records {
		if err != nil {
			return err
		}
		lines++
		if err := r.ours(rec, lines); err != nil {
			return err
		}
		into := plain
		switch rec.RunPhase {
		case "":
		case "measured":
			into = measured
			phased++
		default:
			other++
			continue
		}
		g := groupOf(rec)
		if into[g] == nil {
			into[g] = newDigest()
		}
		into[g].add(rec, r.slo)
	}
	if err := r.whole(lines); err != nil {
		return err
	}
	r.groups, r.leftOut = plain, other
	if phased+other > 0 {
		r.groups = measured
		for _, d := range plain {
			r.leftOut += d.attempts
		}
	}
	for _, d := range r.groups {
		d.finish()
	}
	if len(r.groups) == 0 {
		return fmt.Errorf("%s holds no record that was measured", rundir.RequestsFile)
	}
	return nil
}

// ours refuses a record of another version or another run.
func (r *Run) ours(rec *timeline.Record, line int64) error {
	if rec.Schema != timeline.Schema {
		return fmt.Errorf("%s: line %d has schema %d, this program reads %d", rundir.RequestsFile, line, rec.Schema, timeline.Schema)
	}
	if rec.RunID != r.meta.RunID {
		return fmt.Errorf("%s: line %d is of run %q, the directory of %q", rundir.RequestsFile, line, clean(rec.RunID), clean(r.meta.RunID))
	}
	return nil
}

// whole holds the number of lines to what the writer counted.
func (r *Run) whole(lines int64) error {
	files := r.meta.Files
	switch {
	case files == nil:
		return fmt.Errorf("%s does not say how many records there are", rundir.MetadataFile)
	case files.Requests.Lines != lines:
		return fmt.Errorf("%s has %d lines, %s says %d: it was cut or edited", rundir.RequestsFile, lines, rundir.MetadataFile, files.Requests.Lines)
	case files.Requests.LostLines > 0:
		r.unfit = fmt.Sprintf("%s could not be written: what is there may be the better part", plural(int(files.Requests.LostLines), "record"))
	}
	return nil
}

// ledger reads metadata.json once more, with what this program does not know of it, and
// what `omnitap run` wrote of the run.
func (r *Run) ledger(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, rundir.MetadataFile))
	if err != nil {
		return fmt.Errorf("reading %s: %w", rundir.MetadataFile, err)
	}
	if r.settings, err = settings(text); err != nil {
		return fmt.Errorf("reading %s: %w", rundir.MetadataFile, err)
	}
	if err := rundir.CheckExperiment(dir, &r.meta); err != nil {
		return err
	}
	run := r.meta.Run
	if run == nil || run.Experiment == nil {
		r.slo = sloOf(nil)
	} else if text, err = os.ReadFile(filepath.Join(dir, rundir.ExperimentFile)); err != nil {
		return fmt.Errorf("reading %s: %w", rundir.ExperimentFile, err)
	} else {
		r.slo = sloOf(text)
	}
	if run == nil {
		return nil
	}
	switch run.Contamination {
	case "contaminated":
		r.unfit = cmp.Or(r.unfit, "contaminated: "+cmp.Or(clean(run.ContaminationWhy), "others used the server's CPUs"))
	case "not_measured":
		r.notes = append(r.notes, "whether others used the server's CPUs was not measured")
	}
	switch run.State {
	case "complete", "stopped":
	case "failed":
		r.unfit = cmp.Or(r.unfit, "the run failed: "+cmp.Or(clean(run.Reason), "no reason is told"))
	default:
		r.notes = append(r.notes, clean(run.State)+": it ended before its load did")
	}
	return nil
}

// harnessShare is the share of attempts that may fail by our own fault, as in
// exporter/report.
const harnessShare = 0.01

// harness says that a run is invalid where too many attempts failed by our own fault.
func (r *Run) harness() {
	failed, attempts := 0, 0
	for _, d := range r.groups {
		attempts += d.attempts
		for name, n := range d.failed {
			if strings.HasPrefix(name, string(timeline.HarnessError)+"/") {
				failed += n
			}
		}
	}
	if float64(failed) > harnessShare*float64(attempts) {
		r.unfit = cmp.Or(r.unfit, fmt.Sprintf("invalid: %d of %d attempts failed by our own fault (harness-error)", failed, attempts))
	}
}
