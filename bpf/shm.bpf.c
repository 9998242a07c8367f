/* Shared memory connectors: segments created, opened, missed and unlinked, and their
 * lock files. Key facts of stages-connectors: a receive is the last open before the
 * unlink; a lock is held from the return of flock; polling misses come up to a
 * thousand times a second and are counted here. */
#include "common.h"

struct call {
	__u64 enter;
	const char *path;
	__s64 flags;
	__s32 fd;
};

/* One call under way a thread. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct call);
} calls SEC(".maps");

struct fd_key {
	__u32 tgid;
	__s32 fd;
};

enum { FD_SEGMENT = 1, FD_LOCK = 2 };

/* Open descriptors of files in /dev/shm. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct fd_key);
	__type(value, __u32);
} fds SEC(".maps");

struct miss_key {
	__u32 tgid;
	__u32 pad;
	char path[PATH_MAX_];
};

struct miss {
	__u64 first, last, count;
	__u64 seen; /* the first miss of all, which was told at once */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
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

static __always_inline bool in_shm(const char *user)
{
	char b[9];
	if (bpf_probe_read_user(b, sizeof(b), user))
		return false;
	return b[0] == '/' && b[1] == 'd' && b[2] == 'e' && b[3] == 'v' && b[4] == '/' && b[5] == 's' && b[6] == 'h' && b[7] == 'm' && b[8] == '/';
}

/* is_lock tells /dev/shm/shm_<key>_lockfile.lock by both of its ends. */
static __always_inline bool is_lock(const struct miss_key *k, long n)
{
	const char *p = k->path;
	if (p[9] != 's' || p[10] != 'h' || p[11] != 'm' || p[12] != '_')
		return false;
	if (n < 20 || n > PATH_MAX_)
		return false;
	__u32 at = (n - 6) & (PATH_MAX_ - 1); /* ".lock" and the zero */
	if (at > PATH_MAX_ - 6)
		return false;
	return p[at] == '.' && p[at + 1] == 'l' && p[at + 2] == 'o' && p[at + 3] == 'c' && p[at + 4] == 'k';
}

static __always_inline int begin(const char *path, __s64 flags, __s32 fd)
{
	__u64 ids = current_ids();
	struct stage *s = watched(ids);
	if (!s)
		return 0;
	if (!(s->flags & STAGE_SELF))
		count_hit(s, F_SHM);
	if (path && !in_shm(path))
		return 0;
	struct call c = {.enter = bpf_ktime_get_ns(), .path = path, .flags = flags, .fd = fd};
	bpf_map_update_elem(&calls, &ids, &c, BPF_ANY);
	return 0;
}

SEC("tracepoint/syscalls/sys_enter_openat")
int enter_openat(struct trace_event_raw_sys_enter *ctx)
{
	return begin((const char *)ctx->args[1], ctx->args[2], 0);
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

SEC("tracepoint/syscalls/sys_exit_openat")
int exit_openat(struct trace_event_raw_sys_exit *ctx)
{
	__u64 ids = current_ids();
	struct call *c = bpf_map_lookup_elem(&calls, &ids);
	if (!c)
		return 0;
	struct call call = *c;
	bpf_map_delete_elem(&calls, &ids);
	struct stage *s = watched(ids);
	__u32 zero = 0;
	struct miss_key *k = bpf_map_lookup_elem(&scratch, &zero);
	if (!s || !k || !call.path)
		return 0;
	if (s->flags & STAGE_SELF) {
		struct counts *n = my_counts();
		if (n)
			n->beats++;
		return 0;
	}
	count_hit(s, F_SHM);
	__builtin_memset(k, 0, sizeof(*k));
	k->tgid = ids >> 32;
	long n = bpf_probe_read_user_str(k->path, sizeof(k->path), call.path);
	if (n <= 0)
		return 0;
	if (ctx->ret == -2) {
		struct miss *m = bpf_map_lookup_elem(&misses, k);
		if (m) {
			m->last = bpf_ktime_get_ns();
			if (!m->count)
				m->first = call.enter;
			m->count++;
			return 0;
		}
		struct miss first = {.seen = call.enter};
		bpf_map_update_elem(&misses, k, &first, BPF_ANY);
	} else if (ctx->ret >= 0) {
		struct fd_key f = {.tgid = ids >> 32, .fd = ctx->ret};
		__u32 kind = is_lock(k, n) ? FD_LOCK : FD_SEGMENT;
		bpf_map_update_elem(&fds, &f, &kind, BPF_ANY);
		struct miss *m = bpf_map_lookup_elem(&misses, k);
		if (m) {
			if (m->count)
				tell_misses(k, m, ids, n);
			bpf_map_delete_elem(&misses, k);
		}
	}
	RESERVE(e, with_path);
	fill(&e->e, P_OPENAT, ids);
	e->e.enter = call.enter;
	e->e.flags = call.flags;
	e->e.ret = ctx->ret;
	e->e.path_len = n;
	bpf_probe_read_kernel(e->data, PATH_MAX_, k->path);
	sent(e);
	return 0;
}

static __always_inline __u32 kind_of(__u64 ids, __s32 fd)
{
	struct fd_key f = {.tgid = ids >> 32, .fd = fd};
	__u32 *k = bpf_map_lookup_elem(&fds, &f);
	return k ? *k : 0;
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
	struct stage *s = watched(ids);
	if (!s || s->flags & STAGE_SELF)
		return 0;
	count_hit(s, F_SHM);
	if (kind_of(ids, ctx->args[0]) != FD_SEGMENT)
		return 0;
	return tell_fd(P_FTRUNCATE, ids, ctx->args[0], 0, ctx->args[1]);
}

SEC("tracepoint/syscalls/sys_enter_flock")
int enter_flock(struct trace_event_raw_sys_enter *ctx)
{
	__u64 ids = current_ids();
	struct stage *s = watched(ids);
	if (!s || s->flags & STAGE_SELF)
		return 0;
	count_hit(s, F_SHM);
	if (kind_of(ids, ctx->args[0]) != FD_LOCK)
		return 0;
	struct call c = {.enter = bpf_ktime_get_ns(), .flags = ctx->args[1], .fd = ctx->args[0]};
	bpf_map_update_elem(&calls, &ids, &c, BPF_ANY);
	return tell_fd(P_FLOCK_ENTER, ids, ctx->args[0], ctx->args[1], 0);
}

SEC("tracepoint/syscalls/sys_exit_flock")
int exit_flock(struct trace_event_raw_sys_exit *ctx)
{
	__u64 ids = current_ids();
	struct call *c = bpf_map_lookup_elem(&calls, &ids);
	if (!c)
		return 0;
	struct call call = *c;
	bpf_map_delete_elem(&calls, &ids);
	struct stage *s = watched(ids);
	if (s)
		count_hit(s, F_SHM);
	RESERVE(e, plain);
	fill(&e->e, P_FLOCK_EXIT, ids);
	e->e.enter = call.enter;
	e->e.fd = call.fd;
	e->e.flags = call.flags;
	e->e.ret = ctx->ret;
	sent(e);
	return 0;
}

SEC("tracepoint/syscalls/sys_enter_close")
int enter_close(struct trace_event_raw_sys_enter *ctx)
{
	__u64 ids = current_ids();
	struct stage *s = watched(ids);
	if (!s || s->flags & STAGE_SELF)
		return 0;
	count_hit(s, F_SHM);
	struct fd_key f = {.tgid = ids >> 32, .fd = ctx->args[0]};
	if (!bpf_map_lookup_elem(&fds, &f))
		return 0;
	bpf_map_delete_elem(&fds, &f);
	return tell_fd(P_CLOSE, ids, ctx->args[0], 0, 0);
}

static __always_inline int end_unlink(struct trace_event_raw_sys_exit *ctx)
{
	__u64 ids = current_ids();
	struct call *c = bpf_map_lookup_elem(&calls, &ids);
	if (!c)
		return 0;
	struct call call = *c;
	bpf_map_delete_elem(&calls, &ids);
	struct stage *s = watched(ids);
	if (!s || !call.path)
		return 0;
	count_hit(s, F_SHM);
	RESERVE(e, with_path);
	fill(&e->e, P_UNLINK, ids);
	e->e.enter = call.enter;
	e->e.ret = ctx->ret;
	long n = bpf_probe_read_user_str(e->data, PATH_MAX_, call.path);
	e->e.path_len = n > 0 ? n : 0;
	sent(e);
	return 0;
}

SEC("tracepoint/syscalls/sys_enter_unlink")
int enter_unlink(struct trace_event_raw_sys_enter *ctx)
{
	return begin((const char *)ctx->args[0], 0, 0);
}

SEC("tracepoint/syscalls/sys_exit_unlink")
int exit_unlink(struct trace_event_raw_sys_exit *ctx) { return end_unlink(ctx); }

SEC("tracepoint/syscalls/sys_enter_unlinkat")
int enter_unlinkat(struct trace_event_raw_sys_enter *ctx)
{
	return begin((const char *)ctx->args[1], 0, 0);
}

SEC("tracepoint/syscalls/sys_exit_unlinkat")
int exit_unlinkat(struct trace_event_raw_sys_exit *ctx) { return end_unlink(ctx); }
