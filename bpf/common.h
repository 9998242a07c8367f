/* What every family of probes shares: the form of an event, the table of stage
 * processes, the ring and its counters. Programs only read: no helper that writes to
 * a process is used anywhere. */
#ifndef OMNITAP_COMMON_H
#define OMNITAP_COMMON_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* The numbers of probes/event.Probe. */
enum probe {
	P_OPENAT = 1,
	P_OPEN_MISSES,
	P_FTRUNCATE,
	P_FLOCK_ENTER,
	P_FLOCK_EXIT,
	P_CLOSE,
	P_UNLINK,
	P_ZMQ_SEND,
	P_ZMQ_RECV,
	P_ZMQ_BIND,
	P_ZMQ_CONNECT,
	P_SEND,
	P_RECV,
	P_BIND,
	P_CONNECT,
	P_ACCEPT,
	P_SOCK_STATE,
	P_MC_SUBMIT,
	P_MC_START,
	P_SCHED_SWITCH,
	P_SCHED_WAKEUP,
	P_SCHED_SAMPLE,
	P_FORK,
	P_EXEC,
	P_EXIT,
	P_SIGNAL,
	P_OOM_KILL,
	P_CUDA_CALL,
	P_CUDA_COUNT,
};

/* The families, as in probes/kernel. */
enum family { F_SHM, F_ZMQ, F_PIPE, F_SOCKET, F_CUDA, F_SCHED, F_PROC, F_COUNT };

#define HEAD_MAX 1024
#define TAIL_MAX 64
#define PATH_MAX_ 272 /* "/dev/shm/", a name of 255 bytes, the zero; in whole words */
#define BULK_MAX 8192

/* One event in the ring; data follows, path first, then head, then tail. */
struct event {
	__u64 mono;
	__u64 enter;
	__u32 pid, tid;
	__u8 probe, more, msg_type, call;
	__s32 fd;
	__s64 ret;
	__s64 flags;
	__s64 size;
	__s64 count;
	__u64 sock;
	__u16 path_len, head_len, tail_len, args_len;
	char comm[16];
};

struct plain { struct event e; };
struct with_args { struct event e; __u64 args[5]; };
struct with_small { struct event e; char data[TAIL_MAX]; };
struct with_path { struct event e; char data[PATH_MAX_]; };
struct with_message { struct event e; char data[HEAD_MAX + TAIL_MAX]; };
struct with_bulk { struct event e; char data[BULK_MAX + TAIL_MAX]; };

/* A process that is watched. flags bit 0: it is omnitap itself, for the heartbeat. */
struct stage {
	__u32 stage;
	__u32 flags;
	__u64 hits[8]; /* by family */
};

#define STAGE_SELF 1

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct stage);
} stages SEC(".maps");

/* Sized by whoever loads it. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

struct counts {
	__u64 hits;  /* program runs of a watched process */
	__u64 sent;  /* put into the ring */
	__u64 beats; /* heartbeats */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counts);
} counters SEC(".maps");

/* What should have been told and was not: no room in the ring or in a map, memory that
 * could not be read. One for all CPUs, in mapped memory: user space reads it often. */
volatile __u64 lost = 0;

/* The pid namespace that pids are told in, zero for the kernel's own. */
const volatile __u64 pidns_dev = 0;
const volatile __u64 pidns_ino = 0;

static __always_inline __u64 current_ids(void)
{
	struct bpf_pidns_info { __u32 pid, tgid; } ns;
	if (!pidns_ino)
		return bpf_get_current_pid_tgid();
	if (bpf_get_ns_current_pid_tgid(pidns_dev, pidns_ino, (void *)&ns, sizeof(ns)))
		return 0;
	return (__u64)ns.tgid << 32 | ns.pid;
}

static __always_inline struct counts *my_counts(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&counters, &zero);
}

/* add1 is atomic although counters are per CPU: a uprobe's program may be preempted,
 * and a tracepoint's interrupted by one in a softirq. */
static __always_inline void add1(__u64 *n)
{
	__sync_fetch_and_add(n, 1);
}

static __always_inline void count_hit(struct stage *s, int family)
{
	struct counts *c = my_counts();
	if (c)
		add1(&c->hits);
	add1(&s->hits[family]);
}

static __always_inline void count_beat(void)
{
	struct counts *c = my_counts();
	if (c)
		add1(&c->beats);
}

static __always_inline void count_lost(void)
{
	__sync_fetch_and_add(&lost, 1);
}

static __always_inline struct stage *stage_of(__u32 tgid)
{
	return bpf_map_lookup_elem(&stages, &tgid);
}

/* watched returns the current process's entry, 0 where nobody watches it or it is
 * omnitap, and counts the hit: every run of a program for a watched process is one. */
static __always_inline struct stage *watched(__u64 ids, int family)
{
	struct stage *s = stage_of(ids >> 32);
	if (!s || s->flags & STAGE_SELF)
		return 0;
	count_hit(s, family);
	return s;
}

/* watched_or_beat is watched, and counts a call of omnitap's own as a heartbeat. */
static __always_inline struct stage *watched_or_beat(__u64 ids, int family)
{
	struct stage *s = stage_of(ids >> 32);
	if (!s)
		return 0;
	if (s->flags & STAGE_SELF) {
		count_beat();
		return 0;
	}
	count_hit(s, family);
	return s;
}

static __always_inline void fill(struct event *e, __u8 probe, __u64 ids)
{
	__builtin_memset(e, 0, sizeof(*e));
	e->mono = bpf_ktime_get_ns();
	e->pid = ids >> 32;
	e->tid = (__u32)ids;
	e->probe = probe;
	bpf_get_current_comm(e->comm, sizeof(e->comm));
}

static __always_inline void sent(void *e)
{
	struct counts *c = my_counts();
	if (c)
		add1(&c->sent);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

/* RESERVE declares v, an event of the given form, or counts a loss and returns 0. */
#define RESERVE(v, form)                                              \
	struct form *v = bpf_ringbuf_reserve(&events, sizeof(*v), 0); \
	if (!v) {                                                     \
		count_lost();                                         \
		return 0;                                             \
	}

#define MIN(a, b) ((a) < (b) ? (a) : (b))

/* put_call keeps what a call began with until it returns. Tables of calls are plain
 * hashes whose memory is taken as needed: an LRU table forgets calls under way, where
 * many CPUs each keep free entries. Only a thread that dies in its call leaves one. */
#define CALLS_MAX 65536

#define CALLS(name, key_type, value_type)                   \
	struct {                                            \
		__uint(type, BPF_MAP_TYPE_HASH);            \
		__uint(map_flags, BPF_F_NO_PREALLOC);       \
		__uint(max_entries, CALLS_MAX);             \
		__type(key, key_type);                      \
		__type(value, value_type);                  \
	} name SEC(".maps")

#define PUT_CALL(map, key, value)                                    \
	({                                                           \
		if (bpf_map_update_elem(map, key, value, BPF_ANY))   \
			count_lost();                                \
	})

/* read_user copies at most max bytes and returns how many. The barrier keeps the
 * compiler from folding the bound away that the verifier has to see. */
static __always_inline __u32 read_user(void *to, __u64 want, __u32 max, const void *from)
{
	__u64 n = want > max ? max : want;
	asm volatile("" : "+r"(n));
	if (n == 0 || n > max)
		return 0;
	return bpf_probe_read_user(to, n, from) ? 0 : n;
}

#endif
