/* SPDX-License-Identifier: Apache-2.0 */
/* rdbench: measure how fast data can go. */
#include "cmd/process.h"

int main(int argc, char **argv)
{
	static struct options o;

	take_command_line(&o, RDBENCH, argc, argv);
	options_free(&o);
	exit_with(OUT_DONE);
}
