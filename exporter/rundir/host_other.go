//go:build !linux

package rundir

import "errors"

func monotonic() (int64, error) { return 0, errors.ErrUnsupported }

func kernelRelease() (string, error) { return "", errors.ErrUnsupported }

func cpuModel() (string, error) { return "", errors.ErrUnsupported }
