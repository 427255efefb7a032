/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/attr/xattrs_impl.h"

#include <stdlib.h>
#include <string.h>
#include "base/array.h"
#include "base/fail.h"

/* ---- the list ------------------------------------------------------------------------- */

struct xattrs *xattrs_make(void)
{
	return calloc(1, sizeof(struct xattrs));
}

struct xattr *xattr_append(struct xattrs *x, const char *name, uint32_t size)
{
	size_t len = strlen(name) + 1;
	struct xattr *a;

	if (ARRAY_ROOM(x->list, x->count, x->room, 1))
		return NULL;
	a = &x->list[x->count];
	*a = (struct xattr){.size = size};
	/* One block of memory holds the value and then the name. */
	a->value = malloc(size + len);
	if (!a->value)
		return NULL;
	a->name = (char *)a->value + size;
	memcpy(a->name, name, len);
	x->name_bytes += len;
	x->total_bytes += len + size;
	x->count++;
	return a;
}

void xattrs_drop(struct xattrs *x, size_t count)
{
	while (x->count > count) {
		struct xattr *a = &x->list[--x->count];
		size_t len = strlen(a->name) + 1;

		x->name_bytes -= len;
		x->total_bytes -= len + a->size;
		free(a->acl);
		free(a->value);
	}
}

void xattrs_free(struct xattrs *x)
{
	if (!x)
		return;
	xattrs_drop(x, 0);
	free(x->list);
	free(x);
}

/* ---- kinds ------------------------------------------------------------------------------ */

static bool starts_with(const char *name, const char *with)
{
	return strncmp(name, with, strlen(with)) == 0;
}

/* Lustre's own attributes are in the namespace trusted, too. */
static bool is_of_lustre(const char *name)
{
	static const char *const names[] = {"lov", "lma", "lmv", "link",   "dmv",
					    "fid", "som", "hsm", "version"};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		if (strcmp(name, names[i]) == 0)
			return true;
	}
	return false;
}

enum xattr_kind xattr_kind(const char *name)
{
	if (starts_with(name, "user.") && name[5])
		return XATTR_PLAIN;
	if (strcmp(name, "system.posix_acl_access") == 0 ||
	    strcmp(name, "system.posix_acl_default") == 0)
		return XATTR_ACL;
	if (starts_with(name, "trusted.overlay.") || name[0] == '.')
		return XATTR_NEVER;
	if (starts_with(name, "trusted.") && name[8])
		return is_of_lustre(name + 8) ? XATTR_SPECIAL : XATTR_PLAIN;
	name = strchr(name, '.');
	return name && name[1] ? XATTR_SPECIAL : XATTR_NEVER;
}

bool xattr_wanted(const char *name, const struct rules *r)
{
	switch (xattr_kind(name)) {
	case XATTR_ACL:
		return r->acls;
	case XATTR_PLAIN:
		return r->xattrs || r->xattrs_all;
	case XATTR_SPECIAL:
		return r->xattrs_all;
	case XATTR_NEVER:
		break;
	}
	return false;
}

/* ---- source ------------------------------------------------------------------------------ */

int xattrs_read(int fd, const char *shown, const struct rules *r, struct xattrs **out)
{
	return xattrs_look(fd, shown, r, true, out);
}

/* *at has the index of an attribute, and in its low SHIFT bits that of an entry of its ACL. */
bool xattrs_next_owner(const struct xattrs *x, size_t *at, bool *group, uint32_t *id)
{
	enum { SHIFT = 16 };

	while (x && *at >> SHIFT < x->count) {
		const struct xattr *a = &x->list[*at >> SHIFT];
		size_t entry = *at & (((size_t)1 << SHIFT) - 1);

		if (entry >= a->entries) {
			*at = ((*at >> SHIFT) + 1) << SHIFT;
			continue;
		}
		++*at;
		if (a->acl[entry].id != ACL_NO_ID) {
			*group = a->acl[entry].tag == ACL_GROUP;
			*id = a->acl[entry].id;
			return true;
		}
	}
	return false;
}

bool xattrs_next_piece(const struct xattrs *x, size_t *at, uint32_t *pos, size_t room, uint32_t id,
		       struct record_xattr *out)
{
	const struct xattr *a;
	uint32_t left;

	if (!x || *at >= x->count)
		return false;
	a = &x->list[*at];
	left = a->size - *pos;
	*out = (struct record_xattr){
		.id = id,
		.size = a->size,
		.pos = *pos,
		.len = left < room ? left : (uint32_t)room,
		.bytes = a->value + *pos,
	};
	strcpy(out->name, a->name);
	*pos += out->len;
	if (*pos == a->size) {
		++*at;
		*pos = 0;
	}
	return true;
}

/* ---- sink -------------------------------------------------------------------------------- */

static const char *begin_value(struct xattrs *x, const struct record_xattr *p, struct xattr **out)
{
	size_t len = strnlen(p->name, sizeof p->name) + 1;

	if (len == 1 || len > sizeof p->name)
		return "invalid name";
	if (p->pos != 0)
		return "the first piece is missing";
	/* Ascending names cannot repeat, so no search is needed. */
	if (x->count > 0 && strcmp(x->list[x->count - 1].name, p->name) >= 0)
		return "names do not ascend";
	if (x->name_bytes + len > NAMES_MAX || x->total_bytes + len + p->size > XATTRS_BYTES_MAX)
		return "too many bytes of attributes";
	*out = xattr_append(x, p->name, p->size);
	return NULL;
}

int xattrs_add(struct xattrs **x, const struct record_xattr *p)
{
	struct xattr *last = NULL;
	const char *wrong = NULL;

	if (!*x && !(*x = xattrs_make()))
		return fail_as(OUT_MEMORY, "allocate extended attributes: %m");
	if (p->size > XATTR_VALUE_MAX || p->pos > p->size || p->len > p->size - p->pos ||
	    (p->len == 0) != (p->size == 0))
		wrong = "invalid size of a piece";
	else if (xattrs_whole(*x))
		wrong = begin_value(*x, p, &last);
	else
		last = &(*x)->list[(*x)->count - 1];
	if (!wrong && !last)
		return fail_as(OUT_MEMORY, "allocate an extended attribute of %u bytes: %m",
			       p->size);
	if (!wrong &&
	    (strcmp(last->name, p->name) != 0 || last->size != p->size || last->received != p->pos))
		wrong = "a piece does not continue the last one";
	if (wrong)
		return fail_as(OUT_PROTOCOL, "the peer sends extended attribute %.255s: %s",
			       p->name, wrong);
	if (p->len > 0)
		memcpy(last->value + p->pos, p->bytes, p->len);
	last->received += p->len;
	return 0;
}

bool xattrs_whole(const struct xattrs *x)
{
	const struct xattr *last = x && x->count > 0 ? &x->list[x->count - 1] : NULL;

	return !last || last->received == last->size;
}

int xattrs_check(const struct xattrs *x, const char *of, const struct rules *r)
{
	for (size_t i = 0; x && i < x->count; i++) {
		const struct xattr *a = &x->list[i];
		struct acl_entry *e;
		int n;

		if (!xattr_wanted(a->name, r))
			return fail_as(
				OUT_PROTOCOL,
				"the peer sends extended attribute %s, which was not asked for",
				a->name);
		if (xattr_kind(a->name) != XATTR_ACL)
			continue;
		e = calloc(acl_room(a->size) + 1, sizeof *e);
		if (!e)
			return fail_as(OUT_MEMORY, "allocate an ACL of %s: %m", of);
		n = acl_decode(a->value, a->size, e);
		free(e);
		if (n < 0)
			return -1;
	}
	return 0;
}

static int compare_acl_entries(const void *a, const void *b)
{
	const struct acl_entry *x = a, *y = b;

	if (x->tag != y->tag)
		return x->tag < y->tag ? -1 : 1;
	return (x->id > y->id) - (x->id < y->id);
}

size_t acl_tidy(struct acl_entry *e, size_t count)
{
	size_t n = 0;

	qsort(e, count, sizeof *e, compare_acl_entries);
	for (size_t i = 0; i < count; i++) {
		if (n > 0 && compare_acl_entries(&e[n - 1], &e[i]) == 0)
			e[n - 1].perm &= e[i].perm;
		else
			e[n++] = e[i];
	}
	return n;
}

static int acl_localize(struct xattrs *x, struct xattr *a, const char *of, struct owners *o,
			bool numeric)
{
	struct acl_entry *e = calloc(acl_room(a->size) + 1, sizeof *e);
	uint32_t size;
	int n;

	if (!e)
		return fail_as(OUT_MEMORY, "allocate an ACL of %s: %m", of);
	n = acl_decode(a->value, a->size, e);
	for (int i = 0; i < n; i++) {
		if (e[i].id != ACL_NO_ID)
			e[i].id = owners_map(o, e[i].tag == ACL_GROUP, e[i].id, numeric);
	}
	if (n >= 0) {
		n = (int)acl_tidy(e, (size_t)n);
		size = (uint32_t)(ACL_HEAD + n * ACL_ENTRY);
		acl_encode(e, (size_t)n, a->value);
		x->total_bytes -= a->size - size;
		a->size = size;
		a->received = size;
	}
	free(e);
	return n < 0 ? -1 : 0;
}

int xattrs_localize(struct xattrs *x, const char *of, struct owners *o, bool numeric)
{
	for (size_t i = 0; x && i < x->count; i++) {
		if (xattr_kind(x->list[i].name) == XATTR_ACL &&
		    acl_localize(x, &x->list[i], of, o, numeric))
			return -1;
	}
	return 0;
}
