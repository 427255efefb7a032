/* SPDX-License-Identifier: Apache-2.0 */

/* Initializes targets with a peer: SIGPIPE is ignored, and warnings are not printed. */

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
