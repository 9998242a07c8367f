//go:build !linux

package foreign

import "errors"

func cpuTime(int) (int64, error) { return 0, errors.ErrUnsupported }
