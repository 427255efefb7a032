/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/end/start_message.h"

#include "base/fail.h"

/* Copies the texts of the user; rejects one that is too long for START. */
static int copy_texts(const struct rules *r, struct msg_start *m)
{
	const struct {
		const char *option, *text;
		char *to;
		size_t size;
	} texts[] = {
		{"--chmod", r->chmod, m->chmod, sizeof m->chmod},
		{"--chown", r->chown, m->chown, sizeof m->chown},
		{"--suffix", r->suffix, m->suffix, sizeof m->suffix},
		{"--backup-dir", r->backup_dir, m->backup_dir, sizeof m->backup_dir},
	};

	for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++) {
		if ((size_t)snprintf(texts[i].to, texts[i].size, "%s", texts[i].text) >=
		    texts[i].size)
			return fail_as(OUT_USAGE, "%s %.60s...: too long", texts[i].option,
				       texts[i].text);
	}
	return 0;
}

int start_message_make(const struct options *o, struct msg_start *m)
{
	const struct rules rules = options_rules(o);

	*m = (struct msg_start){
		.version = PROTOCOL_VERSION,
		.want = (uint8_t)o->want,
		.verbose = o->verbose > 3 ? 3 : (uint8_t)o->verbose,
		.flags = rules_flags(&rules) | (o->quiet ? START_QUIET : 0) |
			 (o->family == 4 ? START_IPV4 : 0) | (o->family == 6 ? START_IPV6 : 0),
		.lanes = (uint16_t)o->lanes,
		.depth = (uint16_t)o->depth,
		.block_size = (uint32_t)o->block_size,
		.memory = o->memory,
		.bwlimit = o->bwlimit,
		.timeout_ms = (uint32_t)o->timeout_ms,
		.connect_timeout_ms = (uint32_t)o->connect_timeout_ms,
		.port_lo = (uint16_t)o->port_lo,
		.port_hi = (uint16_t)o->port_hi,
		.min_size = rules.min_size,
		.max_size = rules.max_size,
		.max_delete = rules.max_delete,
		.digest = (uint8_t)rules.digest,
		.rdma_op = (uint8_t)o->rdma_op,
		.rails = (uint16_t)o->rails,
		.direct = (uint8_t)o->direct,
		.tos = (uint16_t)o->tos,
	};
	return copy_texts(&rules, m);
}
