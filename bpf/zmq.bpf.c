/* ZMQ messages at the library's own calls: one event a frame, at the application's
 * own time and thread. zmq_msg_t is 64 bytes: type at 42, flags at 43; what lies at 8
 * depends on the type. A message that was sent is empty afterwards, so its bytes are
 * copied at the call and told at the return, where the result is known. */
#include "common.h"

#define ARG1(x) ((x)->di)
#define ARG2(x) ((x)->si)
#define ARG3(x) ((x)->dx)
#define RET(x) ((__s32)(x)->ax)

#define ZMQ_SNDMORE 2

struct frame {
	__u64 enter, sock, size;
	const void *msg;
	__u16 head_len, tail_len;
	__u8 more, type;
	char data[HEAD_MAX + TAIL_MAX];
};

/* One call under way a thread; its frame is filled in place, since it is larger than
 * the stack. */
CALLS(sends, __u64, struct frame);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct frame);
} blank SEC(".maps");

struct recv {
	__u64 enter, sock;
	const void *msg;
};

CALLS(recvs, __u64, struct recv);

struct content {
	const void *data;
	__u64 size;
};

#define INLINE_MAX 33

/* locate finds the bytes of a message of any type. */
static __always_inline bool locate(const void *msg, struct content *c, __u8 *type, __u8 *flags)
{
	__u8 kind[3]; /* size byte of an inline message, type, flags */
	if (bpf_probe_read_user(kind, sizeof(kind), msg + 41))
		return false;
	*type = kind[1];
	*flags = kind[2];
	switch (kind[1]) {
	case 101: /* inline */
		c->data = msg + 8;
		c->size = kind[0];
		return c->size <= INLINE_MAX;
	case 104: /* constant */
		return !bpf_probe_read_user(c, sizeof(*c), msg + 8);
	case 102: /* long */
	case 105: { /* zero-copy */
		const void *p = 0;
		if (bpf_probe_read_user(&p, sizeof(p), msg + 8))
			return false;
		return !bpf_probe_read_user(c, sizeof(*c), p);
	}
	}
	return false;
}

/* copy takes the head, and the last bytes where there is more. */
static __always_inline void copy(char *data, __u16 *head_len, __u16 *tail_len, const struct content *c)
{
	*tail_len = 0;
	*head_len = read_user(data, c->size, HEAD_MAX, c->data);
	if (c->size > HEAD_MAX && !bpf_probe_read_user(data + HEAD_MAX, TAIL_MAX, c->data + c->size - TAIL_MAX))
		*tail_len = TAIL_MAX;
}

static __always_inline int begin_send(__u64 ids, __u64 sock, const void *msg, const struct content *c, __u8 type, bool more)
{
	__u32 zero = 0;
	struct frame *empty = bpf_map_lookup_elem(&blank, &zero);
	if (!empty)
		return 0;
	if (bpf_map_update_elem(&sends, &ids, empty, BPF_ANY)) {
		count_lost();
		return 0;
	}
	struct frame *f = bpf_map_lookup_elem(&sends, &ids);
	if (!f)
		return 0;
	f->enter = bpf_ktime_get_ns();
	f->sock = sock;
	f->msg = msg;
	f->size = c->size;
	f->type = type;
	f->more = more;
	copy(f->data, &f->head_len, &f->tail_len, c);
	return 0;
}

SEC("uprobe/zmq_msg_send")
int enter_msg_send(struct pt_regs *ctx)
{
	__u64 ids = current_ids();
	if (!watched(ids, F_ZMQ))
		return 0;
	struct content c = {};
	__u8 type = 0, flags = 0;
	if (!locate((const void *)ARG1(ctx), &c, &type, &flags)) {
		count_lost();
		return 0;
	}
	return begin_send(ids, ARG2(ctx), (const void *)ARG1(ctx), &c, type, (ARG3(ctx) & ZMQ_SNDMORE) || (flags & 1));
}

/* zmq_send(socket, buffer, length, flags) */
SEC("uprobe/zmq_send")
int enter_send(struct pt_regs *ctx)
{
	__u64 ids = current_ids();
	if (!watched(ids, F_ZMQ))
		return 0;
	struct content c = {.data = (const void *)ARG2(ctx), .size = ARG3(ctx)};
	return begin_send(ids, ARG1(ctx), 0, &c, 0, ctx->cx & ZMQ_SNDMORE);
}

/* put fills an event's fields that both directions have. */
static __always_inline void put(struct event *e, __u8 probe, __u64 ids, __u64 enter, __u64 sock, __s64 size, __s64 ret)
{
	fill(e, probe, ids);
	e->enter = enter;
	e->sock = sock;
	e->size = size;
	e->ret = ret;
}

SEC("uretprobe/zmq_msg_send")
int exit_send(struct pt_regs *ctx)
{
	__u64 ids = current_ids();
	if (!watched(ids, F_ZMQ))
		return 0;
	struct frame *f = bpf_map_lookup_elem(&sends, &ids);
	if (!f)
		return 0;
	if (RET(ctx) < 0) { /* EAGAIN: it is tried again */
		bpf_map_delete_elem(&sends, &ids);
		return 0;
	}
	if (f->size <= TAIL_MAX) {
		struct with_small *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
		if (e) {
			put(&e->e, P_ZMQ_SEND, ids, f->enter, f->sock, f->size, RET(ctx));
			e->e.more = f->more;
			e->e.msg_type = f->type;
			e->e.head_len = f->head_len;
			bpf_probe_read_kernel(e->data, TAIL_MAX, f->data);
			sent(e);
		} else {
			count_lost();
		}
	} else {
		struct with_message *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
		if (e) {
			put(&e->e, P_ZMQ_SEND, ids, f->enter, f->sock, f->size, RET(ctx));
			e->e.more = f->more;
			e->e.msg_type = f->type;
			e->e.head_len = f->head_len;
			e->e.tail_len = f->tail_len;
			bpf_probe_read_kernel(e->data, HEAD_MAX + TAIL_MAX, f->data);
			sent(e);
		} else {
			count_lost();
		}
	}
	bpf_map_delete_elem(&sends, &ids);
	return 0;
}

SEC("uprobe/zmq_msg_recv")
int enter_msg_recv(struct pt_regs *ctx)
{
	__u64 ids = current_ids();
	if (!watched(ids, F_ZMQ))
		return 0;
	struct recv r = {.enter = bpf_ktime_get_ns(), .sock = ARG2(ctx), .msg = (const void *)ARG1(ctx)};
	PUT_CALL(&recvs, &ids, &r);
	return 0;
}

SEC("uretprobe/zmq_msg_recv")
int exit_msg_recv(struct pt_regs *ctx)
{
	__u64 ids = current_ids();
	if (!watched(ids, F_ZMQ))
		return 0;
	struct recv *p = bpf_map_lookup_elem(&recvs, &ids);
	if (!p)
		return 0;
	struct recv r = *p;
	bpf_map_delete_elem(&recvs, &ids);
	if (RET(ctx) < 0)
		return 0;
	struct content c = {};
	__u8 type = 0, flags = 0;
	if (!locate(r.msg, &c, &type, &flags)) {
		count_lost();
		return 0;
	}
	if (c.size <= TAIL_MAX) {
		RESERVE(e, with_small);
		put(&e->e, P_ZMQ_RECV, ids, r.enter, r.sock, c.size, RET(ctx));
		e->e.more = flags & 1;
		e->e.msg_type = type;
		e->e.head_len = read_user(e->data, c.size, TAIL_MAX, c.data);
		sent(e);
		return 0;
	}
	RESERVE(e, with_message);
	put(&e->e, P_ZMQ_RECV, ids, r.enter, r.sock, c.size, RET(ctx));
	e->e.more = flags & 1;
	e->e.msg_type = type;
	copy(e->data, &e->e.head_len, &e->e.tail_len, &c);
	sent(e);
	return 0;
}

static __always_inline int endpoint(struct pt_regs *ctx, __u8 probe)
{
	__u64 ids = current_ids();
	if (!watched(ids, F_ZMQ))
		return 0;
	RESERVE(e, with_path);
	fill(&e->e, probe, ids);
	e->e.sock = ARG1(ctx);
	long n = bpf_probe_read_user_str(e->data, PATH_MAX_, (const void *)ARG2(ctx));
	e->e.path_len = n > 0 ? n : 0;
	sent(e);
	return 0;
}

SEC("uprobe/zmq_bind")
int enter_bind(struct pt_regs *ctx) { return endpoint(ctx, P_ZMQ_BIND); }

SEC("uprobe/zmq_connect")
int enter_connect(struct pt_regs *ctx) { return endpoint(ctx, P_ZMQ_CONNECT); }
