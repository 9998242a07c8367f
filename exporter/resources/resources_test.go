package resources

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/omnitap/omnitap/exporter/energy"
	"github.com/omnitap/omnitap/probes/gpu"
	"github.com/omnitap/omnitap/probes/host/usage"
)

// cards is a sample of n cards at 10 Hz, the last of them with little to say.
func cards(n, i int) *gpu.Sample {
	s := &gpu.Sample{TookNS: 900_000, CPUNS: new(int64(400_000))}
	for k := range n {
		ns := int64(i)*100e6 + int64(k)*50_000
		w := 100 + 50*math.Sin(float64(i)/7+float64(k))
		s.Devices = append(s.Devices, gpu.Device{
			Name: fmt.Sprintf("gpu%d", k), UUID: fmt.Sprintf("GPU-%d", k), MonoNS: ns, WallNS: 1.7e18 + ns,
			PowerW: &w, PowerKind: gpu.KindInstant, PowerAverageW: new(w + 1), EnergyMJ: new(uint64(1<<52 + i*10_000)),
			GPUPercent: new(uint32(i % 101)), MemoryPercent: new(uint32(3)), MemoryUsedBytes: new(uint64(i) << 20), MemoryTotalBytes: new(uint64(140 << 30)),
			MemorySource: "nvml_v2", SMClockMHz: new(uint32(1980 - i%40)), MemoryClockMHz: new(uint32(3201)), TemperatureC: new(uint32(40 + i%3)),
			Throttle: new(uint64(4)),
		})
		if i%10 == 0 {
			d := &s.Devices[k]
			d.ProcessesRead = true
			d.Processes = []gpu.Process{
				{PID: 4242, MemoryBytes: new(uint64(3 << 30)), SMPercent: new(uint32(50)), Unmeasured: map[string]string{"gpu_memory_percent": "no"}},
			}
		}
	}
	return s
}

func used(i int) *usage.Sample {
	ns := int64(i) * 1e9
	return &usage.Sample{
		MonoNS: ns, WallNS: 1.7e18 + ns, TookNS: 100_000, CPUNS: new(int64(90_000)),
		Machine:  usage.Machine{BusyNS: new(int64(5e9)), IdleNS: new(int64(6e9)), MemoryTotalBytes: new(int64(1 << 40)), MemoryAvailableBytes: new(int64(1 << 39))},
		Networks: []usage.Network{{Namespace: "77", Own: true, ReceivedBytes: new(int64(1)), SentBytes: new(int64(2)), LoopbackBytes: new(int64(3))}},
		Processes: []usage.Use{
			{PID: 4242, StartTicks: 1000, Stage: "talker", MonoNS: ns, WallNS: 1.7e18 + ns, CPUNS: new(int64(7e9)), RSSBytes: new(int64(1 << 30)), Threads: new(int64(9)), Namespace: "77", Unmeasured: map[string]string{"pss_bytes": "dear"}},
			{PID: 4343, StartTicks: 1001, Stage: "thinker", MonoNS: ns, WallNS: 1.7e18 + ns, Ended: "the process ended", Unmeasured: map[string]string{"cpu_ns": "the process ended"}},
		},
	}
}

func all(t *testing.T, dir string) []Row {
	t.Helper()
	var rows []Row
	if err := Each(dir, func(r *Row) error { rows = append(rows, *r); return nil }); err != nil {
		t.Fatal(err)
	}
	return rows
}

func create(t *testing.T, dir string, c Config) *Writer {
	t.Helper()
	if c.FlushEvery == 0 {
		c.FlushEvery = time.Hour // tests flush themselves
	}
	c.RunID, c.Node = "run-1", "node-1"
	w, err := Create(dir, c)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	w := create(t, dir, Config{})
	w.Usage(used(0))
	s := cards(2, 0)
	s.Devices[1] = gpu.Device{
		Name: "gpu1/mig0", MIG: true, Instance: true, Lost: "ERROR_GPU_IS_LOST", XID: new(uint64(79)), EnergyMJ: new(uint64(math.MaxUint64)),
		Unmeasured: map[string]string{"power_w": "b", "energy_mj": `a "quoted" one`},
	}
	w.GPU(s)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	w.GPU(s)
	if st := w.Stats(); st.Written != 7 || st.Lost != 3 || st.Waiting != 0 || st.Parts != 1 || st.Error != "" {
		t.Errorf("%+v", st)
	}
	rows := all(t, dir)
	kinds := []string{}
	for _, r := range rows {
		kinds = append(kinds, r.Kind)
		if r.Node != "node-1" || (r.Kind != KindMIG && r.WallNS < 1.7e18) {
			t.Errorf("%+v", r)
		}
	}
	if diff := cmp.Diff([]string{KindMachine, KindNetwork, KindProcess, KindProcess, KindGPU, KindGPUProcess, KindMIG}, kinds); diff != "" {
		t.Fatal(diff)
	}
	want := []Row{
		{
			Kind: KindProcess, Node: "node-1", MonoNS: 0, WallNS: 1.7e18, PID: new(int64(4343)), StartTicks: new(int64(1001)), Stage: new("thinker"),
			State: new("ended"), StateReason: new("the process ended"), Unmeasured: new(`{"cpu_ns":"the process ended"}`),
		},
		{
			Kind: KindGPU, Node: "node-1", WallNS: 1.7e18, Device: new("gpu0"), DeviceUUID: new("GPU-0"), PowerW: new(100.0), PowerKind: new("instant"), PowerAverageW: new(101.0),
			EnergyMJ: new(int64(1 << 52)), GPUPercent: new(int32(0)), GPUMemoryPercent: new(int32(3)), GPUMemoryUsedBytes: new(int64(0)),
			GPUMemoryTotalBytes: new(int64(140 << 30)), GPUMemorySource: new("nvml_v2"), SMClockMHz: new(int32(1980)), MemoryClockMHz: new(int32(3201)),
			TemperatureC: new(int32(40)), ThrottleBits: new(int64(4)), Throttle: new("sw_power_cap"), MIG: new(false),
			SampleTookNS: new(int64(900_000)), SampleCPUNS: new(int64(400_000)),
		},
		{
			Kind: KindGPUProcess, Node: "node-1", WallNS: 1.7e18, Device: new("gpu0"), DeviceUUID: new("GPU-0"), PID: new(int64(4242)), StartTicks: new(int64(1000)), Stage: new("talker"),
			GPUPercent: new(int32(50)), GPUMemoryUsedBytes: new(int64(3 << 30)), Unmeasured: new(`{"gpu_memory_percent":"no"}`),
		},
		{
			Kind: KindMIG, Node: "node-1", Device: new("gpu1/mig0"), State: new("lost"), StateReason: new("ERROR_GPU_IS_LOST"), MIG: new(true), XID: new(int64(79)),
			Unmeasured: new(`{"energy_mj":"a \"quoted\" one","power_w":"b"}`),
		},
	}
	if diff := cmp.Diff(want, rows[3:]); diff != "" {
		t.Error(diff)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("%v are left", entries)
	}
	f, err := openPart(filepath.Join(dir, File))
	if err != nil {
		t.Fatal(err)
	}
	defer f.file.Close()
	for key, want := range map[string]string{keySchema: "1", keyRun: "run-1", keyNode: "node-1"} {
		if got, _ := f.Lookup(key); got != want {
			t.Errorf("%s is %q", key, got)
		}
	}
	for _, g := range f.Metadata().RowGroups {
		for _, c := range g.Columns {
			if c.MetaData.Codec.String() != "ZSTD" {
				t.Errorf("%v is %v", c.MetaData.PathInSchema, c.MetaData.Codec)
			}
		}
	}
	if _, err := Create(dir, Config{}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second file: %v", err)
	}
}

// Every reason that a sampler gives names a column, so that it can be asked for.
func TestReasonsNameColumns(t *testing.T) {
	columns := map[string]bool{}
	for f := range reflect.TypeFor[Row]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("parquet"), ",")
		columns[name] = true
	}
	for _, name := range append(gpu.Columns(), usage.Columns()...) {
		if !columns[name] && name != gpu.ColumnProcesses {
			t.Errorf("%q is no column", name)
		}
	}
}

// A crash leaves the parts: each is a whole file, and together they are the run up to the
// last flush.
func TestCrash(t *testing.T) {
	dir := t.TempDir()
	w := create(t, dir, Config{})
	w.mergeAt = 8
	n := 0
	for i := range w.mergeAt*2 + 5 { // two merges, and five small ones
		w.GPU(cards(1, i))
		n += len(w.convert.gpu(cards(1, i)))
		if err := w.flush(); err != nil {
			t.Fatal(err)
		}
	}
	w.GPU(cards(1, 999)) // not flushed
	close(w.stop)        // the process is gone
	<-w.done
	parts, old, err := listParts(filepath.Join(dir, PartsDir))
	if err != nil || len(parts) != 7 || len(old) != 0 {
		t.Fatalf("%v, %v, %v", parts, old, err)
	}
	for _, p := range parts {
		if _, err := parquet.ReadFile[Row](filepath.Join(dir, PartsDir, p.name())); err != nil {
			t.Errorf("%s: %v", p.name(), err)
		}
	}
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, PartsDir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(part{22, 22}.name()+unfinished, "PAR1 torn")
	small, err := os.ReadFile(filepath.Join(dir, PartsDir, part{18, 18}.name()))
	if err != nil {
		t.Fatal(err)
	}
	write(part{1, 1}.name(), string(small)) // merged already: the crash came before it was removed
	r, err := Recover(dir)
	if err != nil || r.Rows != int64(n) || r.Parts != 7 || len(r.Damaged) != 0 {
		t.Errorf("%+v, %v, want %d rows", r, err, n)
	}
	rows := all(t, dir)
	if len(rows) != n || !slices.IsSortedFunc(rows, func(a, b Row) int { return int(a.MonoNS - b.MonoNS) }) {
		t.Errorf("%d rows of %d, or not in order", len(rows), n)
	}
	f, err := openPart(filepath.Join(dir, File))
	if err != nil {
		t.Fatal(err)
	}
	defer f.file.Close()
	if got, _ := f.Lookup(keyRun); got != "run-1" {
		t.Errorf("the run is %q", got)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("%v are left", entries)
	}
	if r, err = Recover(dir); err != nil || r.Rows != 0 {
		t.Errorf("again: %+v, %v", r, err)
	}
}

// A crash after the file was renamed leaves parts that are in it already.
func TestCrashBehindTheFile(t *testing.T) {
	dir := t.TempDir()
	w := create(t, dir, Config{})
	w.GPU(cards(1, 1))
	if err := w.flush(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, PartsDir, part{1, 1}.name())
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	put := func(names ...string) {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			if err := os.WriteFile(filepath.Join(dir, PartsDir, n), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(part{1, 1}.name())
	if _, err := Recover(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Dir(name)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the parts are still there: %v", err)
	}
	put(part{1, 1}.name(), part{2, 2}.name()) // more than the file has: nothing is thrown away
	if _, err := Recover(dir); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	if parts, _, _ := listParts(filepath.Dir(name)); len(parts) != 2 {
		t.Errorf("%v are left", parts)
	}
}

// A part that lost its power is told and stays; the others make the file.
func TestDamagedPart(t *testing.T) {
	dir := t.TempDir()
	w := create(t, dir, Config{})
	for i := range 3 {
		w.GPU(cards(1, 1+i))
		if err := w.flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(filepath.Join(dir, PartsDir, part{2, 2}.name()), 100); err != nil {
		t.Fatal(err)
	}
	err := w.Close()
	if err == nil || !strings.Contains(err.Error(), part{2, 2}.name()) {
		t.Error(err)
	}
	if rows := all(t, dir); len(rows) != 2 || rows[1].MonoNS != 300e6 {
		t.Errorf("%+v", rows)
	}
	if parts, _, _ := listParts(filepath.Join(dir, PartsDir)); len(parts) != 1 || parts[0].from != 2 {
		t.Errorf("%v are left", parts)
	}
}

// What the disk refuses waits, up to the bound, and is written when it can be.
func TestDiskThatRefuses(t *testing.T) {
	dir := t.TempDir()
	w := create(t, dir, Config{MaxRows: 5})
	parts := filepath.Join(dir, PartsDir)
	if err := os.Rename(parts, parts+".away"); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		w.GPU(cards(1, 1+i))
	}
	w.note(w.flush())
	for i := range 3 {
		w.GPU(cards(1, 5+i))
	}
	if st := w.Stats(); st.Written != 0 || st.Waiting != 5 || st.Lost != 2 || st.Error == "" {
		t.Errorf("%+v", st)
	}
	if err := os.Rename(parts+".away", parts); err != nil {
		t.Fatal(err)
	}
	w.note(w.flush())
	if st := w.Stats(); st.Written != 5 || st.Waiting != 0 || st.Lost != 2 || st.Error != "" {
		t.Errorf("%+v", st)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if rows := all(t, dir); len(rows) != 5 || rows[0].MonoNS != 100e6 || rows[4].MonoNS != 500e6 {
		t.Errorf("%d rows", len(rows))
	}
}

// Close on a disk that refuses says what is lost.
func TestCloseThatFails(t *testing.T) {
	dir := t.TempDir()
	w := create(t, dir, Config{})
	w.GPU(cards(2, 1))
	if err := os.RemoveAll(filepath.Join(dir, PartsDir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err == nil || w.Stats().Lost != 2 {
		t.Errorf("%v, %+v", err, w.Stats())
	}
}

func TestSamples(t *testing.T) {
	dir := t.TempDir()
	w := create(t, dir, Config{})
	for i := range 301 {
		s := cards(2, i)
		for k := range s.Devices {
			s.Devices[k].PowerW, s.Devices[k].EnergyMJ = new(100.0), new(uint64(i*10_000))
			if i == 290 { // in another batch of rows than the ones before
				s.Devices[k].PowerW = nil
			}
		}
		w.GPU(s)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := Samples(dir, energy.Window{ToNS: 40e9})
	if err != nil || len(whole[1].Samples) != 301 || whole[1].Samples[290].PowerW != nil || *whole[1].Samples[289].EnergyMJ != 2_890_000 {
		t.Errorf("%d samples, %v", len(whole[1].Samples), err)
	}
	devices, err := Samples(dir, energy.Window{FromNS: 0, ToNS: 25e9})
	if err != nil || len(devices) != 2 || devices[0].Name != "gpu0" || len(devices[0].Samples) != 251 || devices[1].PowerKind != "instant" {
		t.Fatalf("%+v, %v", devices, err)
	}
	r := energy.Of(energy.Input{Devices: devices, IntervalNS: 100e6, Idle: energy.Window{FromNS: 1e9, ToNS: 9e9}, Load: energy.Window{FromNS: 10e9, ToNS: 20e9}, Successes: 1})
	if r.Counter.TotalJ == nil || math.Abs(*r.Counter.TotalJ-2000) > 1 || math.Abs(*r.Power.TotalJ-2000) > 1 {
		text, err := json.Marshal(r)
		t.Errorf("%s, %v", text, err)
	}
}

func TestPartNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"0000000001-0000000064.parquet": true, "0000000002-0000000001.parquet": false, "1-2.parquet": false,
		"0000000001-0000000064.parquet.tmp": false, "resources.parquet": false,
	} {
		if _, got := parsePart(name); got != ok {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// BenchmarkSecond is a second of 8 cards at 10 Hz and two processes, flushed every ten
// and merged as in a run: its time is the share of a core.
func BenchmarkSecond(b *testing.B) {
	w, err := Create(b.TempDir(), Config{FlushEvery: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		for k := range 10 {
			w.GPU(cards(8, i*10+k))
		}
		w.Usage(used(i))
		if i++; i%10 == 0 {
			if err := w.flush(); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkJoin is what Close does with a day of 8 cards at 10 Hz, shrunk to an hour.
func BenchmarkJoin(b *testing.B) {
	dir := b.TempDir()
	w, err := Create(dir, Config{FlushEvery: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 36_000 {
		w.GPU(cards(8, i))
		if i%100 == 99 {
			if err := w.flush(); err != nil {
				b.Fatal(err)
			}
		}
	}
	close(w.stop)
	<-w.done
	parts, _, err := listParts(filepath.Join(dir, PartsDir))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		f, err := os.Create(filepath.Join(dir, "out"))
		if err != nil {
			b.Fatal(err)
		}
		rows, _, err := join(f, filepath.Join(dir, PartsDir), parts, nil)
		info, _ := f.Stat()
		if err := errors.Join(err, f.Close()); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(rows), "rows")
		b.ReportMetric(float64(info.Size()), "bytes")
	}
}

// README has every column, and none that is not there.
func TestColumnsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| column |")
	table, _, _ = strings.Cut(table, "\n\n")
	told := map[string]bool{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 || !strings.HasPrefix(line, "| `") {
			continue
		}
		for name := range strings.SplitSeq(cells[1], ",") {
			told[strings.Trim(name, " `")] = true
		}
	}
	has := map[string]bool{}
	for f := range reflect.TypeFor[Row]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("parquet"), ",")
		has[name] = true
	}
	if diff := cmp.Diff(has, told); diff != "" {
		t.Error(diff)
	}
}
