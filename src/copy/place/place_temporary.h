/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_PLACE_PLACE_TEMPORARY_H
#define COPY_PLACE_PLACE_TEMPORARY_H

/*
 * Temporaries (copy/names/own_name.h), locked (flock) while in use.
 *
 * In a directory in which nobody else can put, rename or remove anything (place_private.c) a file
 * is written under a hash of its final name and the user.  The next run takes that over if it is
 * as an interrupted run leaves it: a regular file of ours, of exactly 0600, with one link.  What
 * stands there and is locked, or not ours, makes way for a random name.
 *
 * Elsewhere another user could rename a file of ours to a name that he computes, with a descriptor
 * of it still open.  There a file has no name until it is whole, where the file system can do
 * that, else a random one, and nothing is taken over.
 *
 * Symlinks, devices, further hard links and the directory that is to become DST have a random
 * name for a moment.
 *
 * Any later run to that directory removes what has a random name, is ours and not locked, and
 * what has a hashed one and can't be taken over.
 */

#include <stdbool.h>
#include <sys/stat.h>
#include "copy/names/own_name.h"

struct temporary {
	int fd;
	char name[OWN_NAME_ROOM];
	bool random; /* no later run would take it over */
	bool resumed; /* not empty */
	bool nameless; /* name means nothing yet */
	struct stat st; /* of fd */
};

/* An empty one for a file of this name in that directory; 0600.  adopts: the directory is private,
 * so one that is there is taken over.  user: who we are; owner: whose it may have become where an
 * earlier run of root got that far; it is made anew then.  -1 with errno set. */
int temporary_open(int dirfd, bool adopts, const char *name, uid_t user, uid_t owner,
		   struct temporary *out);
/* The same in a private directory, only if an earlier run left one with something in it; 1, 0:
 * there is none. */
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
/* A random name for something that is not opened.  -1 with errno. */
int temporary_name(const char *name, uid_t user, char to[static OWN_NAME_ROOM]);
/* The directory fd was made under that name: nobody sweeps it while fd is open.  -1: somebody was
 * faster. */
int temporary_dir_lock(int dirfd, const char *name, int fd);
/* That name is whole: what an earlier run left of it goes. */
void temporary_forget(int dirfd, const char *name, uid_t user);

/* Has name the form of one? Of a marker (place_marker.c)? */
bool temporary_is(const char *name);
bool temporary_is_marker(const char *name);
/* Remove those that runs left that are no more; *others: there are some that a run may go on
 * with, since the directory is private (adopts). */
void temporaries_sweep(int dirfd, bool adopts, bool *others);
/* Remove one, whatever its form, if it is of a run that is no more. */
void temporary_sweep(int dirfd, const char *name);

#endif
