/* SPDX-License-Identifier: Apache-2.0 */
/* rdcpd: serve directories to rdcp. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "base/fail.h"
#include "base/log.h"
#include "cmd/process/process.h"
#include "cmd/serve/alone.h"
#include "cmd/serve/notify.h"
#include "cmd/serve/serve.h"
#include "session/channel/openssl.h"

int main(int argc, char **argv)
{
	static struct options o;
	static struct server s = {.options = &o};
	static struct alone_key key;
	bool alone;
	int rc;

	process_parse_options(&o, RDCPD, argc, argv);
	notify_begin();
	process_protect_secrets();
	process_raise_descriptors();
	s.json = o.serve.log_json;
	s.family = o.network.family == 4 ? AF_INET : o.network.family == 6 ? AF_INET6 : 0;
	alone = alone_is_meant(&o);
	/* Before a process is confined, as the settings are tried. */
	if (openssl_start())
		process_exit_failed(RDCPD);
	rc = alone ? alone_load(&o, &key, &s.settings) : settings_load(&o, &s.settings);
	if (rc && (alone || rc == OPTIONS_WRONG))
		process_exit_failed(RDCPD);
	if (rc)
		process_exit_plainly();
	if (o.serve.only_checks) {
		settings_free(s.settings);
		process_exit(OUT_DONE);
	}
	if (serve_listen(&s))
		process_exit_failed(RDCPD);
	/* First: whoever waits for the next line finds the key. */
	if (alone && alone_print(&s, &key))
		process_exit_failed(RDCPD);
	if (!o.output.quiet)
		fprintf(stderr, "%s: listening on %s:%u\n", program_name(RDCPD),
			s.settings->address[0] ? s.settings->address : "*", s.port);
	if (alone)
		s.options = NULL;
	explicit_bzero(&key, sizeof key);
	serve_run(&s);
	settings_free(s.settings);
	options_free(&o);
	process_exit(OUT_DONE);
}
