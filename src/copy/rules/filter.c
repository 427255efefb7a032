/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/rules/filter.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "base/array.h"
#include "base/fail.h"
#include "protocol/message.h"

/*
 * A pattern is compiled to a sequence of tokens.  Each token matches one byte of the path, or, for
 * stars, any number of bytes.  Matching simulates a nondeterministic automaton: one bit for each
 * token that may come next.  So its time is at worst the product of both lengths, for any pattern.
 */

enum token_kind {
	TOKEN_BYTE,
	TOKEN_ANY, /* any byte but a slash */
	TOKEN_SET,
	TOKEN_STAR,
	TOKEN_STARS,
};

struct token {
	uint8_t kind;
	uint8_t byte;
	uint16_t set; /* index into the rule's sets */
};

struct byte_set {
	uint64_t bits[4];
};

/* Where in a path a pattern may begin to match. */
enum filter_anchor {
	START_LAST, /* at the last component */
	START_TOP,
	START_TAIL, /* at the last `components' components */
	START_ANYWHERE, /* after any slash */
};

struct filter_rule {
	bool include;
	bool directories_only; /* a slash at its end */
	bool malformed; /* an unclosed bracket or an unknown class: matches nothing */
	bool slash_before, slash_behind; /* match as if the path (of a directory) had one more */
	enum filter_anchor start;
	unsigned components; /* of START_TAIL */
	size_t count;
	size_t tail; /* the first token behind the last star; 0: no star */
	struct token *tokens;
	struct byte_set *sets;
	unsigned set_count;
};

struct filter {
	struct filter_rule *rules;
	size_t count, room;
	uint64_t hash; /* of the patterns, each with the hash of those before it as the seed */
};

int filter_new(struct filter **out)
{
	struct filter *f = calloc(1, sizeof *f);

	if (!f)
		return fail_as(OUT_MEMORY, "allocate a filter: %m");
	*out = f;
	return 0;
}

static void free_rules(struct filter *f)
{
	for (size_t i = 0; i < f->count; i++) {
		free(f->rules[i].tokens);
		free(f->rules[i].sets);
	}
	f->count = 0;
}

void filter_free(struct filter *f)
{
	if (!f)
		return;
	free_rules(f);
	free(f->rules);
	free(f);
}

/* ---- sets: [a-z[:digit:]] ----------------------------------------------------------- */

static void set_put(struct byte_set *s, unsigned byte)
{
	s->bits[byte / 64] |= UINT64_C(1) << byte % 64;
}

static bool set_has(const struct byte_set *s, unsigned byte)
{
	return s->bits[byte / 64] >> byte % 64 & 1;
}

/* Classes are ASCII in every locale, because both ends must agree. */
static bool is_lower(unsigned c)
{
	return c >= 'a' && c <= 'z';
}
static bool is_upper(unsigned c)
{
	return c >= 'A' && c <= 'Z';
}
static bool is_digit(unsigned c)
{
	return c >= '0' && c <= '9';
}
static bool is_alpha(unsigned c)
{
	return is_lower(c) || is_upper(c);
}
static bool is_alnum(unsigned c)
{
	return is_alpha(c) || is_digit(c);
}
static bool is_graph(unsigned c)
{
	return c > ' ' && c < 127;
}
static bool is_print(unsigned c)
{
	return c >= ' ' && c < 127;
}
static bool is_punct(unsigned c)
{
	return is_graph(c) && !is_alnum(c);
}
static bool is_cntrl(unsigned c)
{
	return c < ' ' || c == 127;
}
static bool is_blank(unsigned c)
{
	return c == ' ' || c == '\t';
}
static bool is_space(unsigned c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}
static bool is_xdigit(unsigned c)
{
	return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static const struct {
	const char *name;
	bool (*has)(unsigned c);
} classes[] = {
	{"alnum", is_alnum}, {"alpha", is_alpha}, {"blank", is_blank}, {"cntrl", is_cntrl},
	{"digit", is_digit}, {"graph", is_graph}, {"lower", is_lower}, {"print", is_print},
	{"punct", is_punct}, {"space", is_space}, {"upper", is_upper}, {"xdigit", is_xdigit},
};

static bool set_class(struct byte_set *s, const char *name, size_t len)
{
	for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
		if (strlen(classes[i].name) != len || memcmp(classes[i].name, name, len) != 0)
			continue;
		for (unsigned c = 1; c < 128; c++)
			if (classes[i].has(c))
				set_put(s, c);
		return true;
	}
	return false;
}

/* Reads [:name:] at p, which is at its "[:".  Returns its last byte; p if this is no class; NULL if
 * the class is unknown or the bracket never closes. */
static const char *class_read(struct byte_set *s, const char *p)
{
	const char *name = p + 2, *end = strchr(name, ']');

	if (!end)
		return NULL;
	if (end == name || end[-1] != ':')
		return p;
	return set_class(s, name, (size_t)(end - 1 - name)) ? end : NULL;
}

/* Reads one member of a set at p.  Returns its last byte; NULL: malformed.  *before: the byte that
 * a range may begin with; 0: none. */
static const char *member_read(struct byte_set *s, const char *p, unsigned *before)
{
	unsigned byte;

	if (*p == '-' && *before && p[1] && p[1] != ']') {
		p += p[1] == '\\' ? 2 : 1;
		for (unsigned c = *before; c <= (uint8_t)*p; c++)
			set_put(s, c);
		*before = 0;
		return *p ? p : NULL;
	}
	if (*p == '[' && p[1] == ':') {
		const char *end = class_read(s, p);

		if (end != p) {
			*before = 0;
			return end;
		}
	} else if (*p == '\\') {
		p++;
	}
	byte = (uint8_t)*p;
	if (!byte)
		return NULL;
	set_put(s, byte);
	*before = byte;
	return p;
}

/* Reads the set at p, which is at its "[".  Returns its "]"; NULL: malformed. */
static const char *set_read(struct byte_set *s, const char *p)
{
	unsigned before = 0;
	bool negate = p[1] == '!' || p[1] == '^';

	*s = (struct byte_set){{0}};
	p += negate ? 2 : 1;
	do {
		p = member_read(s, p, &before);
		if (!p)
			return NULL;
		p++;
	} while (*p != ']'); /* the first member may be a bracket */
	for (unsigned i = 0; negate && i < 4; i++)
		s->bits[i] = ~s->bits[i];
	s->bits['/' / 64] &= ~(UINT64_C(1) << '/' % 64);
	return p;
}

/* ---- compiling ---------------------------------------------------------------------- */

/* Reads the token at p.  Returns the position behind it; NULL: malformed. */
static const char *token_read(struct filter_rule *r, const char *p)
{
	struct token *t = &r->tokens[r->count++];

	*t = (struct token){.kind = TOKEN_BYTE, .byte = (uint8_t)*p};
	switch (*p) {
	case '\\':
		t->byte = (uint8_t)p[1];
		return t->byte ? p + 2 : NULL;
	case '?':
		t->kind = TOKEN_ANY;
		return p + 1;
	case '*':
		t->kind = p[1] == '*' ? TOKEN_STARS : TOKEN_STAR;
		r->tail = r->count;
		return p + strspn(p, "*");
	case '[':
		t->kind = TOKEN_SET;
		t->set = (uint16_t)r->set_count;
		p = set_read(&r->sets[r->set_count++], p);
		return p ? p + 1 : NULL;
	default:
		return p + 1;
	}
}

/* text: the pattern without a slash at its end. */
static int compile_pattern(struct filter_rule *r, const char *text, bool wild)
{
	size_t len = strlen(text), brackets = 0;

	for (size_t i = 0; wild && i < len; i++)
		brackets += text[i] == '[';
	r->tokens = calloc(len + 1, sizeof *r->tokens);
	r->sets = calloc(brackets + 1, sizeof *r->sets);
	if (!r->tokens || !r->sets) {
		free(r->tokens);
		free(r->sets);
		return fail_as(OUT_MEMORY, "allocate a pattern: %m");
	}
	if (!wild) /* without wildcards a backslash stands for itself */
		for (size_t i = 0; i < len; i++)
			r->tokens[r->count++] = (struct token){.byte = (uint8_t)text[i]};
	while (wild && text && *text)
		text = token_read(r, text);
	r->malformed = !text;
	return 0;
}

/* Determines what part of a path the pattern is matched against.  Returns the pattern without a
 * leading slash. */
static const char *anchor_rule(struct filter_rule *r, const char *text, bool wild)
{
	const char *stars = wild ? strstr(text, "**") : NULL;
	size_t len = strlen(text);
	unsigned slashes = 0;

	for (const char *p = text; (p = strchr(p, '/')); p++)
		slashes++;
	r->slash_before = stars == text;
	r->slash_behind = stars && len >= 3 && memcmp(text + len - 3, "***", 3) == 0;
	r->components = slashes + 1;
	if (*text == '/')
		r->start = START_TOP;
	else if (stars)
		r->start = stars == text ? START_TOP : START_ANYWHERE;
	else
		r->start = slashes ? START_TAIL : START_LAST;
	return text + (*text == '/');
}

static int rule_make(struct filter_rule *r, bool include, const char *pattern)
{
	size_t len = strlen(pattern);
	bool wild = strpbrk(pattern, "*[?");
	char text[RULE_TEXT_MAX];

	if (len >= sizeof text)
		return fail_as(OUT_USAGE, "pattern %.60s...: longer than %d bytes", pattern,
			       RULE_TEXT_MAX - 1);
	memcpy(text, pattern, len + 1);
	*r = (struct filter_rule){.include = include};
	if (len > 1 && text[len - 1] == '/') {
		text[len - 1] = '\0';
		r->directories_only = true;
	}
	return compile_pattern(r, anchor_rule(r, text, wild), wild);
}

int filter_add(struct filter *f, bool include, const char *pattern)
{
	if (strcmp(pattern, "!") == 0) {
		free_rules(f);
		f->hash = 0;
		return 0;
	}
	if ((pattern[0] == '+' || pattern[0] == '-') && pattern[1] == ' ') {
		include = pattern[0] == '+';
		pattern += 2;
		if (!*pattern)
			return fail_as(OUT_USAGE, "filter rule \"%s\": the pattern is missing",
				       include ? "+ " : "- ");
	}
	if (!*pattern)
		return 0;
	if (ARRAY_ROOM(f->rules, f->count, f->room, 1))
		return fail_as(OUT_MEMORY, "allocate a pattern: %m");
	if (rule_make(&f->rules[f->count], include, pattern))
		return -1;
	f->count++;
	f->hash = XXH3_64bits_withSeed(pattern, strlen(pattern), f->hash + include);
	return 0;
}

uint64_t filter_hash(const struct filter *f)
{
	return f ? f->hash : 0;
}

/* ---- matching ----------------------------------------------------------------------- */

enum { WORDS = RULE_TEXT_MAX / 64 + 1 };

/* Bit i: token i may come next.  The bit behind the last token: the whole pattern has matched. */
struct match_states {
	uint64_t bits[WORDS];
};

/* A star may also match nothing, so the token behind it may come next as well. */
static void add_state(const struct filter_rule *r, struct match_states *w, size_t at)
{
	w->bits[at / 64] |= UINT64_C(1) << at % 64;
	if (at < r->count && r->tokens[at].kind >= TOKEN_STAR)
		add_state(r, w, at + 1);
}

static bool token_matches(const struct filter_rule *r, const struct token *t, uint8_t byte)
{
	switch (t->kind) {
	case TOKEN_BYTE:
		return t->byte == byte;
	case TOKEN_SET:
		return set_has(&r->sets[t->set], byte);
	case TOKEN_STARS:
		return true;
	default:
		return byte != '/';
	}
}

/* Reads one byte of the path in all states.  False: no state is left. */
static bool advance_states(const struct filter_rule *r, struct match_states *now, uint8_t byte)
{
	size_t words = r->count / 64 + 1;
	struct match_states next;
	bool any = false;

	memset(next.bits, 0, words * sizeof *next.bits);
	for (size_t i = 0; i < words; i++) {
		for (uint64_t left = now->bits[i]; left; left &= left - 1) {
			size_t at = i * 64 + (size_t)__builtin_ctzll(left);

			if (at == r->count || !token_matches(r, &r->tokens[at], byte))
				continue;
			add_state(r, &next, at + (r->tokens[at].kind < TOKEN_STAR));
			any = true;
		}
	}
	memcpy(now->bits, next.bits, words * sizeof *now->bits);
	return any;
}

/* Quick test that most paths fail: the tokens behind the last star must match the path's end. */
static bool tail_matches(const struct filter_rule *r, const char *path, size_t len)
{
	size_t tail = r->count - r->tail;

	if (r->slash_behind)
		return true;
	if (tail > len + r->slash_before)
		return false;
	for (size_t i = 0; i < tail && i < len; i++)
		if (!token_matches(r, &r->tokens[r->count - 1 - i], (uint8_t)path[len - 1 - i]))
			return false;
	return true;
}

static bool match_tokens(const struct filter_rule *r, const char *path, size_t len, bool dir)
{
	struct match_states now;
	bool anywhere = r->start == START_ANYWHERE;
	bool behind = r->slash_behind && dir;

	if (!tail_matches(r, path, len))
		return false;
	memset(now.bits, 0, (r->count / 64 + 1) * sizeof *now.bits);
	add_state(r, &now, 0);
	if (r->slash_before && !advance_states(r, &now, '/'))
		return false;
	for (size_t i = 0; i < len + behind; i++) {
		uint8_t byte = i < len ? (uint8_t)path[i] : '/';

		if (!advance_states(r, &now, byte) && !anywhere)
			return false;
		if (anywhere && byte == '/')
			add_state(r, &now, 0);
	}
	return now.bits[r->count / 64] >> r->count % 64 & 1;
}

/* The last count components of a path; NULL: it has fewer. */
static const char *last_components(const char *path, size_t len, unsigned count)
{
	const char *p = path + len;

	while (p > path) {
		if (p[-1] == '/' && !--count)
			return p;
		p--;
	}
	return count == 1 ? path : NULL;
}

static bool rule_matches(const struct filter_rule *r, const char *path, size_t len, bool dir)
{
	const char *from = path;

	if (r->malformed || (r->directories_only && !dir))
		return false;
	if (r->start == START_LAST || r->start == START_TAIL)
		from = last_components(path, len, r->components);
	return from && match_tokens(r, from, (size_t)(path + len - from), dir);
}

bool filter_excludes(const struct filter *f, const char *path, bool dir)
{
	size_t len = strlen(path);

	for (size_t i = 0; f && len && i < f->count; i++)
		if (rule_matches(&f->rules[i], path, len, dir))
			return !f->rules[i].include;
	return false;
}
