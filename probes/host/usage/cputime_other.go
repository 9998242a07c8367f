//go:build !linux

package usage

import "errors"

func cpuTime(int) (int64, error) { return 0, errors.ErrUnsupported }

func threadTime() (int64, bool) { return 0, false }
