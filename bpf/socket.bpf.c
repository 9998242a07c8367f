/* Connector sockets: who connects to whom, and what moves. Two payloads matter:
 * ZMTP on stream sockets, where libzmq's own calls cannot be probed (zmtp), and
 * Mooncake's TCP transfers (mooncake), of which the header of 24 bytes and the
 * acknowledgement of 8 are told: the header says the bytes between. */
#include "file.h"
#include "parts.h"

const volatile __u32 zmtp = 0;
const volatile __u32 mooncake = 0;

struct io {
	__u64 enter;
	const void *buf; /* the bytes, or parts many struct iovec */
	__u64 len;
	__s32 fd;
	__u32 parts;
	__u16 family;
	__u8 call;
};

CALLS(calls, __u64, struct io); /* by thread */

/* TCP sockets that watched processes connected or accepted, with the ids of the
 * thread: changes of state mostly come in a softirq, when anybody may be running. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u64);
} socks SEC(".maps");

static __always_inline int begin(struct io *c)
{
	__u64 ids = current_ids();
	if (!watched_or_beat(ids, F_SOCKET))
		return 0;
	c->family = family_of(file_of(c->fd));
	if (c->family != AF_UNIX && c->family != AF_INET && c->family != AF_INET6)
		return 0;
	/* without ZMTP only what can be Mooncake's */
	if (!zmtp && (c->family == AF_UNIX || !mooncake))
		return 0;
	c->enter = bpf_ktime_get_ns();
	PUT_CALL(&calls, &ids, c);
	return 0;
}

/* begin_parts begins a scattered call; one of a single part is like any other. */
static __always_inline int begin_parts(__s32 fd, const void *iov, __u64 parts, __u8 call)
{
	struct iovec v = {};
	if (bpf_probe_read_user(&v, sizeof(v), iov))
		return 0; /* a watched process's own array is there: it was just written */
	struct io c = {.buf = v.base, .len = v.len, .fd = fd, .call = call};
	if (parts > 1) {
		c.buf = iov;
		c.parts = parts;
	}
	return begin(&c);
}

static __always_inline int begin_msg(struct trace_event_raw_sys_enter *ctx, __u8 call)
{
	struct msghdr m = {};
	if (!stage_of(current_ids() >> 32) || bpf_probe_read_user(&m, sizeof(m), (const void *)ctx->args[1]))
		return 0;
	return begin_parts(ctx->args[0], m.iov, m.iovlen, call);
}

static __always_inline int begin_vec(struct trace_event_raw_sys_enter *ctx, __u8 call)
{
	if (!stage_of(current_ids() >> 32))
		return 0;
	return begin_parts(ctx->args[0], (const void *)ctx->args[1], ctx->args[2], call);
}

static __always_inline void io_fields(struct event *e, __u8 probe, __u64 ids, const struct io *c, __s64 ret)
{
	fill(e, probe, ids);
	e->enter = c->enter;
	e->fd = c->fd;
	e->size = c->len;
	e->ret = ret;
	e->call = c->call;
	e->flags = c->family;
}

static __always_inline int end_parts(__u8 probe, __u64 ids, const struct io *c, __u64 ret)
{
	RESERVE(e, with_bulk);
	io_fields(&e->e, probe, ids, c, ret);
	gather(e, c->buf, c->parts, ret);
	sent(e);
	return 0;
}

static __always_inline int end(struct trace_event_raw_sys_exit *ctx, __u8 probe, bool scattered)
{
	__u64 ids = current_ids();
	if (!watched(ids, F_SOCKET))
		return 0;
	struct io *p = bpf_map_lookup_elem(&calls, &ids);
	if (!p)
		return 0;
	struct io c = *p;
	bpf_map_delete_elem(&calls, &ids);
	if (ctx->ret <= 0)
		return 0;
	__u64 n = ctx->ret;
	/* a Mooncake header or acknowledgement; its data says nothing */
	if (!zmtp && n != 24 && n != 8)
		return 0;
	if (scattered && c.parts)
		return end_parts(probe, ids, &c, n);
	if (n <= TAIL_MAX) {
		RESERVE(e, with_small);
		io_fields(&e->e, probe, ids, &c, n);
		e->e.head_len = read_user(e->data, n, TAIL_MAX, c.buf);
		sent(e);
		return 0;
	}
	if (n <= HEAD_MAX) {
		RESERVE(e, with_message);
		io_fields(&e->e, probe, ids, &c, n);
		e->e.head_len = read_user(e->data, n, HEAD_MAX, c.buf);
		sent(e);
		return 0;
	}
	RESERVE(e, with_bulk);
	io_fields(&e->e, probe, ids, &c, n);
	e->e.head_len = read_user(e->data, n, BULK_MAX, c.buf);
	if (n > BULK_MAX && !bpf_probe_read_user(e->data + BULK_MAX, TAIL_MAX, c.buf + n - TAIL_MAX))
		e->e.tail_len = TAIL_MAX;
	sent(e);
	return 0;
}

static __always_inline int begin_one(struct trace_event_raw_sys_enter *ctx, __u8 call)
{
	struct io c = {.buf = (const void *)ctx->args[1], .len = ctx->args[2], .fd = ctx->args[0], .call = call};
	return begin(&c);
}

#define IO(name, number, probe)                                           \
	SEC("tracepoint/syscalls/sys_enter_" #name)                       \
	int enter_##name(struct trace_event_raw_sys_enter *ctx)           \
	{                                                                 \
		return begin_one(ctx, number);                            \
	}                                                                 \
	SEC("tracepoint/syscalls/sys_exit_" #name)                        \
	int exit_##name(struct trace_event_raw_sys_exit *ctx) { return end(ctx, probe, false); }

IO(sendto, C_SENDTO, P_SEND)
IO(write, C_WRITE, P_SEND)
IO(recvfrom, C_RECVFROM, P_RECV)
IO(read, C_READ, P_RECV)

SEC("tracepoint/syscalls/sys_enter_sendmsg")
int enter_sendmsg(struct trace_event_raw_sys_enter *ctx) { return begin_msg(ctx, C_SENDMSG); }

SEC("tracepoint/syscalls/sys_exit_sendmsg")
int exit_sendmsg(struct trace_event_raw_sys_exit *ctx) { return end(ctx, P_SEND, true); }

SEC("tracepoint/syscalls/sys_enter_recvmsg")
int enter_recvmsg(struct trace_event_raw_sys_enter *ctx) { return begin_msg(ctx, C_RECVMSG); }

SEC("tracepoint/syscalls/sys_exit_recvmsg")
int exit_recvmsg(struct trace_event_raw_sys_exit *ctx) { return end(ctx, P_RECV, true); }

SEC("tracepoint/syscalls/sys_enter_writev")
int enter_writev(struct trace_event_raw_sys_enter *ctx) { return begin_vec(ctx, C_WRITEV); }

SEC("tracepoint/syscalls/sys_exit_writev")
int exit_writev(struct trace_event_raw_sys_exit *ctx) { return end(ctx, P_SEND, true); }

SEC("tracepoint/syscalls/sys_enter_readv")
int enter_readv(struct trace_event_raw_sys_enter *ctx) { return begin_vec(ctx, C_READV); }

SEC("tracepoint/syscalls/sys_exit_readv")
int exit_readv(struct trace_event_raw_sys_exit *ctx) { return end(ctx, P_RECV, true); }

/* address copies a sockaddr as it is; user space words it. It is told at the call. */
static __always_inline int address(__u64 ids, __s32 fd, const void *addr, __u32 len, __u8 probe)
{
	RESERVE(e, with_path);
	fill(&e->e, probe, ids);
	e->e.fd = fd;
	e->e.head_len = read_user(e->data, len, 112, addr); /* sockaddr_un has 110 */
	sent(e);
	return 0;
}

static __always_inline void remember(struct sock *sk, __u64 ids)
{
	__u64 key = (__u64)sk;
	bpf_map_update_elem(&socks, &key, &ids, BPF_ANY);
}

SEC("tracepoint/syscalls/sys_enter_bind")
int enter_bind(struct trace_event_raw_sys_enter *ctx)
{
	__u64 ids = current_ids();
	if (!watched(ids, F_SOCKET))
		return 0;
	return address(ids, ctx->args[0], (const void *)ctx->args[1], ctx->args[2], P_BIND);
}

SEC("tracepoint/syscalls/sys_enter_connect")
int enter_connect(struct trace_event_raw_sys_enter *ctx)
{
	__u64 ids = current_ids();
	if (!watched(ids, F_SOCKET))
		return 0;
	struct file *f = file_of(ctx->args[0]);
	__u16 family = family_of(f);
	if (family == AF_INET || family == AF_INET6)
		remember(sock_of(f), ids);
	return address(ids, ctx->args[0], (const void *)ctx->args[1], ctx->args[2], P_CONNECT);
}

static __always_inline int accepted(struct trace_event_raw_sys_exit *ctx)
{
	__u64 ids = current_ids();
	if (!watched(ids, F_SOCKET) || ctx->ret < 0)
		return 0;
	struct file *f = file_of(ctx->ret);
	__u16 family = family_of(f);
	if (!family)
		return 0;
	struct sock *sk = sock_of(f);
	if (family == AF_INET || family == AF_INET6)
		remember(sk, ids);
	RESERVE(e, with_path);
	fill(&e->e, P_ACCEPT, ids);
	e->e.fd = ctx->ret;
	e->e.ret = ctx->ret;
	e->e.flags = family;
	/* as a sockaddr: family, port, address */
	__builtin_memset(e->data, 0, 32);
	__u16 port = BPF_CORE_READ(sk, __sk_common.skc_dport);
	__builtin_memcpy(e->data, &family, 2);
	__builtin_memcpy(e->data + 2, &port, 2);
	if (family == AF_INET) {
		__u32 a = BPF_CORE_READ(sk, __sk_common.skc_daddr);
		__builtin_memcpy(e->data + 4, &a, 4);
		e->e.head_len = 16;
	} else if (family == AF_INET6) {
		BPF_CORE_READ_INTO((struct in6_addr *)(e->data + 8), sk, __sk_common.skc_v6_daddr);
		e->e.head_len = 28;
	} else {
		e->e.head_len = 2;
	}
	sent(e);
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_accept")
int exit_accept(struct trace_event_raw_sys_exit *ctx) { return accepted(ctx); }

SEC("tracepoint/syscalls/sys_exit_accept4")
int exit_accept4(struct trace_event_raw_sys_exit *ctx) { return accepted(ctx); }

SEC("tracepoint/syscalls/sys_enter_close")
int enter_close(struct trace_event_raw_sys_enter *ctx)
{
	__u64 ids = current_ids();
	if (!watched(ids, F_SOCKET) || !family_of(file_of(ctx->args[0])))
		return 0;
	RESERVE(e, plain);
	fill(&e->e, P_CLOSE, ids);
	e->e.fd = ctx->args[0];
	sent(e);
	return 0;
}

#define TCP_CLOSE 7

/* The process of a change of state is whoever connected or accepted the socket; until
 * then it is whoever runs, and the two addresses are the key. */
SEC("raw_tracepoint/inet_sock_set_state")
int sock_state(__u64 *ctx)
{
	const struct sock *sk = (const void *)ctx[0];
	__u64 ids, key = (__u64)sk;
	__u64 *owner = bpf_map_lookup_elem(&socks, &key);
	if (owner) {
		ids = *owner;
		if (ctx[2] == TCP_CLOSE)
			bpf_map_delete_elem(&socks, &key);
		struct stage *s = stage_of(ids >> 32);
		if (!s)
			return 0;
		count_hit(s, F_SOCKET);
	} else {
		ids = current_ids();
		if (!watched(ids, F_SOCKET))
			return 0;
	}
	RESERVE(e, with_path);
	fill(&e->e, P_SOCK_STATE, ids);
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);
	__u16 lport = BPF_CORE_READ(sk, __sk_common.skc_num);
	__u16 dport = BPF_CORE_READ(sk, __sk_common.skc_dport);
	e->e.flags = family;
	__u64 args[4] = {ctx[1], ctx[2], lport, (__u16)(dport << 8 | dport >> 8)};
	__builtin_memcpy(e->data, args, sizeof(args));
	__builtin_memset(e->data + 32, 0, 32);
	if (family == AF_INET6) {
		BPF_CORE_READ_INTO((struct in6_addr *)(e->data + 32), sk, __sk_common.skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO((struct in6_addr *)(e->data + 48), sk, __sk_common.skc_v6_daddr);
	} else {
		__u32 a = BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr), b = BPF_CORE_READ(sk, __sk_common.skc_daddr);
		__builtin_memcpy(e->data + 32, &a, 4);
		__builtin_memcpy(e->data + 48, &b, 4);
	}
	e->e.head_len = 64;
	sent(e);
	return 0;
}
