/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_FD_PASS_H
#define BASE_FD_PASS_H

/* Passes a descriptor with a message over a Unix socket (SCM_RIGHTS). */

#include <stddef.h>
#include <sys/types.h>

/* Sends len (1 or more) bytes and fd, which stays open here. flags: of sendmsg(2); a closed peer
 * raises no SIGPIPE. Returns what sendmsg(2) returned, with errno. */
ssize_t fd_send(int socket, const void *bytes, size_t len, int fd, int flags);
/* Receives at most len bytes and one descriptor, which the caller owns; it is close-on-exec. flags:
 * of recvmsg(2). Returns what recvmsg(2) returned. *fd is -1 if no descriptor came; errno is then
 * EMFILE if the kernel dropped it because this process has no free one, else EPROTO. */
ssize_t fd_receive(int socket, void *bytes, size_t len, int *fd, int flags);

#endif
