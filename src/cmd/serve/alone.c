/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/alone.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fail.h"
#include "cmd/process/process.h"
#include "cmd/serve/config.h"
#include "cmd/serve/confine.h"
#include "host/own_address.h"

enum { HOST_TEXT_MAX = 256 };

bool alone_is_meant(const struct options *o)
{
	return o->serve.modules.count == 0 && !o->serve.config && !o->key.file && !o->key.secrets &&
	       !o->serve.only_checks;
}

static int open_directory(struct module *m)
{
	if (module_parse("upload=.:wo", m) || module_open(m))
		return -1;
	return confine_check(m->path, NULL);
}

static int make_key(struct alone_key *key, struct key_ring *keys)
{
	struct psk psk;
	int rc = -1;

	if (psk_make_text(key->text))
		return -1;
	key->text[strcspn(key->text, "\n")] = '\0';
	if (psk_from_made_text(key->text, strlen(key->text), &psk) == 0)
		rc = key_ring_add(keys, "-", &psk);
	psk_wipe(&psk);
	return rc;
}

int alone_load(const struct options *o, struct alone_key *key, struct settings **out)
{
	struct settings *s = calloc(1, sizeof *s);

	if (!s)
		return fail_as(OUT_MEMORY, "start to serve: %m");
	snprintf(s->address, sizeof s->address, "%s", o->network.address);
	s->port = o->serve.port != PORT_NOT_GIVEN ? o->serve.port : DAEMON_PORT;
	s->drain_s = DRAIN_S;
	settings_take_transports(s, o, &(struct transports){.want = TRANSPORT_AUTO});
	s->module_count = 1;
	if (settings_take_limits(s, o) || open_directory(&s->modules[0]) ||
	    make_key(key, &s->keys)) {
		settings_free(s);
		return -1;
	}
	*out = s;
	return 0;
}

/* The address with which this host reaches others, which they need not be able to look up; else its
 * name. The addresses are those of documentation: nothing is sent. */
static void find_host(int family, char to[static HOST_TEXT_MAX])
{
	union address far = {.in4 = {.sin_family = AF_INET}}, own;

	inet_pton(AF_INET, "192.0.2.1", &far.in4.sin_addr);
	if (family != AF_INET6 && own_address_toward(&far, &own) == 0 &&
	    inet_ntop(AF_INET, &own.in4.sin_addr, to, HOST_TEXT_MAX))
		return;
	far = (union address){.in6 = {.sin6_family = AF_INET6}};
	inet_pton(AF_INET6, "2001:db8::1", &far.in6.sin6_addr);
	if (family != AF_INET && own_address_toward(&far, &own) == 0 &&
	    inet_ntop(AF_INET6, &own.in6.sin6_addr, to, HOST_TEXT_MAX))
		return;
	if (gethostname(to, HOST_TEXT_MAX))
		snprintf(to, HOST_TEXT_MAX, "localhost");
	to[HOST_TEXT_MAX - 1] = '\0';
}

int alone_print(const struct server *s, const struct alone_key *key)
{
	char host[HOST_TEXT_MAX], at[16] = "";
	bool v6;

	snprintf(host, sizeof host, "%s", s->settings->address);
	if (!*host)
		find_host(s->family, host);
	v6 = strchr(host, ':') != NULL;
	if (s->port != DAEMON_PORT)
		snprintf(at, sizeof at, ":%u", s->port);
	/* Not as an argument: those of a process can be read by all users of its host. */
	printf("(umask 077; cat >sluice.key) <<END\n%s\nEND\n"
	       "rdcp --key-file sluice.key -r FILE rdma://%s%s%s%s/upload/\n",
	       key->text, v6 ? "[" : "", host, v6 ? "]" : "", at);
	errno = process_flush_stdout();
	return errno ? fail("print the commands for a client: %m") : 0;
}
