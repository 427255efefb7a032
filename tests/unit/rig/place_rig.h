/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_PLACE_RIG_H
#define TESTS_PLACE_RIG_H

/* What tests of place make and look at in the folder that they are in.  Only for the main thread.
 */

#include <stdint.h>
#include <sys/stat.h>
#include "copy/place/place.h"
#include "folder.h"

void make(const char *name, const char *text, mode_t mode);
void make_dir(const char *name, mode_t mode);
void assert_text(const char *name, const char *should);
void assert_absent(const char *name);
mode_t mode_of(const char *name);
/* Temporaries and markers in there; the last one's name. */
unsigned temporaries(const char *in, char name[static 256]);
void assert_no_temporaries(void);

/* ---- trees -------------------------------------------------------------------------- */

/* As -r and -a have them. */
extern const struct rules rules_r, rules_a;

struct end_seen { /* what place_complete() told */
	char deleted[4096]; /* "path:what ..." in the order of telling */
	char failed[4096];
	unsigned dirs_failed;
	bool too_many;
	uint64_t count;
};

struct place *open_place(const struct place_opts *o);
/* The attributes of what is made below: mode, mtime 1000.5, owner and group 0. */
struct record_attr walk_attr_of(mode_t mode);
struct record_dir dir_record(const char *name, mode_t mode);
struct record_file file_record(const char *name, mode_t mode, uint64_t size);
/* Each asserts that it is done, but for try_…, which return what place does. */
struct place_dir *put_dir(struct place *p, struct place_dir *up, const char *name, mode_t mode);
struct place_dir *put_contents(struct place *p, mode_t mode);
int try_dir(struct place *p, struct place_dir *up, const char *name, struct change *c);
void put_file(struct place *p, struct place_dir *d, const char *name, const char *text);
int try_file(struct place *p, struct place_dir *d, const char *name, const char *text);
int try_symlink(struct place *p, struct place_dir *d, const char *name, const char *target,
		struct change *c);
void put_symlink(struct place *p, struct place_dir *d, const char *name, const char *target);
/* names: separated by blanks */
void keep(struct place_dir *d, const char *names);
void complete(struct place *p, bool deletions, struct end_seen *seen);
/* Complete, with nothing to be seen, and close. */
void finish_place(struct place *p);

#endif
