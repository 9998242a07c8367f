/* What the scheduler did with the threads of watched processes: time running,
 * runnable (waiting for a CPU) and blocked, summed up a process and told at most once
 * a millisecond; and the time that all other processes ran. One event a switch would
 * be tens of thousands a second. */
#include "common.h"

const volatile __u64 every_ns = 1000000;

/* When a thread got its CPU and when it gave it up last, and how long the kernel says it
 * has waited for one since it was made, as of then. It is kept with the thread itself:
 * found at once, and gone with it. */
struct thread {
	__u64 in, out, delay;
	__u32 tgid;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

struct usage {
	__u64 run, runnable, blocked;
	__u64 told;
};

CALLS(usages, __u32, struct usage); /* a process that is gone leaves its sum */

/* Time that processes which nobody watches ran, a CPU. */
struct foreign {
	__u64 since;
	__u64 ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct foreign);
} foreigns SEC(".maps");

static __always_inline int tell(__u32 tgid, struct usage *u, __u64 now)
{
	u->told = now;
	RESERVE(e, with_args);
	fill(&e->e, P_SCHED_SAMPLE, (__u64)tgid << 32 | tgid);
	__builtin_memset(e->e.comm, 0, sizeof(e->e.comm)); /* this may be anybody's thread */
	e->e.args_len = 5;
	e->args[0] = u->run;
	e->args[1] = u->runnable;
	e->args[2] = u->blocked;
	e->args[3] = e->args[4] = 0;
	sent(e);
	return 0;
}

/* arrive notes that a thread got its CPU. */
static __always_inline void arrive(struct task_struct *task, __u32 tgid, __u64 now)
{
	struct thread *t = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t) {
		count_lost();
		return;
	}
	t->in = now;
	t->tgid = tgid;
}

/* depart adds up what a thread did since it gave up its CPU the last time: it was off,
 * for a part of which it waited for a CPU, and it ran. */
static __always_inline void depart(struct task_struct *task, __u32 tgid, __u64 now)
{
	struct thread *t = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t) {
		count_lost();
		return;
	}
	__u64 delay = task->sched_info.run_delay, out = t->out;
	__u64 waited = delay - t->delay;
	t->out = now;
	t->delay = delay;
	if (t->tgid != tgid) { /* it ran already when somebody began to watch */
		t->tgid = tgid;
		return;
	}
	struct usage *u = bpf_map_lookup_elem(&usages, &tgid);
	if (!u) {
		struct usage fresh = {};
		bpf_map_update_elem(&usages, &tgid, &fresh, BPF_NOEXIST);
		u = bpf_map_lookup_elem(&usages, &tgid);
		if (!u) {
			count_lost();
			return;
		}
	}
	__sync_fetch_and_add(&u->run, now > t->in ? now - t->in : 0); /* another CPU's clock */
	if (out) {
		__u64 off = t->in > out ? t->in - out : 0;
		waited = MIN(waited, off);
		__sync_fetch_and_add(&u->runnable, waited);
		__sync_fetch_and_add(&u->blocked, off - waited);
	}
	if (now - u->told >= every_ns)
		tell(tgid, u, now);
}

/* stage_of_task is the entry of a thread's process, 0 where nobody watches it. */
static __always_inline struct stage *stage_of_task(struct task_struct *t)
{
	return t->pid ? stage_of(t->tgid) : 0; /* 0 is a CPU that idles */
}

SEC("tp_btf/sched_switch")
int on_switch(__u64 *ctx)
{
	struct task_struct *prev = (void *)ctx[1], *next = (void *)ctx[2];
	__u64 now = bpf_ktime_get_ns();
	struct stage *p = stage_of_task(prev), *n = stage_of_task(next);
	__u32 zero = 0;
	struct foreign *f = bpf_map_lookup_elem(&foreigns, &zero);
	if (f) {
		if (!p && prev->pid && f->since)
			f->ns += now - f->since;
		f->since = now;
	}
	if (p && p->flags & STAGE_SELF) {
		count_beat();
		p = 0;
	}
	if (n && n->flags & STAGE_SELF)
		n = 0;
	if (p) {
		count_hit(p, F_SCHED);
		depart(prev, prev->tgid, now);
	}
	if (n) {
		if (!p)
			count_hit(n, F_SCHED);
		arrive(next, next->tgid, now);
	}
	return 0;
}
