/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/place/change.h"

#include <sys/stat.h>

#include <string.h>

/* YXcstpoguax, as "%i" of rsync(1) prints them. */
enum { LETTERS = 11, FIRST_DIFFERENCE = 2 };

static char change_verb(const struct change *c, bool sent, bool far)
{
	bool made = c->missing || c->type;

	if (sent)
		return far ? '<' : '>';
	switch (c->what) {
	case EVENT_HARD_LINK:
		return made || c->content ? 'h' : '.';
	case EVENT_SYMLINK:
	case EVENT_NODE:
		return made || c->content ? 'c' : '.';
	default:
		return made ? 'c' : '.';
	}
}

static char change_kind(const struct change *c)
{
	switch (c->what) {
	case EVENT_DIR:
		return 'd';
	case EVENT_SYMLINK:
		return 'L';
	case EVENT_NODE:
		return c->device ? 'D' : 'S';
	default:
		return 'f';
	}
}

void change_text(const struct change *c, bool sent, bool far, char to[static EVENT_CHANGE])
{
	to[0] = change_verb(c, sent, far);
	to[1] = change_kind(c);
	to[2] = c->content ? 'c' : '.';
	to[3] = c->size ? 's' : '.';
	to[4] = c->now && to[0] != '.' ? 'T' : c->time ? 't' : '.';
	to[5] = c->perms ? 'p' : '.';
	to[6] = c->owner ? 'o' : '.';
	to[7] = c->group ? 'g' : '.';
	to[8] = '.';
	to[9] = c->acl ? 'a' : '.';
	to[10] = c->xattr ? 'x' : '.';
	to[LETTERS] = '\0';
	if (c->missing || c->type)
		memset(to + FIRST_DIFFERENCE, '+', LETTERS - FIRST_DIFFERENCE);
	else if (!sent && strspn(to + FIRST_DIFFERENCE, ".") == LETTERS - FIRST_DIFFERENCE)
		memset(to + FIRST_DIFFERENCE, ' ', LETTERS - FIRST_DIFFERENCE);
}

enum event_what change_event_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return EVENT_FILE;
	case S_IFDIR:
		return EVENT_DIR;
	case S_IFLNK:
		return EVENT_SYMLINK;
	default:
		return EVENT_NODE;
	}
}
