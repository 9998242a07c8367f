package mock

import (
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/script"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/stages"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/truth"
)

// What steers the mock and what it tells, so that users need this package
// only.
type (
	// Script says how one request is answered.
	Script = script.Script
	// Step is one event of a scripted stream.
	Step = script.Step
	// RawWrite is one write of a raw answer.
	RawWrite = script.RawWrite
	// Ints is a list of numbers; in JSON also a single number.
	Ints = script.Ints
	// Floats is a list of numbers; in JSON also a single number.
	Floats = script.Floats
	// Fault describes one fault for help texts.
	Fault = script.Fault
	// Truth is what the mock did with one request.
	Truth = truth.Truth
)

// The dialects that the mock speaks.
const (
	DialectVLLM   = script.DialectVLLM
	DialectSGLang = script.DialectSGLang
	DialectOpenAI = script.DialectOpenAI
)

// Config is what a Server is made from. The zero value is a vLLM-Omni with a
// default script.
type Config struct {
	// Seed decides ids and noise: the same seed and the same requests in the
	// same order give the same bytes, dates aside. Default 0.
	Seed uint64
	// Dialect is spoken where no script names one. Default vllm-omni.
	Dialect string
	// Script is the behaviour of requests that bring no script of their own,
	// and what a script of theirs is laid over.
	Script Script
	// Stages, if not nil, make the answers of vLLM-Omni's streaming chat with text and
	// streaming speech that bring no script: real processes hand over, and what they
	// make goes out as it comes. Script must be zero then. The caller closes it, after
	// the end of Serve.
	Stages *stages.Engine
	// Unnoticed makes it a server that does not see the end of a stage process: its
	// requests get nothing more, and no end.
	Unnoticed bool
}

// Faults returns all faults in the order of the manual.
func Faults() []Fault { return script.Faults() }

// ParseFaults reads faults written "name" or "name=value" into a script. An
// unknown name, a bad value and a fault given twice are errors.
func ParseFaults(list []string) (Script, error) { return script.Parse(list) }
