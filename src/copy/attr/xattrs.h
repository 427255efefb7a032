/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_ATTR_XATTRS_H
#define COPY_ATTR_XATTRS_H

/*
 * Extended attributes and ACLs of one file: read at the source, carried in XATTR records, set or
 * compared at the sink.  Only through descriptors; those opened with O_PATH through /proc/self/fd.
 *
 * ACLs (system.posix_acl_*) are copied with rules->acls.  user.* and, for root, trusted.* are
 * copied with rules->xattrs.  With rules->xattrs_all everything else but ACLs is copied too, such
 * as security.* and lustre.*.  Overlayfs's trusted.overlay.* is never copied.
 */

#include <stdbool.h>
#include <sys/types.h>
#include <stddef.h>
#include "copy/attr/owners.h"
#include "copy/rules/rules.h"

struct xattrs; /* a list of names and values; one thread at a time */

/* Source: reads the wanted attributes of fd.  None, or a file system without attributes: *out is
 * NULL. */
int xattrs_read(int fd, const char *shown, const struct rules *r, struct xattrs **out);
/* The next user or group that its ACLs name; *at starts as 0.  False: no more. */
bool xattrs_next_owner(const struct xattrs *x, size_t *at, bool *group, uint32_t *id);
/* The next piece of a value, of at most room (1 or more) bytes, for a record of id.  *at and *pos
 * start as 0.  Names ascend.  False: no more. */
bool xattrs_next_piece(const struct xattrs *x, size_t *at, uint32_t *pos, size_t room, uint32_t id,
		       struct record_xattr *out);

/* Sink: adds a piece that arrived; allocates *x at the first one.  -1, OUT_PROTOCOL: names do not
 * ascend, it is too much, or the piece does not follow the last one. */
int xattrs_add(struct xattrs **x, const struct record_xattr *piece);
/* Have all pieces of all values arrived? */
bool xattrs_whole(const struct xattrs *x);
/* of: what has them, for messages.  -1, OUT_PROTOCOL: a name is one that the user did not ask for,
 * or that is never set. */
int xattrs_check(const struct xattrs *x, const char *of, const struct rules *r);
/* Makes the access ACL, if there is one, what it is after chmod(mode). */
void xattrs_set_mode(struct xattrs *x, mode_t mode);
/* Translates the ids in ACLs to this host's. */
int xattrs_localize(struct xattrs *x, const char *of, struct owners *o, bool numeric);
/*
 * Makes fd have exactly the attributes x (NULL: none) of the kinds that r asks for: sets these, and
 * removes others.  Does not touch kinds that r does not ask for, nor trusted.* unless this process
 * is root, nor, if x lacks them, attributes that a host or file system gives to its files by itself
 * (security.selinux, Lustre's layouts).  Continues after a failure; -1 with the first one.
 *
 * Call it after chown(), which drops capabilities.  Call it before chmod(), which may take away the
 * right to set attributes, and must have the last word over an ACL's mode.  If an ACL is removed,
 * the group keeps its own rights from it.
 */
int xattrs_set(int fd, const char *shown, const struct xattrs *x, const struct rules *r);
/* If x, or the file old, has an access ACL that fd could not be given: the rights of the owning
 * group itself in it, in 3 bits.  The group bits of a mode would give the group the rights of
 * everyone whom the ACL names.  7: there is no ACL, or fd has it.  -1, with a failure and no
 * rights: the ACL of old can't be read. */
unsigned xattrs_group_without(int fd, const struct xattrs *x);
int xattrs_group_without_acl(int fd, int old, const char *shown, unsigned *group);
/* Gives fd those attributes of the file old, which it replaces, that no option covers.  False: some
 * failed. */
bool xattrs_keep(int fd, int old);
/* Sets whether fd differs from x in ACLs and in other attributes. */
int xattrs_differ(int fd, const struct xattrs *x, const struct rules *r, bool *acls, bool *others);
void xattrs_free(struct xattrs *x); /* accepts NULL */
/* The bits of a mode that something new in the directory fd does not get.  If fd has a default ACL,
 * that applies instead of the umask. */
mode_t xattrs_umask(int fd, mode_t umask);

#endif
