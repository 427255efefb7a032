/* SPDX-License-Identifier: Apache-2.0 */
/* rdcheck: report whether hosts, and the path between them, are ready for RDMA. */
#include <signal.h>
#include "base/log.h"
#include "base/worker.h"
#include "cmd/check/findings.h"
#include "cmd/check/host_path.h"
#include "cmd/process/process.h"
#include "cmd/process/signals.h"
#include "session/connect/offer_place.h"

struct check {
	struct options o;
	struct findings findings;
	struct host_path path;
};

/* Not used while lanes are tried: then the conductor handles signals. */
static void catch_signals(void)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction sa = {.sa_handler = cancel};

	for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++)
		if (!signal_is_ignored(signals[i]))
			sigaction(signals[i], &sa, NULL);
}

/* Without HOST nothing listens, but a mistyped address must not go unnoticed. */
static int check_address(const struct options *o)
{
	int family = o->network.family == 4 ? AF_INET : o->network.family == 6 ? AF_INET6 : 0;
	union address at;

	if (o->operand_count || !o->network.address[0])
		return 0;
	return offer_place_resolve(o->network.address, family, &at);
}

static int run_check(struct check *c)
{
	const char *far = c->o.operand_count ? c->o.operands[0] : "";
	enum outcome code;

	catch_signals();
	findings_begin(&c->findings, &c->o, far);
	host_path_init(&c->path, &c->o, far, &c->findings);
	code = host_path_examine(&c->path);
	if (code == OUT_SIGNAL)
		log_at(LOG_ERROR, "%s", failed()->text);
	if (code == OUT_DONE && c->findings.count[FINDING_FAILURE])
		code = OUT_TRANSPORT;
	findings_end(&c->findings, code);
	options_free(&c->o);
	return (int)code;
}

int main(int argc, char **argv)
{
	static struct check c;

	process_parse_options(&c.o, RDCHECK, argc, argv);
	if (check_address(&c.o))
		process_exit_failed(RDCHECK);
	process_exit(run_check(&c));
}
