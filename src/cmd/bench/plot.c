/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/bench/plot.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum {
	WIDTH = 1060,
	HEIGHT = 560,
	LEFT = 84,
	RIGHT = 700, /* edges of the area of the lines */
	TOP = 84,
	BOTTOM = 480,
	LEGEND_AT = 730,
	LEGEND_STEP = 24,
};

/* Distinct with color blindness, and in print. */
static const char *const ladder[] = {"#a6c8e4", "#6ba3d6", "#2f73b3", "#0b3c73"};
static const char *const beside[] = {"#d55e00", "#009e73", "#b35694", "#8a6d00"};
enum { COLOURS = 4 };

double plot_axis(double most, double *step)
{
	double power, mantissa;

	if (!(most > 0))
		most = 1;
	power = pow(10, floor(log10(most / 5)));
	mantissa = most / 5 / power;
	*step = power * (mantissa <= 1 ? 1 : mantissa <= 2 ? 2 : mantissa <= 5 ? 5 : 10);
	return *step * ceil(most / *step - 1e-9);
}

double plot_place(uint32_t size, uint32_t least, uint32_t most)
{
	if (most <= least)
		return 0.5;
	return (log2(size) - log2(least)) / (log2(most) - log2(least));
}

struct plot_scale {
	uint32_t least, most;
	double top, step, unit;
};

static double x_of(const struct plot_scale *f, uint32_t size)
{
	return LEFT + 24 + plot_place(size, f->least, f->most) * (RIGHT - LEFT - 48);
}

static double y_of(const struct plot_scale *f, double rate)
{
	return BOTTOM - rate / f->top * (BOTTOM - TOP);
}

static void write_escaped(FILE *to, const char *s)
{
	for (; *s; s++) {
		switch (*s) {
		case '&':
			fputs("&amp;", to);
			break;
		case '<':
			fputs("&lt;", to);
			break;
		case '>':
			fputs("&gt;", to);
			break;
		case '"':
			fputs("&quot;", to);
			break;
		default:
			fputc((unsigned char)*s < ' ' ? '?' : *s, to);
		}
	}
}

static void draw_text(FILE *to, double x, double y, const char *look, const char *s)
{
	fprintf(to, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, look);
	write_escaped(to, s);
	fputs("</text>\n", to);
}

static void scale_axes(const struct plot *p, struct plot_scale *f)
{
	double most = p->limit;

	*f = (struct plot_scale){.least = UINT32_MAX};
	for (unsigned i = 0; i < p->count; i++) {
		const struct plot_line *l = &p->lines[i];

		for (unsigned k = 0; k < l->count; k++) {
			most = l->y[k] > most ? l->y[k] : most;
			f->least = l->x[k] < f->least ? l->x[k] : f->least;
			f->most = l->x[k] > f->most ? l->x[k] : f->most;
		}
	}
	/* Room for a label above the highest line. */
	f->top = plot_axis(most * 1.05, &f->step);
	f->unit = f->top >= 1e9 ? 1e9 : 1e6;
}

static void draw_head(const struct plot *p, FILE *to)
{
	fprintf(to,
		"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
		"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
		"height=\"%d\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" "
		"fill=\"#222\">\n<title>",
		WIDTH, HEIGHT, WIDTH, HEIGHT);
	write_escaped(to, p->title);
	fprintf(to, "</title>\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", WIDTH, HEIGHT);
	draw_text(to, LEFT, 34, "font-size=\"19\" font-weight=\"bold\"", p->title);
	draw_text(to, LEFT, 56, "fill=\"#666\"", p->subtitle);
}

static void draw_y_axis(const struct plot_scale *f, FILE *to)
{
	char label[32];
	double step = f->step / f->unit;
	int digits = step >= 1 ? 0 : step >= 0.1 ? 1 : step >= 0.01 ? 2 : 3;

	fputs("<g class=\"axis-y\">\n", to);
	for (double at = 0; at <= f->top * 1.0001; at += f->step) {
		double y = y_of(f, at);

		fprintf(to, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n",
			LEFT, RIGHT, y, y, at > 0 ? "#e4e4e4" : "#222");
		snprintf(label, sizeof label, "%.*f", digits, at / f->unit);
		draw_text(to, LEFT - 10, y + 4.5, "text-anchor=\"end\"", label);
	}
	fprintf(to,
		"<text transform=\"translate(26 %d) rotate(-90)\" text-anchor=\"middle\" "
		"font-size=\"14\">%s</text>\n</g>\n",
		(TOP + BOTTOM) / 2,
		f->unit >= 1e9 ? "rate in GB/s (1 GB = 10⁹ bytes)"
			       : "rate in MB/s (1 MB = 10⁶ bytes)");
}

static void size_label(uint32_t size, char *to, size_t room)
{
	if (size >= 1 << 20)
		snprintf(to, room, "%u MiB", size >> 20);
	else
		snprintf(to, room, "%u KiB", size >> 10);
}

static void draw_x_axis(const struct plot_scale *f, FILE *to)
{
	char label[32];

	fputs("<g class=\"axis-x\">\n", to);
	for (uint64_t size = f->least; size && size <= f->most; size *= 2) {
		double x = x_of(f, (uint32_t)size);
		int length = __builtin_ctzll(size / f->least) % 2 ? 4 : 7;

		fprintf(to, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"#222\"/>\n",
			x, x, BOTTOM, BOTTOM + length);
		size_label((uint32_t)size, label, sizeof label);
		if (length > 4)
			draw_text(to, x, BOTTOM + 24, "text-anchor=\"middle\"", label);
	}
	draw_text(to, (LEFT + RIGHT) / 2.0, BOTTOM + 52, "text-anchor=\"middle\" font-size=\"14\"",
		  "block size");
	fputs("</g>\n", to);
}

static const char *colour_of(const struct plot *p, unsigned i)
{
	unsigned before = 0;

	if (p->lines[i].step != PLOT_BESIDE)
		return ladder[p->lines[i].step < COLOURS ? p->lines[i].step : COLOURS - 1];
	for (unsigned k = 0; k < i; k++)
		before += p->lines[k].step == PLOT_BESIDE;
	return beside[before % COLOURS];
}

static void draw_line(const struct plot *p, unsigned i, const struct plot_scale *f, FILE *to)
{
	const struct plot_line *l = &p->lines[i];
	const char *colour = colour_of(p, i);

	fprintf(to,
		"<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2.5\" "
		"stroke-linejoin=\"round\"%s points=\"",
		colour, l->step == PLOT_BESIDE ? " stroke-dasharray=\"7 4\"" : "");
	for (unsigned k = 0; k < l->count; k++)
		fprintf(to, "%s%.1f,%.1f", k ? " " : "", x_of(f, l->x[k]), y_of(f, l->y[k]));
	fputs("\"/>\n", to);
	for (unsigned k = 0; k < l->count; k++)
		fprintf(to, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n",
			x_of(f, l->x[k]), y_of(f, l->y[k]), colour);
}

static void draw_limit(const struct plot *p, const struct plot_scale *f, FILE *to)
{
	double y = y_of(f, p->limit);

	if (p->limit <= 0)
		return;
	fprintf(to,
		"<line class=\"limit\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" "
		"stroke=\"#c00000\" stroke-width=\"1.5\" stroke-dasharray=\"2 3\"/>\n",
		LEFT, RIGHT, y, y);
	draw_text(to, LEFT + 8, y - 6, "fill=\"#c00000\"", p->limit_name);
}

/* Draws a ring and the rate at the best point: above it, unless the label of the limit is there. */
static void draw_best(const struct plot *p, const struct plot_scale *f, FILE *to)
{
	double x = x_of(f, p->best_x), y = y_of(f, p->best_y);
	double below = y_of(f, 0) - y > 60 ? 26 : -14;
	char label[32];

	if (!p->best_x)
		return;
	snprintf(label, sizeof label, "%.3g", p->best_y / f->unit);
	fprintf(to,
		"<circle class=\"best\" cx=\"%.1f\" cy=\"%.1f\" r=\"8\" fill=\"none\" "
		"stroke=\"#222\" stroke-width=\"1.8\"/>\n",
		x, y);
	draw_text(to, x, y + (p->limit > 0 ? below : -14),
		  "text-anchor=\"middle\" font-weight=\"bold\"", label);
}

static double find_peak(const struct plot_line *l)
{
	double most = 0;

	for (unsigned i = 0; i < l->count; i++)
		most = l->y[i] > most ? l->y[i] : most;
	return most;
}

/* The highest line that is not in the legend yet. */
static unsigned find_highest_line(const struct plot *p, const bool listed[static PLOT_LINES])
{
	unsigned at = PLOT_LINES;

	for (unsigned i = 0; i < p->count; i++) {
		if (!listed[i] &&
		    (at == PLOT_LINES || find_peak(&p->lines[i]) > find_peak(&p->lines[at])))
			at = i;
	}
	return at;
}

/* One line for each option of the best point. */
static void draw_legend_best(const struct plot *p, double y, FILE *to)
{
	const char *at = p->best_text, *end;
	char option[PLOT_TEXT];

	fprintf(to,
		"<circle cx=\"%d\" cy=\"%.1f\" r=\"8\" fill=\"none\" stroke=\"#222\" "
		"stroke-width=\"1.8\"/>\n",
		LEGEND_AT + 14, y);
	draw_text(to, LEGEND_AT + 38, y + 4.5, "font-weight=\"bold\"", "best");
	for (; *at; at = end + strspn(end, " ")) {
		end = strstr(at, " --");
		end = end ? end : at + strlen(at);
		snprintf(option, sizeof option, "%.*s", (int)(end - at), at);
		y += LEGEND_STEP - 5;
		draw_text(to, LEGEND_AT + 38, y + 4.5, "font-family=\"monospace\"", option);
	}
}

/* The highest line comes first, as in the plot. */
static void draw_legend(const struct plot *p, FILE *to)
{
	bool listed[PLOT_LINES] = {false};
	double y = TOP + 6;

	fputs("<g class=\"legend\">\n", to);
	for (unsigned n = 0; n < p->count; n++) {
		unsigned at = find_highest_line(p, listed);

		listed[at] = true;
		fprintf(to,
			"<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
			"stroke-width=\"3\"%s/>\n",
			LEGEND_AT, LEGEND_AT + 28, y, y, colour_of(p, at),
			p->lines[at].step == PLOT_BESIDE ? " stroke-dasharray=\"7 4\"" : "");
		draw_text(to, LEGEND_AT + 38, y + 4.5, "", p->lines[at].name);
		y += LEGEND_STEP;
	}
	if (p->best_x)
		draw_legend_best(p, y + 14, to);
	fputs("</g>\n", to);
}

void plot_svg(const struct plot *p, FILE *to)
{
	struct plot_scale f;

	scale_axes(p, &f);
	draw_head(p, to);
	/* Without lines the axes would have no extent. */
	if (p->count) {
		draw_y_axis(&f, to);
		draw_x_axis(&f, to);
		draw_limit(p, &f, to);
	}
	for (unsigned i = 0; i < p->count; i++)
		draw_line(p, i, &f, to);
	draw_best(p, &f, to);
	draw_legend(p, to);
	fputs("</svg>\n", to);
}
