package sched

//go:generate go tool bpf2go -no-global-types -cc clang -target amd64 -tags linux -go-package sched bpf ../../bpf/sched.bpf.c -- -I../../bpf -O2 -Wall -Werror
