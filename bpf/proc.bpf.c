/* Processes that come and go, signals to watched ones, and whom the kernel kills for
 * want of memory. */
#include "common.h"

static __always_inline struct stage *stage_of_task(__u32 tgid)
{
	struct stage *s = stage_of(tgid);
	if (!s || s->flags & STAGE_SELF)
		return 0;
	count_hit(s, F_PROC);
	return s;
}

/* tell tells of a process, by whoever runs now. */
static __always_inline int tell(__u8 probe, __u64 ids, __u64 tgid, __u64 tid, __u64 parent, __s64 flags)
{
	RESERVE(e, with_args);
	fill(&e->e, probe, ids);
	e->e.args_len = 5;
	e->e.flags = flags;
	e->args[0] = tgid;
	e->args[1] = tid;
	e->args[2] = parent;
	e->args[3] = e->args[4] = 0;
	sent(e);
	return 0;
}

/* Every process's: one of them may be a new stage. */
SEC("tp_btf/sched_process_exec")
int on_exec(__u64 *ctx)
{
	struct task_struct *t = (void *)ctx[0];
	struct linux_binprm *b = (void *)ctx[2];
	__u64 ids = current_ids();
	struct stage *s = stage_of(ids >> 32);
	if (s && s->flags & STAGE_SELF)
		return 0;
	RESERVE(e, with_path);
	fill(&e->e, P_EXEC, ids);
	const char *name = b->filename;
	long n = bpf_probe_read_kernel_str(e->data, PATH_MAX_, name);
	e->e.path_len = n > 0 ? n : 0;
	e->e.ret = t->real_parent->tgid;
	sent(e);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int on_fork(__u64 *ctx)
{
	struct task_struct *parent = (void *)ctx[0], *child = (void *)ctx[1];
	if (child->pid != child->tgid) /* a thread */
		return 0;
	__u32 tgid = parent->tgid;
	struct stage *s = stage_of(tgid);
	if (!s)
		return 0;
	if (s->flags & STAGE_SELF) {
		count_beat();
		return 0;
	}
	count_hit(s, F_PROC);
	return tell(P_FORK, current_ids(), child->tgid, child->pid, tgid, 0);
}

#define SIGNAL_GROUP_EXIT 4

/* The end of a process is that of its last thread, whichever that is. The status is
 * what wait tells: low 7 bits the signal, 0x80 core, else status << 8. */
SEC("tp_btf/sched_process_exit")
int on_exit(__u64 *ctx)
{
	struct task_struct *t = (void *)ctx[0];
	if (t->signal->live.counter != 0)
		return 0;
	__u32 tgid = t->tgid;
	if (!stage_of_task(tgid))
		return 0;
	int code = t->group_leader->exit_code;
	if (t->signal->flags & SIGNAL_GROUP_EXIT)
		code = t->signal->group_exit_code;
	return tell(P_EXIT, (__u64)tgid << 32 | tgid, tgid, tgid, 0, code);
}

#define SIGCHLD 17
#define SIGURG 23 /* by which Go's runtime preempts its own threads */

SEC("tp_btf/signal_generate")
int on_signal(__u64 *ctx)
{
	int sig = ctx[0];
	if (sig == SIGCHLD || sig == SIGURG)
		return 0;
	struct task_struct *t = (void *)ctx[2];
	if (!stage_of_task(t->tgid))
		return 0;
	return tell(P_SIGNAL, current_ids(), t->tgid, t->pid, 0, sig);
}

/* A raw tracepoint, since its argument was the pid before Linux 6.9 and is the task
 * now. */
SEC("raw_tracepoint/mark_victim")
int on_victim(__u64 *ctx)
{
	__u32 tgid = ctx[0], tid = ctx[0];
	if (ctx[0] >> 32) {
		struct task_struct *t = (void *)ctx[0];
		tgid = BPF_CORE_READ(t, tgid);
		tid = BPF_CORE_READ(t, pid);
	}
	if (!stage_of_task(tgid))
		return 0;
	return tell(P_OOM_KILL, current_ids(), tgid, tid, 0, 0);
}
