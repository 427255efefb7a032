/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_END_GUEST_LIST_H
#define CMD_END_GUEST_LIST_H

/* What a client of rdcpd may see without copying it: the modules, or a directory of one. Each entry
 * is sent when it is read, so that a listing takes no memory, however long it is. */

#include "cmd/end/guest.h"
#include "session/channel/channel.h"

/* Sends an ENTRY for each module (g->module ""), or for what path names in the module. Returns 0,
 * or -1 with a failure. */
int guest_list(const struct guest *g, const char *path, struct channel *ch);
/* Waits until the client takes more. Returns also when it takes nothing for too long. */
void guest_list_await(int fd);

#endif
