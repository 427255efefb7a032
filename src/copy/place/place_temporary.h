/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_PLACE_PLACE_TEMPORARY_H
#define COPY_PLACE_PLACE_TEMPORARY_H

/*
 * Temporaries (copy/names/own_name.h).  They are locked (flock) while in use.
 *
 * In a private directory (place_private.c), where no other user can make, rename or remove names, a
 * temporary is named by a hash of its final name and the user.  The next run takes it over if it is
 * what an interrupted run leaves: a regular file of ours, with mode exactly 0600 and one link.  If
 * something locked, or not ours, has that name, the temporary gets a random name instead.  The
 * locked one may be of a run that was interrupted and whose session lives on for a while.  When it
 * ends and another run has completed the same file by then, or else when a run that saw it locked
 * completes its file, its temporary is removed.
 *
 * Elsewhere another user could compute that name and rename a file of ours to it, of which he still
 * has a descriptor open.  So there a file has no name until it is whole, if the file system
 * supports that, else a random name, and nothing is taken over.
 *
 * Symlinks, devices, further hard links, and the directory that is to become DST have a random name
 * until they are renamed.
 *
 * Any later run that writes to the directory removes what is ours, not locked, and has a random
 * name, or a hashed name but cannot be taken over.
 */

#include <stdbool.h>
#include <sys/stat.h>
#include "copy/names/own_name.h"

struct temporary {
	int fd;
	char name[OWN_NAME_ROOM];
	bool random; /* no later run takes it over */
	bool resumed; /* an earlier run left it, and it is not empty */
	bool nameless; /* has no name yet; name is meaningless */
	bool beside; /* another run uses the temporary that a later run takes over */
	struct stat st; /* of fd */
};

/* Opens an empty temporary for a file called name in dirfd, mode 0600.  is_private: in a private
 * directory an existing one is taken over.  user: our uid.  owner: the uid that the file will
 * have; a root run that was interrupted late may have set it already, and then the temporary is
 * made anew.  -1 with errno. */
int temporary_open(int dirfd, bool is_private, const char *name, uid_t user, uid_t owner,
		   struct temporary *out);
/* In a private directory: opens the temporary that an earlier run left, if it is not empty.  1:
 * open; 0: there is none. */
int temporary_resume(int dirfd, const char *name, uid_t user, struct temporary *out);
/* Opens a file without a name, which disappears with its descriptor.  The umask applies to mode.
 * -1 with errno, e.g. if the file system does not support that. */
int temporary_nameless(int dirfd, mode_t mode, struct temporary *out);
/* Gives a nameless temporary this name.  -1 with errno; EEXIST if the name exists.  proc:
 * /proc/self/fd. */
int temporary_link(const struct temporary *t, int dirfd, const char *name, int proc);
/* Gives any file another name, also one opened with O_PATH.  ENOENT: the file has no name left. */
int temporary_link_fd(int fd, int dirfd, const char *name, int proc);
/* Gives a nameless temporary a random name, to be renamed from, and locks it. */
int temporary_give_name(struct temporary *t, int dirfd, const char *name, uid_t user, int proc);
/* Writes a random name to `to', for something that is not opened.  -1 with errno. */
int temporary_name(const char *name, uid_t user, char to[static OWN_NAME_ROOM]);
/* Locks the directory fd, which was made under that name, so that no other run sweeps it while fd
 * is open.  -1: another run was faster. */
int temporary_dir_lock(int dirfd, const char *name, int fd);
/* The file called name is whole: removes what an earlier run left of it. */
void temporary_forget(int dirfd, const char *name, uid_t user);

/* Has name the form of a temporary's, or of a marker's (place_marker.c)? */
bool temporary_is(const char *name);
bool temporary_is_marker(const char *name);
/* Removes temporaries of runs that have ended.  *resumable_left: some remain that a run may take
 * over, because the directory is private. */
void temporaries_sweep(int dirfd, bool is_private, bool *resumable_left);
/* Removes one temporary of any form, if its run has ended.  Other hard links to the file stay. */
void temporary_sweep(int dirfd, const char *name);

#endif
