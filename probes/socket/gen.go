package socket

//go:generate go tool bpf2go -no-global-types -cc clang -target amd64 -tags linux -go-package socket bpf ../../bpf/socket.bpf.c -- -I../../bpf -O2 -Wall -Werror
