/* SPDX-License-Identifier: Apache-2.0 */
/* rdcpd: serve directories to rdcp. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include "base/fail.h"
#include "base/log.h"
#include "cmd/process/process.h"
#include "cmd/serve/confine.h"
#include "cmd/serve/serve.h"
#include "session/channel/openssl.h"

static struct module modules[MODULES_MAX];
static unsigned module_count;

static int open_modules(const struct options *o)
{
	if (o->serve.module_count == 0)
		return fail_as(OUT_USAGE, "--module is missing: there is nothing to serve");
	for (unsigned i = 0; i < o->serve.module_count; i++) {
		struct module *m = &modules[module_count];

		if (module_parse(o->serve.modules[i], m))
			return -1;
		if (module_find(modules, module_count, m->name))
			return fail_as(OUT_USAGE, "--module %s is given twice", m->name);
		if (module_open(m) || confine_check(m->path))
			return -1;
		module_count++;
	}
	return 0;
}

static int open_keys(const struct options *o, struct key_ring *keys)
{
	struct psk key;
	int rc = 0;

	if (!o->key.file && !o->key.secrets)
		return fail_as(OUT_USAGE,
			       "--key-file or --secrets is missing (--make-key makes a key)");
	if (o->key.secrets && key_ring_read(keys, o->key.secrets))
		return -1;
	if (o->key.file) {
		rc = psk_from_made_file(o->key.file, &key) || key_ring_add(keys, "-", &key) ? -1
											    : 0;
		psk_wipe(&key);
	}
	if (!rc && keys->count == 0)
		return fail_as(OUT_USAGE, "%s has no keys (--make-key makes one)", o->key.secrets);
	return rc;
}

int main(int argc, char **argv)
{
	static struct options o;
	static struct server s;
	int rc;

	process_parse_options(&o, RDCPD, argc, argv);
	process_protect_secrets();
	process_raise_descriptors();
	s.modules = modules;
	s.address = o.network.address;
	s.port = o.serve.port;
	s.family = o.network.family == 4 ? AF_INET : o.network.family == 6 ? AF_INET6 : 0;
	if (open_modules(&o) || open_keys(&o, &s.keys) || openssl_start() || serve_listen(&s))
		process_exit_failed(RDCPD);
	s.module_count = module_count;
	if (!o.output.quiet)
		fprintf(stderr, "%s: listening on %s:%u\n", program_name(RDCPD),
			s.address[0] ? s.address : "*", s.port);
	rc = serve_run(&s);
	key_ring_wipe(&s.keys);
	options_free(&o);
	if (rc)
		process_exit_failed(RDCPD);
	process_exit(OUT_DONE);
}
