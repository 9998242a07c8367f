package ledger

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"github.com/omnitap/omnitap/probes/host/internal/null"
)

// What of an environment matters for a measurement: variables of these names, and those
// that begin like this.
var (
	envNames = []string{
		"CONDA_PREFIX", "HF_DATASETS_OFFLINE", "HF_ENDPOINT", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_DISABLE_XET",
		"HF_HUB_ENABLE_HF_TRANSFER", "HF_HUB_OFFLINE", "HUGGINGFACE_HUB_CACHE", "LD_LIBRARY_PATH", "LD_PRELOAD",
		"PYTHONHASHSEED", "PYTHONHOME", "PYTHONNOUSERSITE", "PYTHONOPTIMIZE", "PYTHONPATH", "PYTHON_GIL", "TOKENIZERS_PARALLELISM",
		"TRANSFORMERS_CACHE", "TRANSFORMERS_OFFLINE", "VIRTUAL_ENV", "XDG_CACHE_HOME",
	}
	envPrefixes = []string{
		"ASCEND_", "CUBLAS", "CUDA_", "CUDNN_", "FI_", "FLASHINFER_", "FLASH_ATTENTION_", "GLOO_", "GOMP_", "HIP_", "HSA_",
		"KMP_", "LMCACHE_", "MALLOC_", "MC_", "MKL_", "MOONCAKE_", "NCCL_", "NIXL_", "NUMEXPR_", "NVIDIA_", "NVSHMEM_",
		"OMNITAP_", "OMP_", "OPENBLAS_", "PYTORCH_", "RAY_", "ROCR_", "SGLANG_", "SGL_", "TORCH", "TRITON_", "UCX_", "VLLM_",
	}
	// envSecret are words of a name that make its value a secret whatever Redact knows.
	envSecret = []string{"KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS", "AUTH", "COOKIE"}
)

const (
	maxEnvValue = 4 << 10
	maxEnvs     = 512
	hidden      = "REDACTED"
)

// environ reads the environment at exec.
func (r *reader) environ(pid int) (map[string]string, error) {
	b, err := r.Root.Read(proc(pid, "environ"), maxEnviron)
	if err != nil {
		return nil, err
	}
	out := parseEnviron(b)
	if len(out) == 0 {
		return nil, errors.New("it holds no variable: the process had none, or has written a title over it")
	}
	return out, nil
}

// parseEnviron reads NAME=value, separated by zeros. Of two with one name the first
// counts, as for getenv.
func parseEnviron(b []byte) map[string]string {
	out := map[string]string{}
	for one := range bytes.SplitSeq(b, []byte{0}) {
		name, value, ok := strings.Cut(string(one), "=")
		if _, twice := out[name]; ok && name != "" && !twice {
			out[name] = value
		}
	}
	return out
}

// matters picks the variables that matter, without secrets.
func (r *reader) matters(env map[string]string) (map[string]string, error) {
	out := map[string]string{}
	for name, value := range env {
		switch {
		case !envMatters(name):
			continue
		case len(out) >= maxEnvs:
			return nil, errors.New("it holds too many variables")
		case envIsSecret(name) && value != "":
			out[name] = hidden
			continue
		}
		words, err := r.redacted([]string{name + "=" + cut(value, maxEnvValue)})
		if err != nil {
			return nil, err
		}
		_, rest, ok := strings.Cut(words[0], "=")
		if !ok { // the redactor hid all of it
			rest = hidden
		}
		out[name] = rest
	}
	return out, nil
}

// envMatters takes names of the usual form alone.
func envMatters(name string) bool {
	if len(name) > null.MaxText || strings.ContainsFunc(name, func(c rune) bool {
		return c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
	}) {
		return false
	}
	return slices.Contains(envNames, name) ||
		slices.ContainsFunc(envPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

func envIsSecret(name string) bool {
	for word := range strings.SplitSeq(strings.ToUpper(name), "_") {
		if slices.Contains(envSecret, word) {
			return true
		}
	}
	return false
}
