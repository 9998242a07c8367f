//go:build !linux || !cgo

package hardware

import (
	"errors"

	"github.com/omnitap/omnitap/probes/host/internal/null"
)

var errNoNVML = errors.New("built without cgo: NVML cannot be asked")

func readNVML(null.Reasons) (GPU, error) { return GPU{}, errNoNVML }
