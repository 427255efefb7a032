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
		.want = (uint8_t)o->network.want,
		.verbose = o->output.verbose > 3 ? 3 : (uint8_t)o->output.verbose,
		.flags = rules_flags(&rules) | (o->output.quiet ? START_QUIET : 0) |
			 (o->network.family == 4 ? START_IPV4 : 0) |
			 (o->network.family == 6 ? START_IPV6 : 0) |
			 (uint64_t)o->network.compress << START_COMPRESS_SHIFT,
		.lanes = (uint16_t)o->speed.lanes,
		.depth = (uint16_t)o->speed.depth,
		.block_size = (uint32_t)o->speed.block_size,
		.memory = o->speed.memory,
		.bwlimit = o->network.bwlimit,
		.timeout_ms = (uint32_t)o->network.timeout_ms,
		.connect_timeout_ms = (uint32_t)o->network.connect_timeout_ms,
		.port_lo = (uint16_t)o->network.port_lo,
		.port_hi = (uint16_t)o->network.port_hi,
		.min_size = rules.min_size,
		.max_size = rules.max_size,
		.max_delete = rules.max_delete,
		.digest = (uint8_t)rules.digest,
		.rdma_op = (uint8_t)o->speed.rdma_op,
		.rails = (uint16_t)o->speed.rails,
		.direct = (uint8_t)o->speed.direct,
		.tos = (uint16_t)o->network.tos,
		.encrypt = (uint8_t)o->network.encrypt,
	};
	return copy_texts(&rules, m);
}
