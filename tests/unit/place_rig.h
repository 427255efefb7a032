/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_PLACE_RIG_H
#define TESTS_PLACE_RIG_H

/* A directory to work in, and what tests of place look at in it.  Only for the main thread. */

#include <sys/stat.h>

/* Setup and teardown: into an empty directory, and out of it again. */
int rig_enter(void **state);
int rig_leave(void **state);
/* Where it is. */
const char *rig_dir(void);

void make(const char *name, const char *text, mode_t mode);
void make_dir(const char *name, mode_t mode);
void assert_text(const char *name, const char *should);
void assert_absent(const char *name);
mode_t mode_of(const char *name);
/* Temporaries and markers in there; the last one's name. */
unsigned temporaries(const char *in, char name[static 256]);
void assert_no_temporaries(void);

#endif
