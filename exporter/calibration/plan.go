package calibration

import (
	"errors"
	"fmt"
)

// Config says what is asked.
type Config struct {
	// Budget is the most that the probes may cost of any metric, a share: 0.01.
	Budget float64 `json:"budget"`
	// Level is that of the verdict, over all looks together. Default 0.95.
	Level float64 `json:"level"`
	// MinPairs is when the first look is taken, MaxPairs when the last one. Defaults 4
	// and 16.
	MinPairs int `json:"min_pairs"`
	MaxPairs int `json:"max_pairs"`
	// Seed is that of whatever is drawn.
	Seed uint64 `json:"seed"`
}

// Defaults of Config.
const (
	DefaultBudget   = 0.01
	DefaultLevel    = 0.95
	DefaultMinPairs = 4
	DefaultMaxPairs = 16
	// leastPairs is what an interval of A against A needs: two of its own pairs.
	leastPairs = 4
	mostPairs  = 1024
)

// WithDefaults fills in what is not set.
func (c Config) WithDefaults() Config {
	if c.Budget == 0 {
		c.Budget = DefaultBudget
	}
	if c.Level == 0 {
		c.Level = DefaultLevel
	}
	if c.MinPairs == 0 {
		c.MinPairs = DefaultMinPairs
	}
	if c.MaxPairs == 0 {
		c.MaxPairs = max(DefaultMaxPairs, c.MinPairs)
	}
	return c
}

// Validate says what is wrong with a Config, whose defaults are filled in.
func (c Config) Validate() error {
	c = c.WithDefaults()
	switch {
	case !(c.Budget > 0 && c.Budget < 1):
		return fmt.Errorf("the budget must lie between 0 and 100 %%, not %v", c.Budget)
	case !(c.Level >= 0.5 && c.Level < 1):
		return fmt.Errorf("the level must lie between 0.5 and 1, not %v", c.Level)
	case c.MinPairs < leastPairs:
		return fmt.Errorf("at least %d pairs of blocks are needed, not %d: fewer have no noise floor", leastPairs, c.MinPairs)
	case c.MaxPairs < c.MinPairs || c.MaxPairs > mostPairs:
		return fmt.Errorf("the most pairs of blocks must lie between %d and %d, not %d", c.MinPairs, mostPairs, c.MaxPairs)
	}
	return nil
}

// Attached says whether block i, from 0, is one with the probes: A B B A.
func Attached(i int) bool { return i%4 == 1 || i%4 == 2 }

// Looks are the numbers of pairs after which the blocks are judged.
func (c Config) Looks() []int {
	c = c.WithDefaults()
	looks := []int{c.MinPairs}
	for n := 2 * c.MinPairs; n < c.MaxPairs; n *= 2 {
		looks = append(looks, n)
	}
	if c.MaxPairs > c.MinPairs {
		looks = append(looks, c.MaxPairs)
	}
	return looks
}

// level is that of one look's intervals.
func (c Config) level() float64 {
	return 1 - (1-c.WithDefaults().Level)/float64(len(c.Looks()))
}

// errOrder is blocks in another order than A B B A.
var errOrder = errors.New("the blocks are not in the order A B B A")

// pairs puts neighbours together: the index of A and of B of each whole pair.
func pairs(blocks []Block) (list [][2]int, err error) {
	for i := range blocks {
		if blocks[i].Attached != Attached(i) {
			return nil, fmt.Errorf("%w: block %d", errOrder, i)
		}
	}
	for i := 0; i+1 < len(blocks); i += 2 {
		if blocks[i].Attached {
			list = append(list, [2]int{i + 1, i})
		} else {
			list = append(list, [2]int{i, i + 1})
		}
	}
	return list, nil
}

// floors puts neighbouring blocks without probes together, every second pair the other
// way round.
func floors(p [][2]int) (list [][2]int) {
	for i := 0; i+1 < len(p); i += 2 {
		if i%4 == 0 {
			list = append(list, [2]int{p[i][0], p[i+1][0]})
		} else {
			list = append(list, [2]int{p[i+1][0], p[i][0]})
		}
	}
	return list
}
