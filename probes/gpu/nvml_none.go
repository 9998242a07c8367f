//go:build !linux || !cgo

package gpu

import "errors"

var errNoNVML = errors.New("built without cgo: NVML cannot be asked")

func newLibrary() library { return none{} }

// none is the library of a program that was built without it.
type none struct{}

func (none) open() (Version, error) { return Version{}, errNoNVML }
func (none) close()                 {}
func (none) cards() ([]card, error) { return nil, errNoNVML }
func (none) xids() ([]xid, error)   { return nil, errNoNVML }
