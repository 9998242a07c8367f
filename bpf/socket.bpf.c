/* Connector sockets: who connects to whom, and what moves. Two payloads matter:
 * ZMTP on stream sockets, where libzmq's own calls cannot be probed (zmtp), and
 * Mooncake's TCP transfers, of which a header of 24 bytes and an acknowledgement of 8
 * are told and the pieces between counted (mooncake). */
#include "file.h"

const volatile __u32 zmtp = 0;
const volatile __u32 mooncake = 0;

struct io {
	__u64 enter;
	const void *buf;
	__u64 len;
	__s32 fd;
	__u16 family;
	__u8 call;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct io);
} calls SEC(".maps");

struct iovec {
	const void *base;
	__u64 len;
};

struct msghdr {
	const void *name;
	__u64 namelen;
	struct iovec *iov;
	__u64 iovlen;
};

static __always_inline int begin(__s32 fd, const void *buf, __u64 len, __u8 call)
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
	count_hit(s, F_SOCKET);
	__u16 family = family_of(file_of(fd));
	if (family != AF_UNIX && family != AF_INET && family != AF_INET6)
		return 0;
	/* without ZMTP only what can be Mooncake's */
	if (!zmtp && (family == AF_UNIX || !mooncake))
		return 0;
	struct io c = {.enter = bpf_ktime_get_ns(), .buf = buf, .len = len, .fd = fd, .family = family, .call = call};
	bpf_map_update_elem(&calls, &ids, &c, BPF_ANY);
	return 0;
}

/* vector takes the first part of a scattered call: its bytes are the head. */
static __always_inline int begin_msg(struct trace_event_raw_sys_enter *ctx, __u8 call)
{
	__u64 ids = current_ids();
	if (!watched(ids))
		return 0;
	struct msghdr m = {};
	struct iovec v = {};
	if (bpf_probe_read_user(&m, sizeof(m), (const void *)ctx->args[1]) || bpf_probe_read_user(&v, sizeof(v), m.iov))
		return 0;
	return begin(ctx->args[0], v.base, v.len, call);
}

static __always_inline int begin_vec(struct trace_event_raw_sys_enter *ctx, __u8 call)
{
	__u64 ids = current_ids();
	if (!watched(ids))
		return 0;
	struct iovec v = {};
	if (bpf_probe_read_user(&v, sizeof(v), (const void *)ctx->args[1]))
		return 0;
	return begin(ctx->args[0], v.base, v.len, call);
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
		count_hit(s, F_SOCKET);
	if (ctx->ret <= 0)
		return 0;
	__u64 ret = ctx->ret;
	/* a Mooncake header or acknowledgement; its data says nothing */
	if (!zmtp && ret != 24 && ret != 8)
		return 0;
	__u64 have = MIN(ret, c.len); /* the first part of a scattered call may be shorter */
	if (have <= TAIL_MAX) {
		RESERVE(e, with_small);
		io_fields(&e->e, probe, ids, &c, ret);
		e->e.head_len = read_user(e->data, have, TAIL_MAX, c.buf);
		sent(e);
		return 0;
	}
	if (have <= HEAD_MAX) {
		RESERVE(e, with_message);
		io_fields(&e->e, probe, ids, &c, ret);
		e->e.head_len = read_user(e->data, have, HEAD_MAX, c.buf);
		sent(e);
		return 0;
	}
	RESERVE(e, with_bulk);
	io_fields(&e->e, probe, ids, &c, ret);
	e->e.head_len = read_user(e->data, have, BULK_MAX, c.buf);
	if (have > BULK_MAX && !bpf_probe_read_user(e->data + BULK_MAX, TAIL_MAX, c.buf + have - TAIL_MAX))
		e->e.tail_len = TAIL_MAX;
	sent(e);
	return 0;
}

#define IO(name, call, probe)                                             \
	SEC("tracepoint/syscalls/sys_enter_" #name)                       \
	int enter_##name(struct trace_event_raw_sys_enter *ctx)           \
	{                                                                 \
		return begin(ctx->args[0], (const void *)ctx->args[1], ctx->args[2], call); \
	}                                                                 \
	SEC("tracepoint/syscalls/sys_exit_" #name)                        \
	int exit_##name(struct trace_event_raw_sys_exit *ctx) { return end(ctx, probe); }

IO(sendto, C_SENDTO, P_SEND)
IO(write, C_WRITE, P_SEND)
IO(recvfrom, C_RECVFROM, P_RECV)
IO(read, C_READ, P_RECV)

SEC("tracepoint/syscalls/sys_enter_sendmsg")
int enter_sendmsg(struct trace_event_raw_sys_enter *ctx) { return begin_msg(ctx, C_SENDMSG); }

SEC("tracepoint/syscalls/sys_exit_sendmsg")
int exit_sendmsg(struct trace_event_raw_sys_exit *ctx) { return end(ctx, P_SEND); }

SEC("tracepoint/syscalls/sys_enter_recvmsg")
int enter_recvmsg(struct trace_event_raw_sys_enter *ctx) { return begin_msg(ctx, C_RECVMSG); }

SEC("tracepoint/syscalls/sys_exit_recvmsg")
int exit_recvmsg(struct trace_event_raw_sys_exit *ctx) { return end(ctx, P_RECV); }

SEC("tracepoint/syscalls/sys_enter_writev")
int enter_writev(struct trace_event_raw_sys_enter *ctx) { return begin_vec(ctx, C_WRITEV); }

SEC("tracepoint/syscalls/sys_exit_writev")
int exit_writev(struct trace_event_raw_sys_exit *ctx) { return end(ctx, P_SEND); }

SEC("tracepoint/syscalls/sys_enter_readv")
int enter_readv(struct trace_event_raw_sys_enter *ctx) { return begin_vec(ctx, C_READV); }

SEC("tracepoint/syscalls/sys_exit_readv")
int exit_readv(struct trace_event_raw_sys_exit *ctx) { return end(ctx, P_RECV); }

/* address copies a sockaddr as it is; user space words it. */
static __always_inline int address(__s32 fd, const void *addr, __u32 len, __u8 probe, __s64 ret)
{
	__u64 ids = current_ids();
	struct stage *s = watched(ids);
	if (!s)
		return 0;
	count_hit(s, F_SOCKET);
	RESERVE(e, with_path);
	fill(&e->e, probe, ids);
	e->e.fd = fd;
	e->e.ret = ret;
	e->e.head_len = read_user(e->data, len, 112, addr); /* sockaddr_un has 110 */
	sent(e);
	return 0;
}

SEC("tracepoint/syscalls/sys_enter_bind")
int enter_bind(struct trace_event_raw_sys_enter *ctx)
{
	return address(ctx->args[0], (const void *)ctx->args[1], ctx->args[2], P_BIND, 0);
}

SEC("tracepoint/syscalls/sys_enter_connect")
int enter_connect(struct trace_event_raw_sys_enter *ctx)
{
	return address(ctx->args[0], (const void *)ctx->args[1], ctx->args[2], P_CONNECT, 0);
}

static __always_inline int accepted(struct trace_event_raw_sys_exit *ctx)
{
	__u64 ids = current_ids();
	struct stage *s = watched(ids);
	if (!s || ctx->ret < 0)
		return 0;
	struct file *f = file_of(ctx->ret);
	__u16 family = family_of(f);
	if (!family)
		return 0;
	count_hit(s, F_SOCKET);
	RESERVE(e, with_path);
	fill(&e->e, P_ACCEPT, ids);
	e->e.fd = ctx->ret;
	e->e.ret = ctx->ret;
	e->e.flags = family;
	struct socket *sock = BPF_CORE_READ(f, private_data);
	struct sock *sk = BPF_CORE_READ(sock, sk);
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
	struct stage *s = watched(ids);
	if (!s || (s->flags & STAGE_SELF))
		return 0;
	if (!family_of(file_of(ctx->args[0])))
		return 0;
	count_hit(s, F_SOCKET);
	RESERVE(e, plain);
	fill(&e->e, P_CLOSE, ids);
	e->e.fd = ctx->args[0];
	sent(e);
	return 0;
}

/* Runs in softirq as well, where the current process is whoever had the CPU: the two
 * addresses are the key, and the pid tells nothing. */
SEC("raw_tracepoint/inet_sock_set_state")
int sock_state(__u64 *ctx)
{
	const struct sock *sk = (const void *)ctx[0];
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);
	__u16 lport = BPF_CORE_READ(sk, __sk_common.skc_num);
	__u16 dport = BPF_CORE_READ(sk, __sk_common.skc_dport);
	__u64 ids = current_ids();
	if (!watched(ids))
		return 0;
	struct with_path *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		count_lost();
		return 0;
	}
	fill(&e->e, P_SOCK_STATE, ids);
	e->e.flags = family;
	e->e.args_len = 0;
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
