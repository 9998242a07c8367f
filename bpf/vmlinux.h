/* The few kernel types that the probes read. Fields are found by name in the running
 * kernel's BTF (CO-RE), so only what is read stands here, in no particular place. */
#ifndef OMNITAP_VMLINUX_H
#define OMNITAP_VMLINUX_H

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

enum { BPF_ANY = 0, BPF_NOEXIST = 1, BPF_F_NO_PREALLOC = 1, BPF_RB_NO_WAKEUP = 1, BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };

/* Arguments of the classic system call tracepoints. */
struct trace_event_raw_sys_enter {
	__u64 common;
	long id;
	unsigned long args[6];
};

struct trace_event_raw_sys_exit {
	__u64 common;
	long id;
	long ret;
};

/* x86-64 registers as the kernel saves them. */
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax, ip, cs, flags, sp, ss;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct super_block {
	unsigned long s_magic;
};

struct inode {
	unsigned short i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
};

struct file {
	struct inode *f_inode;
	void *private_data;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct in6_addr {
	union {
		__u8 u6_addr8[16];
		__be32 u6_addr32[4];
	} in6_u;
};

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct sock {
	struct sock_common __sk_common;
	__u16 sk_type;
	__u16 sk_protocol;
};

struct socket {
	struct sock *sk;
};

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
	int group_exit_code;
	unsigned int flags;
};

struct mm_struct;

/* Its fields are there with CONFIG_SCHED_INFO. */
struct sched_info {
	unsigned long long run_delay; /* ns of waiting for a CPU */
};

struct task_struct {
	int pid;
	int tgid;
	int exit_code;
	__u64 start_time;
	char comm[16];
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct files_struct *files;
	struct signal_struct *signal;
	struct mm_struct *mm;
	struct sched_info sched_info;
};

struct linux_binprm {
	const char *filename;
};

#pragma clang attribute pop

struct kernel_siginfo;

#endif
