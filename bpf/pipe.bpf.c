/* Queues over pipes: what is written to and read from the pipes that two watched
 * processes share. The first 4 KiB of a call are copied. */
#include "file.h"

#define PIPE_HEAD 4096

struct io {
	__u64 enter;
	const void *buf;
	__u64 len;
	__s32 fd;
	__u32 call;
};

CALLS(calls, __u64, struct io); /* by thread */

/* The inodes of the shared pipes: found from /proc. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, __u32);
} pipes SEC(".maps");

struct with_pipe { struct event e; char data[PIPE_HEAD]; };

static __always_inline int begin(struct trace_event_raw_sys_enter *ctx, __u8 call)
{
	__u64 ids = current_ids();
	if (!watched_or_beat(ids, F_PIPE))
		return 0;
	struct file *f = file_of(ctx->args[0]);
	if (!f || mode_of(f) != S_IFIFO)
		return 0;
	__u64 ino = inode_of(f);
	if (!bpf_map_lookup_elem(&pipes, &ino) || !is_pipe(f))
		return 0;
	struct io c = {.enter = bpf_ktime_get_ns(), .buf = (const void *)ctx->args[1], .len = ctx->args[2], .fd = ctx->args[0], .call = call};
	PUT_CALL(&calls, &ids, &c);
	return 0;
}

static __always_inline void io_fields(struct event *e, __u8 probe, __u64 ids, const struct io *c, __s64 ret)
{
	fill(e, probe, ids);
	e->enter = c->enter;
	e->fd = c->fd;
	e->size = c->len;
	e->ret = ret;
	e->call = c->call;
}

/* is_tracker tells a line to Python's resource tracker, whose pipe all processes of a
 * tree share: it names what the shm family tells better. */
static __always_inline bool is_tracker(const char *data, __u32 n)
{
	char b[8];
	if (n < sizeof(b))
		return false;
	__builtin_memcpy(b, data, sizeof(b));
	bool reg = b[0] == 'R' && b[1] == 'E' && b[2] == 'G' && b[3] == 'I' && b[4] == 'S' && b[5] == 'T' && b[6] == 'E' && b[7] == 'R';
	bool unreg = b[0] == 'U' && b[1] == 'N' && b[2] == 'R' && b[3] == 'E' && b[4] == 'G' && b[5] == 'I' && b[6] == 'S' && b[7] == 'T';
	bool probe = b[0] == 'P' && b[1] == 'R' && b[2] == 'O' && b[3] == 'B' && b[4] == 'E' && b[5] == ':' && b[6] == '0' && b[7] == ':';
	return reg || unreg || probe;
}

static __always_inline int end(struct trace_event_raw_sys_exit *ctx, __u8 probe)
{
	__u64 ids = current_ids();
	if (!watched(ids, F_PIPE))
		return 0;
	struct io *p = bpf_map_lookup_elem(&calls, &ids);
	if (!p)
		return 0;
	struct io c = *p;
	bpf_map_delete_elem(&calls, &ids);
	if (ctx->ret <= 0)
		return 0;
	__u64 n = ctx->ret;
	if (n <= TAIL_MAX) {
		RESERVE(e, with_small);
		io_fields(&e->e, probe, ids, &c, ctx->ret);
		e->e.head_len = read_user(e->data, n, TAIL_MAX, c.buf);
		if (is_tracker(e->data, e->e.head_len)) {
			bpf_ringbuf_discard(e, BPF_RB_NO_WAKEUP);
			return 0;
		}
		sent(e);
		return 0;
	}
	if (n <= HEAD_MAX) {
		RESERVE(e, with_message);
		io_fields(&e->e, probe, ids, &c, ctx->ret);
		e->e.head_len = read_user(e->data, n, HEAD_MAX, c.buf);
		if (is_tracker(e->data, e->e.head_len)) {
			bpf_ringbuf_discard(e, BPF_RB_NO_WAKEUP);
			return 0;
		}
		sent(e);
		return 0;
	}
	RESERVE(e, with_pipe);
	io_fields(&e->e, probe, ids, &c, ctx->ret);
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
