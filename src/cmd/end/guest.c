/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/end/guest.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include "base/fail.h"
#include "cmd/end/refusals.h"
#include "lane/memlock.h"
#include "session/connect/early.h"

static bool has_chmod(const struct guest *g)
{
	return g->incoming_chmod && *g->incoming_chmod;
}

/* The first option that no client may use here, or NULL. */
static const char *find_refused(const struct guest *g, const struct orders *o)
{
	const struct rules *r = &o->rules;
	bool sink = o->m.role == ROLE_SINK;

	if (orders_have(o, START_MEMORY | START_UNCHECKED | START_PROBE | START_SCRATCH))
		return "measurements";
	if (orders_have(o, START_STDIO))
		return "stdin and stdout";
	/* A source deletes nothing. */
	if (sink && (r->delete || r->delete_excluded) && !g->may_delete)
		return "--delete";
	/* A sink removes nothing. */
	if (!sink && r->remove_source && !g->may_remove)
		return "--remove-source-files";
	if (r->xattrs_all)
		return "--xattrs=all";
	/* It would permit more than the mode. */
	if (sink && has_chmod(g) && r->acls)
		return "--acls";
	/* Set-id bits come only with an owner. */
	if (sink && (r->devices || r->owner || r->group || *r->chown))
		return "--devices, --owner, --group or --chown";
	return refusals_find(g->refused, o);
}

/* Names are relative to the module. The kernel confines this process to the module; this check only
 * explains what could not work. */
static int check_name(const struct guest *g, const char *name)
{
	const char *at = name;

	if (name[0] == '/')
		return fail_as(OUT_USAGE, "%s: names in module %s are relative to it", name,
			       g->module);
	while (*at) {
		size_t len = strcspn(at, "/");

		if (len == 2 && at[0] == '.' && at[1] == '.')
			return fail_as(OUT_USAGE, "%s leads out of module %s", name, g->module);
		at += len;
		at += strspn(at, "/");
	}
	return 0;
}

static int check_names(const struct guest *g, const struct orders *o)
{
	bool sink = o->m.role == ROLE_SINK;

	for (unsigned i = 0; i < o->want_count; i++)
		if (!sink && check_name(g, o->wants[i]))
			return -1;
	/* A source makes no backups: the directory is one of the client's host. */
	return check_name(g, o->m.target) || (sink && check_name(g, o->m.backup_dir)) ? -1 : 0;
}

static int check_role(const struct guest *g, const struct orders *o)
{
	if (o->m.role == ROLE_SINK && !g->may_write)
		return fail("module %s is read only%s", g->module,
			    g->anonymous ? " for clients without a key" : "");
	if (o->m.role == ROLE_SOURCE && !g->may_read)
		return fail("module %s is write only", g->module);
	return 0;
}

int guest_check_list(const struct guest *g, const char *path)
{
	if (g->refusal.code != OUT_DONE)
		return fail_again(&g->refusal);
	if (!g->may_read)
		return fail("module %s is write only", g->module);
	return check_name(g, path);
}

static void lower_u32(uint32_t *value, uint64_t most)
{
	if (*value > most)
		*value = (uint32_t)most;
}

static void lower_lanes(uint16_t *lanes, unsigned most)
{
	if (*lanes > most)
		*lanes = (uint16_t)most;
}

/* Until there is a session, nothing moves, either. */
static void bound_times(const struct guest *g, struct msg_start *m)
{
	if (g->idle_s) {
		lower_u32(&m->timeout_ms, g->idle_s * 1000ull);
		lower_u32(&m->connect_timeout_ms, g->idle_s * 1000ull);
	}
}

static int agree_transport(const struct guest *g, struct msg_start *m)
{
	if (m->want == TRANSPORT_SSH)
		return fail_as(OUT_TRANSPORT, "rdcpd moves no data over ssh");
	if (g->want != TRANSPORT_AUTO && m->want != TRANSPORT_AUTO && m->want != g->want)
		return fail_as(OUT_TRANSPORT, "rdcpd moves data over %s only",
			       g->want == TRANSPORT_RDMA ? "RDMA" : "TCP");
	if (g->want != TRANSPORT_AUTO)
		m->want = (uint8_t)g->want;
	/* This many lanes have a place (session/connect/early.h). */
	if (m->want != TRANSPORT_TCP)
		lower_lanes(&m->lanes, EARLY_LANES);
	return 0;
}

int guest_check(const struct guest *g, struct orders *o)
{
	const char *refused = find_refused(g, o);

	if (g->refusal.code != OUT_DONE)
		return fail_again(&g->refusal);
	if (check_role(g, o) || check_names(g, o))
		return -1;
	if (refused)
		return fail_as(OUT_USAGE, "rdcpd does not permit %s in module %s", refused,
			       g->module);
	if (!orders_have(o, START_LISTENS))
		return fail_as(OUT_USAGE, "rdcpd connects to no other host");
	/* Two ends that both demand it would agree, whatever their client asked for. */
	if (g->must_encrypt && o->m.encrypt == ENCRYPT_OFF)
		return fail_as(OUT_TRANSPORT,
			       "module %s requires encryption, which --encrypt=off excludes",
			       g->module);
	if (agree_transport(g, &o->m))
		return -1;
	if (o->m.memory == 0 || o->m.memory > g->memory)
		o->m.memory = g->memory;
	bound_times(g, &o->m);
	if (o->m.role == ROLE_SINK && g->fsync)
		o->rules.fsync = true;
	/* --suffix and --backup-dir choose what a backup replaces. */
	o->rules.spare_trees = !g->may_delete;
	o->rules.hide_contents = !g->may_read;
	if (o->m.role == ROLE_SINK && has_chmod(g))
		o->rules.incoming_chmod = g->incoming_chmod;
	/* No ~ and no patterns: these belong to an account and its shell. */
	o->m.flags &= ~START_FAR;
	return 0;
}

void guest_tell_sizes(const struct guest *g, struct session *s)
{
	const struct lane *l = session_lane(s, 0);
	struct guest_sizes told = {
		.memory = session_lanes(s) * lane_bytes(lane_depth(l), lane_block_size(l)),
	};

	(void)!send(g->door, &told, sizeof told, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void guest_record_work(const struct guest *g, const struct orders *o, const struct msg_verdict *v)
{
	struct guest_record *r = g->record;
	const char *path = o->m.role == ROLE_SINK ? o->m.target
			   : o->want_count > 0    ? o->wants[0]
						  : "";

	if (!r)
		return;
	snprintf(r->path, sizeof r->path, "%.*s", GUEST_PATH_MAX - 1, path);
	snprintf(r->text, sizeof r->text, "%s", v->text);
	r->files = v->total.files;
	r->bytes = v->total.bytes;
	r->ns = v->ns;
	r->transport = v->transport;
	r->role = o->m.role;
}
