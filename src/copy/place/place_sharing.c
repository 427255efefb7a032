/* SPDX-License-Identifier: Apache-2.0 */

/*
 * --inplace where names of the target are hard links to one inode, and the source has different
 * files under them.  What is written under one name changes the others.  So the first name of the
 * run that is looked at, or written, has the inode to itself, and any other name that the source
 * has, too, gets a new file.
 */

#include "copy/place/place_impl.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct shared_inode {
	struct {
		uint64_t dev, ino;
	} inode;
	uint64_t name; /* a hash of the first name and its directory */
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
static const struct shared_inode *note_inode(struct place *p, const struct shared_inode *first)
{
	struct shared_inode *i = table_find(&p->shared_inodes, &first->inode);

	if (i)
		return i;
	i = malloc(sizeof *i);
	if (i)
		*i = *first;
	if (i && table_put(&p->shared_inodes, i, NULL)) {
		free(i);
		i = NULL;
	}
	return i;
}

bool sharing_is_first(const struct place_entry *s, const struct stat *st)
{
	struct shared_inode mine = {.inode = {.dev = st->st_dev, .ino = st->st_ino}};
	struct place *p = s->place;
	const struct shared_inode *i;
	struct name_key key;
	bool is;

	if (!p->rules->inplace || !S_ISREG(st->st_mode) || st->st_nlink < 2)
		return true;
	mine.name = XXH3_64bits(&key, name_key_fill(s->dirfd, s->name, &key));
	pthread_mutex_lock(&p->lock);
	i = note_inode(p, &mine);
	is = i && i->name == mine.name;
	pthread_mutex_unlock(&p->lock);
	return is;
}
