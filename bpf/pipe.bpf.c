/* Queues over pipes: what is written to and read from the pipes that two watched
 * processes share. The first 4 KiB of a call are copied. */
#include "file.h"

#define PIPE_HEAD 4096

struct io {
	__u64 enter;
	const void *buf;
	__u64 len;
	__s32 fd;
	__u8 call;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct io);
} calls SEC(".maps");

/* The inodes of the shared pipes: found from /proc. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u32);
} pipes SEC(".maps");

struct with_pipe { struct event e; char data[PIPE_HEAD]; };

static __always_inline int begin(struct trace_event_raw_sys_enter *ctx, __u8 call)
{
	__u64 ids = current_ids();
	struct stage *s = watched(ids);
	if (!s)
		return 0;
	if (s->flags & STAGE_SELF) {
		struct counts *n = my_counts();
		if (n)
			n->beats++;
		return 0;
	}
	count_hit(s, F_PIPE);
	struct file *f = file_of(ctx->args[0]);
	if (!f || mode_of(f) != S_IFIFO)
		return 0;
	__u64 ino = inode_of(f);
	if (!bpf_map_lookup_elem(&pipes, &ino))
		return 0;
	struct io c = {.enter = bpf_ktime_get_ns(), .buf = (const void *)ctx->args[1], .len = ctx->args[2], .fd = ctx->args[0], .call = call};
	bpf_map_update_elem(&calls, &ids, &c, BPF_ANY);
	return 0;
}

static __always_inline int end(struct trace_event_raw_sys_exit *ctx, __u8 probe)
{
	__u64 ids = current_ids();
	struct io *p = bpf_map_lookup_elem(&calls, &ids);
	if (!p)
		return 0;
	struct io c = *p;
	bpf_map_delete_elem(&calls, &ids);
	struct stage *s = watched(ids);
	if (s)
		count_hit(s, F_PIPE);
	if (ctx->ret <= 0)
		return 0;
	__u32 n = MIN((__u64)ctx->ret, PIPE_HEAD);
	if (n <= TAIL_MAX) {
		RESERVE(e, with_small);
		fill(&e->e, probe, ids);
		e->e.enter = c.enter;
		e->e.fd = c.fd;
		e->e.size = c.len;
		e->e.ret = ctx->ret;
		e->e.call = c.call;
		e->e.head_len = read_user(e->data, n, TAIL_MAX, c.buf);
		/* the resource tracker's lines name what shm tells better */
		if (e->data[0] == 'R' && e->data[1] == 'E' && e->data[2] == 'G') {
			bpf_ringbuf_discard(e, BPF_RB_NO_WAKEUP);
			return 0;
		}
		sent(e);
		return 0;
	}
	RESERVE(e, with_pipe);
	fill(&e->e, probe, ids);
	e->e.enter = c.enter;
	e->e.fd = c.fd;
	e->e.size = c.len;
	e->e.ret = ctx->ret;
	e->e.call = c.call;
	e->e.head_len = read_user(e->data, n, PIPE_HEAD, c.buf);
	sent(e);
	return 0;
}

SEC("tracepoint/syscalls/sys_enter_write")
int enter_write(struct trace_event_raw_sys_enter *ctx) { return begin(ctx, C_WRITE); }

SEC("tracepoint/syscalls/sys_exit_write")
int exit_write(struct trace_event_raw_sys_exit *ctx) { return end(ctx, P_SEND); }

SEC("tracepoint/syscalls/sys_enter_read")
int enter_read(struct trace_event_raw_sys_enter *ctx) { return begin(ctx, C_READ); }

SEC("tracepoint/syscalls/sys_exit_read")
int exit_read(struct trace_event_raw_sys_exit *ctx) { return end(ctx, P_RECV); }
