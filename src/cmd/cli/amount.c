/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/cli/amount.h"

#include <ctype.h>
#include <stdio.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>
#include "base/tos.h"

enum { SECONDS_MOST = 24 * 60 * 60 };

/* Reads the digits at *text, and moves *text past them. */
static int scan_number(const char **text, uint64_t *out)
{
	const char *p = *text;
	uint64_t v = 0;

	if (!isdigit((unsigned char)*p))
		return -1;
	for (; isdigit((unsigned char)*p); p++) {
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
			return -1;
	}
	*text = p;
	*out = v;
	return 0;
}

int parse_number(const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
	uint64_t v;

	if (scan_number(&text, &v) || *text || v < least || v > most)
		return -1;
	*out = v;
	return 0;
}

int parse_size(const char *text, uint64_t *out)
{
	static const char letters[] = "kmgt";
	uint64_t v, base = 1024;
	const char *at;

	if (scan_number(&text, &v))
		return -1;
	if (*text) {
		at = strchr(letters, tolower((unsigned char)*text));
		if (!at)
			return -1;
		if (strcasecmp(text + 1, "b") == 0)
			base = 1000;
		else if (text[1] && strcasecmp(text + 1, "ib") != 0)
			return -1;
		for (ptrdiff_t power = at - letters; power >= 0; power--)
			if (__builtin_mul_overflow(v, base, &v))
				return -1;
	}
	*out = v;
	return 0;
}

int parse_rate(const char *text, uint64_t *out)
{
	static const struct {
		const char *unit;
		uint64_t bits;
	} units[] = {{"kbit", 1000}, {"mbit", 1000000}, {"gbit", 1000000000}, {"bit", 1}};
	const char *p = text;
	uint64_t v;

	if (scan_number(&p, &v))
		return -1;
	for (unsigned i = 0; i < sizeof units / sizeof *units; i++) {
		if (strcasecmp(p, units[i].unit) != 0)
			continue;
		if (__builtin_mul_overflow(v, units[i].bits, &v))
			return -1;
		/* A limit is at least a byte: 0 means none. */
		*out = v / 8 + (v % 8 != 0);
		return 0;
	}
	return parse_size(text, out);
}

int parse_seconds(const char *text, int *ms)
{
	uint64_t whole, part = 0;

	if (scan_number(&text, &whole) || whole > SECONDS_MOST)
		return -1;
	if (*text == '.') {
		unsigned weight = 100;

		for (text++; isdigit((unsigned char)*text); text++, weight /= 10)
			part += (uint64_t)(*text - '0') * weight;
	}
	if (*text)
		return -1;
	*ms = (int)(whole * 1000 + part);
	return 0;
}

/* Returns the DSCP of this name, -1 if there is none. RFC 2474: class selectors; RFC 2597: assured
 * forwarding; RFC 3246: expedited forwarding; RFC 8622: lower effort. */
static int find_dscp(const char *name)
{
	static const struct {
		char name[5];
		int dscp;
	} names[] = {
		{"cs0", 0},   {"cs1", 8},   {"cs2", 16},  {"cs3", 24},  {"cs4", 32},  {"cs5", 40},
		{"cs6", 48},  {"cs7", 56},  {"af11", 10}, {"af12", 12}, {"af13", 14}, {"af21", 18},
		{"af22", 20}, {"af23", 22}, {"af31", 26}, {"af32", 28}, {"af33", 30}, {"af41", 34},
		{"af42", 36}, {"af43", 38}, {"ef", 46},   {"le", 1},
	};

	for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
		if (strcasecmp(name, names[i].name) == 0)
			return names[i].dscp;
	}
	return -1;
}

int parse_tos(const char *text, unsigned *out)
{
	int dscp = find_dscp(text);
	unsigned hex;
	uint64_t v;
	char end;

	if (dscp >= 0)
		v = (uint64_t)dscp << 2;
	else if (strncasecmp(text, "0x", 2) == 0 && strlen(text) <= 4 &&
		 isxdigit((unsigned char)text[2]) && sscanf(text + 2, "%x%c", &hex, &end) == 1)
		v = hex;
	else if (parse_number(text, 0, TOS_MOST - 1, &v))
		return -1;
	*out = (unsigned)v + 1;
	return 0;
}

int parse_transport(const char *text, enum transport *out)
{
	static const char *const names[] = {
		[TRANSPORT_AUTO] = "auto",
		[TRANSPORT_RDMA] = "rdma",
		[TRANSPORT_TCP] = "tcp",
		[TRANSPORT_SSH] = "ssh",
	};

	for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
		if (strcmp(text, names[i]) == 0) {
			*out = (enum transport)i;
			return 0;
		}
	}
	return -1;
}

int parse_port(const char *text, unsigned *out)
{
	uint64_t v;

	if (parse_number(text, 0, 65535, &v))
		return -1;
	*out = (unsigned)v;
	return 0;
}

int parse_ports(const char *text, unsigned *lo, unsigned *hi)
{
	uint64_t a, b;

	if (scan_number(&text, &a))
		return -1;
	b = a;
	if (*text == '-') {
		text++;
		if (scan_number(&text, &b))
			return -1;
	}
	if (*text || a < 1 || b > 65535 || a > b)
		return -1;
	*lo = (unsigned)a;
	*hi = (unsigned)b;
	return 0;
}

char *size_text(uint64_t bytes, char *to, size_t size)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double v = (double)bytes;
	unsigned i = 0;

	/* 1023.95 and more would be printed as 1024. */
	while (v >= 999.5 && i < sizeof units / sizeof *units - 1) {
		v /= 1024;
		i++;
	}
	if (i == 0)
		snprintf(to, size, "%u B", (unsigned)bytes);
	else
		snprintf(to, size, "%.*f %s", v < 9.995 ? 2 : v < 99.95 ? 1 : 0, v, units[i]);
	return to;
}

char *time_text(uint64_t seconds, char *to, size_t size)
{
	unsigned long long s = seconds;

	if (s >= 3600)
		snprintf(to, size, "%llu:%02llu:%02llu", s / 3600, s / 60 % 60, s % 60);
	else
		snprintf(to, size, "%llu:%02llu", s / 60, s % 60);
	return to;
}
