/* SPDX-License-Identifier: Apache-2.0 */

/* Reads, sets and compares the attributes of files. */

#include "copy/attr/xattrs_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fail.h"

enum {
	LIST_SHORT = 1 << 10,
	VALUE_MAX = 64 << 10, /* the kernel's bound */
	TRIES = 8, /* with a value that grows in the meantime */
};

/* ---- looking ------------------------------------------------------------------------------ */

static bool is_absence(int err)
{
	return err == EOPNOTSUPP || err == ENODATA || err == ENOSYS;
}

/* *list is shortly, or what the caller frees. */
static ssize_t list_xattr_names(int fd, char shortly[static LIST_SHORT], char **list)
{
	ssize_t n = xattr_list(fd, shortly, LIST_SHORT);

	*list = shortly;
	if (n < 0 && errno == ERANGE) {
		*list = malloc(NAMES_MAX);
		if (*list)
			n = xattr_list(fd, *list, NAMES_MAX);
		else
			*list = shortly;
	}
	return n < 0 && is_absence(errno) ? 0 : n;
}

/* 1: it's in x now; 0: it is gone. */
static int read_xattr_value(int fd, const char *name, struct xattrs *x)
{
	for (int i = 0; i < TRIES; i++) {
		size_t count = x->count;
		ssize_t n = xattr_get(fd, name, NULL, 0);
		struct xattr *a;

		if (n >= 0) {
			a = xattr_append(x, name, (uint32_t)n);
			if (!a)
				return -1;
			/* A size of zero would ask for the size again. */
			n = n > 0 ? xattr_get(fd, name, a->value, (size_t)n) : 0;
			if (n >= 0) {
				x->bytes -= a->size - (size_t)n;
				a->size = (uint32_t)n;
				a->have = a->size;
				return 1;
			}
			xattrs_drop(x, count);
		}
		if (errno != ERANGE)
			return is_absence(errno) ? 0 : -1;
	}
	return -1;
}

/* False: it can't be understood. */
static bool decode_acl_value(struct xattrs *x, struct xattr *a)
{
	int n;

	a->acl = calloc(acl_room(a->size) + 1, sizeof *a->acl);
	if (!a->acl)
		return false;
	n = acl_decode(a->value, a->size, a->acl);
	if (n < 0)
		return false;
	a->entries = acl_tidy(a->acl, (size_t)n);
	x->bytes -= a->size;
	a->size = (uint32_t)(ACL_HEAD + a->entries * ACL_ENTRY);
	a->have = a->size;
	x->bytes += a->size;
	acl_encode(a->acl, a->entries, a->value);
	return true;
}

static int read_xattr(int fd, const char *shown, const char *name, bool bounded, struct xattrs *x)
{
	int rc = read_xattr_value(fd, name, x);
	struct xattr *a;

	if (rc < 0)
		return fail("read %s of %s: %m", name, shown);
	if (rc == 0)
		return 0;
	a = &x->of[x->count - 1];
	if (bounded && (strlen(name) >= NAME_ROOM || x->bytes > XATTRS_BYTES_MAX))
		return fail("%s has more than %d bytes of extended attributes", shown,
			    XATTRS_BYTES_MAX);
	if (xattr_kind(name) != XATTR_ACL)
		return 0;
	/* What a target has and can't be understood differs from anything; that is enough. */
	if (!decode_acl_value(x, a) && bounded)
		return a->acl ? fail("the ACL of %s names someone unknown in this name space, or is "
				     "damaged",
				     shown)
			      : fail_as(OUT_MEMORY, "read %s of %s: %m", name, shown);
	/* Some file systems tell the mode as an ACL. */
	if (a->entries * ACL_ENTRY + ACL_HEAD == ACL_MINIMAL &&
	    strcmp(name, "system.posix_acl_access") == 0)
		xattrs_drop(x, x->count - 1);
	return 0;
}

static int compare_xattr_names(const void *a, const void *b)
{
	return strcmp(((const struct xattr *)a)->name, ((const struct xattr *)b)->name);
}

int xattrs_look(int fd, const char *shown, const struct rules *r, bool bounded, struct xattrs **out)
{
	char shortly[LIST_SHORT], *list;
	struct xattrs *x = NULL;
	ssize_t n;
	int rc = 0;

	*out = NULL;
	if (!r->acls && !r->xattrs && !r->xattrs_all)
		return 0;
	n = list_xattr_names(fd, shortly, &list);
	if (n < 0)
		rc = fail("list extended attributes of %s: %s", shown,
			  errno == ENOENT ? "/proc is not mounted" : strerror(errno));
	for (const char *at = list; rc == 0 && at < list + n; at += strlen(at) + 1) {
		if (!xattr_wanted(at, r))
			continue;
		if (!x && !(x = xattrs_make()))
			rc = fail_as(OUT_MEMORY, "allocate attributes: %m");
		else
			rc = read_xattr(fd, shown, at, bounded, x);
	}
	if (list != shortly)
		free(list);
	if (rc || (x && x->count == 0)) {
		xattrs_free(x);
		return rc;
	}
	if (x)
		qsort(x->of, x->count, sizeof *x->of, compare_xattr_names);
	*out = x;
	return 0;
}

/* ---- comparing and setting ------------------------------------------------------------------ */

/* Lustre's, and ACLs that are not POSIX's. */
static bool is_layout(const char *name)
{
	return xattr_kind(name) == XATTR_SPECIAL && strncmp(name, "security.", 9) != 0;
}

/* What a host or file system gives to its files by itself (labels, layouts): it stays where a
 * source has none. */
static bool is_native(const char *name)
{
	static const char *const names[] = {"security.selinux", "security.SMACK64",
					    "security.apparmor", "security.ima", "security.evm"};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		if (strncmp(name, names[i], strlen(names[i])) == 0)
			return true;
	}
	return is_layout(name);
}

/* Only root can; for others they are not there. */
static bool is_out_of_reach(const char *name)
{
	return strncmp(name, "trusted.", 8) == 0 && geteuid() != 0;
}

/* The next name of either list, with what each has of it. */
struct xattr_pair {
	size_t i, j;
	const struct xattr *is, *should;
	const char *name;
};
static bool pair_next(struct xattr_pair *p, const struct xattrs *is, const struct xattrs *should)
{
	const struct xattr *a = is && p->i < is->count ? &is->of[p->i] : NULL;
	const struct xattr *b = should && p->j < should->count ? &should->of[p->j] : NULL;
	int order = a && b ? strcmp(a->name, b->name) : a ? -1 : 1;

	if (!a && !b)
		return false;
	p->is = order <= 0 ? a : NULL;
	p->should = order >= 0 ? b : NULL;
	p->i += p->is != NULL;
	p->j += p->should != NULL;
	p->name = p->is ? p->is->name : p->should->name;
	return true;
}

/* Is there something to do about this name? */
static bool pair_differs(const struct xattr_pair *p, const struct rules *r)
{
	if (!xattr_wanted(p->name, r) || is_out_of_reach(p->name))
		return false;
	if (!p->should)
		return !is_native(p->name);
	return !p->is || p->is->size != p->should->size ||
	       memcmp(p->is->value, p->should->value, p->is->size) != 0;
}

int xattrs_differ(int fd, const struct xattrs *x, const struct rules *r, bool *acls, bool *others)
{
	struct xattr_pair p = {0};
	struct xattrs *is;

	*acls = false;
	*others = false;
	if (xattrs_look(fd, "the target", r, false, &is))
		return -1;
	while (pair_next(&p, is, x)) {
		/* Layouts are never the same. */
		if (!pair_differs(&p, r) || (p.is && is_layout(p.name)))
			continue;
		if (xattr_kind(p.name) == XATTR_ACL)
			*acls = true;
		else
			*others = true;
	}
	xattrs_free(is);
	return 0;
}

static const char access_acl[] = "system.posix_acl_access";

/* What the group itself may do; one that can't be understood gives it nothing. */
static unsigned read_acl_group(const void *bytes, size_t size)
{
	struct acl_entry *of = calloc(acl_room(size) + 1, sizeof *of);
	int n = of ? acl_decode(bytes, size, of) : -1;
	unsigned group = 0, mask = 7;

	for (int i = 0; i < n; i++) {
		if (of[i].tag == ACL_GROUP_OBJ)
			group = of[i].perm;
		else if (of[i].tag == ACL_MASK)
			mask = of[i].perm;
	}
	free(of);
	return group & mask;
}

static unsigned read_group_without(int fd, const struct xattr *acl)
{
	void *is = malloc(acl->size + 1);
	ssize_t n = is ? xattr_get(fd, access_acl, is, acl->size + 1) : -1;
	bool same = n == (ssize_t)acl->size && memcmp(is, acl->value, acl->size) == 0;

	free(is);
	return same ? 7 : read_acl_group(acl->value, acl->size);
}

unsigned xattrs_group_without(int fd, const struct xattrs *x)
{
	for (size_t i = 0; x && i < x->count; i++) {
		if (strcmp(x->of[i].name, access_acl) == 0)
			return read_group_without(fd, &x->of[i]);
	}
	return 7;
}

unsigned xattrs_group_without_acl(int fd, int old)
{
	const struct rules acls = {.acls = true};
	struct xattrs *x = NULL;
	unsigned group =
		xattrs_look(old, "the target", &acls, false, &x) ? 0 : xattrs_group_without(fd, x);

	xattrs_free(x);
	return group;
}

static int pair_set(int fd, const char *shown, const struct xattr_pair *p)
{
	if (!p->should) {
		/* Without it the group has what was the mask of all that it names. */
		if (strcmp(p->name, access_acl) == 0)
			xattr_narrow_group(fd, read_acl_group(p->is->value, p->is->size));
		if (xattr_remove(fd, p->name) && errno != ENODATA)
			return fail("remove %s from %s: %m", p->name, shown);
		return 0;
	}
	if (xattr_put(fd, p->name, p->should->value, p->should->size) == 0)
		return 0;
	return fail("set %s of %s: %m", p->name, shown);
}

/* ACLs, or all others; first: the first failure. */
static void set_xattr_pairs(int fd, const char *shown, const struct xattrs *is,
			    const struct xattrs *x, const struct rules *r, bool acls,
			    struct failure *first)
{
	struct xattr_pair p = {0};

	while (pair_next(&p, is, x)) {
		if ((xattr_kind(p.name) == XATTR_ACL) == acls && pair_differs(&p, r) &&
		    pair_set(fd, shown, &p) && first->code == OUT_DONE)
			*first = *failed();
	}
}

int xattrs_set(int fd, const char *shown, const struct xattrs *x, const struct rules *r)
{
	struct failure first = {.code = OUT_DONE};
	struct xattrs *is;
	mode_t mode;

	if (!r->acls && !r->xattrs && !r->xattrs_all)
		return 0;
	if (!x && xattr_list(fd, NULL, 0) == 0)
		return 0;
	xattr_widen(fd, &mode);
	if (xattrs_look(fd, shown, r, false, &is))
		first = *failed();
	set_xattr_pairs(fd, shown, is, x, r, false, &first);
	/* An ACL sets the mode, and so comes after it. */
	xattr_narrow(fd, mode);
	set_xattr_pairs(fd, shown, is, x, r, true, &first);
	xattrs_free(is);
	return first.code == OUT_DONE ? 0 : fail_again(&first);
}

/* ---- what a file that is replaced had ------------------------------------------------------- */

/* Capabilities are set-id by another name, and integrity hashes are of other content. */
static bool is_kept(const char *name)
{
	return strncmp(name, "user.", 5) == 0 || strncmp(name, "trusted.", 8) == 0 ||
	       strcmp(name, access_acl) == 0 || strcmp(name, "security.selinux") == 0;
}

static bool keep_xattr(int fd, int old, const char *name, char *value)
{
	ssize_t n = xattr_get(old, name, value, VALUE_MAX);

	if (n < 0 && is_absence(errno))
		return true;
	/* A label is given by the host, which may not let us. */
	return (n >= 0 && xattr_put(fd, name, value, (size_t)n) == 0) ||
	       strncmp(name, "security.", 9) == 0;
}

bool xattrs_keep(int fd, int old)
{
	ssize_t n = xattr_list(old, NULL, 0);
	bool all = true;
	char *list;

	if (n <= 0)
		return n == 0 || is_absence(errno);
	list = malloc(NAMES_MAX + VALUE_MAX);
	if (!list)
		return false;
	n = xattr_list(old, list, NAMES_MAX);
	if (n < 0)
		all = is_absence(errno);
	for (char *at = list; n > 0 && at < list + n; at += strlen(at) + 1) {
		if (is_kept(at))
			all = keep_xattr(fd, old, at, list + NAMES_MAX) && all;
	}
	free(list);
	return all;
}
