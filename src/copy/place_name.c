/* SPDX-License-Identifier: Apache-2.0 */

/* The last step: what is whole gets its name. */

#include "copy/place_impl.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>
#include "base/fail.h"

int seat_rename(const struct seat *s, const char *as, const struct stat *old, bool clears)
{
	char shown[SHOWN_ROOM];

	if (place_backs_up(s->place) && old && !S_ISDIR(old->st_mode) && backup_seat(s, false))
		return -1;
	if (renameat(s->dirfd, as, s->dirfd, s->name) == 0)
		return 0;
	if (errno == EISDIR && clears) {
		if (delete_in_the_way(s))
			return -1;
		if (renameat(s->dirfd, as, s->dirfd, s->name) == 0)
			return 0;
	}
	return errno == ENOENT ? 1 : fail("rename to %s: %m", seat_shown(s, shown));
}

/* 1: something has that name by now; then it has another one. */
static int link_nameless(const struct seat *s, struct temporary *t)
{
	struct place *p = s->place;

	if (temporary_link(t, s->dirfd, s->name, p->proc) == 0) {
		t->nameless = false;
		/* Another run's, in a directory that was there. */
		if (!s->in || !s->in->fresh)
			seat_is_whole(s);
		return 0;
	}
	if (errno != EEXIST || temporary_give_name(t, s->dirfd, s->name, p->uid, p->proc))
		return seat_failure(s, "create");
	return 1;
}

int seat_take_name(const struct seat *s, struct temporary *t, const struct stat *old)
{
	bool clears = s->in || s->place->rules->recursive;
	struct stat now;
	int ret = 1;

	if (t->nameless) {
		ret = link_nameless(s, t);
		if (ret <= 0)
			return ret;
		old = seat_look(s, &now) > 0 ? &now : NULL;
	}
	ret = seat_rename(s, t->name, old, clears);
	return ret > 0 ? seat_failure(s, "rename to") : ret;
}
