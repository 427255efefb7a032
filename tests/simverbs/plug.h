/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMVERBS_PLUG_H
#define SIMVERBS_PLUG_H

/*
 * The adapter's slot and its cable. A test makes and removes two files in the host's directory
 * while programs run, and all processes of the host notice:
 *
 *   pulled   the adapter is not in its slot: there is no device, no address, and nothing in /sys.
 *            What was open reports IBV_EVENT_DEVICE_FATAL and RDMA_CM_EVENT_DEVICE_REMOVAL, all
 *            calls fail, and peers hear nothing any more. When the file goes, it is a new adapter.
 *   down     its port is down: nothing is sent nor received; IBV_EVENT_PORT_ERR, and later
 *            IBV_EVENT_PORT_ACTIVE.
 *
 * A rule of order.h takes down the port of one process.
 */

#include <stdbool.h>

/* Watches the files. Engine's lock. Returns 0, or -1 with errno. */
int plug_start(void);
/* Looks at once; without the lock. */
bool plug_is_pulled(void);
/* As last noticed. */
bool plug_is_down(void);
/* For a process that does not watch; without the lock. */
bool plug_look_down(void);

/* What the connection manager does when the adapter is pulled out, in the engine's thread. */
void plug_on_removal(void (*fn)(void));
/* The port of this process is down for that long; 0: for ever. Engine's lock. */
void plug_take_down(unsigned ms);

#endif
