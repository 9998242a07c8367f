/* What the scheduler did with the threads of watched processes: time running,
 * runnable (waiting for a CPU) and blocked, summed up a process and told at most once
 * a millisecond; and the time that all other processes ran. One event a switch would
 * be tens of thousands a second. */
#include "common.h"

const volatile __u64 every_ns = 1000000;

enum { RUNNING = 1, RUNNABLE, BLOCKED };

#define TASK_DEAD 0x80

struct thread {
	__u64 since;
	__u32 tgid;
	__u32 state;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 32768);
	__type(key, __u32);
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

/* account adds the time in the last state and goes to the next one. */
static __always_inline void account(__u32 tid, __u32 tgid, __u32 next, __u64 now)
{
	struct thread *t = bpf_map_lookup_elem(&threads, &tid);
	if (!t || t->tgid != tgid) {
		struct thread fresh = {.since = now, .tgid = tgid, .state = next};
		bpf_map_update_elem(&threads, &tid, &fresh, BPF_ANY);
		return;
	}
	/* another CPU may have been later and faster */
	__u64 d = now > t->since ? now - t->since : 0;
	__u32 was = t->state;
	t->since = now;
	t->state = next;
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
	if (was == RUNNING)
		__sync_fetch_and_add(&u->run, d);
	else if (was == RUNNABLE)
		__sync_fetch_and_add(&u->runnable, d);
	else
		__sync_fetch_and_add(&u->blocked, d);
	if (now - u->told >= every_ns)
		tell(tgid, u, now);
}

SEC("tp_btf/sched_switch")
int on_switch(__u64 *ctx)
{
	struct task_struct *prev = (void *)ctx[1], *next = (void *)ctx[2];
	/* one that is preempted stays runnable, whatever state it was about to enter */
	__u64 state = ctx[0] ? 0 : ctx[3];
	__u64 now = bpf_ktime_get_ns();
	__u32 prev_tgid = prev->tgid, next_tgid = next->tgid;
	struct stage *p = stage_of(prev_tgid), *n = stage_of(next_tgid);
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
		account(prev->pid, prev_tgid, state ? BLOCKED : RUNNABLE, now);
		__u32 tid = prev->pid;
		if (state & TASK_DEAD)
			bpf_map_delete_elem(&threads, &tid);
	}
	if (n) {
		if (!p)
			count_hit(n, F_SCHED);
		account(next->pid, next_tgid, RUNNING, now);
	}
	return 0;
}

SEC("tp_btf/sched_wakeup")
int on_wakeup(__u64 *ctx)
{
	struct task_struct *t = (void *)ctx[0];
	__u32 tgid = t->tgid, tid = t->pid;
	struct stage *s = stage_of(tgid);
	if (!s || s->flags & STAGE_SELF)
		return 0;
	struct thread *th = bpf_map_lookup_elem(&threads, &tid);
	if (th && th->state != BLOCKED)
		return 0; /* it was awake */
	count_hit(s, F_SCHED);
	account(tid, tgid, RUNNABLE, bpf_ktime_get_ns());
	return 0;
}
