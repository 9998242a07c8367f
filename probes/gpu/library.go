package gpu

// library is NVML as the sampler needs it. One goroutine uses it. Errors are codes, or
// errOld where the library lacks the function.
type library interface {
	// open loads and starts the library. After an error, close is not called.
	open() (Version, error)
	close()
	// cards lists the cards, and behind each that is split its instances.
	cards() ([]card, error)
	// xids takes the critical errors that the driver told since the last call.
	xids() ([]xid, error)
}

// card is one card, or one instance of a split one. Values are as NVML gives them.
type card interface {
	identity() identity
	// power is milliwatts.
	power(powerKind) (uint32, error)
	// energy is millijoules since the driver was loaded.
	energy() (uint64, error)
	use() (gpu, memory uint32, err error)
	// memory asks the given version of the call, 2 or 1.
	memory(version int) (used, total uint64, err error)
	clock(clockKind) (uint32, error)
	temperature() (uint32, error)
	throttle() (uint64, error)
	// processes lists who has memory; use of processes is what was sampled after a time
	// stamp of NVML's own.
	processes() ([]held, error)
	processUse(after uint64) ([]used, error)
}

// Version is what the library says of itself; "" is not said.
type Version struct {
	Driver, NVML string
}

// identity is who a card is. An instance has its card's index and its own number.
type identity struct {
	index, instance int // instance is -1 on a card
	name, uuid      string
	mig             bool
	err             error // why the card could not be reached
}

type powerKind int

const (
	// powerInstant and powerAverage are fields of newer drivers that say which they
	// are. powerUsage is the old call: the average of a second on Ampere and later
	// (GA100 excepted), the moment on earlier ones.
	powerInstant powerKind = iota
	powerAverage
	powerUsage
)

type clockKind int

const (
	clockSM clockKind = iota
	clockMemory
)

// held is one process's memory on a card.
type held struct {
	pid   int
	bytes uint64
}

// used is one process's share of a card over a sampling period of the driver's.
type used struct {
	pid        int
	stamp      uint64
	sm, memory uint32
}

// xid is a critical error that the driver told of a card.
type xid struct {
	uuid string
	code uint64
}
