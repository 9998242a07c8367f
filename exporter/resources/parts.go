package resources

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/parquet-go/parquet-go"
)

// Names in a run directory.
const (
	// File is the finished file, PartsDir what there is before.
	File     = "resources.parquet"
	PartsDir = "resources.parts"

	unfinished = ".tmp"
)

const (
	// mergeAt is how many parts of one flush each are merged into one.
	mergeAt = 64
	// schemaVersion stands in the file's metadata, as do the run and the node.
	schemaVersion = "1"
	keySchema     = "omnitap.schema"
	keyRun        = "omnitap.run_id"
	keyNode       = "omnitap.node"
	// partName has the numbers of the first and the last flush that are in a part.
	partName = "%010d-%010d.parquet"
)

// part is a file of flushes.
type part struct {
	from, to int
}

func (p part) name() string { return fmt.Sprintf(partName, p.from, p.to) }

func parsePart(name string) (p part, ok bool) {
	n, err := fmt.Sscanf(name, partName, &p.from, &p.to)
	return p, err == nil && n == 2 && p.name() == name && p.from <= p.to
}

// listParts lists the parts in order. One that lies in another is what a crash left
// between the merge and the removal: it is left out, and returned as old.
func listParts(dir string) (parts, old []part, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		if p, ok := parsePart(e.Name()); ok {
			parts = append(parts, p)
		}
	}
	slices.SortFunc(parts, func(a, b part) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return b.to - a.to
	})
	kept := parts[:0:0]
	for _, p := range parts {
		if n := len(kept); n > 0 && p.to <= kept[n-1].to {
			old = append(old, p)
			continue
		}
		kept = append(kept, p)
	}
	return kept, old, nil
}

// options are the same for every file, so that row groups can be copied as they are.
func options() []parquet.WriterOption {
	return []parquet.WriterOption{
		parquet.Compression(&parquet.Zstd), parquet.DataPageStatistics(true), parquet.CreatedBy("omnitap", schemaVersion, ""),
		parquet.KeyValueMetadata(keySchema, schemaVersion),
	}
}

// replace writes a file beside its place, and renames it when it is whole.
func replace(path string, write func(io.Writer) error) (err error) {
	f, err := os.OpenFile(path+unfinished, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(path + unfinished)
		}
	}()
	if err = errors.Join(write(f), f.Close()); err != nil {
		return err
	}
	return os.Rename(path+unfinished, path)
}

// source is an open part.
type source struct {
	file *os.File
	*parquet.File
}

func openPart(path string) (*source, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		var p *parquet.File
		if p, err = parquet.OpenFile(f, info.Size()); err == nil {
			return &source{f, p}, nil
		}
	}
	return nil, errors.Join(err, f.Close())
}

// merge makes one row group of many parts.
func merge(dir string, parts []part) (part, error) {
	into := part{parts[0].from, parts[len(parts)-1].to}
	err := replace(filepath.Join(dir, into.name()), func(out io.Writer) error {
		w := parquet.NewGenericWriter[Row](out, options()...)
		for _, p := range parts {
			if err := copyRows(w, filepath.Join(dir, p.name())); err != nil {
				return fmt.Errorf("merging %s: %w", p.name(), err)
			}
		}
		return w.Close()
	})
	return into, err
}

func copyRows(w *parquet.GenericWriter[Row], path string) error {
	p, err := openPart(path)
	if err != nil {
		return err
	}
	defer func() { _ = p.file.Close() }()
	for _, g := range p.RowGroups() {
		rows := g.Rows()
		_, err := parquet.CopyRows(w, rows)
		if err = errors.Join(err, rows.Close()); err != nil {
			return err
		}
	}
	return nil
}

// damage is a part that could not be read.
type damage struct {
	part
	err error
}

// join puts the parts together, a row group each. One that cannot be opened is left out
// and told: only a machine that lost its power leaves such.
func join(out io.Writer, dir string, parts []part, meta map[string]string) (rows int64, damaged []damage, err error) {
	w := parquet.NewGenericWriter[Row](out, options()...)
	for k, v := range meta {
		w.SetKeyValueMetadata(k, v)
	}
	for _, p := range parts {
		s, err := openPart(filepath.Join(dir, p.name()))
		if err != nil {
			damaged = append(damaged, damage{p, err})
			continue
		}
		n, err := joinPart(w, s)
		rows += n
		if err = errors.Join(err, s.file.Close()); err != nil {
			return rows, damaged, fmt.Errorf("joining %s: %w", p.name(), err)
		}
	}
	return rows, damaged, w.Close()
}

func joinPart(w *parquet.GenericWriter[Row], s *source) (rows int64, err error) {
	for _, name := range []string{keyRun, keyNode} {
		if v, ok := s.Lookup(name); ok {
			w.SetKeyValueMetadata(name, v)
		}
	}
	for _, g := range s.RowGroups() {
		n := g.NumRows()
		if _, err := w.WriteRowGroup(g); err != nil {
			return rows, err
		}
		rows += n
	}
	return rows, nil
}

// Recovered is what Recover found.
type Recovered struct {
	// Parts and Rows are what is in the file now, Damaged the parts that could not be
	// read, with the reasons.
	Parts   int
	Rows    int64
	Damaged []string
}

// Recover makes resources.parquet of what a crash left in a run directory, and removes
// the parts that went into it. Where none were left it does nothing. A damaged part
// stays where it is.
func Recover(dir string) (Recovered, error) {
	return finish(dir, nil)
}

func finish(dir string, meta map[string]string) (r Recovered, err error) {
	in := filepath.Join(dir, PartsDir)
	parts, old, err := listParts(in)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("listing %s: %w", PartsDir, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, File)); err == nil {
		return r, joined(dir, parts, old)
	}
	var damaged []damage
	err = replace(filepath.Join(dir, File), func(out io.Writer) error {
		var err error
		r.Rows, damaged, err = join(out, in, parts, meta)
		return err
	})
	if err != nil {
		return r, fmt.Errorf("writing %s: %w", File, err)
	}
	for _, d := range damaged {
		r.Damaged = append(r.Damaged, fmt.Sprintf("%s: %v", d.name(), d.err))
		parts = slices.DeleteFunc(parts, func(p part) bool { return p == d.part })
	}
	r.Parts = len(parts)
	err = remove(in, parts, old)
	if len(damaged) == 0 {
		err = errors.Join(err, os.Remove(in))
	}
	return r, err
}

// joined removes parts that are in the file already: the crash came between its renaming
// and their removal. The file was whole when it was renamed, so that the number of rows
// tells.
func joined(dir string, parts, old []part) error {
	in := filepath.Join(dir, PartsDir)
	whole, err := openPart(filepath.Join(dir, File))
	if err != nil {
		return fmt.Errorf("%s: %w", File, err)
	}
	defer func() { _ = whole.file.Close() }()
	rows := int64(0)
	for _, p := range parts {
		s, err := openPart(filepath.Join(in, p.name()))
		if err != nil {
			return fmt.Errorf("%s beside %s: %w", p.name(), File, err)
		}
		rows += s.NumRows()
		_ = s.file.Close()
	}
	if rows > whole.NumRows() {
		return fmt.Errorf("%s has %d rows, the parts beside it have %d: %w", File, whole.NumRows(), rows, fs.ErrExist)
	}
	return errors.Join(remove(in, parts, old), os.Remove(in))
}

// remove removes parts, and what writes left that were cut off.
func remove(dir string, lists ...[]part) error {
	var errs []error
	for _, list := range lists {
		for _, p := range list {
			errs = append(errs, os.Remove(filepath.Join(dir, p.name())))
		}
	}
	torn, _ := filepath.Glob(filepath.Join(dir, "*"+unfinished)) // the pattern is sound
	for _, name := range torn {
		errs = append(errs, os.Remove(name))
	}
	return errors.Join(errs...)
}
