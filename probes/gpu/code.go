package gpu

import (
	"errors"
	"strconv"
)

// code is what NVML answers a call with, as nvml.h numbers it. It stands here so that
// the decisions need neither cgo nor the library.
type code int

const (
	errUninitialized     code = 1
	errNotSupported      code = 3
	errNoPermission      code = 4
	errNotFound          code = 6
	errDriverNotLoaded   code = 9
	errTimedOut          code = 10
	errLibraryNotFound   code = 12
	errFunctionNotFound  code = 13
	errGPUIsLost         code = 15
	errResetRequired     code = 16
	errVersionMismatch   code = 18
	errNoData            code = 21
	errArgumentVersion   code = 25
	errGPUNotFound       code = 28
	errUnknownToNVML     code = 999
	errLibraryIncomplete code = -1 // ours: it lacks what no version lacks
)

var codeNames = map[code]string{
	errUninitialized: "ERROR_UNINITIALIZED", 2: "ERROR_INVALID_ARGUMENT", errNotSupported: "ERROR_NOT_SUPPORTED",
	errNoPermission: "ERROR_NO_PERMISSION", errNotFound: "ERROR_NOT_FOUND", 7: "ERROR_INSUFFICIENT_SIZE",
	errDriverNotLoaded: "ERROR_DRIVER_NOT_LOADED", errTimedOut: "ERROR_TIMEOUT", 11: "ERROR_IRQ_ISSUE",
	errLibraryNotFound: "ERROR_LIBRARY_NOT_FOUND", errFunctionNotFound: "ERROR_FUNCTION_NOT_FOUND",
	14: "ERROR_CORRUPTED_INFOROM", errGPUIsLost: "ERROR_GPU_IS_LOST", errResetRequired: "ERROR_RESET_REQUIRED",
	17: "ERROR_OPERATING_SYSTEM", errVersionMismatch: "ERROR_LIB_RM_VERSION_MISMATCH", 19: "ERROR_IN_USE",
	20: "ERROR_MEMORY", errNoData: "ERROR_NO_DATA", errArgumentVersion: "ERROR_ARGUMENT_VERSION_MISMATCH",
	26: "ERROR_DEPRECATED", 27: "ERROR_NOT_READY", errGPUNotFound: "ERROR_GPU_NOT_FOUND",
	errUnknownToNVML: "ERROR_UNKNOWN", errLibraryIncomplete: "a library of that name lacks the functions that every NVML has",
}

// Error is the name in nvml.h. NVML's own texts are not asked for: that is one more
// function of a library that may be broken.
func (c code) Error() string {
	if name, ok := codeNames[c]; ok {
		return name
	}
	return "NVML error " + strconv.Itoa(int(c))
}

// Reasons that are ours and not NVML's.
var (
	errOld      = errors.New("the driver's library is too old to say")
	errSentinel = errors.New("the card answers that it is not available")
	errZero     = errors.New("the card says that it has 0 bytes of memory: it does not measure it")
	errRange    = errors.New("the card says more than 100 percent")
	errMIG      = errors.New("the card is split into instances (MIG) and says no use of the whole")
)

// lost says whether an answer means that the card is gone until it is reset.
func lost(err error) bool {
	return errors.Is(err, errGPUIsLost) || errors.Is(err, errResetRequired) || errors.Is(err, errGPUNotFound)
}

// dead says whether an answer means that the library has to be opened anew.
func dead(err error) bool {
	return errors.Is(err, errUninitialized) || errors.Is(err, errDriverNotLoaded) || errors.Is(err, errVersionMismatch)
}

// lasting says whether asking again soon is useless.
func lasting(err error) bool {
	return errors.Is(err, errOld) || errors.Is(err, errNotSupported) || errors.Is(err, errFunctionNotFound) ||
		errors.Is(err, errArgumentVersion) || errors.Is(err, errNoPermission)
}
