package mock

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
}
