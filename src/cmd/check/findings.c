/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/check/findings.h"

#include <stdarg.h>
#include <string.h>
#include "base/escape.h"
#include "cmd/check/survey.h"
#include "cmd/output/json.h"
#include "cmd/process/process.h"

enum { WIDTH = 96, INDENT = 10 };

static const char *const state_names[] = {
	[FINDING_OK] = "ok",
	[FINDING_INFO] = "info",
	[FINDING_WARNING] = "warning",
	[FINDING_FAILURE] = "failure",
};

void findings_begin(struct findings *f, const struct options *o, const char *far)
{
	*f = (struct findings){.o = o, .tcp_is_enough = o->network.want == TRANSPORT_TCP};
	if (!o->output.json)
		return;
	fputs("{\"v\": 1, \"type\": \"start\", \"host\": ", stdout);
	json_text(stdout, far);
	fputs("}\n", stdout);
	process_flush_stdout();
}

void findings_set_host(struct findings *f, const char *place)
{
	snprintf(f->host, sizeof f->host, "%s", place);
	f->titled = false;
}

/* Prints the words of text from column `at' on; later lines begin at column INDENT. */
static void print_wrapped_text(const char *text, size_t at)
{
	while (*text) {
		size_t len = strcspn(text, " "), gap = at > INDENT;

		if (gap && at + gap + len > WIDTH) {
			printf("\n%*s", INDENT, "");
			at = INDENT;
			gap = 0;
		}
		printf("%s%.*s", gap ? " " : "", (int)len, text);
		at += gap + len;
		text += len + (text[len] == ' ');
	}
	putchar('\n');
}

static void print_line(struct findings *f, const struct msg_finding *m, enum finding_state state)
{
	char text[4 * (FINDING_NAME + FINDING_SUBJECT + TEXT_MAX)], remedy[4 * TEXT_MAX + 16];
	char line[FINDING_NAME + FINDING_SUBJECT + TEXT_MAX + 16];

	if (f->o->output.quiet && state < FINDING_WARNING)
		return;
	if (!f->titled) {
		escape(text, sizeof text, f->host, strlen(f->host));
		printf("%s:\n", text);
		f->titled = true;
	}
	snprintf(line, sizeof line, "%s%s%s: %s", m->name, m->subject[0] ? " " : "", m->subject,
		 m->what);
	escape(text, sizeof text, line, strlen(line));
	printf("  %-*s", INDENT - 2, state == FINDING_FAILURE ? "FAILURE" : state_names[state]);
	print_wrapped_text(text, INDENT);
	if (!m->remedy[0])
		return;
	snprintf(remedy, sizeof remedy, "remedy: ");
	escape(remedy + strlen(remedy), sizeof remedy - strlen(remedy), m->remedy,
	       strlen(m->remedy));
	printf("%*s", INDENT, "");
	print_wrapped_text(remedy, INDENT);
}

static void print_json(const struct findings *f, const struct msg_finding *m,
		       enum finding_state state)
{
	fputs("{\"v\": 1, \"type\": \"check\", \"host\": ", stdout);
	json_text(stdout, f->host);
	fputs(", \"name\": ", stdout);
	json_text(stdout, m->name);
	fputs(", \"subject\": ", stdout);
	json_text(stdout, m->subject);
	printf(", \"state\": \"%s\", \"what\": ", state_names[state]);
	json_text(stdout, m->what);
	fputs(", \"remedy\": ", stdout);
	json_text(stdout, m->remedy);
	fputs("}\n", stdout);
}

void findings_take(struct findings *f, const struct msg_finding *m)
{
	enum finding_state state = (enum finding_state)m->state;

	if (f->tcp_is_enough && state == FINDING_FAILURE && strcmp(m->name, "tcp") != 0 &&
	    strcmp(m->name, "start") != 0 && strcmp(m->name, "versions") != 0)
		state = FINDING_WARNING;
	f->count[state]++;
	if (f->o->output.json)
		print_json(f, m, state);
	else
		print_line(f, m, state);
	/* The next check may take a while. */
	process_flush_stdout();
}

void findings_add(struct findings *f, enum finding_state state, const char *name,
		  const char *subject, const char *remedy, const char *fmt, ...)
{
	struct msg_finding m;
	va_list ap;

	va_start(ap, fmt);
	finding_compose(&m, state, name, subject, remedy, fmt, ap);
	va_end(ap);
	findings_take(f, &m);
}

void findings_end(const struct findings *f, enum outcome code)
{
	const char *what = f->tcp_is_enough ? "TCP" : "RDMA";
	const char *verdict = code == OUT_DONE        ? "fit for"
			      : code == OUT_TRANSPORT ? "not fit for"
						      : "unknown whether fit for";

	if (f->o->output.json)
		printf("{\"v\": 1, \"type\": \"summary\", \"fit\": %s, \"exit\": %d, \"failures\": "
		       "%u, \"warnings\": %u}\n",
		       code == OUT_DONE ? "true" : "false", (int)code, f->count[FINDING_FAILURE],
		       f->count[FINDING_WARNING]);
	else if (!f->o->output.quiet)
		printf("%s %s: %u failure%s, %u warning%s\n", verdict, what,
		       f->count[FINDING_FAILURE], f->count[FINDING_FAILURE] == 1 ? "" : "s",
		       f->count[FINDING_WARNING], f->count[FINDING_WARNING] == 1 ? "" : "s");
}
