/* SPDX-License-Identifier: Apache-2.0 */
/* rdcheck: tell whether a host is fit for RDMA. */
#include "cmd/process.h"

int main(int argc, char **argv)
{
	static struct options o;

	take_command_line(&o, RDCHECK, argc, argv);
	options_free(&o);
	exit_with(OUT_DONE);
}
