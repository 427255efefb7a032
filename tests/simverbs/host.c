/* SPDX-License-Identifier: Apache-2.0 */
#include "host.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "misuse.h"

static struct host the_host;
static pthread_once_t once = PTHREAD_ONCE_INIT;

enum field_kind { TEXT, FLAG, NUMBER, LARGE };
static const struct field {
	const char *name;
	enum field_kind kind;
	size_t at;
} fields[] = {
#define FIELD(kind, name)                                                                          \
	{                                                                                          \
#name, kind, offsetof(struct personality, name)                                    \
	}
	FIELD(TEXT, device),        FIELD(TEXT, driver),         FIELD(FLAG, iwarp),
	FIELD(FLAG, ethernet),      FIELD(NUMBER, max_qp_wr),    FIELD(NUMBER, max_sge),
	FIELD(NUMBER, max_inline),  FIELD(NUMBER, max_cqe),      FIELD(NUMBER, max_mr),
	FIELD(LARGE, max_mr_size),  FIELD(LARGE, max_msg_size),  FIELD(FLAG, round_wr),
	FIELD(FLAG, round_cqe),     FIELD(NUMBER, inline_least), FIELD(FLAG, immediate),
	FIELD(NUMBER, req_private), FIELD(NUMBER, rep_private),  FIELD(NUMBER, rej_private),
	FIELD(FLAG, padded),        FIELD(NUMBER, reject_errno), FIELD(NUMBER, mtu),
	FIELD(NUMBER, mtu_active),  FIELD(NUMBER, ack_timeout),  FIELD(NUMBER, cm_timeout),
	FIELD(NUMBER, cm_retries),  FIELD(NUMBER, comp_vectors), FIELD(FLAG, memlock_always),
	FIELD(FLAG, queues_locked), FIELD(NUMBER, vendor_id),    FIELD(NUMBER, unheard_errno),
#undef FIELD
};
enum { FIELDS = sizeof fields / sizeof *fields };

static void set_field(const struct field *f, const char *value, const char *path)
{
	char *at = (char *)&the_host.adapter + f->at, *end;
	unsigned long long n;

	if (f->kind == TEXT) {
		snprintf(at, HOST_NAME, "%s", value);
		return;
	}
	errno = 0;
	n = strtoull(value, &end, 0);
	if (errno || end == value || *end || (f->kind != LARGE && n > UINT32_MAX) ||
	    (f->kind == FLAG && n > 1))
		misuse("%s: %s is %s", path, f->name, value);
	if (f->kind == FLAG)
		*(bool *)at = n != 0;
	else if (f->kind == NUMBER)
		*(uint32_t *)(void *)at = (uint32_t)n;
	else
		*(uint64_t *)(void *)at = n;
}

static bool read_address(const char *text, struct host_address *to)
{
	if (inet_pton(AF_INET, text, &to->at.in4.sin_addr) == 1)
		to->at.sa.sa_family = AF_INET;
	else if (inet_pton(AF_INET6, text, &to->at.in6.sin6_addr) == 1)
		to->at.sa.sa_family = AF_INET6;
	else
		return false;
	return true;
}

static void set_line(const char *word, const char *value, const char *path)
{
	static const char *const kinds[] = {"address", "silent", "unlinked"};
	static const struct {
		const char *word;
		uint32_t *to;
	} links[] = {{"bandwidth", &the_host.bandwidth_mbits},
		     {"latency", &the_host.latency_us},
		     {"loss", &the_host.loss}};

	if (strcmp(word, "fabric") == 0) {
		snprintf(the_host.fabric, sizeof the_host.fabric, "%s", value);
		return;
	}
	for (unsigned i = 0; i < sizeof links / sizeof *links; i++)
		if (strcmp(word, links[i].word) == 0) {
			*links[i].to = (uint32_t)strtoul(value, NULL, 10);
			return;
		}
	for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		struct host_address *to = &the_host.addresses[the_host.count];

		if (strcmp(word, kinds[i]))
			continue;
		if (the_host.count == HOST_ADDRESSES || !read_address(value, to))
			misuse("%s: can't use the address %s", path, value);
		to->kind = i;
		the_host.count++;
		return;
	}
	misuse("%s: unknown word %s", path, word);
}

static void set_number(const char *word, const char *value, const char *path, bool *seen)
{
	for (unsigned i = 0; i < FIELDS; i++)
		if (strcmp(word, fields[i].name) == 0) {
			set_field(&fields[i], value, path);
			seen[i] = true;
			return;
		}
	misuse("%s: unknown word %s", path, word);
}

/* Lines "WORD VALUE", comments from #. seen NULL: the file is the host's. */
static void read_lines(const char *name, bool *seen)
{
	char path[HOST_PATH + 32], line[512], word[64], value[HOST_NAME];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", the_host.top, name);
	f = fopen(path, "re");
	if (!f)
		misuse("open %s: %s", path, strerror(errno));
	while (fgets(line, sizeof line, f)) {
		int n;

		line[strcspn(line, "#\n")] = '\0';
		n = sscanf(line, "%63s %63s", word, value);
		/* What make_host.py makes files of. */
		if (n <= 0 || strncmp(word, "sys.", 4) == 0)
			continue;
		if (n != 2)
			misuse("%s: no value for %s", path, word);
		if (seen)
			set_number(word, value, path, seen);
		else
			set_line(word, value, path);
	}
	fclose(f);
}

static void read_host(void)
{
	bool seen[FIELDS] = {false};

	snprintf(the_host.top, sizeof the_host.top, "%s", host_top());
	read_lines("personality", seen);
	read_lines("host", NULL);
	for (unsigned i = 0; i < FIELDS; i++)
		if (!seen[i])
			misuse("%s/personality: %s is missing", the_host.top, fields[i].name);
	if (!the_host.fabric[0])
		misuse("%s/host: fabric is missing", the_host.top);
}

const char *host_top(void)
{
	const char *top = getenv("SIMVERBS");

	return top && top[0] ? top : NULL;
}

const struct host *host_get(void)
{
	if (!host_top())
		return NULL;
	pthread_once(&once, read_host);
	return &the_host;
}

static bool is_same_ip(const struct host_address *a, const struct sockaddr *sa)
{
	const struct sockaddr_in *in4 = (const struct sockaddr_in *)(const void *)sa;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)sa;

	if (a->at.sa.sa_family != sa->sa_family)
		return false;
	if (sa->sa_family == AF_INET)
		return a->at.in4.sin_addr.s_addr == in4->sin_addr.s_addr;
	return memcmp(&a->at.in6.sin6_addr, &in6->sin6_addr, 16) == 0;
}

const struct host_address *host_find(const struct sockaddr *sa)
{
	const struct host *h = host_get();

	for (unsigned i = 0; h && i < h->count; i++)
		if (is_same_ip(&h->addresses[i], sa))
			return &h->addresses[i];
	return NULL;
}
