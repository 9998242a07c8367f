//go:build !linux || !cgo

package gpu

import (
	"testing"
	"testing/synctest"
	"time"
)

// A program without cgo says why it samples no card.
func TestWithoutNVML(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, stop := start(t, newLibrary())
		time.Sleep(time.Second)
		synctest.Wait()
		if got := s.Status(); got.State != StateUnavailable || got.Reason != "starting NVML: built without cgo: NVML cannot be asked" {
			t.Errorf("%+v", got)
		}
		_ = stop()
	})
}
