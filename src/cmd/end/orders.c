/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/end/orders.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/array.h"
#include "base/fail.h"
#include "cmd/cli/operand.h"
#include "cmd/end/relay.h"
#include "copy/rules/filter.h"
#include "copy/rules/files_from.h"

/* Limits of a conductor's orders; its own command line is shorter. */
enum {
	WANTS_MAX = 1 << 20,
	WANTS_BYTES_MAX = 64 << 20,
	RULES_MAX = 1 << 16,
	RULES_BYTES_MAX =
		16 << 20, /* of their text; the compiled patterns take several times that */
	LISTED_BYTES_MAX = 1 << 30,
};

static int add_want(struct orders *o, const struct frame *f)
{
	struct msg_want m;

	if (msg_want_decode(f, &m))
		return -1;
	o->want_bytes += strlen(m.name) + sizeof(char *);
	if (o->want_count >= WANTS_MAX || o->want_bytes > WANTS_BYTES_MAX)
		return fail_as(OUT_PROTOCOL, "received too many names");
	if (ARRAY_ROOM(o->wants, o->want_count, o->want_room, 1) ||
	    !(o->wants[o->want_count] = strdup(m.name)))
		return fail_as(OUT_MEMORY, "store the names: %m");
	o->want_count++;
	return 0;
}

static int add_rule(struct orders *o, const struct frame *f)
{
	static struct msg_rule m;

	if (msg_rule_decode(f, &m))
		return -1;
	o->rule_bytes += strlen(m.pattern);
	if (o->rule_count++ >= RULES_MAX || o->rule_bytes > RULES_BYTES_MAX)
		return fail_as(OUT_PROTOCOL, "received too many patterns");
	if (!o->filter && filter_new(&o->filter))
		return -1;
	return filter_add(o->filter, m.include, m.pattern);
}

static int add_listed(struct orders *o, const struct frame *f)
{
	struct msg_want m;

	if (msg_want_decode(f, &m))
		return -1;
	o->listed_bytes += strlen(m.name) + 1;
	if (!o->listed || o->listed_bytes > LISTED_BYTES_MAX)
		return fail_as(OUT_PROTOCOL, "received too many names of --files-from");
	return files_from_add(o->listed, m.name);
}

static int add_taken(struct orders *o, const struct frame *f)
{
	struct msg_want m;

	if (msg_want_decode(f, &m))
		return -1;
	if (!orders_have(o, START_SHARED))
		return fail_as(OUT_PROTOCOL,
			       "received TAKEN for a target that only one session writes");
	o->taken_bytes += strlen(m.name) + 1;
	return taken_add(&o->taken, m.name);
}

void orders_settle(struct orders *o)
{
	const struct msg_start *m = &o->m;

	o->rules = (struct rules){
		.min_size = m->min_size,
		.max_size = m->max_size,
		.max_delete = m->max_delete,
		.backup_dir = m->backup_dir,
		.suffix = m->suffix,
		.chmod = m->chmod,
		.chown = m->chown,
		.digest = m->digest,
		.filter = o->filter,
		.listed = o->listed,
	};
	rules_set_flags(&o->rules, m->flags);
	taken_sort(&o->taken);
}

int orders_begin(struct orders *o, const struct frame *f)
{
	if (f->type != MSG_START)
		return fail_as(OUT_PROTOCOL, "expected START, received %s", message_name(f->type));
	if (msg_start_decode(f, &o->m))
		return -1;
	return orders_have(o, START_FILES_FROM) ? files_from_new(&o->listed) : 0;
}

int orders_take(struct orders *o, const struct frame *f)
{
	switch (f->type) {
	case MSG_WANT:
		return add_want(o, f);
	case MSG_RULE:
		return add_rule(o, f);
	case MSG_LISTED:
		return add_listed(o, f);
	case MSG_TAKEN:
		return add_taken(o, f);
	case MSG_GO:
		if (msg_empty_decode(f))
			return -1;
		orders_settle(o);
		return 1;
	default:
		return fail_as(OUT_PROTOCOL, "expected GO, received %s", message_name(f->type));
	}
}

size_t orders_bytes(const struct orders *o)
{
	return o->want_bytes + o->rule_bytes + o->listed_bytes + o->taken_bytes;
}

void orders_free(struct orders *o)
{
	for (unsigned i = 0; i < o->want_count; i++)
		free(o->wants[i]);
	free(o->wants);
	filter_free(o->filter);
	files_from_free(o->listed);
	taken_free(&o->taken);
}

/* START_STDIO is set only for an end on the conductor's host, which inherits the user's
 * descriptors. */
static struct stream stdio_stream(const struct orders *o, int fd, const char *name)
{
	return (struct stream){
		.fd = orders_have(o, START_STDIO) ? fd : -1,
		.name = name,
	};
}

struct source_opts orders_source_opts(const struct orders *o)
{
	struct source_opts so = {
		.names = o->wants,
		.count = o->want_count,
		.stream = stdio_stream(o, STDIN_FILENO, "stdin"),
		.expand = orders_have(o, START_FAR),
		.rules = &o->rules,
		.direct = o->m.direct,
		.memory_bytes = orders_have(o, START_MEMORY) ? o->m.memory_bytes : 0,
		.unchecked = orders_unchecked(o),
	};

	so.stream.finish = relay_finish;
	return so;
}

/* The descriptor that the target names, else stdout. */
static struct stream sink_stream(const struct orders *o)
{
	int fd = descriptor_named(o->m.target);

	return fd < 0 ? stdio_stream(o, STDOUT_FILENO, "stdout") : stdio_stream(o, fd, o->m.target);
}

struct sink_opts orders_sink_opts(const struct orders *o)
{
	return (struct sink_opts){
		.target = o->m.target,
		.wants = o->wants,
		.count = o->want_count,
		.stream = sink_stream(o),
		.many = orders_have(o, START_MANY),
		.rules = &o->rules,
		.peer = o->m.peer,
		.far = orders_have(o, START_FAR),
		.direct = o->m.direct,
		.discard = orders_have(o, START_MEMORY),
		.unchecked = orders_unchecked(o),
		.expand = orders_have(o, START_FAR),
		.taken = &o->taken,
	};
}
