/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_SERVE_TRANSFER_LOG_H
#define CMD_SERVE_TRANSFER_LOG_H

/* The line of each session in rdcpd's log: who moved what, and how that ended. */

#include <stdbool.h>
#include "cmd/end/guest.h"

struct transfer {
	const char *from; /* the client's address */
	const char *user; /* or "-" */
	const char *module;
	const struct guest_record *record;
	int status; /* of the end, as waitpid(2) has it */
};

/* Prints one line to stderr: an object of JSON, or, unless only errors are printed, a sentence.
 * What the record says is taken as a claim of the client about this session. */
void transfer_log(const struct transfer *t, bool json);

#endif
