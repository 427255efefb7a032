/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_SERVE_ACCOUNT_H
#define CMD_SERVE_ACCOUNT_H

/*
 * The user and group as which the sessions of a module run. All names are looked up while the
 * configuration is read: the processes of clients open no databases of users.
 */

#include <stdbool.h>
#include <sys/types.h>

enum { ACCOUNT_GROUPS_MAX = 256 };

struct run_as {
	bool has_user, has_group; /* neither: the user and groups of rdcpd */
	uid_t user;
	gid_t group;
	gid_t groups[ACCOUNT_GROUPS_MAX]; /* supplementary */
	unsigned group_count;
};

/* Take a name or a number. Return 0, or -1 with a failure (OUT_USAGE if there is no such name). */
int account_set_user(struct run_as *a, const char *text);
int account_set_group(struct run_as *a, const char *text);
/*
 * Fills in the group, if none was set, and the supplementary groups, from the user. Returns 0; or
 * -1 with a failure (OUT_USAGE if they do not exist), also if this process may not become that
 * account.
 */
int account_complete(struct run_as *a);
/*
 * This process becomes the account (NULL: stays who it is), for ever, and keeps no capability
 * unless that is root. Clears PR_SET_PDEATHSIG. Returns 0, or -1 with a failure.
 */
int account_enter(const struct run_as *a);

#endif
