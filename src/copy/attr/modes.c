/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/attr/modes.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fail.h"

enum { READ = 4, WRITE = 2, EXECUTE = 1, ALL = 07777 };

/* One part of --chmod: mode = (mode & keep) | add, and the permissions of one class copied to
 * others. */
struct mode_part {
	uint32_t keep, add;
	uint32_t classes; /* the lowest bit of each class that the part changes: 0100, 0010, 0001 */
	uint32_t mask; /* of the copied permissions: all, or without those that the umask denies */
	uint8_t copy_shift; /* the class that is copied: u 6, g 3, o 0, or COPY_NONE */
	char op;
	bool dirs_only, files_only;
	bool conditional_x; /* X: execute only for directories, and files that somebody may execute
			     */
};

struct modes {
	size_t count;
	struct mode_part parts[];
};

enum { COPY_NONE = 255 };

/* ---- parsing ------------------------------------------------------------------------ */

static int fail_mode(const char *text, const char *part)
{
	return fail_as(OUT_USAGE, "--chmod=%s: invalid mode %.*s", text, (int)strcspn(part, ","),
		       part);
}

static const char *parse_scope(struct mode_part *p, const char *at)
{
	for (; *at == 'D' || *at == 'F'; at++) {
		p->dirs_only |= *at == 'D';
		p->files_only |= *at == 'F';
	}
	return p->dirs_only && p->files_only ? NULL : at;
}

/* Any number of digits, for at most the 12 bits of a mode. */
static const char *parse_octal(struct mode_part *p, const char *at)
{
	uint32_t mode = 0;

	for (; *at >= '0' && *at <= '7'; at++) {
		mode = mode * 8 + (uint32_t)(*at - '0');
		if (mode > ALL)
			return NULL;
	}
	p->add = mode;
	return at;
}

/* u, g, o and a.  *special: the bits that `s' means for these classes. */
static const char *parse_classes(const char *at, uint32_t *classes, uint32_t *special)
{
	for (;; at++) {
		switch (*at) {
		case 'u':
			*classes |= 0100;
			*special |= S_ISUID;
			break;
		case 'g':
			*classes |= 0010;
			*special |= S_ISGID;
			break;
		case 'o':
			*classes |= 0001;
			break;
		case 'a':
			*classes |= 0111;
			*special |= S_ISUID | S_ISGID;
			break;
		default:
			return at;
		}
	}
}

/* Any number of rwxXst.  *perms: the permissions of a class; *high: set-id and sticky bits. */
static const char *parse_permissions(struct mode_part *p, const char *at, uint32_t special,
				     uint32_t *perms, uint32_t *high)
{
	for (;; at++) {
		switch (*at) {
		case 'r':
			*perms |= READ;
			break;
		case 'w':
			*perms |= WRITE;
			break;
		case 'X':
			p->conditional_x = true;
			*perms |= EXECUTE;
			break;
		case 'x':
			*perms |= EXECUTE;
			break;
		case 's':
			*high |= special ? special : S_ISUID;
			break;
		case 't':
			*high |= S_ISVTX;
			break;
		default:
			return at;
		}
	}
}

static const char *parse_copied_class(struct mode_part *p, const char *at)
{
	static const char classes[] = "ogu";
	const char *found = *at ? strchr(classes, *at) : NULL;

	p->copy_shift = found ? (uint8_t)(3 * (found - classes)) : COPY_NONE;
	return at + (found != NULL);
}

/* As with chmod(1), a part that names no class changes all, without what the umask denies. */
static uint32_t read_umask(void)
{
	mode_t now = umask(0);

	umask(now);
	return now;
}

static uint32_t special_of(uint32_t classes)
{
	return (classes & 0100 ? S_ISUID : 0) | (classes & 0010 ? S_ISGID : 0) |
	       (classes & 0001 ? S_ISVTX : 0);
}

static const char *parse_symbols(struct mode_part *p, const char *at)
{
	uint32_t classes = 0, special = 0, perms = 0, high = 0, bits;

	at = parse_classes(at, &classes, &special);
	p->op = *at;
	if (p->op != '+' && p->op != '-' && p->op != '=')
		return NULL;
	at = parse_copied_class(p, at + 1);
	if (p->copy_shift == COPY_NONE)
		at = parse_permissions(p, at, special, &perms, &high);
	p->mask = classes ? ALL : ALL & ~read_umask();
	p->classes = classes ? classes : 0111;
	bits = ((p->classes * perms) & p->mask) | high;
	p->add = p->op == '-' ? 0 : bits;
	p->keep = p->op == '-' ? ALL & ~bits : ALL;
	/* `=' clears set-id and sticky bits only if the part names them or copies a class. */
	if (p->copy_shift != COPY_NONE)
		special = special_of(p->classes);
	if (p->op == '=')
		p->keep = ALL & ~(p->classes * 7) &
			  ~(high || p->copy_shift != COPY_NONE ? special : 0);
	return at;
}

static const char *parse_part(struct mode_part *p, const char *at)
{
	*p = (struct mode_part){.copy_shift = COPY_NONE};
	at = parse_scope(p, at);
	if (!at)
		return NULL;
	at = *at >= '0' && *at <= '7' ? parse_octal(p, at) : parse_symbols(p, at);
	return at && (*at == ',' || !*at) ? at : NULL;
}

int modes_parse(const char *text, struct modes **out)
{
	size_t count = 1;
	struct modes *m;
	const char *at = text;

	*out = NULL;
	if (!*text)
		return 0;
	for (const char *p = text; (p = strchr(p, ',')); p++)
		count++;
	m = calloc(1, sizeof *m + count * sizeof *m->parts);
	if (!m)
		return fail_as(OUT_MEMORY, "allocate --chmod: %m");
	for (; m->count < count; m->count++) {
		const char *end = parse_part(&m->parts[m->count], at);

		if (!end) {
			fail_mode(text, at);
			modes_free(m);
			return -1;
		}
		at = end + 1;
	}
	*out = m;
	return 0;
}

void modes_free(struct modes *m)
{
	free(m);
}

/* ---- applying ----------------------------------------------------------------------- */

static uint32_t copy_class_bits(const struct mode_part *p, uint32_t mode)
{
	return p->copy_shift == COPY_NONE ? 0 : (mode >> p->copy_shift & 7) * p->classes & p->mask;
}

uint32_t modes_apply(const struct modes *m, uint32_t mode, bool dir)
{
	bool allows_x = dir || mode & 0111;

	for (size_t i = 0; m && i < m->count; i++) {
		const struct mode_part *p = &m->parts[i];
		uint32_t bits = copy_class_bits(p, mode);

		if (dir ? p->files_only : p->dirs_only)
			continue;
		mode &= p->op == '-' ? p->keep & ~bits : p->keep;
		mode |= p->op == '-' ? 0 : bits;
		mode |= p->conditional_x && !allows_x ? p->add & ~0111U : p->add;
	}
	return mode & ALL;
}
