/* SPDX-License-Identifier: Apache-2.0 */
#ifndef UNIT_RIGHTS_H
#define UNIT_RIGHTS_H

/* The capabilities in effect. */

#include <linux/capability.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Puts a capability below 32 in effect, or out of it. False: this process has no right to it. */
static inline bool right_set(unsigned capability, bool on)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &head, data) != 0)
		return false;
	if (on)
		data[0].effective |= 1U << capability;
	else
		data[0].effective &= ~(1U << capability);
	return syscall(SYS_capset, &head, data) == 0;
}

#endif
