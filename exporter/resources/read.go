package resources

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/parquet-go/parquet-go"

	"github.com/omnitap/omnitap/exporter/energy"
)

// Each calls use for every row of a run directory's file, in the order that they were
// written. The row is only valid during the call.
func Each(dir string, use func(*Row) error) error {
	f, err := os.Open(filepath.Join(dir, File))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	r := parquet.NewGenericReader[Row](f)
	defer func() { _ = r.Close() }()
	rows := make([]Row, 256)
	for {
		n, err := r.Read(rows)
		for i := range rows[:n] {
			if err := use(&rows[i]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", File, err)
		}
	}
}

// Samples are the cards of a run as exporter/energy takes them, each with its samples
// within a window, and ordered by name. An instance of a split card has no sensors and is
// left out. The window should be wider than those that energy is asked of by energy.Edge.
func Samples(dir string, w energy.Window) ([]energy.Device, error) {
	at := map[string]int{}
	var out []energy.Device
	err := Each(dir, func(r *Row) error {
		if r.Kind != KindGPU || r.Device == nil || r.MonoNS < w.FromNS || r.MonoNS > w.ToNS {
			return nil
		}
		i, ok := at[*r.Device]
		if !ok {
			i = len(out)
			at[*r.Device] = i
			out = append(out, energy.Device{Name: *r.Device})
		}
		d := &out[i]
		s := energy.Sample{MonoNS: r.MonoNS, Lost: r.State != nil && *r.State == "lost"}
		if r.PowerW != nil {
			s.PowerW = new(*r.PowerW)
		}
		if r.EnergyMJ != nil {
			s.EnergyMJ = new(uint64(*r.EnergyMJ))
		}
		if r.PowerKind != nil {
			d.PowerKind = *r.PowerKind
		}
		d.Samples = append(d.Samples, s)
		return nil
	})
	slices.SortFunc(out, func(a, b energy.Device) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return out, err
}
