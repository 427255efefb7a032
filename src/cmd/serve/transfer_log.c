/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/serve/transfer_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/io.h"
#include "base/log.h"
#include "cmd/output/json.h"
#include "cmd/output/report.h"

/* The end may be the client's by now: texts end where they have to. */
static void copy_claims(const struct guest_record *from, struct guest_record *to)
{
	memcpy(to, from, sizeof *to);
	to->path[sizeof to->path - 1] = '\0';
	to->text[sizeof to->text - 1] = '\0';
	if (to->role > ROLE_SINK)
		to->role = 0;
}

static const char *direction_of(const struct guest_record *r)
{
	return r->role == ROLE_SINK ? "push" : r->role == ROLE_SOURCE ? "pull" : "";
}

static const char *transport_of(const struct guest_record *r)
{
	return r->transport == TRANSPORT_TCP || r->transport == TRANSPORT_RDMA
		       ? transport_name(r->transport)
		       : "";
}

/* -1: killed. */
static int exit_code(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void describe_result(const struct transfer *t, const struct guest_record *r, char *to,
			    size_t size)
{
	int code = exit_code(t->status);

	if (code < 0)
		snprintf(to, size, "the end was killed by signal %d", WTERMSIG(t->status));
	else if (code == OUT_DONE)
		snprintf(to, size, "done");
	else
		snprintf(to, size, "exit code %d%s%s", code, *r->text ? ": " : "", r->text);
}

static void describe_work(const struct guest_record *r, char *to, size_t size)
{
	double seconds = (double)r->ns / 1e9;
	const char *direction = direction_of(r), *transport = transport_of(r);

	*to = '\0';
	if (*direction)
		snprintf(to, size, "; %s %s %s: %llu file%s, %llu bytes in %.3f s, %.3f GB/s%s%s",
			 direction, r->role == ROLE_SINK ? "to" : "of", *r->path ? r->path : ".",
			 (unsigned long long)r->files, r->files == 1 ? "" : "s",
			 (unsigned long long)r->bytes, seconds,
			 r->ns ? (double)r->bytes / (double)r->ns : 0, *transport ? " over " : "",
			 transport);
}

static void print_json(const struct transfer *t, const struct guest_record *r)
{
	char *line = NULL;
	size_t len = 0;
	FILE *to = open_memstream(&line, &len);
	int code = exit_code(t->status);

	if (!to) {
		log_warn("log a transfer: %m");
		return;
	}
	fprintf(to,
		"{\"v\":1,\"type\":\"transfer\",\"time\":%lld,\"from\":", (long long)time(NULL));
	json_text(to, t->from);
	fputs(",\"user\":", to);
	json_text(to, t->user);
	fputs(",\"module\":", to);
	json_text(to, t->module);
	fprintf(to, ",\"direction\":\"%s\",\"path\":", direction_of(r));
	json_text(to, r->path);
	fprintf(to,
		",\"files\":%llu,\"bytes\":%llu,\"seconds\":%.6f,\"transport\":\"%s\",\"code\":%d,"
		"\"signal\":%d,\"reason\":",
		(unsigned long long)r->files, (unsigned long long)r->bytes, (double)r->ns / 1e9,
		transport_of(r), code, code < 0 ? WTERMSIG(t->status) : 0);
	json_text(to, code == OUT_DONE ? "" : r->text);
	fputs("}\n", to);
	if (fclose(to) || !line)
		log_warn("log a transfer: %m");
	else
		(void)!write_full(STDERR_FILENO, line, len);
	free(line);
}

void transfer_log(const struct transfer *t, bool json)
{
	static struct guest_record r;
	char result[TEXT_MAX + 64], work[GUEST_PATH_MAX + 256];

	copy_claims(t->record, &r);
	if (json) {
		print_json(t, &r);
		return;
	}
	describe_result(t, &r, result, sizeof result);
	describe_work(&r, work, sizeof work);
	/* Not info: an administrator wants to see these without asking. */
	log_warn("%s%s%s, %s%s: %s%s", t->from, strcmp(t->user, "-") == 0 ? "" : ", user ",
		 strcmp(t->user, "-") == 0 ? "" : t->user,
		 *t->module ? "module " : "list of modules", t->module, result, work);
}
