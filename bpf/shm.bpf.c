/* Shared memory connectors: segments created, opened, missed and unlinked, and their
 * lock files. A receive is the last open before the unlink; a lock is held from the
 * return of flock; polling misses come up to a thousand times a second and are counted
 * here: the first is told at once, the others together when the segment is there. */
#include "common.h"

enum call_kind { K_OPEN = 1, K_UNLINK, K_FLOCK };

struct call {
	__u64 enter;
	const char *path;
	__s64 flags;
	__s32 fd;
	__u32 kind;
};

CALLS(calls, __u64, struct call); /* by thread */

struct fd_key {
	__u32 tgid;
	__s32 fd;
};

enum { FD_SEGMENT = 1, FD_LOCK = 2 };

struct fd {
	__u64 born; /* of its process: a later one may have the same number */
	__u64 kind;
};

/* Open descriptors of files in /dev/shm. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 32768);
	__type(key, struct fd_key);
	__type(value, struct fd);
} fds SEC(".maps");

struct miss_key {
	__u32 tgid;
	__u32 pad;
	char path[PATH_MAX_];
};

struct miss {
	__u64 first, last, count; /* of those behind the first, which was told at once */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct miss_key);
	__type(value, struct miss);
} misses SEC(".maps");

/* Too large for the stack. Tracepoint programs of system calls run with preemption
 * off, so that one a processor is enough. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct miss_key);
} scratch SEC(".maps");

static __always_inline bool is_shm(const char *b)
{
	return b[0] == '/' && b[1] == 'd' && b[2] == 'e' && b[3] == 'v' && b[4] == '/' && b[5] == 's' && b[6] == 'h' && b[7] == 'm' && b[8] == '/';
}

/* maybe_shm says no only of a path that was read: one whose page is not there yet is
 * looked at again when the kernel has read it. */
static __always_inline bool maybe_shm(const char *user)
{
	char b[9];
	return bpf_probe_read_user(b, sizeof(b), user) || is_shm(b);
}

/* is_lock tells /dev/shm/shm_<key>_lockfile.lock by both of its ends. */
static __always_inline bool is_lock(const struct miss_key *k, long n)
{
	const char *p = k->path;
	if (p[9] != 's' || p[10] != 'h' || p[11] != 'm' || p[12] != '_')
		return false;
	__u64 at = n - 6; /* ".lock" and the zero */
	asm volatile("" : "+r"(at));
	if (at < 14 || at > PATH_MAX_ - 6)
		return false;
	return p[at] == '.' && p[at + 1] == 'l' && p[at + 2] == 'o' && p[at + 3] == 'c' && p[at + 4] == 'k';
}

static __always_inline __u64 born(void)
{
	struct task_struct *t = (void *)bpf_get_current_task();
	return BPF_CORE_READ(t, group_leader, start_time);
}

static __always_inline int begin(const char *path, __s64 flags, __u32 kind)
{
	__u64 ids = current_ids();
	struct stage *s = stage_of(ids >> 32);
	if (!s)
		return 0;
	if (!(s->flags & STAGE_SELF))
		count_hit(s, F_SHM);
	if (!maybe_shm(path))
		return 0;
	struct call c = {.enter = bpf_ktime_get_ns(), .path = path, .flags = flags, .kind = kind};
	PUT_CALL(&calls, &ids, &c);
	return 0;
}

/* take returns the call of a kind that the thread comes back from. */
static __always_inline bool take(__u64 ids, __u32 kind, struct call *c)
{
	struct call *p = bpf_map_lookup_elem(&calls, &ids);
	if (!p)
		return false;
	*c = *p;
	bpf_map_delete_elem(&calls, &ids);
	return c->kind == kind;
}

SEC("tracepoint/syscalls/sys_enter_openat")
int enter_openat(struct trace_event_raw_sys_enter *ctx)
{
	return begin((const char *)ctx->args[1], ctx->args[2], K_OPEN);
}

/* tell_misses sends what was counted of a segment that is there now. */
static __always_inline int tell_misses(struct miss_key *k, struct miss *m, __u64 ids, long n)
{
	RESERVE(e, with_path);
	fill(&e->e, P_OPEN_MISSES, ids);
	e->e.mono = m->last;
	e->e.enter = m->first;
	e->e.count = m->count;
	e->e.path_len = n;
	bpf_probe_read_kernel(e->data, PATH_MAX_, k->path);
	sent(e);
	return 0;
}

/* missed counts a miss, and says whether it is the first of its segment. */
static __always_inline bool missed(struct miss_key *k, __u64 enter)
{
	struct miss *m = bpf_map_lookup_elem(&misses, k);
	if (!m) {
		struct miss none = {};
		bpf_map_update_elem(&misses, k, &none, BPF_ANY);
		return true;
	}
	m->last = bpf_ktime_get_ns();
	if (!m->first)
		m->first = enter;
	add1(&m->count);
	return false;
}

/* opened keeps the descriptor and tells what was missed before. */
static __always_inline void opened(struct miss_key *k, __s32 fd, __u64 ids, long n)
{
	struct fd_key key = {.tgid = ids >> 32, .fd = fd};
	struct fd f = {.born = born(), .kind = is_lock(k, n) ? FD_LOCK : FD_SEGMENT};
	PUT_CALL(&fds, &key, &f);
	struct miss *m = bpf_map_lookup_elem(&misses, k);
	if (!m)
		return;
	if (m->count)
		tell_misses(k, m, ids, n);
	bpf_map_delete_elem(&misses, k);
}

SEC("tracepoint/syscalls/sys_exit_openat")
int exit_openat(struct trace_event_raw_sys_exit *ctx)
{
	__u64 ids = current_ids();
	struct stage *s = stage_of(ids >> 32);
	if (!s)
		return 0;
	if (!(s->flags & STAGE_SELF))
		count_hit(s, F_SHM);
	struct call c;
	if (!take(ids, K_OPEN, &c))
		return 0;
	if (s->flags & STAGE_SELF) {
		count_beat();
		return 0;
	}
	__u32 zero = 0;
	struct miss_key *k = bpf_map_lookup_elem(&scratch, &zero);
	if (!k)
		return 0;
	__builtin_memset(k, 0, sizeof(*k));
	k->tgid = ids >> 32;
	long n = bpf_probe_read_user_str(k->path, sizeof(k->path), c.path);
	if (n <= 0) {
		if (ctx->ret != -14) /* EFAULT: it never was a path */
			count_lost();
		return 0;
	}
	if (!is_shm(k->path))
		return 0;
	if (ctx->ret == -2 && !missed(k, c.enter))
		return 0;
	if (ctx->ret >= 0)
		opened(k, ctx->ret, ids, n);
	RESERVE(e, with_path);
	fill(&e->e, P_OPENAT, ids);
	e->e.enter = c.enter;
	e->e.flags = c.flags;
	e->e.ret = ctx->ret;
	e->e.path_len = n;
	bpf_probe_read_kernel(e->data, PATH_MAX_, k->path);
	sent(e);
	return 0;
}

static __always_inline __u64 kind_of(__u64 ids, __s32 fd)
{
	struct fd_key key = {.tgid = ids >> 32, .fd = fd};
	struct fd *f = bpf_map_lookup_elem(&fds, &key);
	return f && f->born == born() ? f->kind : 0;
}

static __always_inline int tell_fd(__u8 probe, __u64 ids, __s32 fd, __s64 flags, __s64 size)
{
	RESERVE(e, plain);
	fill(&e->e, probe, ids);
	e->e.fd = fd;
	e->e.flags = flags;
	e->e.size = size;
	sent(e);
	return 0;
}

SEC("tracepoint/syscalls/sys_enter_ftruncate")
int enter_ftruncate(struct trace_event_raw_sys_enter *ctx)
{
	__u64 ids = current_ids();
	if (!watched(ids, F_SHM) || kind_of(ids, ctx->args[0]) != FD_SEGMENT)
		return 0;
	return tell_fd(P_FTRUNCATE, ids, ctx->args[0], 0, ctx->args[1]);
}

SEC("tracepoint/syscalls/sys_enter_flock")
int enter_flock(struct trace_event_raw_sys_enter *ctx)
{
	__u64 ids = current_ids();
	if (!watched(ids, F_SHM) || kind_of(ids, ctx->args[0]) != FD_LOCK)
		return 0;
	struct call c = {.enter = bpf_ktime_get_ns(), .flags = ctx->args[1], .fd = ctx->args[0], .kind = K_FLOCK};
	PUT_CALL(&calls, &ids, &c);
	return tell_fd(P_FLOCK_ENTER, ids, ctx->args[0], ctx->args[1], 0);
}

SEC("tracepoint/syscalls/sys_exit_flock")
int exit_flock(struct trace_event_raw_sys_exit *ctx)
{
	__u64 ids = current_ids();
	struct call c;
	if (!watched(ids, F_SHM) || !take(ids, K_FLOCK, &c))
		return 0;
	RESERVE(e, plain);
	fill(&e->e, P_FLOCK_EXIT, ids);
	e->e.enter = c.enter;
	e->e.fd = c.fd;
	e->e.flags = c.flags;
	e->e.ret = ctx->ret;
	sent(e);
	return 0;
}

SEC("tracepoint/syscalls/sys_enter_close")
int enter_close(struct trace_event_raw_sys_enter *ctx)
{
	__u64 ids = current_ids();
	if (!watched(ids, F_SHM))
		return 0;
	struct fd_key key = {.tgid = ids >> 32, .fd = ctx->args[0]};
	struct fd *f = bpf_map_lookup_elem(&fds, &key);
	if (!f)
		return 0;
	bool ours = f->born == born();
	bpf_map_delete_elem(&fds, &key);
	return ours ? tell_fd(P_CLOSE, ids, ctx->args[0], 0, 0) : 0;
}

static __always_inline int end_unlink(struct trace_event_raw_sys_exit *ctx)
{
	__u64 ids = current_ids();
	struct call c;
	if (!watched(ids, F_SHM) || !take(ids, K_UNLINK, &c))
		return 0;
	RESERVE(e, with_path);
	fill(&e->e, P_UNLINK, ids);
	e->e.enter = c.enter;
	e->e.ret = ctx->ret;
	long n = bpf_probe_read_user_str(e->data, PATH_MAX_, c.path);
	if (n <= 0 || !is_shm(e->data)) {
		bpf_ringbuf_discard(e, BPF_RB_NO_WAKEUP);
		if (n <= 0 && ctx->ret != -14)
			count_lost();
		return 0;
	}
	e->e.path_len = n;
	sent(e);
	return 0;
}

SEC("tracepoint/syscalls/sys_enter_unlink")
int enter_unlink(struct trace_event_raw_sys_enter *ctx)
{
	return begin((const char *)ctx->args[0], 0, K_UNLINK);
}

SEC("tracepoint/syscalls/sys_exit_unlink")
int exit_unlink(struct trace_event_raw_sys_exit *ctx) { return end_unlink(ctx); }

SEC("tracepoint/syscalls/sys_enter_unlinkat")
int enter_unlinkat(struct trace_event_raw_sys_enter *ctx)
{
	return begin((const char *)ctx->args[1], 0, K_UNLINK);
}

SEC("tracepoint/syscalls/sys_exit_unlinkat")
int exit_unlinkat(struct trace_event_raw_sys_exit *ctx) { return end_unlink(ctx); }
