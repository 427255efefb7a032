/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/attr/modes.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fail.h"

enum { READ = 4, WRITE = 2, EXECUTE = 1, ALL = 07777 };

/* One part: mode = (mode & keep) | add, and the permissions of one class given to some. */
struct mode_part {
	uint32_t keep, add;
	uint32_t to; /* 0111 and less: who is given what `from' has */
	uint32_t mask; /* of what they are given: all, or not what the umask takes */
	uint8_t from; /* 6, 3, 0: how far right u, g, o stand; COPY_NONE */
	char op;
	bool dirs, files; /* only */
	bool some_x; /* X: execution only of directories, and of what has it for somebody */
};

struct modes {
	size_t count;
	struct mode_part parts[];
};

enum { COPY_NONE = 255 };

/* ---- parsing ------------------------------------------------------------------------ */

static int fail_mode(const char *text, const char *part)
{
	return fail_as(OUT_USAGE, "--chmod %s: «%.*s» is no mode", text, (int)strcspn(part, ","),
		       part);
}

static const char *parse_scope(struct mode_part *p, const char *at)
{
	for (; *at == 'D' || *at == 'F'; at++) {
		p->dirs |= *at == 'D';
		p->files |= *at == 'F';
	}
	return p->dirs && p->files ? NULL : at;
}

/* Up to four digits or so: nothing but the twelve bits. */
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

/* u, g, o and a: where is a one for each of them, special the bit that s means for them. */
static const char *parse_classes(const char *at, uint32_t *who, uint32_t *special)
{
	for (;; at++) {
		switch (*at) {
		case 'u':
			*who |= 0100;
			*special |= S_ISUID;
			break;
		case 'g':
			*who |= 0010;
			*special |= S_ISGID;
			break;
		case 'o':
			*who |= 0001;
			break;
		case 'a':
			*who |= 0111;
			*special |= S_ISUID | S_ISGID;
			break;
		default:
			return at;
		}
	}
}

/* rwxXst, in any number. */
static const char *parse_permissions(struct mode_part *p, const char *at, uint32_t special,
				     uint32_t *what, uint32_t *high)
{
	for (;; at++) {
		switch (*at) {
		case 'r':
			*what |= READ;
			break;
		case 'w':
			*what |= WRITE;
			break;
		case 'X':
			p->some_x = true;
			*what |= EXECUTE;
			break;
		case 'x':
			*what |= EXECUTE;
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

static const char *parse_from(struct mode_part *p, const char *at)
{
	static const char classes[] = "ogu";
	const char *found = *at ? strchr(classes, *at) : NULL;

	p->from = found ? (uint8_t)(3 * (found - classes)) : COPY_NONE;
	return at + (found != NULL);
}

/* As chmod does it: who is not named is everybody, less the umask. */
static uint32_t read_umask(void)
{
	mode_t now = umask(0);

	umask(now);
	return now;
}

static uint32_t special_of(uint32_t who)
{
	return (who & 0100 ? S_ISUID : 0) | (who & 0010 ? S_ISGID : 0) | (who & 0001 ? S_ISVTX : 0);
}

static const char *parse_symbols(struct mode_part *p, const char *at)
{
	uint32_t who = 0, special = 0, what = 0, high = 0, bits;

	at = parse_classes(at, &who, &special);
	p->op = *at;
	if (p->op != '+' && p->op != '-' && p->op != '=')
		return NULL;
	at = parse_from(p, at + 1);
	if (p->from == COPY_NONE)
		at = parse_permissions(p, at, special, &what, &high);
	p->mask = who ? ALL : ALL & ~read_umask();
	p->to = who ? who : 0111;
	bits = ((p->to * what) & p->mask) | high;
	p->add = p->op == '-' ? 0 : bits;
	p->keep = p->op == '-' ? ALL & ~bits : ALL;
	/* s and t go away only where they are spoken of, and where all of a class is copied. */
	if (p->from != COPY_NONE)
		special = special_of(p->to);
	if (p->op == '=')
		p->keep = ALL & ~(p->to * 7) & ~(high || p->from != COPY_NONE ? special : 0);
	return at;
}

static const char *parse_part(struct mode_part *p, const char *at)
{
	*p = (struct mode_part){.from = COPY_NONE};
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
	return p->from == COPY_NONE ? 0 : (mode >> p->from & 7) * p->to & p->mask;
}

uint32_t modes_apply(const struct modes *m, uint32_t mode, bool dir)
{
	bool some_x = dir || mode & 0111;

	for (size_t i = 0; m && i < m->count; i++) {
		const struct mode_part *p = &m->parts[i];
		uint32_t bits = copy_class_bits(p, mode);

		if (dir ? p->files : p->dirs)
			continue;
		mode &= p->op == '-' ? p->keep & ~bits : p->keep;
		mode |= p->op == '-' ? 0 : bits;
		mode |= p->some_x && !some_x ? p->add & ~0111U : p->add;
	}
	return mode & ALL;
}
