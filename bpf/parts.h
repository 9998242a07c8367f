/* Scattered calls (sendmsg, writev and their like): what lies in several places. */
#ifndef OMNITAP_PARTS_H
#define OMNITAP_PARTS_H

#include "common.h"

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

#define PARTS_MAX 16
#define PART_MAX 4096

struct gathering {
	struct with_bulk *e;
	const struct iovec *iov;
	__u64 ret, parts;
	__u64 at, seen;
	__u64 cut; /* a part was not copied whole */
};

/* one takes one part; 1 ends the loop. */
static long one(__u64 i, struct gathering *g)
{
	struct iovec v = {};
	if (i >= g->parts || g->seen >= g->ret || bpf_probe_read_user(&v, sizeof(v), g->iov + i))
		return 1;
	__u64 have = MIN(v.len, g->ret - g->seen);
	g->seen += have;
	if (!g->cut) {
		__u64 at = g->at, n = 0;
		if (at <= PART_MAX)
			n = read_user(g->e->data + at, have, PART_MAX, v.base);
		g->at = at + n;
		g->cut = n != have;
	}
	if (g->cut && g->seen == g->ret && have >= TAIL_MAX &&
	    !bpf_probe_read_user(g->e->data + BULK_MAX, TAIL_MAX, v.base + have - TAIL_MAX))
		g->e->e.tail_len = TAIL_MAX;
	return 0;
}

/* gather copies the parts of a scattered call one behind the other, as far as they are
 * whole: at most 4 KiB of each, and no more behind one that was cut. The last 64 bytes
 * are taken where the last part has them. */
static __always_inline void gather(struct with_bulk *e, const void *iov, __u32 parts, __u64 ret)
{
	struct gathering g = {.e = e, .iov = iov, .ret = ret, .parts = parts};
	bpf_loop(PARTS_MAX, one, &g, 0);
	e->e.head_len = g.at;
}

#endif
