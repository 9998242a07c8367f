package gpu

import (
	"math"
	"sync"
	"time"

	"github.com/omnitap/omnitap/probes/host"
)

// fakeCard is a card that says all, but for the errors it is given by name of the call.
type fakeCard struct {
	mu     sync.Mutex // protects errs and asked
	id     identity
	errs   map[string]error
	asked  map[string]int
	used   uint64
	total  uint64
	energ  uint64
	watts  [3]uint32 // milliwatts by powerKind
	gpu    uint32
	clocks [2]uint32
	list   []held
	use1   []used
	after  uint64
	block  <-chan struct{}
}

func newFake(index int) *fakeCard {
	return &fakeCard{
		id:   identity{index: index, instance: -1, name: "NVIDIA H200", uuid: "GPU-" + string(rune('a'+index))},
		errs: map[string]error{}, asked: map[string]int{},
		used: 10 << 30, total: 140 << 30, energ: 1_000_000, watts: [3]uint32{120_500, 118_250, 119_000},
		gpu: 37, clocks: [2]uint32{1980, 3201},
		list: []held{{4242, 3 << 30}}, use1: []used{{4242, 100, 55, 12}},
	}
}

func (f *fakeCard) answer(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked[name]++
	return f.errs[name]
}

func (f *fakeCard) identity() identity { return f.id }
func (f *fakeCard) power(k powerKind) (uint32, error) {
	return f.watts[k], f.answer([]string{"instant", "average", "usage"}[k])
}

func (f *fakeCard) energy() (uint64, error) {
	if f.block != nil {
		<-f.block
	}
	return f.energ, f.answer("energy")
}
func (f *fakeCard) use() (uint32, uint32, error) { return f.gpu, 21, f.answer("use") }
func (f *fakeCard) memory(version int) (uint64, uint64, error) {
	return f.used, f.total, f.answer([]string{"", "memory1", "memory2"}[version])
}

func (f *fakeCard) clock(k clockKind) (uint32, error) {
	return f.clocks[k], f.answer([]string{"sm", "mem"}[k])
}
func (f *fakeCard) temperature() (uint32, error) { return 41, f.answer("temperature") }
func (f *fakeCard) throttle() (uint64, error)    { return 5, f.answer("throttle") }
func (f *fakeCard) processes() ([]held, error)   { return f.list, f.answer("processes") }
func (f *fakeCard) processUse(after uint64) ([]used, error) {
	f.after = after
	return f.use1, f.answer("processUse")
}

// every is all calls of a card.
var every = []string{
	"instant", "average", "usage", "energy", "use", "memory1", "memory2", "sm", "mem", "temperature", "throttle",
	"processes", "processUse",
}

func (f *fakeCard) times(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[name]
}

func (f *fakeCard) all(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range every {
		f.errs[name] = err
	}
}

// fakeLibrary fails to open with each of fails in turn, nil being good, the last for
// ever.
type fakeLibrary struct {
	mu     sync.Mutex
	fails  []error
	opened int
	closed int
	list   []card
	told   []xid
}

func (f *fakeLibrary) open() (Version, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened++
	if len(f.fails) == 0 {
		return Version{"580.1", "13.580"}, nil
	}
	err := f.fails[min(f.opened, len(f.fails))-1]
	return Version{"580.1", "13.580"}, err
}

func (f *fakeLibrary) close() {
	f.mu.Lock()
	f.closed++
	f.mu.Unlock()
}

func (f *fakeLibrary) cards() ([]card, error) { return f.list, nil }
func (f *fakeLibrary) xids() ([]xid, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	told := f.told
	f.told = nil
	return told, nil
}

func (f *fakeLibrary) tell(x xid) {
	f.mu.Lock()
	f.told = append(f.told, x)
	f.mu.Unlock()
}

func (f *fakeLibrary) counts() (opened, closed int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opened, f.closed
}

// testClocks are those of a synctest bubble.
func testClocks() host.Clocks {
	now := func() int64 { return time.Now().UnixNano() }
	return host.Clocks{Wall: now, Mono: now, Boot: now}
}

const ones32, ones64 = math.MaxUint32, math.MaxUint64
