package cuda

//go:generate go tool bpf2go -no-global-types -cc clang -target amd64 -tags linux -go-package cuda bpf ../../bpf/cuda.bpf.c -- -I../../bpf -O2 -Wall -Werror
