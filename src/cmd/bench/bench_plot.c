/* SPDX-License-Identifier: Apache-2.0 */

/* Draws the measured points. */

#include "cmd/bench/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/escape.h"
#include "base/fail.h"
#include "base/io.h"
#include "cmd/bench/plot.h"

/* Opens the file for writing without changing it, and removes a new one: the run may yet fail. */
static int try_to_open(const char *file)
{
	struct stat st;
	int fd;

	/* To the reader of a FIFO, closing it would be the end of the plot. */
	if (stat(file, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		return access(file, W_OK);
	fd = RETRIED(open(file, O_WRONLY | O_CLOEXEC));
	if (fd < 0 && errno == ENOENT) {
		fd = RETRIED(open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
		/* A dangling symlink: plot_write() will report a failure. */
		if (fd < 0 && errno == EEXIST)
			return 0;
		if (fd >= 0)
			unlink(file);
	}
	close_fd(fd);
	return fd < 0 ? -1 : 0;
}

int plot_check(const char *file)
{
	return try_to_open(file) ? fail("write %s: %m", file) : 0;
}

static void add_line(struct plot *p, const struct series *s, unsigned step)
{
	struct plot_line *l = &p->lines[p->count];

	*l = (struct plot_line){.step = step};
	setting_text(&s->set, l->name, sizeof l->name);
	for (unsigned i = 0; i < s->count && i < PLOT_POINTS; i++) {
		if (s->points[i].shrunk)
			continue;
		l->x[l->count] = s->points[i].set.block_size;
		l->y[l->count++] = point_rate(&s->points[i]);
	}
	p->count += l->count > 0;
}

static void fill_plot(struct plot *p, const struct bench *b)
{
	const struct setting *first = &b->series[0].set;
	time_t now = time(NULL);
	char host[100];
	struct tm tm;

	/* A longer name is truncated. */
	escape(host, sizeof host, b->host, strlen(b->host));
	snprintf(p->title, sizeof p->title, "From memory to memory, %s%s",
		 host[0] ? "to " : "within one host", host);
	localtime_r(&now, &tm);
	strftime(p->subtitle, sizeof p->subtitle,
		 any_shrunk(b) ? "measured by rdbench, %Y-%m-%d; without points that lacked memory "
				 "(ulimit -l, --memory)"
			       : "measured by rdbench, %Y-%m-%d",
		 &tm);
	for (unsigned i = 0; i < b->series_count && i < PLOT_LINES; i++) {
		const struct setting *s = &b->series[i].set;
		bool same = s->transport == first->transport && s->op == first->op;

		add_line(p, &b->series[i], same ? i : PLOT_BESIDE);
	}
	p->limit = b->limit.rate;
	snprintf(p->limit_name, sizeof p->limit_name, "limit of the link, %s: %.4g GB/s",
		 b->limit.name, b->limit.rate / 1e9);
	if (b->best->shrunk)
		return;
	p->best_x = b->best->set.block_size;
	p->best_y = point_rate(b->best);
	setting_options(b, &b->best->set, p->best_text, sizeof p->best_text);
}

int plot_write(const struct bench *b, const char *file)
{
	struct plot *p = calloc(1, sizeof *p);
	FILE *to = p ? fopen(file, "we") : NULL;
	bool bad;

	if (!to) {
		fail("write %s: %m", file);
		free(p);
		return -1;
	}
	fill_plot(p, b);
	plot_svg(p, to);
	bad = ferror(to);
	bad = fclose(to) || bad;
	free(p);
	return bad ? fail("write %s: %m", file) : 0;
}
