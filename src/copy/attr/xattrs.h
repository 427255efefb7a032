/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_ATTR_XATTRS_H
#define COPY_ATTR_XATTRS_H

/*
 * Extended attributes and ACLs of one file: read at the source, carried in XATTR records, set or
 * compared at the sink.  Only through descriptors; O_PATH ones too (through /proc/self/fd).
 *
 * Which: ACLs (system.posix_acl_*) with rules->acls; with rules->xattrs user.* (and, for root,
 * trusted.*) and with rules->xattrs_all all others but ACLs: security.*, lustre.* as well.  Never
 * overlay's trusted.overlay.*.
 */

#include <stdbool.h>
#include <sys/types.h>
#include <stddef.h>
#include "copy/attr/owners.h"
#include "copy/rules/rules.h"

struct xattrs; /* a list of names and values; one thread at a time */

/* Source: what fd has of these. Nothing there, or none on this file system: *out is NULL. */
int xattrs_read(int fd, const char *shown, const struct rules *r, struct xattrs **out);
/* Owners that its ACLs name, one after the other (*at starts as 0); false: no more. */
bool xattrs_next_owner(const struct xattrs *x, size_t *at, bool *group, uint32_t *id);
/* The next piece of at most room (1 or more) bytes of value for a record of id; *at and *pos start
 * as 0.  Names ascend.  false: no more. */
bool xattrs_next_piece(const struct xattrs *x, size_t *at, uint32_t *pos, size_t room, uint32_t id,
		       struct record_xattr *out);

/* Sink: add a piece that came; names that don't ascend, too much, or what does not follow: -1,
 * OUT_PROTOCOL.  Makes *x at the first. */
int xattrs_add(struct xattrs **x, const struct record_xattr *piece);
/* All pieces of all values came? */
bool xattrs_whole(const struct xattrs *x);
/* Names that this run's user does not want, or that are not to be set by anybody, are a
 * protocol failure (-1, OUT_PROTOCOL): nothing but what was asked for is taken. */
int xattrs_check(const struct xattrs *x, const struct rules *r);
/* Translate ids in ACLs to those of this host. */
int xattrs_localize(struct xattrs *x, struct owners *o, bool numeric);
/*
 * Make fd have exactly these of the kinds that r asks for: set, and remove others.  x NULL: none.
 * Nothing is done to kinds that r does not ask for, to what a host or file system gives its files
 * itself (security.selinux, Lustre's layouts) where x has none, nor to trusted.* where this process
 * is not root.  -1 with the first failure; the rest is done all the same.
 *
 * After chown(), which drops capabilities, and before chmod(), which takes the right to set
 * attributes and has to have the last word over an ACL's.  Where an ACL is removed the group keeps
 * its own rights by it.
 */
int xattrs_set(int fd, const char *shown, const struct xattrs *x, const struct rules *r);
/* Of an access ACL that x, or the file old, has and fd could not be given: what the group itself
 * may do by it, in 3 bits; the group bits of a mode would give it the rights of all that the ACL
 * names.  7: there is none, or fd has it. */
unsigned xattrs_group_without(int fd, const struct xattrs *x);
unsigned xattrs_group_without_acl(int fd, int old);
/* Give fd those of the file old, which it replaces, that no option speaks of.  False: not all. */
bool xattrs_keep(int fd, int old);
/* Does fd differ in ACLs, in other attributes? */
int xattrs_differ(int fd, const struct xattrs *x, const struct rules *r, bool *acls, bool *others);
void xattrs_free(struct xattrs *x); /* NULL: nothing */
/* What is made in the directory fd does not get these bits of a mode: by its default ACL, which
 * counts instead of the umask, where it has one. */
mode_t xattrs_umask(int fd, mode_t umask);

#endif
