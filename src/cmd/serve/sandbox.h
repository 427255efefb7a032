/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_SERVE_SANDBOX_H
#define CMD_SERVE_SANDBOX_H

/*
 * A second fence around a process whose root is a module (confine.h), where the kernel has Landlock
 * (5.19 or later). Within the root it may do what a module permits. It opens, makes and removes
 * nothing outside, also not through a descriptor of a directory that it has by mistake. It executes
 * nothing and makes no device. From 6.7 on it binds and connects no TCP socket; from 6.12 on it
 * sends signals to no other process, and connects to no abstract Unix socket.
 *
 * Landlock alone would not do: it leaves stat(2), chmod(2), chown(2), utimensat(2) and extended
 * attributes to the kernel's other rules.
 */

#include <stdbool.h>

/* The version of Landlock's interface; 0: this kernel has none that serves. */
int sandbox_version(void);
/* Puts this thread, and those that it makes, behind the fence, for ever. It must not be able to
 * gain privileges (PR_SET_NO_NEW_PRIVS). may_change: may write, make and remove files. Returns 0,
 * also without Landlock, or -1 with a failure. */
int sandbox_enter(bool may_change);
/* The same, for a process whose root will be the directory `dir' (a descriptor) only after it has
 * opened RDMA adapters: until then it can also read /sys, and open what is in /dev/infiniband. */
int sandbox_enter_early(bool may_change, int dir);
/* As sandbox_enter(), and opens no file at all. */
int sandbox_enter_empty(void);

#endif
