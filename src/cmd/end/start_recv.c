/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/end/start_recv.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/array.h"
#include "base/fail.h"
#include "cmd/cli/target.h"
#include "cmd/end/relay.h"
#include "copy/rules/filter.h"
#include "copy/rules/listed.h"

/* Limits of a conductor's orders; its own command line is shorter. */
enum {
	WANTS_MAX = 1 << 20,
	WANTS_BYTES_MAX = 64 << 20,
	RULES_MAX = 1 << 16,
	RULES_BYTES_MAX =
		16 << 20, /* of their text; the compiled patterns take several times that */
	LISTED_BYTES_MAX = 1 << 30,
};

static int add_want(struct start *e, const struct frame *f)
{
	struct msg_want m;

	if (msg_want_decode(f, &m))
		return -1;
	e->want_bytes += strlen(m.name) + sizeof(char *);
	if (e->want_count >= WANTS_MAX || e->want_bytes > WANTS_BYTES_MAX)
		return fail_as(OUT_PROTOCOL, "received too many names");
	if (ARRAY_ROOM(e->wants, e->want_count, e->want_room, 1) ||
	    !(e->wants[e->want_count] = strdup(m.name)))
		return fail_as(OUT_MEMORY, "store the names: %m");
	e->want_count++;
	return 0;
}

static int add_rule(struct start *e, const struct frame *f)
{
	static struct msg_rule m;

	if (msg_rule_decode(f, &m))
		return -1;
	e->rule_bytes += strlen(m.pattern);
	if (e->rule_count++ >= RULES_MAX || e->rule_bytes > RULES_BYTES_MAX)
		return fail_as(OUT_PROTOCOL, "received too many patterns");
	if (!e->filter && filter_new(&e->filter))
		return -1;
	return filter_add(e->filter, m.include, m.pattern);
}

static int add_listed(struct start *e, const struct frame *f)
{
	struct msg_want m;

	if (msg_want_decode(f, &m))
		return -1;
	e->listed_bytes += strlen(m.name) + 1;
	if (!e->listed || e->listed_bytes > LISTED_BYTES_MAX)
		return fail_as(OUT_PROTOCOL, "received too many names of --files-from");
	return listed_add(e->listed, m.name);
}

static int add_taken(struct start *e, const struct frame *f)
{
	struct msg_want m;

	if (msg_want_decode(f, &m))
		return -1;
	if (!start_has(e, START_SHARED))
		return fail_as(OUT_PROTOCOL,
			       "received TAKEN for a target that only one session writes");
	return taken_add(&e->taken, m.name);
}

void start_settle(struct start *e)
{
	const struct msg_start *m = &e->m;

	e->rules = (struct rules){
		.min_size = m->min_size,
		.max_size = m->max_size,
		.max_delete = m->max_delete,
		.backup_dir = m->backup_dir,
		.suffix = m->suffix,
		.chmod = m->chmod,
		.chown = m->chown,
		.digest = m->digest,
		.filter = e->filter,
		.listed = e->listed,
	};
	rules_set_flags(&e->rules, m->flags);
	taken_sort(&e->taken);
}

int start_begin(struct start *e, const struct frame *f)
{
	if (f->type != MSG_START)
		return fail_as(OUT_PROTOCOL, "expected START, received %s", message_name(f->type));
	if (msg_start_decode(f, &e->m))
		return -1;
	return start_has(e, START_FILES_FROM) ? listed_new(&e->listed) : 0;
}

int start_take(struct start *e, const struct frame *f)
{
	switch (f->type) {
	case MSG_WANT:
		return add_want(e, f);
	case MSG_RULE:
		return add_rule(e, f);
	case MSG_LISTED:
		return add_listed(e, f);
	case MSG_TAKEN:
		return add_taken(e, f);
	case MSG_GO:
		if (msg_empty_decode(f))
			return -1;
		start_settle(e);
		return 1;
	default:
		return fail_as(OUT_PROTOCOL, "expected GO, received %s", message_name(f->type));
	}
}

void start_free(struct start *e)
{
	for (unsigned i = 0; i < e->want_count; i++)
		free(e->wants[i]);
	free(e->wants);
	filter_free(e->filter);
	listed_free(e->listed);
	taken_free(&e->taken);
}

/* START_STDIO is set only for an end on the conductor's host, which inherits the user's
 * descriptors. */
static struct stream stdio_stream(const struct start *e, int fd, const char *name)
{
	return (struct stream){
		.fd = start_has(e, START_STDIO) ? fd : -1,
		.name = name,
	};
}

struct source_opts start_source(const struct start *e)
{
	struct source_opts so = {
		.names = e->wants,
		.count = e->want_count,
		.stream = stdio_stream(e, STDIN_FILENO, "stdin"),
		.expand = start_has(e, START_FAR),
		.rules = &e->rules,
		.direct = e->m.direct,
		.memory_bytes = start_has(e, START_MEMORY) ? e->m.memory_bytes : 0,
		.unchecked = start_unchecked(e),
	};

	so.stream.finish = relay_await;
	return so;
}

/* The descriptor that the target names, else stdout. */
static struct stream sink_stream(const struct start *e)
{
	int fd = descriptor_named(e->m.target);

	return fd < 0 ? stdio_stream(e, STDOUT_FILENO, "stdout") : stdio_stream(e, fd, e->m.target);
}

struct sink_opts start_sink(const struct start *e)
{
	return (struct sink_opts){
		.target = e->m.target,
		.wants = e->wants,
		.count = e->want_count,
		.stream = sink_stream(e),
		.many = start_has(e, START_MANY),
		.rules = &e->rules,
		.peer = e->m.peer,
		.far = start_has(e, START_FAR),
		.direct = e->m.direct,
		.discard = start_has(e, START_MEMORY),
		.unchecked = start_unchecked(e),
		.expand = start_has(e, START_FAR),
		.taken = &e->taken,
	};
}
