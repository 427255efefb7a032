/* SPDX-License-Identifier: Apache-2.0 */
/* rdcheck: tell whether hosts, and the path between them, are fit for RDMA. */
#include "cmd/findings.h"
#include "cmd/path.h"
#include "cmd/process.h"

struct check {
	struct options o;
	struct findings findings;
	struct path path;
};

static int check(struct check *c)
{
	const char *far = c->o.operand_count ? c->o.operands[0] : "";
	enum outcome code;

	findings_begin(&c->findings, &c->o, far);
	path_init(&c->path, &c->o, far, &c->findings);
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
