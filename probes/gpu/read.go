package gpu

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"

	"github.com/omnitap/omnitap/probes/host"
)

// Names of what may be null of a device, as in resources.parquet.
const (
	fieldPower         = "power_w"
	fieldPowerAverage  = "power_average_w"
	fieldEnergy        = "energy_mj"
	fieldGPU           = "gpu_percent"
	fieldMemoryPercent = "gpu_memory_percent"
	fieldUsed          = "gpu_memory_used_bytes"
	fieldTotal         = "gpu_memory_total_bytes"
	fieldSM            = "sm_clock_mhz"
	fieldMemoryClock   = "memory_clock_mhz"
	fieldTemperature   = "temperature_c"
	fieldThrottle      = "throttle_bits"
	fieldProcesses     = "processes"
)

var fields = [...]string{
	fieldPower, fieldPowerAverage, fieldEnergy, fieldGPU, fieldMemoryPercent, fieldUsed, fieldTotal,
	fieldSM, fieldMemoryClock, fieldTemperature, fieldThrottle, fieldProcesses,
}

// maxProcesses bounds what a library may claim of one device.
const maxProcesses = 1024

// reader reads one device, sample after sample. It does not ask again for a while what
// was answered with a lasting reason.
type reader struct {
	card   card
	id     identity
	clocks host.Clocks
	// refused are the fields not to ask for, with the reasons.
	refused map[string]error
	// shared is the last sample's Unmeasured, kept while nothing of it changes.
	shared map[string]string
	now    map[string]string
	gone   error // the answer that the library has to be opened anew, or the card is lost
	stamp  uint64
	use    map[int]used
	lost   string
	xid    *uint64
	// counted is when the energy counter is read again, and why it is not until then.
	counted struct {
		at  int64
		why error
	}
	cpu func() (int64, bool) // of the thread, nanoseconds
}

func newReader(c card, clocks host.Clocks) *reader {
	return &reader{card: c, id: c.identity(), clocks: clocks, refused: map[string]error{}, use: map[int]used{}, cpu: threadTime}
}

func (r *reader) name() string {
	name := "gpu" + strconv.Itoa(r.id.index)
	if r.id.instance >= 0 {
		name += "/mig" + strconv.Itoa(r.id.instance)
	}
	return name
}

// again forgets what was refused, and tries a lost card anew.
func (r *reader) again() {
	clear(r.refused)
	r.lost = ""
}

// device reads everything, with the processes where they are asked for. A card that is
// lost is not asked.
func (r *reader) device(processes bool) Device {
	d := Device{
		Name: r.name(), UUID: r.id.uuid, Model: r.id.name, MIG: r.id.mig || r.id.instance >= 0, Instance: r.id.instance >= 0,
		ProcessesRead: processes, XID: r.xid,
	}
	r.now, r.gone = map[string]string{}, r.id.err
	d.MonoNS, d.WallNS = r.clocks.Mono(), r.clocks.Wall()
	if r.lost == "" && r.gone == nil {
		r.ask(&d, processes)
	}
	if r.lost == "" && r.gone != nil && (lost(r.gone) || r.id.err != nil) {
		r.lost = r.gone.Error()
	}
	if r.lost != "" {
		d = r.nothing(d)
	}
	if !maps.Equal(r.now, r.shared) {
		r.shared = r.now
	}
	d.Unmeasured = r.shared
	return d
}

// nothing is a lost device: what was read of it before it was noticed counts no more.
func (r *reader) nothing(d Device) Device {
	clear(r.now)
	for _, name := range fields {
		r.now[name] = "the card is lost: " + r.lost
	}
	return Device{
		Name: d.Name, UUID: d.UUID, Model: d.Model, MIG: d.MIG, Instance: d.Instance, MonoNS: d.MonoNS, WallNS: d.WallNS,
		XID: d.XID, Lost: r.lost,
	}
}

func (r *reader) ask(d *Device, processes bool) {
	r.power(d)
	d.EnergyMJ = r.energy(d.MonoNS)
	after := r.clocks.Mono()
	half := (after - d.MonoNS) / 2
	d.MonoNS, d.WallNS = d.MonoNS+half, d.WallNS+half
	r.usage(d)
	r.memory(d)
	d.SMClockMHz = value(r, fieldSM, func() (uint32, error) { return r.card.clock(clockSM) })
	d.MemoryClockMHz = value(r, fieldMemoryClock, func() (uint32, error) { return r.card.clock(clockMemory) })
	d.TemperatureC = value(r, fieldTemperature, r.card.temperature)
	d.Throttle = value(r, fieldThrottle, r.card.throttle)
	if processes {
		r.processes(d)
	} else if err := r.refused[fieldProcesses]; err != nil {
		r.null(fieldProcesses, err)
	}
}

// null puts down why a field is nil.
func (r *reader) null(name string, err error) {
	r.now[name] = err.Error()
	if lasting(err) {
		r.refused[name] = err
	}
	if lost(err) || dead(err) {
		r.gone = err
	}
}

// value asks for one number. All ones are NVML's "not available".
func value[T uint32 | uint64](r *reader, name string, get func() (T, error)) *T {
	err := r.refused[name]
	var v T
	if err == nil && r.gone == nil {
		v, err = get()
	}
	if err == nil && r.gone != nil {
		err = r.gone
	}
	if err == nil && v == ^T(0) {
		err = errSentinel
	}
	if err != nil {
		r.null(name, err)
		return nil
	}
	return &v
}

// power takes the field that says that it is the moment, else what the old call says.
func (r *reader) power(d *Device) {
	watts := func(name string, kind powerKind) *float64 {
		milli := value(r, name, func() (uint32, error) { return r.card.power(kind) })
		if milli == nil {
			return nil
		}
		return new(float64(*milli) / 1000)
	}
	const instant = "power_w:instant" // a name of its own: the old call is asked all the same
	if d.PowerW, d.PowerKind = watts(instant, powerInstant), KindInstant; d.PowerW == nil {
		d.PowerW, d.PowerKind = watts(fieldPower, powerUsage), KindUsage
	}
	delete(r.now, instant)
	if d.PowerW == nil {
		d.PowerKind = ""
	}
	d.PowerAverageW = watts(fieldPowerAverage, powerAverage)
}

// energyShare is the part of a core that reading the energy counter of a card may cost: a
// reading takes microseconds with some drivers, with others 4 to 12 ms. Up to energyMost it
// may cost more, so that two readings are no more than energyApart nanoseconds apart: what
// lies at the edge of a window is known from readings within a second of it (exporter/energy).
const (
	energyShare = 0.01
	energyMost  = 0.05
	energyApart = 0.9e9
)

// rest is how long after a reading that cost so much the next one is, nanoseconds.
func rest(cost float64) int64 { return int64(min(cost/energyShare, max(energyApart, cost/energyMost))) }

// energy reads the counter, where that has not cost too much lately. It counts on meanwhile.
func (r *reader) energy(now int64) *uint64 {
	// half a millisecond early is on time: samples are never exactly their interval apart
	if now < r.counted.at-5e5 && r.refused[fieldEnergy] == nil && r.gone == nil {
		r.now[fieldEnergy] = r.counted.why.Error()
		return nil
	}
	before, timed := r.cpu()
	v := value(r, fieldEnergy, r.card.energy)
	if after, ok := r.cpu(); ok && timed {
		cost := after - before
		r.counted.at = now + rest(float64(cost))
		r.counted.why = fmt.Errorf("not read in this sample: a reading cost %.0f ms of processor time", max(1, math.Round(float64(cost)/1e6)))
		if v == nil {
			r.counted.why = errors.New("not read in this sample, and the last reading failed: " + r.now[fieldEnergy])
		}
	}
	return v
}

// usage leaves the use of a split card out: 0 percent of it means nothing.
func (r *reader) usage(d *Device) {
	if d.MIG {
		r.now[fieldGPU], r.now[fieldMemoryPercent] = errMIG.Error(), errMIG.Error()
		return
	}
	var memory uint32
	d.GPUPercent = value(r, fieldGPU, func() (gpu uint32, err error) {
		gpu, memory, err = r.card.use()
		if err == nil && gpu != math.MaxUint32 && gpu > 100 {
			err = errRange
		}
		return gpu, err
	})
	if d.GPUPercent == nil {
		r.now[fieldMemoryPercent] = r.now[fieldGPU]
		return
	}
	d.MemoryPercent = value(r, fieldMemoryPercent, func() (uint32, error) {
		if memory != math.MaxUint32 && memory > 100 {
			return 0, errRange
		}
		return memory, nil
	})
}

// memory asks the second version of the call, which leaves out what the driver keeps,
// and then the first. Host memory never takes its place.
func (r *reader) memory(d *Device) {
	var why error
	for _, version := range []int{2, 1} {
		source := "nvml_v" + strconv.Itoa(version)
		used, total, err := uint64(0), uint64(0), r.refused[source]
		if err == nil && r.gone == nil {
			used, total, err = r.card.memory(version)
		}
		switch {
		case err == nil && r.gone != nil:
			err = r.gone
		case err == nil && (used == math.MaxUint64 || total == math.MaxUint64):
			err = errSentinel
		case err == nil && total == 0:
			err = errZero
		}
		if err == nil {
			d.MemoryUsedBytes, d.MemoryTotalBytes, d.MemorySource = &used, &total, source
			return
		}
		r.null(source, err)
		delete(r.now, source)
		why = fmt.Errorf("version %d: %w%s", version, err, after(why))
	}
	r.now[fieldUsed], r.now[fieldTotal] = why.Error(), why.Error()
}

// after puts an earlier reason behind a later one.
func after(err error) string {
	if err == nil {
		return ""
	}
	return "; " + err.Error()
}

// processes joins memory and use by pid. A process that only used the card, and holds no
// memory any more, is not there.
func (r *reader) processes(d *Device) {
	err := r.refused[fieldProcesses]
	var list []held
	if err == nil && r.gone == nil {
		list, err = r.card.processes()
	}
	if err == nil && r.gone != nil {
		err = r.gone
	}
	if err != nil {
		r.null(fieldProcesses, err)
		return
	}
	why := r.readUse()
	d.Processes = []Process{}
	at := map[int]int{}
	for _, h := range list[:min(len(list), maxProcesses)] {
		i, ok := at[h.pid] // it may be listed for computing and for drawing
		if !ok {
			i = len(d.Processes)
			at[h.pid] = i
			d.Processes = append(d.Processes, Process{PID: h.pid, Unmeasured: map[string]string{}})
		}
		r.process(&d.Processes[i], h, why)
	}
	for pid := range r.use {
		if _, ok := at[pid]; !ok {
			delete(r.use, pid)
		}
	}
}

func (r *reader) process(p *Process, h held, why error) {
	switch {
	case h.bytes != math.MaxUint64:
		p.MemoryBytes = &h.bytes
		delete(p.Unmeasured, fieldUsed)
	case p.MemoryBytes == nil:
		p.Unmeasured[fieldUsed] = errSentinel.Error()
	}
	u, ok := r.use[p.PID]
	if ok && u.sm <= 100 {
		p.SMPercent = &u.sm
	}
	if ok && u.memory <= 100 {
		p.MemoryPercent = &u.memory
	}
	if why == nil {
		why = errNoData
	}
	if p.SMPercent == nil {
		p.Unmeasured[fieldGPU] = why.Error()
	}
	if p.MemoryPercent == nil {
		p.Unmeasured[fieldMemoryPercent] = why.Error()
	}
}

// readUse takes the use of processes that the driver sampled since the last time. Where
// it has none since, what was known of it is no news and is dropped.
func (r *reader) readUse() error {
	const name = "process_use"
	if err := r.refused[name]; err != nil {
		return err
	}
	clear(r.use)
	list, err := r.card.processUse(r.stamp)
	if err != nil {
		if lasting(err) {
			r.refused[name] = err
		}
		return err
	}
	for _, u := range list {
		if last, ok := r.use[u.pid]; !ok || u.stamp >= last.stamp {
			r.use[u.pid] = u
		}
		r.stamp = max(r.stamp, u.stamp)
	}
	return nil
}
