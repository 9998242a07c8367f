//go:build !linux || !cgo

package hardware

import (
	"strings"
	"testing"
)

// A program without cgo says why it knows no clocks of a GPU.
func TestWithoutNVML(t *testing.T) {
	reasons := map[string]string{}
	if _, g := Read("", false, reasons); g.CUDAVersion != nil || !strings.Contains(reasons["gpu.cuda_version"], "built without cgo") {
		t.Errorf("%+v, %v", g, reasons)
	}
}
