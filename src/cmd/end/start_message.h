/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_END_START_MESSAGE_H
#define CMD_END_START_MESSAGE_H

#include "cmd/cli/options.h"

/* Makes START from the options: the rules of the copy, and the settings of the lanes. The caller
 * adds the end's part: role, hosts, secret, target. Returns 0, or -1 (OUT_USAGE) if a text is too
 * long for START. */
int start_message_make(const struct options *o, struct msg_start *m);

#endif
