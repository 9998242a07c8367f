package reconcile

import (
	"fmt"
	"math"

	"github.com/omnitap/omnitap/exporter/upstream"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// audioPart is by how much seconds of sound may differ: a container's header read as samples.
const audioPart = 0.001

// sound tells the seconds of sound.
func (w *world) sound() {
	seconds := func(records []*timeline.Record) (out []float64) {
		for _, r := range records {
			if r.AudioS != nil {
				out = append(out, *r.AudioS)
			}
		}
		return out
	}
	row := Row{Quantity: AudioS, All: describe(seconds(w.records)), Server: w.server[upstream.AudioSeconds].cell(1)}
	if w.pairs.how != Summed {
		row.Paired = describe(seconds(w.paired()))
	}
	if g := w.in.Generator; g != nil {
		if f, ok := g.Figures[AudioS]; ok && f.Total != nil {
			row.Client = Cell{N: g.Completed, Mean: f.Mean, Total: f.Total}
		}
	}
	w.row(row)
	wire := row.Paired
	if w.pairs.how == Summed {
		wire = row.All
	}
	w.seconds(Client, row.Client, wire)
	if f := w.server[upstream.AudioSeconds]; f == nil || f.resets == 0 {
		w.seconds(Server, row.Server, row.All)
	} else {
		w.restarted(AudioS)
	}
}

func (w *world) seconds(v View, c, wire Cell) {
	if c.Total == nil || wire.Total == nil {
		return
	}
	diff := *c.Total - *wire.Total
	if math.Abs(diff) <= audioPart**wire.Total {
		return
	}
	evidence := fmt.Sprintf("%d with sound there, %d on the wire", deref(c.N), deref(wire.N))
	// Sound of requests ahead of the generator's is in the wire's sum alone.
	if v == Client && w.pairs.how == Summed {
		evidence = "the requests cannot be told one by one"
	}
	w.find(Finding{Quantity: AudioS, A: v, B: Wire, Cause: NotExplained, Amount: &diff, N: deref(c.N), Evidence: evidence})
}

// transfers tells the bytes between stages.
func (w *world) transfers() {
	var bytes, n float64
	for _, r := range w.records {
		for _, t := range r.Transfers {
			if t.Bytes != nil {
				bytes += float64(*t.Bytes)
				n++
			}
		}
	}
	row := Row{Quantity: TransferBytes, Server: w.server[upstream.TransferBytes].cell(1)}
	if n > 0 {
		row.All = Cell{N: new(int(n)), Total: &bytes, Mean: new(bytes / n)}
	}
	if row.Server.N == nil || row.Server.Total == nil {
		return // there is nothing to compare the wire's with
	}
	w.row(row)
	got := *row.Server.Total
	switch {
	case n > 0 && got == 0 && bytes > 0:
		w.find(Finding{Quantity: TransferBytes, A: Server, B: Wire, Cause: BytesReadZero, Amount: new(-bytes), N: *row.Server.N, Evidence: fmt.Sprintf("%d observations of 0 bytes; the probes saw %.0f hand-overs with bytes", *row.Server.N, n)})
	case n > 0 && math.Abs(got-bytes) > audioPart*bytes:
		w.find(Finding{Quantity: TransferBytes, A: Server, B: Wire, Cause: NotExplained, Amount: new(got - bytes), N: *row.Server.N, Evidence: fmt.Sprintf("%d observations there, %.0f hand-overs seen by the probes", *row.Server.N, n)})
	case n == 0 && got == 0:
		w.find(Finding{Quantity: TransferBytes, A: Server, B: Wire, Cause: NotExplained, N: *row.Server.N, Evidence: "every observation is 0 bytes; no probe saw what was handed over"})
	}
}
