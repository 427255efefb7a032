/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_BACKOFF_H
#define BASE_BACKOFF_H

/* How long TCP waits before it retransmits. */

/* TCP doubles its pauses between retransmissions, so after a cut it may stay silent for as long
 * again. Bounds them to an eighth of the timeout, but not below a second, which some paths need.
 * No effect before Linux 6.15, and on what is no TCP socket. */
void backoff_bound(int fd, int timeout_ms);

#endif
