/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_END_START_MAKE_H
#define CMD_END_START_MAKE_H

#include "cmd/cli/options.h"

/* What START says of the options: the rules of the copy, and how lanes go.  The caller adds the
 * end's part: role, hosts, secret, target.  0, or -1 (OUT_USAGE): a text is too long for it. */
int start_make(const struct options *o, struct msg_start *m);

#endif
