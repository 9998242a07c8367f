//go:build !linux

package gpu

func threadTime() (int64, bool) { return 0, false }
