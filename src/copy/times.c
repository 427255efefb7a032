/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/times.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include "host/host_id.h"

enum { MEMORY_MAJOR = 1 }; /* of /dev/zero, /dev/null and their like */

enum stage_kind stage_kind_of(int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return KIND_NONE;
	if (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode) || S_ISDIR(st.st_mode))
		return KIND_DISK;
	if (S_ISCHR(st.st_mode) && major(st.st_rdev) == MEMORY_MAJOR)
		return KIND_MEMORY;
	return KIND_PIPE;
}

void times_begin(struct msg_times *m, const struct session *s, enum stage_kind kind)
{
	unsigned cpus = cpu_count();

	*m = (struct msg_times){
		.kind = (uint8_t)kind,
		.same_host = session_peer(s)->host_id == host_id(),
		.cpus = cpus < UINT16_MAX ? (uint16_t)cpus : UINT16_MAX,
	};
}

/* The whole and its parts are read from the clock separately, so a part may exceed the whole. */
static uint64_t subtract_part(uint64_t all, uint64_t part)
{
	return part < all ? all - part : 0;
}

/* The busiest lane counts, because the others may have had nothing to do. */
static void raise_maximum(uint64_t *most, uint64_t ns)
{
	if (ns > *most)
		*most = ns;
}

static void add_source_times(struct msg_times *m, const struct lane_stats *s,
			     const struct lane_use *use)
{
	uint64_t fill = subtract_part(s->ns_fill, use->ns_idle + use->ns_spare + use->ns_paced);

	m->ns_fill += fill;
	m->ns_free += s->ns_free;
	m->ns_send += s->ns_send;
	m->ns_idle += use->ns_idle;
	raise_maximum(&m->ns_busiest, fill);
	raise_maximum(&m->ns_longest,
		      fill + s->ns_free + s->ns_send + use->ns_idle + use->ns_paced);
}

static void add_sink_times(struct msg_times *m, const struct lane_stats *s,
			   const struct lane_use *use)
{
	uint64_t store = subtract_part(s->ns_store, use->ns_idle + use->ns_paced);
	uint64_t block = s->ns_block + use->ns_idle;

	m->ns_store += store;
	m->ns_block += block;
	raise_maximum(&m->ns_busiest, store);
	raise_maximum(&m->ns_longest, store + block + use->ns_paced);
}

void times_add(struct msg_times *m, const struct lane *l, const struct lane_use *use)
{
	struct lane_stats s;

	lane_stats(l, &s);
	/* A lane that never had a block limited nothing. */
	if (s.blocks == 0)
		return;
	m->used++;
	m->moved += s.wire_bytes;
	m->window += s.window;
	m->block = lane_block_size(l);
	if (s.rtt_us && (!m->rtt_us || s.rtt_us < m->rtt_us))
		m->rtt_us = s.rtt_us;
	if (lane_side_of(l) == LANE_SOURCE)
		add_source_times(m, &s, use);
	else
		add_sink_times(m, &s, use);
	m->ns_cipher += s.ns_cipher;
	m->ns_compress += s.ns_compress;
	m->ns_paced += use->ns_paced;
	m->ns_cpu += use->cpu.ns_run;
	raise_maximum(&m->ns_hottest, use->cpu.ns_run + use->cpu.ns_queued);
}
