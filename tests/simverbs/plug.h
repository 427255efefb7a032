/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMVERBS_PLUG_H
#define SIMVERBS_PLUG_H

/*
 * The adapters' slots and their cables. A test makes and removes files in the host's directory
 * while programs run, and all processes of the host notice:
 *
 *   pulled   no adapter is in its slot: there is no device, no address, and nothing in /sys. What
 *            was open reports IBV_EVENT_DEVICE_FATAL and RDMA_CM_EVENT_DEVICE_REMOVAL, all calls
 *            fail, and peers hear nothing any more. When the file goes, they are new adapters.
 *   pulled.DEVICE    the same of one of several adapters; its name stays in /sys/class/infiniband,
 *            and leads nowhere
 *   down     all ports are down: nothing is sent nor received; IBV_EVENT_PORT_ERR, and later
 *            IBV_EVENT_PORT_ACTIVE
 *   down.DEVICE, down.DEVICE.PORT    the same of one adapter, and of one port
 *
 * A rule of order.h takes down the port of one process.
 */

#include <stdbool.h>
#include "host.h"

/* Watches the files. Engine's lock. Returns 0, or -1 with errno. */
int plug_start(void);
/* Looks at once; without the lock. a NULL: all adapters. */
bool plug_is_pulled(const struct host_adapter *a);
/* As last noticed. */
bool plug_is_down(const struct host_adapter *a, unsigned port);
/* For a process that does not watch; without the lock. */
bool plug_look_down(const struct host_adapter *a, unsigned port);

/* What the connection manager does when an adapter is pulled out, in the engine's thread. */
void plug_on_removal(void (*fn)(const struct host_adapter *a));
/* The port is down for this process for that long; 0: for ever. Engine's lock. */
void plug_take_down(const struct host_adapter *a, unsigned port, unsigned ms);

#endif
