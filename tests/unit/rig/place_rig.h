/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_PLACE_RIG_H
#define TESTS_PLACE_RIG_H

/* What tests of place create and check in their working directory. Only for the main thread. */

#include <stdint.h>
#include <sys/stat.h>
#include "copy/place/place.h"
#include "folder.h"

void make(const char *name, const char *text, mode_t mode);
void make_dir(const char *name, mode_t mode);
void assert_text(const char *name, const char *should);
void assert_absent(const char *name);
mode_t mode_of(const char *name);
/* The number of temporaries and markers in that directory; name gets the last one. */
unsigned temporaries(const char *in, char name[static 256]);
void assert_no_temporaries(void);

/* ---- trees -------------------------------------------------------------------------- */

/* The rules of -r and -a. */
extern const struct rules rules_r, rules_a;

struct end_seen { /* the reports of place_finish_run() */
	char deleted[4096]; /* "path:what ..." in the order of the reports */
	char failed[4096];
	unsigned dirs_failed;
	bool too_many;
	uint64_t count;
};

struct place *open_place(const struct place_opts *o);
/* The attributes of everything made below: mode, mtime 1000.5, owner and group 0. */
struct record_attr attr_of_mode(mode_t mode);
struct record_dir dir_record(const char *name, mode_t mode);
struct record_file file_record(const char *name, mode_t mode, uint64_t size);
/* Each asserts success, except try_…, which return the result of place. */
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
/* Complete, expecting no reports, and close. */
void finish_place(struct place *p);

#endif
