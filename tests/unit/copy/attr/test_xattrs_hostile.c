/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Attributes as a peer may send them: pieces out of sequence, attributes that were not asked for,
 * and too much data are refused.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#undef fail
#include "base/fail.h"
#include "copy/attr/xattrs.h"
#include "xattr_samples.h"

static uint8_t zeros[XATTR_VALUE_MAX + 1];

static int add(struct xattrs **x, const char *name, uint32_t size, uint32_t pos, uint32_t len)
{
	struct record_xattr p = {.id = 1, .size = size, .pos = pos, .len = len, .bytes = zeros};

	fail_clear();
	snprintf(p.name, sizeof p.name, "%s", name);
	return xattrs_add(x, &p);
}

struct piece {
	const char *name;
	uint32_t size, pos, len;
};

static void pieces_out_of_sequence_are_refused(void **state)
{
	/* Up to two valid pieces, and an invalid one. */
	static const struct piece bad[][3] = {
		{{"user.a", 9, 1, 8}}, /* does not start at 0 */
		{{"user.a", 9, 0, 0}}, /* an empty piece of a non-empty value */
		{{"user.a", 9, 0, 10}}, /* longer than the value */
		{{"user.a", 9, 10, 1}},
		{{"user.a", 9, 9, 0}},
		{{"user.a", 0, 0, 1}},
		{{"user.a", 0, 1, 0}},
		{{"user.a", XATTR_VALUE_MAX + 1, 0, 1}},
		{{"user.a", UINT32_MAX, UINT32_MAX - 1, 1}},
		{{"user.a", 9, UINT32_MAX, 9}},
		{{"", 1, 0, 1}},
		{{"user.a", 9, 0, 3}, {"user.a", 9, 4, 5}}, /* a gap */
		{{"user.a", 9, 0, 3}, {"user.a", 9, 2, 5}}, /* an overlap */
		{{"user.a", 9, 0, 3}, {"user.a", 9, 0, 3}}, /* a repeat */
		{{"user.a", 9, 0, 3}, {"user.a", 8, 3, 5}}, /* the size changes */
		{{"user.a", 9, 0, 3}, {"user.b", 9, 3, 6}}, /* the name changes */
		{{"user.a", 9, 0, 3},
		 {"user.b", 1, 0, 1}}, /* before the end of the other attribute */
		{{"user.a", 9, 0, 3}, {"user.a", 9, 3, 6}, {"user.a", 9, 9, 0}},
		{{"user.a", 9, 0, 9}, {"user.a", 1, 0, 1}}, /* sent twice */
		{{"user.b", 9, 0, 9}, {"user.a", 1, 0, 1}}, /* names out of order */
		{{"user.b", 0, 0, 0}, {"user.b", 0, 0, 0}},
		{{"user.a", 0, 0, 0}, {"user.b", 0, 0, 0}, {"user.a", 0, 0, 0}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct xattrs *x = NULL;
		unsigned n = 0;

		while (n < 2 && bad[i][n + 1].name)
			n++;
		for (unsigned k = 0; k <= n; k++) {
			const struct piece *p = &bad[i][k];
			int rc = add(&x, p->name, p->size, p->pos, p->len);

			if (rc != (k == n ? -1 : 0))
				print_error("case %zu, piece %u\n", i, k);
			assert_int_equal(rc, k == n ? -1 : 0);
		}
		assert_int_equal(failed()->code, OUT_PROTOCOL);
		xattrs_free(x);
	}
}

static void unterminated_name_is_refused(void **state)
{
	struct record_xattr p = {.id = 1};
	struct xattrs *x = NULL;

	(void)state;
	memset(p.name, 'x', sizeof p.name);
	assert_int_equal(xattrs_add(&x, &p), -1);
	assert_int_equal(failed()->code, OUT_PROTOCOL);
	xattrs_free(x);
}

static void incomplete_attributes_are_refused(void **state)
{
	struct xattrs *x = NULL;

	(void)state;
	assert_int_equal(add(&x, "user.a", 2, 0, 1), 0);
	assert_false(xattrs_whole(x));
	assert_int_equal(add(&x, "user.a", 2, 1, 1), 0);
	assert_true(xattrs_whole(x));
	xattrs_free(x);
}

/* A mebibyte of names and values; 64 KiB of names. */
static void too_many_bytes_are_refused(void **state)
{
	struct xattrs *x = NULL;
	char name[32];
	int rc = 0;
	unsigned n;

	(void)state;
	for (n = 0; rc == 0; n++) {
		snprintf(name, sizeof name, "user.%05u", n);
		rc = add(&x, name, XATTR_VALUE_MAX, 0, XATTR_VALUE_MAX);
	}
	assert_int_equal(failed()->code, OUT_PROTOCOL);
	assert_int_equal(n - 1, XATTRS_BYTES_MAX / (XATTR_VALUE_MAX + 11));
	xattrs_free(x);

	x = NULL;
	rc = 0;
	for (n = 0; rc == 0; n++) {
		snprintf(name, sizeof name, "user.%05u", n);
		rc = add(&x, name, 0, 0, 0);
	}
	assert_int_equal(failed()->code, OUT_PROTOCOL);
	assert_int_equal(n - 1, (64 << 10) / 11);
	xattrs_free(x);

	/* Announced sizes count. */
	x = NULL;
	rc = 0;
	for (n = 0; rc == 0 && n < 100; n++) {
		snprintf(name, sizeof name, "user.%05u", n);
		rc = add(&x, name, XATTR_VALUE_MAX, 0, 1);
	}
	assert_int_equal(n, 2);
	xattrs_free(x);
}

/* ---- names ------------------------------------------------------------------------------ */

static void unrequested_namespaces_are_refused(void **state)
{
	enum { WITH_NONE = 1, WITH_ACLS = 2, WITH_XATTRS = 4, WITH_ALL = 8 };
	static const struct rules rules[] = {
		{.perms = true},
		{.acls = true},
		{.xattrs = true},
		{.xattrs = true, .xattrs_all = true},
	};
	static const struct {
		const char *name;
		unsigned good; /* which rules are set */
	} names[] = {
		{"user.a", WITH_XATTRS | WITH_ALL},
		{"user.posix_acl_access", WITH_XATTRS | WITH_ALL},
		{"trusted.a", WITH_XATTRS | WITH_ALL},
		{"trusted.overlayer", WITH_XATTRS | WITH_ALL},
		{"trusted.lov", WITH_ALL},
		{"lustre.lov", WITH_ALL},
		{"security.capability", WITH_ALL},
		{"security.selinux", WITH_ALL},
		{"system.nfs4_acl", WITH_ALL},
		{"system.posix_acl_accessory", WITH_ALL},
		{"trusted.overlay.opaque", 0},
		{"trusted.overlay.", 0},
		{"user", 0},
		{"user.", 0},
		{"trusted.", 0},
		{"security.", 0},
		{"x", 0},
		{".x", 0},
		{"/etc/passwd", 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		for (unsigned k = 0; k < 4; k++) {
			bool good = names[i].good & (1u << k);
			struct xattrs *x = NULL;

			assert_int_equal(add(&x, names[i].name, 1, 0, 1), 0);
			fail_clear();
			if (xattrs_check(x, "file", &rules[k]) != (good ? 0 : -1))
				print_error("%s\n", names[i].name);
			assert_int_equal(xattrs_check(x, "file", &rules[k]), good ? 0 : -1);
			assert_int_equal(failed()->code, good ? OUT_DONE : OUT_PROTOCOL);
			xattrs_free(x);
		}
	}
}

/* ---- ACLs ------------------------------------------------------------------------------- */

static struct xattrs *acl_of(const uint8_t *bytes, size_t size, const char *name)
{
	struct record_xattr p = {.size = (uint32_t)size, .len = (uint32_t)size, .bytes = bytes};
	struct xattrs *x = NULL;

	snprintf(p.name, sizeof p.name, "%s", name);
	assert_int_equal(xattrs_add(&x, &p), 0);
	return x;
}

static bool acl_is_taken(const uint8_t *bytes, size_t size)
{
	static const struct rules r = {.acls = true};
	struct xattrs *x = acl_of(bytes, size, DEFAULT);
	int rc;

	fail_clear();
	rc = xattrs_check(x, "file", &r);
	xattrs_free(x);
	if (rc)
		assert_int_equal(failed()->code, OUT_PROTOCOL);
	return rc == 0;
}

#define NO ACL_NO_ID
static void invalid_acls_are_refused(void **state)
{
	static const struct acl_entry bad[][7] = {
		{{ACL_USER_OBJ, 6, NO}},
		{{ACL_USER_OBJ, 6, NO}, {ACL_OTHER, 6, NO}},
		{{ACL_USER_OBJ, 6, NO}, {ACL_GROUP_OBJ, 6, NO}},
		{{ACL_GROUP_OBJ, 6, NO}, {ACL_OTHER, 6, NO}},
		/* no mask */
		{{ACL_USER_OBJ, 6, NO},
		 {ACL_USER, 6, 1},
		 {ACL_GROUP_OBJ, 6, NO},
		 {ACL_OTHER, 6, NO}},
		{{ACL_USER_OBJ, 6, NO},
		 {ACL_GROUP_OBJ, 6, NO},
		 {ACL_GROUP, 6, 1},
		 {ACL_OTHER, 6, NO}},
		/* wrong order, and duplicates */
		{{ACL_GROUP_OBJ, 6, NO}, {ACL_USER_OBJ, 6, NO}, {ACL_OTHER, 6, NO}},
		{{ACL_USER_OBJ, 6, NO}, {ACL_OTHER, 6, NO}, {ACL_GROUP_OBJ, 6, NO}},
		{{ACL_USER_OBJ, 6, NO},
		 {ACL_USER_OBJ, 6, NO},
		 {ACL_GROUP_OBJ, 6, NO},
		 {ACL_OTHER, 6, NO}},
		{{ACL_USER_OBJ, 6, NO},
		 {ACL_GROUP_OBJ, 6, NO},
		 {ACL_OTHER, 6, NO},
		 {ACL_OTHER, 6, NO}},
		{{ACL_USER_OBJ, 6, NO},
		 {ACL_GROUP_OBJ, 6, NO},
		 {ACL_MASK, 6, NO},
		 {ACL_MASK, 6, NO},
		 {ACL_OTHER, 6, NO}},
		/* invalid tags, permissions, ids */
		{{ACL_USER_OBJ, 6, NO}, {ACL_GROUP_OBJ, 6, NO}, {ACL_OTHER, 6, NO}, {0x40, 6, NO}},
		{{ACL_USER_OBJ, 6, NO}, {3, 6, 1}, {ACL_GROUP_OBJ, 6, NO}, {ACL_OTHER, 6, NO}},
		{{ACL_USER_OBJ, 8, NO}, {ACL_GROUP_OBJ, 6, NO}, {ACL_OTHER, 6, NO}},
		{{ACL_USER_OBJ, 6, 0}, {ACL_GROUP_OBJ, 6, NO}, {ACL_OTHER, 6, NO}},
		{{ACL_USER_OBJ, 6, NO},
		 {ACL_USER, 6, NO},
		 {ACL_GROUP_OBJ, 6, NO},
		 {ACL_MASK, 6, NO},
		 {ACL_OTHER, 6, NO}},
	};
	uint8_t bytes[256];

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		size_t n = 0;

		while (n < 7 && bad[i][n].tag)
			n++;
		acl_encode(bad[i], n, bytes);
		if (acl_is_taken(bytes, ACL_HEAD + n * ACL_ENTRY))
			print_error("case %zu\n", i);
		assert_false(acl_is_taken(bytes, ACL_HEAD + n * ACL_ENTRY));
	}
}

static void acls_of_wrong_size_are_refused(void **state)
{
	uint8_t bytes[ACL_HEAD + SAMPLE_ACL * ACL_ENTRY + 1] = {0};
	const size_t whole = sizeof bytes - 1;

	(void)state;
	acl_encode(sample_acl, SAMPLE_ACL, bytes);
	assert_true(acl_is_taken(bytes, whole));
	for (size_t size = 0; size < sizeof bytes; size++) {
		if (size != whole)
			assert_false(acl_is_taken(bytes, size));
	}
	for (unsigned v = 0; v < 256; v++) {
		bytes[0] = (uint8_t)v;
		assert_int_equal(acl_is_taken(bytes, whole), v == 2);
	}
	memset(zeros, 0, sizeof zeros);
	assert_false(acl_is_taken(zeros, XATTR_VALUE_MAX));
}

/* As many entries as fit into a value, all for the same user: they merge into one. */
static void longest_acl_is_accepted(void **state)
{
	enum { MOST = (XATTR_VALUE_MAX - ACL_HEAD) / ACL_ENTRY };
	static const struct rules r = {.acls = true};
	struct acl_entry *e = calloc(MOST, sizeof *e);
	uint8_t *bytes = malloc(XATTR_VALUE_MAX);
	struct record_xattr p;
	struct owners *o;
	struct xattrs *x;
	size_t at = 0;
	uint32_t pos = 0;

	(void)state;
	assert_non_null(e);
	assert_non_null(bytes);
	for (size_t i = 0; i < MOST; i++)
		e[i] = (struct acl_entry){ACL_USER, i % 2 ? 6 : 5, 77};
	e[0] = (struct acl_entry){ACL_USER_OBJ, 7, NO};
	e[MOST - 3] = (struct acl_entry){ACL_GROUP_OBJ, 7, NO};
	e[MOST - 2] = (struct acl_entry){ACL_MASK, 7, NO};
	e[MOST - 1] = (struct acl_entry){ACL_OTHER, 7, NO};
	acl_encode(e, MOST, bytes);
	x = acl_of(bytes, ACL_HEAD + MOST * ACL_ENTRY, ACCESS);
	assert_int_equal(xattrs_check(x, "file", &r), 0);
	assert_int_equal(owners_new(&o), 0);
	assert_int_equal(xattrs_localize(x, "file", o, false), 0);
	assert_true(xattrs_next_piece(x, &at, &pos, XATTR_VALUE_MAX, 1, &p));
	assert_int_equal(p.len, ACL_HEAD + 5 * ACL_ENTRY);
	assert_int_equal(acl_decode(p.bytes, p.len, e), 5);
	assert_int_equal(e[1].id, 77);
	/* No more rights than both entries grant. */
	assert_int_equal(e[1].perm, 4);
	xattrs_free(x);
	owners_free(o);
	free(bytes);
	free(e);
}

/* Ids are mapped, and sorted again, because the kernel compares ACLs in sorted order. */
static void acls_are_localized(void **state)
{
	uint8_t bytes[ACL_HEAD + SAMPLE_ACL * ACL_ENTRY];
	struct acl_entry is[SAMPLE_ACL + 1];
	struct record_xattr p;
	struct owners *o;
	struct xattrs *x;
	size_t at = 0;
	uint32_t pos = 0;

	(void)state;
	acl_encode(sample_acl, SAMPLE_ACL, bytes);
	x = acl_of(bytes, sizeof bytes, ACCESS);
	assert_int_equal(owners_new(&o), 0);
	/* The second user maps to root here, the group has no name here. */
	assert_int_equal(owners_add_name(o, false, 2002, "root"), 0);
	assert_int_equal(owners_add_name(o, true, 3001, "no such group\n"), 0);
	assert_int_equal(xattrs_localize(x, "file", o, false), 0);
	assert_true(xattrs_next_piece(x, &at, &pos, 1000, 1, &p));
	assert_int_equal(acl_decode(p.bytes, p.len, is), SAMPLE_ACL);
	assert_int_equal(is[1].id, 0);
	assert_int_equal(is[1].perm, 6);
	assert_int_equal(is[2].id, 2001);
	assert_int_equal(is[2].perm, 4);
	assert_int_equal(is[4].id, 3001);
	xattrs_free(x);
	owners_free(o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_out_of_sequence_are_refused),
		cmocka_unit_test(unterminated_name_is_refused),
		cmocka_unit_test(incomplete_attributes_are_refused),
		cmocka_unit_test(too_many_bytes_are_refused),
		cmocka_unit_test(unrequested_namespaces_are_refused),
		cmocka_unit_test(invalid_acls_are_refused),
		cmocka_unit_test(acls_of_wrong_size_are_refused),
		cmocka_unit_test(longest_acl_is_accepted),
		cmocka_unit_test(acls_are_localized),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
