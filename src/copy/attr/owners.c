/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/attr/owners.h"

#include <errno.h>
#include <grp.h>
#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/fail.h"
#include "base/table.h"
#include "protocol/message.h"

enum {
	BUFFER_FIRST = 4 << 10,
	BUFFER_MAX = 16 << 20, /* for a group with very many members */
};

/* A user or group of the source's host.  It lives as long as the table. */
struct owner {
	struct owner_key {
		uint32_t id, group;
	} key;
	bool mapped; /* sink: local_id is set */
	uint32_t local_id;
	uint64_t announced; /* source: a bit for each lane that has sent the name */
	char name[]; /* "": none */
};

struct owners {
	pthread_mutex_t lock; /* of everything; never held while a name is looked up */
	struct table table;
};

int owners_new(struct owners **out)
{
	struct owners *o = calloc(1, sizeof *o);

	*out = NULL;
	if (!o)
		return fail_as(OUT_MEMORY, "allocate a table of owners: %m");
	o->table = TABLE_BY(owner, key);
	pthread_mutex_init(&o->lock, NULL);
	*out = o;
	return 0;
}

void owners_free(struct owners *o)
{
	if (!o)
		return;
	table_clear(&o->table, free);
	pthread_mutex_destroy(&o->lock);
	free(o);
}

static struct owner *find_owner(const struct owners *o, bool group, uint32_t id)
{
	return table_find(&o->table, &(struct owner_key){.id = id, .group = group});
}

/* NULL: out of memory, or there are OWNERS_MAX already. */
static struct owner *add_owner(struct owners *o, bool group, uint32_t id, const char *name)
{
	size_t len = strlen(name) + 1;
	struct owner *w;

	if (o->table.count >= OWNERS_MAX)
		return NULL;
	w = calloc(1, sizeof *w + len);
	if (!w)
		return NULL;
	w->key = (struct owner_key){.id = id, .group = group};
	memcpy(w->name, name, len);
	if (table_put(&o->table, w, NULL)) {
		free(w);
		return NULL;
	}
	return w;
}

/* ---- the system's user database ----------------------------------------------------- */

struct account_query {
	bool group;
	const char *name; /* NULL: by id */
	uint32_t id;
};
struct account {
	bool found;
	uint32_t id;
	char name[NAME_ROOM]; /* "" if it is too long to be sent */
};

static int query_user(const struct account_query *q, char *buf, size_t size, struct account *a)
{
	struct passwd pw, *got = NULL;
	int err = q->name ? getpwnam_r(q->name, &pw, buf, size, &got)
			  : getpwuid_r(q->id, &pw, buf, size, &got);

	if (got) {
		a->found = true;
		a->id = got->pw_uid;
		if (strlen(got->pw_name) < NAME_ROOM)
			strcpy(a->name, got->pw_name);
	}
	return err;
}

static int query_group(const struct account_query *q, char *buf, size_t size, struct account *a)
{
	struct group gr, *got = NULL;
	int err = q->name ? getgrnam_r(q->name, &gr, buf, size, &got)
			  : getgrgid_r(q->id, &gr, buf, size, &got);

	if (got) {
		a->found = true;
		a->id = got->gr_gid;
		if (strlen(got->gr_name) < NAME_ROOM)
			strcpy(a->name, got->gr_name);
	}
	return err;
}

/* If the database cannot answer, the account counts as unknown, and its number is used. */
static void query_account(const struct account_query *q, struct account *a)
{
	char *buf = NULL;
	int err = ERANGE;

	*a = (struct account){0};
	for (size_t size = BUFFER_FIRST; err == ERANGE && size <= BUFFER_MAX; size *= 4) {
		char *more = realloc(buf, size);

		if (!more)
			break;
		buf = more;
		do
			err = q->group ? query_group(q, buf, size, a) : query_user(q, buf, size, a);
		while (err == EINTR);
	}
	free(buf);
}

/* ---- source --------------------------------------------------------------------------- */

static struct owner *find_or_add_owner(struct owners *o, bool group, uint32_t id)
{
	struct owner *w = find_owner(o, group, id);
	struct account a;

	if (w || o->table.count >= OWNERS_MAX)
		return w;
	pthread_mutex_unlock(&o->lock);
	query_account(&(struct account_query){.group = group, .id = id}, &a);
	pthread_mutex_lock(&o->lock);
	/* Another thread may have added it meanwhile. */
	w = find_owner(o, group, id);
	return w ? w : add_owner(o, group, id, a.name);
}

bool owners_mark_announced(struct owners *o, bool group, uint32_t id, unsigned lane,
			   const char **name)
{
	uint64_t bit = UINT64_C(1) << lane;
	bool announce = false;
	struct owner *w;

	*name = "";
	if (id == 0)
		return false;
	pthread_mutex_lock(&o->lock);
	w = find_or_add_owner(o, group, id);
	if (w) {
		*name = w->name;
		announce = w->name[0] != '\0' && !(w->announced & bit);
		w->announced |= bit;
	}
	pthread_mutex_unlock(&o->lock);
	return announce;
}

/* ---- sink ----------------------------------------------------------------------------- */

int owners_add_name(struct owners *o, bool group, uint32_t id, const char *name)
{
	const struct owner *w;
	bool full, same;

	pthread_mutex_lock(&o->lock);
	w = find_owner(o, group, id);
	full = !w && o->table.count >= OWNERS_MAX;
	if (!w && !full)
		w = add_owner(o, group, id, name);
	same = w && strcmp(w->name, name) == 0;
	pthread_mutex_unlock(&o->lock);
	if (full)
		return fail_as(OUT_PROTOCOL,
			       "the peer sends names of more than %d users and groups", OWNERS_MAX);
	if (!w)
		return fail_as(OUT_MEMORY, "record the name of a user or group: %m");
	if (!same)
		return fail_as(OUT_PROTOCOL, "the peer sends two names of %s %u",
			       group ? "group" : "user", id);
	return 0;
}

uint32_t owners_map(struct owners *o, bool group, uint32_t id, bool numeric)
{
	struct account a;
	struct owner *w;
	uint32_t local_id = id;
	bool lookup;

	if (numeric || id == 0)
		return id;
	pthread_mutex_lock(&o->lock);
	w = find_owner(o, group, id);
	if (w && w->mapped)
		local_id = w->local_id;
	lookup = w && !w->mapped && w->name[0] != '\0';
	pthread_mutex_unlock(&o->lock);
	if (!lookup)
		return local_id;
	/* w->name never changes, so it is read without the lock. */
	query_account(&(struct account_query){.group = group, .name = w->name}, &a);
	if (a.found)
		local_id = a.id;
	pthread_mutex_lock(&o->lock);
	w->mapped = true;
	w->local_id = local_id;
	pthread_mutex_unlock(&o->lock);
	return local_id;
}

/* ---- --chown -------------------------------------------------------------------------- */

/* Any 32-bit number but (uid_t)-1. */
static bool parse_id(const char *text, uint32_t *id)
{
	unsigned long long v;
	char *end;

	if (text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	v = strtoull(text, &end, 10);
	*id = (uint32_t)v;
	return *end == '\0' && errno == 0 && v < UINT32_MAX;
}

static int parse_owner(bool group, const char *text, uint32_t *id)
{
	struct account a;

	query_account(&(struct account_query){.group = group, .name = text}, &a);
	if (a.found)
		*id = a.id;
	else if (!parse_id(text, id))
		return fail_as(OUT_USAGE, "--chown: unknown %s %s", group ? "group" : "user", text);
	return 0;
}

int owners_parse(const char *chown, uid_t *uid, gid_t *gid)
{
	const char *colon = strchr(chown, ':');
	char user[HOST_MAX];
	size_t len = colon ? (size_t)(colon - chown) : strlen(chown);

	*uid = (uid_t)-1;
	*gid = (gid_t)-1;
	if (chown[0] == '\0')
		return 0;
	if (len >= sizeof user || (len == 0 && colon[1] == '\0'))
		return fail_as(OUT_USAGE, "--chown=%s: expected USER:GROUP", chown);
	memcpy(user, chown, len);
	user[len] = '\0';
	if (len > 0 && parse_owner(false, user, uid))
		return -1;
	return colon && colon[1] != '\0' ? parse_owner(true, colon + 1, gid) : 0;
}
