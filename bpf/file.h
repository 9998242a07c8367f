/* What an open descriptor of the current process is. */
#ifndef OMNITAP_FILE_H
#define OMNITAP_FILE_H

#include "common.h"

#define S_IFMT 0170000
#define S_IFIFO 0010000
#define S_IFSOCK 0140000
#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10

static __always_inline struct file *file_of(__u32 fd)
{
	struct task_struct *t = (void *)bpf_get_current_task();
	struct fdtable *table = BPF_CORE_READ(t, files, fdt);
	if (fd >= BPF_CORE_READ(table, max_fds))
		return 0;
	struct file **at = BPF_CORE_READ(table, fd);
	struct file *f = 0;
	bpf_probe_read_kernel(&f, sizeof(f), at + fd);
	return f;
}

static __always_inline __u32 mode_of(struct file *f)
{
	return BPF_CORE_READ(f, f_inode, i_mode) & S_IFMT;
}

static __always_inline __u64 inode_of(struct file *f)
{
	return BPF_CORE_READ(f, f_inode, i_ino);
}

#define PIPEFS_MAGIC 0x50495045

/* is_pipe tells a pipe from a named FIFO, whose inode number is another file system's. */
static __always_inline bool is_pipe(struct file *f)
{
	return BPF_CORE_READ(f, f_inode, i_sb, s_magic) == PIPEFS_MAGIC;
}

static __always_inline struct sock *sock_of(struct file *f)
{
	struct socket *s = BPF_CORE_READ(f, private_data);
	return BPF_CORE_READ(s, sk);
}

/* family_of tells a socket's address family, 0 for anything else. */
static __always_inline __u16 family_of(struct file *f)
{
	if (!f || mode_of(f) != S_IFSOCK)
		return 0;
	return BPF_CORE_READ(sock_of(f), __sk_common.skc_family);
}

/* The numbers of Event.Call. */
enum call_name { C_WRITE = 1, C_SENDTO, C_SENDMSG, C_WRITEV, C_READ, C_RECVFROM, C_RECVMSG, C_READV };

#endif
