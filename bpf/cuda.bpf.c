/* Calls of the CUDA driver library, host time only: the probe sees the call, not the
 * work on the GPU. Which function it was is the attachment's cookie. Functions that
 * are called at launch rate are counted, never told one by one. */
#include "common.h"

/* How the cookie says what to take: the low 16 bits number the function. */
#define COOKIE_BYTES_ARG3 (1 << 16) /* the third argument is a number of bytes */

const volatile __u64 least_copy = 65536; /* smaller copies are counted */

struct call {
	__u64 enter, cookie;
	__u64 args[3];
};

struct call_key {
	__u64 ids;
	__u32 fn, pad;
};

/* Calls under way; a driver function may call another one, so the function is part of
 * the key. */
CALLS(calls, struct call_key, struct call);

struct count_key {
	__u32 tgid, fn;
};

/* count and bytes only grow, so that nothing is lost while user space reads them; first
 * is of the look that look numbers. */
struct count {
	__u64 first, last, count, bytes;
	__u64 look;
};

/* The number of user space's next look at the counts. */
volatile __u64 look = 1;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct count_key);
	__type(value, struct count);
} counted SEC(".maps");

static __always_inline void add(__u32 tgid, __u32 fn, __u64 now, __u64 bytes)
{
	struct count_key k = {.tgid = tgid, .fn = fn};
	struct count *c = bpf_map_lookup_elem(&counted, &k);
	if (!c) {
		struct count fresh = {};
		bpf_map_update_elem(&counted, &k, &fresh, BPF_NOEXIST);
		c = bpf_map_lookup_elem(&counted, &k);
		if (!c) {
			count_lost();
			return;
		}
	}
	if (c->look != look) {
		c->look = look;
		c->first = now;
	}
	c->last = now;
	__sync_fetch_and_add(&c->count, 1);
	__sync_fetch_and_add(&c->bytes, bytes);
}

SEC("uprobe/told")
int enter_told(struct pt_regs *ctx)
{
	__u64 ids = current_ids();
	if (!watched(ids, F_CUDA))
		return 0;
	__u64 cookie = bpf_get_attach_cookie(ctx);
	__u64 now = bpf_ktime_get_ns();
	if (cookie & COOKIE_BYTES_ARG3 && ctx->dx < least_copy) {
		add(ids >> 32, cookie & 0xffff, now, ctx->dx);
		return 0;
	}
	struct call_key k = {.ids = ids, .fn = cookie & 0xffff};
	struct call c = {.enter = now, .cookie = cookie, .args = {ctx->di, ctx->si, ctx->dx}};
	PUT_CALL(&calls, &k, &c);
	return 0;
}

SEC("uretprobe/told")
int exit_told(struct pt_regs *ctx)
{
	__u64 ids = current_ids();
	if (!watched(ids, F_CUDA))
		return 0;
	struct call_key k = {.ids = ids, .fn = bpf_get_attach_cookie(ctx) & 0xffff};
	struct call *p = bpf_map_lookup_elem(&calls, &k);
	if (!p)
		return 0;
	struct call c = *p;
	bpf_map_delete_elem(&calls, &k);
	RESERVE(e, with_args);
	fill(&e->e, P_CUDA_CALL, ids);
	e->e.enter = c.enter;
	e->e.ret = (__s32)ctx->ax;
	e->e.flags = c.cookie & 0xffff;
	e->e.size = c.cookie & COOKIE_BYTES_ARG3 ? c.args[2] : 0;
	e->e.args_len = 5;
	e->args[0] = c.args[0];
	e->args[1] = c.args[1];
	e->args[2] = c.args[2];
	e->args[3] = e->args[4] = 0;
	sent(e);
	return 0;
}

SEC("uprobe/counted")
int enter_counted(struct pt_regs *ctx)
{
	__u64 ids = current_ids();
	if (!watched(ids, F_CUDA))
		return 0;
	add(ids >> 32, bpf_get_attach_cookie(ctx) & 0xffff, bpf_ktime_get_ns(), 0);
	return 0;
}
