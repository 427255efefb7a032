/* SPDX-License-Identifier: Apache-2.0 */
#include "host.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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
	FIELD(TEXT, device),          FIELD(TEXT, driver),          FIELD(FLAG, iwarp),
	FIELD(FLAG, ethernet),        FIELD(NUMBER, max_qp_wr),     FIELD(NUMBER, max_sge),
	FIELD(NUMBER, max_inline),    FIELD(NUMBER, max_cqe),       FIELD(NUMBER, max_mr),
	FIELD(NUMBER, send_reserved), FIELD(NUMBER, recv_reserved), FIELD(LARGE, max_mr_size),
	FIELD(LARGE, max_msg_size),   FIELD(FLAG, round_wr),        FIELD(NUMBER, round_cqe),
	FIELD(NUMBER, inline_least),  FIELD(FLAG, immediate),       FIELD(NUMBER, req_private),
	FIELD(NUMBER, rep_private),   FIELD(NUMBER, rej_private),   FIELD(FLAG, padded),
	FIELD(NUMBER, reject_errno),  FIELD(NUMBER, mtu),           FIELD(NUMBER, mtu_active),
	FIELD(NUMBER, ack_timeout),   FIELD(NUMBER, cm_timeout),    FIELD(NUMBER, cm_retries),
	FIELD(NUMBER, comp_vectors),  FIELD(FLAG, memlock_always),  FIELD(FLAG, queues_locked),
	FIELD(NUMBER, vendor_id),     FIELD(NUMBER, unheard_errno), FIELD(NUMBER, cqe_reserved),
#undef FIELD
};
enum { FIELDS = sizeof fields / sizeof *fields, WORDS = 6 };

static void set_field(struct personality *p, const struct field *f, const char *value,
		      const char *path)
{
	char *at = (char *)p + f->at, *end;
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

static bool read_address(char *text, struct host_address *to)
{
	char *zone = strchr(text, '%');

	if (zone) {
		*zone++ = '\0';
		to->at.in6.sin6_scope_id = if_nametoindex(zone);
	}
	if (inet_pton(AF_INET, text, &to->at.in4.sin_addr) == 1)
		to->at.sa.sa_family = AF_INET;
	else if (inet_pton(AF_INET6, text, &to->at.in6.sin6_addr) == 1)
		to->at.sa.sa_family = AF_INET6;
	else
		return false;
	return true;
}

/* The number of an adapter of the host. */
static struct host_adapter *read_adapter(const char *text, const char *path)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (*end || end == text || n >= the_host.adapter_count)
		misuse("%s: no adapter %s", path, text);
	return &the_host.adapters[n];
}

static unsigned read_port(const char *text, unsigned most, const char *path)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (*end || n < 1 || n > most)
		misuse("%s: no port %s", path, text);
	return (unsigned)n;
}

/* What follows an address. */
static void place_address(struct host_address *to, char *const words[], int count, const char *path)
{
	struct host_adapter *a = count > 2 ? read_adapter(words[2], path) : the_host.adapters;

	to->adapter = a;
	to->port = count > 3 ? read_port(words[3], a->ports, path) : 1;
	to->only_v1 = count > 4 && strcmp(words[4], "v1") == 0;
	if (count == 3 || (count > 4 && !to->only_v1))
		misuse("%s: where is the address %s?", path, words[1]);
}

static void add_port(char *const words[], int count, const char *path)
{
	struct host_adapter *a;
	unsigned port;

	if (count != 4 && count != 5)
		misuse("%s: a port needs three words or four", path);
	a = read_adapter(words[1], path);
	port = read_port(words[2], HOST_PORTS, path);
	a->ethernet[port] = strcmp(words[3], "ethernet") == 0;
	if (count == 5) {
		snprintf(a->cable[port], sizeof a->cable[port], "%s", words[4]);
		the_host.cabled = true;
	}
	if (port > a->ports)
		a->ports = port;
}

static void set_line(char *const words[], int count, const char *path)
{
	static const char *const kinds[] = {"address", "silent", "unlinked", "far"};
	const char *word = words[0];
	char *value = words[1];
	static const struct {
		const char *word;
		uint32_t *to;
	} links[] = {{"bandwidth", &the_host.bandwidth_mbits},
		     {"latency", &the_host.latency_us},
		     {"loss", &the_host.loss}};

	if (strcmp(word, "flux") == 0) {
		the_host.flux = true;
		return;
	}
	if (strcmp(word, "roce1") == 0 && count == 3) {
		struct host_adapter *a = read_adapter(words[1], path);

		a->roce1[read_port(words[2], HOST_PORTS, path)] = true;
		return;
	}
	if (strcmp(word, "port") == 0) {
		add_port(words, count, path);
		return;
	}
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
		if (to->kind == ADDRESS_FAR)
			snprintf(to->cable, sizeof to->cable, "%s", count == 3 ? words[2] : "");
		else
			place_address(to, words, count, path);
		the_host.count++;
		return;
	}
	misuse("%s: unknown word %s", path, word);
}

static void set_number(struct personality *p, const char *word, const char *value, const char *path,
		       bool *seen)
{
	for (unsigned i = 0; i < FIELDS; i++)
		if (strcmp(word, fields[i].name) == 0) {
			set_field(p, &fields[i], value, path);
			seen[i] = true;
			return;
		}
	misuse("%s: unknown word %s", path, word);
}

/* Separates a line into words, up to a comment. */
static int split_line(char *line, char *words[WORDS])
{
	char *at;
	int n = 0;

	line[strcspn(line, "#\n")] = '\0';
	for (char *w = strtok_r(line, " \t", &at); w && n < WORDS; w = strtok_r(NULL, " \t", &at))
		words[n++] = w;
	return n;
}

/* Lines of words, comments from #. p NULL: the file is the host's. Returns false if there is no
 * such file. */
static bool read_lines(const char *name, struct personality *p, bool *seen)
{
	char path[HOST_PATH + 32], line[512], *words[WORDS];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", the_host.top, name);
	f = fopen(path, "re");
	if (!f && errno == ENOENT)
		return false;
	if (!f)
		misuse("open %s: %s", path, strerror(errno));
	while (fgets(line, sizeof line, f)) {
		int n = split_line(line, words);

		/* What make_host.py makes files of. */
		if (n == 0 || strncmp(words[0], "sys.", 4) == 0)
			continue;
		if (n == 1)
			misuse("%s: no value for %s", path, words[0]);
		if (p)
			set_number(p, words[0], words[1], path, seen);
		else
			set_line(words, n, path);
	}
	fclose(f);
	return true;
}

static bool read_personality(const char *name)
{
	struct host_adapter *a = &the_host.adapters[the_host.adapter_count];
	bool seen[FIELDS] = {false};

	if (!read_lines(name, &a->p, seen))
		return false;
	for (unsigned i = 0; i < FIELDS; i++)
		if (!seen[i])
			misuse("%s/%s: %s is missing", the_host.top, name, fields[i].name);
	a->index = the_host.adapter_count++;
	a->ports = 1;
	a->ethernet[1] = a->p.ethernet;
	return true;
}

static void read_host(void)
{
	char name[32] = "personality";
	struct stat st;

	/* A process that is confined to a directory sees no /sys, either. */
	if (lstat(host_top(), &st) && errno == ENOENT)
		return;
	snprintf(the_host.top, sizeof the_host.top, "%s", host_top());
	while (the_host.adapter_count < HOST_ADAPTERS && read_personality(name))
		snprintf(name, sizeof name, "personality.%u", the_host.adapter_count);
	if (!the_host.adapter_count)
		misuse("%s/personality is missing", the_host.top);
	if (!read_lines("host", NULL, NULL) || !the_host.fabric[0])
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
	return the_host.adapter_count ? &the_host : NULL;
}

static bool is_same_ip(const struct host_address *a, const struct sockaddr *sa)
{
	const struct sockaddr_in *in4 = (const struct sockaddr_in *)(const void *)sa;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)sa;

	if (a->at.sa.sa_family != sa->sa_family)
		return false;
	if (sa->sa_family == AF_INET)
		return a->at.in4.sin_addr.s_addr == in4->sin_addr.s_addr;
	return memcmp(&a->at.in6.sin6_addr, &in6->sin6_addr, 16) == 0 &&
	       (!a->at.in6.sin6_scope_id || a->at.in6.sin6_scope_id == in6->sin6_scope_id);
}

const struct host_address *host_find(const struct sockaddr *sa)
{
	const struct host *h = host_get();

	for (unsigned i = 0; h && i < h->count; i++)
		if (h->addresses[i].kind != ADDRESS_FAR && is_same_ip(&h->addresses[i], sa))
			return &h->addresses[i];
	return NULL;
}

const struct host_address *host_find_far(const struct sockaddr *sa, const char *cable)
{
	const struct host *h = host_get();

	for (unsigned i = 0; h && i < h->count; i++)
		if (h->addresses[i].kind == ADDRESS_FAR && is_same_ip(&h->addresses[i], sa) &&
		    (!cable || strcmp(h->addresses[i].cable, cable) == 0))
			return &h->addresses[i];
	return NULL;
}

const struct host_adapter *host_find_adapter(const char *device)
{
	const struct host *h = host_get();

	for (unsigned i = 0; h && i < h->adapter_count; i++)
		if (strcmp(h->adapters[i].p.device, device) == 0)
			return &h->adapters[i];
	return NULL;
}
