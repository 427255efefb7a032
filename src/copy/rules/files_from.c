/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/rules/files_from.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>
#include "base/fail.h"
#include "protocol/message.h"

/*
 * While names are added, the children of a node are a hash table.  The first call of
 * files_from_top() sorts all tables in place into arrays, which needs no memory and cannot fail.  A
 * node with one child has a pointer to it instead of a table.
 */

struct files_from_node {
	union {
		struct files_from_node *one; /* if room is 1 */
		struct files_from_node *
			*table; /* of room entries, some of them NULL until sorted */
	} child;
	uint32_t count, room; /* room: 0, 1 or a power of two */
	bool named, sorted; /* named: the list has this name itself */
	char name[];
};

enum {
	CHUNK = 1 << 18,
	FIRST_ROOM = 4,
	BYTES_MAX = 1 << 30, /* of nodes, because a name of 4 KiB may need two thousand of them */
};

struct chunk {
	struct chunk *next;
	size_t used, size;
	_Alignas(8) char bytes[];
};

struct files_from {
	struct chunk *chunks; /* the memory of all nodes */
	size_t bytes; /* of all chunks */
	struct files_from_node *top;
	uint64_t seed; /* random, so that nobody can choose names that collide */
	pthread_mutex_t sort_lock;
	atomic_bool sorted;
};

/* ---- nodes -------------------------------------------------------------------------- */

static void *alloc_in_chunk(struct files_from *l, size_t size)
{
	struct chunk *c = l->chunks;
	void *to;

	size = (size + 7) & ~(size_t)7;
	if (!c || c->size - c->used < size) {
		size_t room = size > CHUNK ? size : CHUNK;

		if (room > BYTES_MAX - l->bytes) {
			errno = ENOMEM;
			return NULL;
		}
		c = malloc(sizeof *c + room);
		if (!c)
			return NULL;
		l->bytes += room;
		c->next = l->chunks;
		c->used = 0;
		c->size = room;
		l->chunks = c;
	}
	to = c->bytes + c->used;
	c->used += size;
	return to;
}

static struct files_from_node *node_make(struct files_from *l, const char *name, size_t len)
{
	struct files_from_node *n =
		alloc_in_chunk(l, offsetof(struct files_from_node, name) + len + 1);

	if (!n)
		return NULL;
	memset(n, 0, offsetof(struct files_from_node, name));
	memcpy(n->name, name, len);
	n->name[len] = '\0';
	return n;
}

int files_from_new(struct files_from **out)
{
	struct files_from *l = calloc(1, sizeof *l);

	if (l)
		l->top = node_make(l, "", 0);
	if (!l || !l->top) {
		free(l);
		return fail_as(OUT_MEMORY, "allocate a list of names: %m");
	}
	if (getrandom(&l->seed, sizeof l->seed, GRND_NONBLOCK) < 0)
		l->seed = (uintptr_t)l;
	pthread_mutex_init(&l->sort_lock, NULL);
	*out = l;
	return 0;
}

static void tables_free(struct files_from_node *n)
{
	if (n->room == 1)
		tables_free(n->child.one);
	if (n->room <= 1)
		return;
	for (uint32_t i = 0; i < n->room; i++)
		if (n->child.table[i])
			tables_free(n->child.table[i]);
	free(n->child.table);
}

void files_from_free(struct files_from *l)
{
	if (!l)
		return;
	tables_free(l->top);
	while (l->chunks) {
		struct chunk *c = l->chunks;

		l->chunks = c->next;
		free(c);
	}
	pthread_mutex_destroy(&l->sort_lock);
	free(l);
}

/* ---- adding ------------------------------------------------------------------------- */

static bool has_node_name(const struct files_from_node *n, const char *name, size_t len)
{
	return strncmp(n->name, name, len) == 0 && !n->name[len];
}

/* The entry of a name in a table, or the free entry where it belongs.  A table is never full. */
static struct files_from_node **table_at(const struct files_from *l, struct files_from_node **table,
					 uint32_t room, const char *name, size_t len)
{
	uint64_t at = XXH3_64bits_withSeed(name, len, l->seed);

	for (;; at++) {
		struct files_from_node **entry = &table[at & (room - 1)];

		if (!*entry || has_node_name(*entry, name, len))
			return entry;
	}
}

/* Makes room for one more child.  Turns a sorted array into a table again. */
static int table_grow(struct files_from *l, struct files_from_node *dir)
{
	uint32_t room = dir->room < FIRST_ROOM ? FIRST_ROOM : dir->room;
	struct files_from_node **table;

	while (room - room / 4 < dir->count + 1)
		room *= 2;
	if (room == dir->room && !dir->sorted)
		return 0;
	table = calloc(room, sizeof(struct files_from_node *));
	if (!table)
		return fail_as(OUT_MEMORY, "list names: %m");
	for (uint32_t i = 0; i < dir->room; i++) {
		struct files_from_node *n = dir->room == 1 ? dir->child.one : dir->child.table[i];

		if (n)
			*table_at(l, table, room, n->name, strlen(n->name)) = n;
	}
	if (dir->room > 1)
		free(dir->child.table);
	dir->child.table = table;
	dir->room = room;
	dir->sorted = false;
	return 0;
}

/* The child of that name; makes it if it is missing.  NULL: out of memory. */
static struct files_from_node *find_or_add_child(struct files_from *l, struct files_from_node *dir,
						 const char *name, size_t len)
{
	struct files_from_node **entry = &dir->child.one;

	if (dir->room == 1 && has_node_name(dir->child.one, name, len))
		return dir->child.one;
	if (dir->room) {
		if (table_grow(l, dir))
			return NULL;
		entry = table_at(l, dir->child.table, dir->room, name, len);
		if (*entry)
			return *entry;
	}
	*entry = node_make(l, name, len);
	if (!*entry) {
		fail_as(OUT_MEMORY, "list names: %m");
		return NULL;
	}
	dir->room = dir->room ? dir->room : 1;
	dir->count++;
	return *entry;
}

static bool has_dotdot(const char *name)
{
	for (const char *p = name; (p = strstr(p, "..")); p++)
		if ((p == name || p[-1] == '/') && (p[2] == '/' || !p[2]))
			return true;
	return false;
}

int files_from_add(struct files_from *l, const char *name)
{
	struct files_from_node *n = l->top;

	if (strlen(name) >= NAME_MAX_WIRE)
		return fail_as(OUT_USAGE, "--files-from: name %.60s... is longer than %d bytes",
			       name, NAME_MAX_WIRE - 1);
	if (has_dotdot(name))
		return fail_as(OUT_USAGE, "--files-from: name %s contains .., which is not allowed",
			       name);
	/* Even if adding fails half-way, some tables may have changed. */
	l->sorted = false;
	for (const char *p = name, *end; n && *p; p = end + (*end != '\0')) {
		end = strchrnul(p, '/');
		if (end == p || (end - p == 1 && *p == '.'))
			continue;
		n = find_or_add_child(l, n, p, (size_t)(end - p));
	}
	if (!n)
		return -1;
	n->named = true;
	return 0;
}

/* ---- reading ------------------------------------------------------------------------ */

static int compare_nodes(const void *a, const void *b)
{
	const struct files_from_node *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

/* Recurses once for each component of a name, at most some thousands of times. */
static void sort_children(struct files_from_node *dir)
{
	uint32_t count = 0;

	if (dir->room == 1)
		sort_children(dir->child.one);
	if (dir->room <= 1)
		return;
	for (uint32_t i = 0; i < dir->room; i++)
		if (dir->child.table[i])
			dir->child.table[count++] = dir->child.table[i];
	memset(&dir->child.table[count], 0, (dir->room - count) * sizeof *dir->child.table);
	if (!dir->sorted)
		qsort(dir->child.table, count, sizeof *dir->child.table, compare_nodes);
	dir->sorted = true;
	for (uint32_t i = 0; i < count; i++)
		sort_children(dir->child.table[i]);
}

const struct files_from_node *files_from_top(const struct files_from *l)
{
	struct files_from *mine = (struct files_from *)(uintptr_t)l;

	if (!mine->sorted) {
		pthread_mutex_lock(&mine->sort_lock);
		if (!mine->sorted)
			sort_children(mine->top);
		mine->sorted = true;
		pthread_mutex_unlock(&mine->sort_lock);
	}
	return mine->top;
}

static const struct files_from_node *const *get_children(const struct files_from_node *dir)
{
	return (const struct files_from_node *const *)(dir->room > 1 ? dir->child.table
								     : &dir->child.one);
}

const struct files_from_node *files_from_child(const struct files_from_node *dir, const char *name)
{
	const struct files_from_node *const *children = get_children(dir);
	uint32_t low = 0, high = dir->count;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		int order = strcmp(name, children[mid]->name);

		if (order == 0)
			return children[mid];
		if (order < 0)
			high = mid;
		else
			low = mid + 1;
	}
	return NULL;
}

bool files_from_is_named(const struct files_from_node *n)
{
	return n->named;
}

const struct files_from_node *files_from_next(const struct files_from_node *dir, size_t *at,
					      const char **name)
{
	const struct files_from_node *n;

	if (*at >= dir->count)
		return NULL;
	n = get_children(dir)[(*at)++];
	*name = n->name;
	return n;
}
