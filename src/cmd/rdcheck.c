/* SPDX-License-Identifier: Apache-2.0 */
/* rdcheck: tell whether hosts, and the path between them, are fit for RDMA. */
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "cmd/findings.h"
#include "cmd/path.h"
#include "cmd/process.h"
#include "cmd/survey.h"

struct check {
	struct options o;
	struct findings findings;
	struct path path;
};

static void on_found(void *ctx, const struct msg_finding *m)
{
	struct check *c = ctx;

	path_near_has(&c->path, m);
	findings_take(&c->findings, m);
}

static int check(struct check *c)
{
	struct survey s = {.top = "", .found = on_found, .ctx = c};
	const char *far = c->o.operand_count ? c->o.operands[0] : "";
	enum outcome code = OUT_DONE;

	findings_begin(&c->findings, &c->o, far);
	path_init(&c->path, &c->o, far, &c->findings);
	findings_of(&c->findings, c->path.near_name);
	if (survey_host(&s)) {
		log_at(LOG_ERROR, "%s", failed()->text);
		return (int)failed()->code;
	}
	if (far[0])
		code = path_look(&c->path);
	if (code == OUT_DONE && c->findings.count[FINDING_FAILURE])
		code = OUT_TRANSPORT;
	findings_end(&c->findings, code);
	options_free(&c->o);
	return (int)code;
}

int main(int argc, char **argv)
{
	static struct check c;

	take_command_line(&c.o, RDCHECK, argc, argv);
	exit_with(check(&c));
}
