/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/conductor/explain.h"

#include <string.h>
#include <sys/wait.h>
#include "base/fail.h"

int explain_text(const struct end_pipe *l)
{
	size_t len;
	const char *bytes = framer_rest(&l->in, &len);

	/* The log escapes it, like every text that a failure quotes. */
	return fail_as(OUT_START,
		       "text from %s's shell startup came instead of rdcp's greeting: \"%.*s%s\"",
		       l->name, (int)(len < 60 ? len : 60), bytes, len > 60 ? "..." : "");
}

int explain_exit(const struct end_pipe *l, const struct options *o, int status)
{
	char how[128];

	if (l->daemon)
		return fail_as(OUT_START, "rdcpd on %s closed the connection", l->name);
	if (l->far && WIFEXITED(status) && WEXITSTATUS(status) == 127 &&
	    strchr(o->remote.rdcp_path, '/'))
		return fail_as(OUT_START,
			       "%s is not on %s: install rdcp there or correct --rdcp-path",
			       o->remote.rdcp_path, l->name);
	if (l->far && WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return fail_as(OUT_START,
			       "%s is not on the PATH of %s: install it there or use --rdcp-path",
			       o->remote.rdcp_path, l->name);
	if (l->far && WIFEXITED(status) && WEXITSTATUS(status) == 255)
		return fail_as(OUT_START, "%s to %s failed", o->remote.rsh ? "--rsh" : "ssh",
			       l->name);
	child_end_text(status, how, sizeof how);
	if (l->far && o->remote.rsh)
		return fail_as(OUT_START, "--rsh=%s for rdcp on %s %s before its greeting",
			       o->remote.rsh, l->name, how);
	if (l->far)
		return fail_as(OUT_START, "rdcp on %s %s before its greeting", l->name, how);
	return fail_as(OUT_START, "the end on this host %s before its greeting", how);
}

int explain_death(const struct end_pipe *l, int status, bool reaped)
{
	char how[128] = "does not answer";

	if (reaped)
		child_end_text(status, how, sizeof how);
	if (!l->far)
		return fail_as(OUT_PEER_LOST, "lost the end on this host: it %s", how);
	return fail_as(OUT_PEER_LOST, "lost the end on %s, or the connection to it: %s %s", l->name,
		       l->child.what, how);
}

int take_greeting(struct end_pipe *l, const struct frame *f)
{
	if (f->type != MSG_GREETING || msg_greeting_decode(f, &l->greeting))
		return fail_as(OUT_PROTOCOL, "%s sent an invalid greeting",
			       l->far ? l->name : "the end on this host");
	l->greeted = true;
	if (l->greeting.version == PROTOCOL_VERSION)
		return 0;
	return fail_as(
		OUT_VERSION,
		"rdcp on %s (release %s) has protocol version %u, this one has %d: install the "
		"same release on both hosts",
		l->name, l->greeting.release, l->greeting.version, PROTOCOL_VERSION);
}
