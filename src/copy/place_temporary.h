/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_PLACE_TEMPORARY_H
#define COPY_PLACE_TEMPORARY_H

/*
 * Temporaries: ".sluice." and 16 hex digits of a hash of the final name and the user, locked
 * (flock) while in use.  What a run that was interrupted left is taken over; where somebody
 * else is at it, or it is none of ours, a random suffix is added, and such a one is removed by
 * any later run to that directory once its lock is free.
 *
 * A file of which all is at hand may have no name at all until it gets its own: nothing is left of
 * it then, whatever happens, and nobody else can get at it.
 *
 * What can't be locked (symlinks and the like) has such a name for a moment only: who finds it
 * removes it, and whoever misses his makes it again.
 */

#include <stdbool.h>
#include <sys/stat.h>

enum { TEMPORARY_NAME = 40 };

struct temporary {
	int fd;
	char name[TEMPORARY_NAME];
	bool random; /* has a suffix: no later run would take it over */
	bool resumed; /* not empty */
	bool nameless; /* name means nothing yet */
	struct stat st; /* of fd */
};

/* An empty one for a file of this name in that directory; 0600.  user: who we are; owner: whose
 * it may have become where an earlier run of root got that far; it is made anew then.  -1 with
 * errno set. */
int temporary_open(int dirfd, const char *name, uid_t user, uid_t owner, struct temporary *out);
/* The same, only if an earlier run left one with something in it; 1, 0: there is none. */
int temporary_resume(int dirfd, const char *name, uid_t user, struct temporary *out);
/* One that has no name and is gone with its descriptor; mode is less the umask.  -1 with errno: the
 * file system has no such files, among others. */
int temporary_nameless(int dirfd, mode_t mode, struct temporary *out);
/* It gets this name, if there is nothing of it: -1 with errno, EEXIST. proc: /proc/self/fd. */
int temporary_link(const struct temporary *t, int dirfd, const char *name, int proc);
/* The same of any file, also one of O_PATH; ENOENT: it has no name left. */
int temporary_link_fd(int fd, int dirfd, const char *name, int proc);
/* It gets a random one, to be renamed from, and is locked. */
int temporary_give_name(struct temporary *t, int dirfd, const char *name, uid_t user, int proc);
/* A name for something that is not opened: what stands there is removed if that may be done, else
 * it is a random one. */
int temporary_name(int dirfd, const char *name, uid_t user, char to[static TEMPORARY_NAME]);
/* That name is whole: what an earlier run left of it goes. */
void temporary_forget(int dirfd, const char *name, uid_t user);

/* Has name the form of one? Of a marker (place_marker.c)? */
bool temporary_is(const char *name);
bool temporary_is_marker(const char *name);
/* Remove those that runs left that are no more; *others: there are some that a run may go on
 * with. */
void temporaries_sweep(int dirfd, bool *others);
/* Remove one, whatever its form, if it is of a run that is no more. */
void temporary_sweep(int dirfd, const char *name);

#endif
