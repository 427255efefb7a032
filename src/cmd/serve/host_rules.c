/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/host_rules.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include "base/fail.h"

enum { WORD_MAX = 64 };

static int parse_prefix(const char *word, const char *text, struct host_rule *r)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || n > 8ul * r->bytes)
		return fail_as(OUT_USAGE, "%s: the length of a prefix is from 0 to %u", word,
			       8 * r->bytes);
	r->prefix = (unsigned)n;
	return 0;
}

static int parse_rule(const char *word, struct host_rule *r)
{
	char address[WORD_MAX];
	const char *slash = strchr(word, '/');
	size_t len = slash ? (size_t)(slash - word) : strlen(word);

	memset(r, 0, sizeof *r);
	if (strcmp(word, "*") == 0)
		return 0;
	memcpy(address, word, len);
	address[len] = '\0';
	if (inet_pton(AF_INET, address, r->bits) == 1)
		r->bytes = 4;
	else if (inet_pton(AF_INET6, address, r->bits) == 1)
		r->bytes = 16;
	else
		return fail_as(
			OUT_USAGE,
			"%s is no address, network (ADDRESS/BITS) or *; names are not looked "
			"up",
			word);
	r->prefix = 8 * r->bytes;
	return slash ? parse_prefix(word, slash + 1, r) : 0;
}

int host_rules_parse(const char *text, struct host_rules *r)
{
	static const char between[] = " \t,";
	char word[WORD_MAX];

	r->count = 0;
	for (text += strspn(text, between); *text; text += strspn(text, between)) {
		size_t len = strcspn(text, between);

		if (len >= sizeof word)
			return fail_as(OUT_USAGE, "%.40s... is no address or network", text);
		if (r->count == HOST_RULES_MAX)
			return fail_as(OUT_USAGE, "more than %d addresses and networks",
				       HOST_RULES_MAX);
		memcpy(word, text, len);
		word[len] = '\0';
		if (parse_rule(word, &r->of[r->count]))
			return -1;
		r->count++;
		text += len;
	}
	return r->count ? 0 : fail_as(OUT_USAGE, "no address or network is given");
}

static bool is_in_network(const struct host_rule *r, const uint8_t *bits, unsigned bytes)
{
	unsigned whole = r->prefix / 8, rest = r->prefix % 8;
	uint8_t mask = (uint8_t)(0xff00 >> rest);

	if (r->bytes == 0)
		return true;
	if (r->bytes != bytes || memcmp(r->bits, bits, whole) != 0)
		return false;
	return rest == 0 || (r->bits[whole] & mask) == (bits[whole] & mask);
}

bool host_rules_match(const struct host_rules *r, const union address *a)
{
	union address plain = address_unmapped(a);
	unsigned bytes;
	const uint8_t *bits = address_bits(&plain, &bytes);

	for (unsigned i = 0; i < r->count; i++)
		if (is_in_network(&r->of[i], bits, bytes))
			return true;
	return false;
}

bool host_rules_admit(const struct host_rules *allow, const struct host_rules *deny,
		      const union address *a)
{
	if (allow->count > 0 && host_rules_match(allow, a))
		return true;
	if (allow->count > 0 && deny->count == 0)
		return false;
	return !host_rules_match(deny, a);
}
