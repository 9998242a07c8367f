package shm

//go:generate go tool bpf2go -no-global-types -cc clang -target amd64 -tags linux -go-package shm bpf ../../bpf/shm.bpf.c -- -I../../bpf -O2 -Wall -Werror
