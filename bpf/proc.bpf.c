/* Processes that come and go, signals to watched ones, and whom the kernel kills for
 * want of memory. */
#include "common.h"

SEC("tp_btf/sched_process_exec")
int on_exec(__u64 *ctx)
{
	struct task_struct *t = (void *)ctx[0];
	struct linux_binprm *b = (void *)ctx[2];
	__u64 ids = current_ids();
	struct stage *s = watched(ids);
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
	struct stage *s = bpf_map_lookup_elem(&stages, &tgid);
	if (!s)
		return 0;
	if (s->flags & STAGE_SELF) {
		struct counts *n = my_counts();
		if (n)
			n->beats++;
		return 0;
	}
	count_hit(s, F_PROC);
	RESERVE(e, with_args);
	fill(&e->e, P_FORK, current_ids());
	e->e.args_len = 5;
	e->args[0] = child->tgid;
	e->args[1] = child->pid;
	e->args[2] = tgid;
	e->args[3] = e->args[4] = 0;
	sent(e);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int on_exit(__u64 *ctx)
{
	struct task_struct *t = (void *)ctx[0];
	__u32 tgid = t->tgid, tid = t->pid;
	if (tgid != tid) /* the leader's end, or its thread group's: see code */
		return 0;
	struct stage *s = bpf_map_lookup_elem(&stages, &tgid);
	if (!s || s->flags & STAGE_SELF)
		return 0;
	count_hit(s, F_PROC);
	RESERVE(e, with_args);
	fill(&e->e, P_EXIT, (__u64)tgid << 32 | tid);
	e->e.args_len = 5;
	e->args[0] = tgid;
	e->args[1] = tid;
	e->args[2] = e->args[3] = e->args[4] = 0;
	/* as wait tells it: low 7 bits the signal, 0x80 core, else status << 8 */
	e->e.flags = t->exit_code;
	sent(e);
	return 0;
}

SEC("tp_btf/signal_generate")
int on_signal(__u64 *ctx)
{
	int sig = ctx[0];
	struct task_struct *t = (void *)ctx[2];
	__u32 tgid = t->tgid;
	struct stage *s = bpf_map_lookup_elem(&stages, &tgid);
	if (!s || s->flags & STAGE_SELF || sig == 17 /* SIGCHLD */)
		return 0;
	count_hit(s, F_PROC);
	RESERVE(e, with_args);
	fill(&e->e, P_SIGNAL, current_ids());
	e->e.args_len = 5;
	e->e.flags = sig;
	e->args[0] = tgid;
	e->args[1] = t->pid;
	e->args[2] = e->args[3] = e->args[4] = 0;
	sent(e);
	return 0;
}

SEC("tp_btf/mark_victim")
int on_victim(__u64 *ctx)
{
	struct task_struct *t = (void *)ctx[0];
	__u32 tgid = t->tgid;
	struct stage *s = bpf_map_lookup_elem(&stages, &tgid);
	if (!s)
		return 0;
	count_hit(s, F_PROC);
	RESERVE(e, with_args);
	fill(&e->e, P_OOM_KILL, current_ids());
	e->e.args_len = 5;
	e->args[0] = tgid;
	e->args[1] = t->pid;
	e->args[2] = e->args[3] = e->args[4] = 0;
	sent(e);
	return 0;
}
