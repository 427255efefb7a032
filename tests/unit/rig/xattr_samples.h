/* SPDX-License-Identifier: Apache-2.0 */
#ifndef XATTR_SAMPLES_H
#define XATTR_SAMPLES_H

#include "protocol/acl.h"

#define ACCESS "system.posix_acl_access"
#define DEFAULT "system.posix_acl_default"

enum { SAMPLE_ACL = 7 };
static const struct acl_entry sample_acl[SAMPLE_ACL] = {
	{ACL_USER_OBJ, 6, ACL_NO_ID},  {ACL_USER, 4, 2001},  {ACL_USER, 6, 2002},
	{ACL_GROUP_OBJ, 4, ACL_NO_ID}, {ACL_GROUP, 5, 3001}, {ACL_MASK, 7, ACL_NO_ID},
	{ACL_OTHER, 0, ACL_NO_ID},
};

#endif
