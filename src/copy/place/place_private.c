/* SPDX-License-Identifier: Apache-2.0 */

/*
 * May a run take over something whose name anyone can compute?  In a directory that others may
 * write to, or that another user owns, another user could have renamed a file of ours to that name.
 * The sticky bit does not help: it keeps others from removing our names, not from adding some.
 */

#include "copy/place/place_impl.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { NOT_KNOWN, SHARED, OWN }; /* place.own_group */

static bool is_alone_in(const struct group *gr, const struct passwd *pw)
{
	bool alone = gr->gr_gid == pw->pw_gid && strcmp(gr->gr_name, pw->pw_name) == 0;

	for (char **member = gr->gr_mem; alone && *member; member++)
		alone = strcmp(*member, pw->pw_name) == 0;
	return alone;
}

/* Many systems give each user a group of the same name without other members, and a umask of 002.
 */
static bool is_users_own_group(uid_t uid, gid_t gid)
{
	enum { ROOM = 64 << 10 };
	char *room = uid != 0 ? malloc(2 * ROOM) : NULL;
	struct passwd pw, *user = NULL;
	struct group gr, *group = NULL;
	bool own;

	if (!room)
		return false;
	getpwuid_r(uid, &pw, room, ROOM, &user);
	getgrgid_r(gid, &gr, room + ROOM, ROOM, &group);
	own = user && group && is_alone_in(group, user);
	free(room);
	return own;
}

static bool is_own_group(struct place *p, gid_t gid)
{
	int known;

	if (gid != p->groups[0])
		return false;
	known = atomic_load_explicit(&p->own_group, memory_order_relaxed);
	if (known == NOT_KNOWN) {
		known = is_users_own_group(p->uid, gid) ? OWN : SHARED;
		atomic_store_explicit(&p->own_group, known, memory_order_relaxed);
	}
	return known == OWN;
}

bool place_is_private(struct place *p, int dirfd)
{
	struct stat st;

	if (fstat(dirfd, &st) || st.st_uid != p->uid || (st.st_mode & S_IWOTH))
		return false;
	if (!(st.st_mode & S_IWGRP))
		return true;
	/* With an ACL the group bits are its mask, which bounds the rights of everyone it names. */
	return is_own_group(p, st.st_gid) &&
	       fgetxattr(dirfd, "system.posix_acl_access", NULL, 0) < 0 &&
	       (errno == ENODATA || errno == EOPNOTSUPP);
}
