/* SPDX-License-Identifier: Apache-2.0 */

/*
 * --inplace where names of the target are hard links to one inode, and the source has different
 * files under them.  What is written under one name changes the others.  So an inode with several
 * names is written by at most one of them, and only if no other one was found to have the right
 * content; the others get files of their own.  For each such inode the first two names that were
 * found are enough to know.
 */

#include "copy/place/place_impl.h"

#include <stdlib.h>
#include <xxhash.h>

struct shared_inode {
	struct {
		uint64_t dev, ino;
	} inode;
	/* Hashes of names and their directories; 0: none. */
	uint64_t writer, keeper;
	bool kept_by_more;
};

void sharing_begin(struct place *p)
{
	p->shared_inodes = TABLE_BY(shared_inode, inode);
}

void sharing_end(struct place *p)
{
	table_clear(&p->shared_inodes, free);
}

/* Lock held.  NULL: no memory. */
static struct shared_inode *find_inode(struct place *p, const struct stat *st)
{
	struct shared_inode first = {.inode = {.dev = st->st_dev, .ino = st->st_ino}};
	struct shared_inode *i = table_find(&p->shared_inodes, &first.inode);

	if (i)
		return i;
	i = malloc(sizeof *i);
	if (i)
		*i = first;
	if (i && table_put(&p->shared_inodes, i, NULL)) {
		free(i);
		i = NULL;
	}
	return i;
}

static bool is_shared(const struct place *p, const struct stat *st)
{
	return p->rules->inplace && S_ISREG(st->st_mode) && st->st_nlink > 1;
}

static uint64_t hash_name(const struct place_entry *s)
{
	struct name_key key;

	return XXH3_64bits(&key, name_key_fill(s->dirfd, s->name, &key)) | 1;
}

/* claims: may the name whose hash is `mine' have the inode?  Notes that it has. */
static bool claim_inode(const struct place_entry *s, const struct stat *st,
			bool (*claims)(struct shared_inode *i, uint64_t mine))
{
	struct place *p = s->place;
	uint64_t mine = hash_name(s);
	struct shared_inode *i;
	bool may;

	pthread_mutex_lock(&p->lock);
	i = find_inode(p, st);
	may = i && claims(i, mine);
	pthread_mutex_unlock(&p->lock);
	return may;
}

static bool keep_inode(struct shared_inode *i, uint64_t mine)
{
	if (i->writer != 0 && i->writer != mine)
		return false;
	if (i->keeper == 0)
		i->keeper = mine;
	i->kept_by_more |= i->keeper != mine;
	return true;
}

bool sharing_keep(const struct place_entry *s, const struct stat *st)
{
	return !is_shared(s->place, st) || claim_inode(s, st, keep_inode);
}

/* Names that this run leaves as they are, or that an earlier session brought, are not known here.
 */
static bool may_write_shared(const struct place *p)
{
	const struct rules *r = p->rules;

	return !r->remove_source && !r->update && r->min_size == 0 && r->max_size == UINT64_MAX &&
	       (!p->opts.taken || p->opts.taken->count == 0);
}

static bool write_inode(struct shared_inode *i, uint64_t mine)
{
	if ((i->writer != 0 && i->writer != mine) || (i->keeper != 0 && i->keeper != mine) ||
	    i->kept_by_more)
		return false;
	i->writer = mine;
	return true;
}

bool sharing_write(const struct place_entry *s, const struct stat *st)
{
	return !is_shared(s->place, st) ||
	       (may_write_shared(s->place) && claim_inode(s, st, write_inode));
}
