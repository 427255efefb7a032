/* SPDX-License-Identifier: Apache-2.0 */

/* The beginning of targets that talk to a peer: one that hangs up is no signal, and warnings are
 * not printed. */

#include <signal.h>
#include "base/log.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	signal(SIGPIPE, SIG_IGN);
	log_setup("fuzz", LOG_ERROR);
	return 0;
}
