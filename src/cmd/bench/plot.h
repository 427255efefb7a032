/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CMD_BENCH_PLOT_H
#define CMD_BENCH_PLOT_H

/* A plot in SVG: rates over block sizes on a log2 axis, a line for each setting, and the link's
 * limit. Independent of how the numbers were measured. */

#include <stdint.h>
#include <stdio.h>

enum { PLOT_POINTS = 16, PLOT_LINES = 16, PLOT_TEXT = 160 };

struct plot_line {
	char name[PLOT_TEXT];
	unsigned step; /* color step, from pale to dark; PLOT_BESIDE: outside the scale */
	unsigned count;
	uint32_t x[PLOT_POINTS]; /* bytes, ascending */
	double y[PLOT_POINTS]; /* bytes per second */
};
enum { PLOT_BESIDE = 99 };

struct plot {
	char title[PLOT_TEXT], subtitle[PLOT_TEXT];
	struct plot_line lines[PLOT_LINES];
	unsigned count;
	double limit; /* bytes per second; 0: none */
	char limit_name[PLOT_TEXT];
	uint32_t best_x; /* 0: no point is marked */
	double best_y;
	char best_text[PLOT_TEXT];
};

/* The end of an axis that starts at 0 and includes most, and the distance of its ticks: 1, 2 or 5
 * times a power of ten, giving 4 to 10 ticks. */
double plot_axis(double most, double *step);
/* The position of size between least (0) and most (1) on a logarithmic scale. */
double plot_place(uint32_t size, uint32_t least, uint32_t most);

void plot_svg(const struct plot *p, FILE *to);

#endif
