/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPY_ATTR_XATTRS_IMPL_H
#define COPY_ATTR_XATTRS_IMPL_H

/* What the files of xattrs*.c share. */

#include <sys/types.h>
#include "copy/attr/xattrs.h"
#include "protocol/acl.h"

struct xattr {
	char *name;
	uint8_t *value;
	uint32_t size;
	uint32_t have; /* so many bytes have come */
	struct acl_entry *acl; /* source, and what a target has: of an ACL; else NULL */
	size_t entries;
};
/* Sorted by name, none twice. */
struct xattrs {
	struct xattr *of;
	size_t count, room;
	size_t names, bytes; /* of all names, and with all values */
};
enum { NAMES_MAX = 64 << 10 /* of all names of a file: the kernel's bound for a list */ };

/* One more, with room for its value, at the end; NULL: no memory. */
struct xattr *xattr_append(struct xattrs *x, const char *name, uint32_t size);
struct xattrs *xattrs_make(void);
void xattrs_drop(struct xattrs *x, size_t count); /* all behind the first so many */

enum xattr_kind {
	XATTR_NOBODYS, /* not to be copied by anybody */
	XATTR_ACL,
	XATTR_PLAIN,
	XATTR_SPECIAL, /* only with rules->xattrs_all */
};
enum xattr_kind xattr_kind(const char *name);
bool xattr_wanted(const char *name, const struct rules *r);
/* Sort by tag and id; an id that is there twice gets no more than each entry would give it. Returns
 * the number of entries left. */
size_t acl_tidy(struct acl_entry *e, size_t count);

/* Calls on descriptors of all kinds, O_PATH too: xattrs_fd.c.  As the system's calls, errno too. */
ssize_t xattr_list(int fd, char *to, size_t size);
ssize_t xattr_get(int fd, const char *name, void *to, size_t size);
int xattr_put(int fd, const char *name, const void *value, size_t size);
int xattr_remove(int fd, const char *name);
/* Who may not read and write a file of his own gets no attributes either: its mode is widened for a
 * while.  *old: what to give back, (mode_t)-1: nothing. */
void xattr_widen(int fd, mode_t *old);
void xattr_narrow(int fd, mode_t old);
/* Take all rights but these from the group class. */
void xattr_narrow_group(int fd, unsigned rights);

/* What fd has of what r asks for; bounded: what can't be sent is a failure. */
int xattrs_look(int fd, const char *shown, const struct rules *r, bool bounded,
		struct xattrs **out);

#endif
