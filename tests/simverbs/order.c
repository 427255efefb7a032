/* SPDX-License-Identifier: Apache-2.0 */
#include "order.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "misuse.h"

enum { RULES = 16, UNSET = INT_MIN };

struct rule {
	char kind[16], name[40];
	int n, errnum, is, as, status, first, late, twice, for_ms;
	_Atomic int count;
};

/* The calls that can fail: each has order_failure() or FAIL_IF_ORDERED() in it. */
static const char *const calls[] = {
	"huge",
	"ibv_alloc_pd",
	"ibv_close_device",
	"ibv_create_comp_channel",
	"ibv_create_cq",
	"ibv_dealloc_pd",
	"ibv_dereg_mr",
	"ibv_destroy_comp_channel",
	"ibv_destroy_cq",
	"ibv_get_async_event",
	"ibv_get_cq_event",
	"ibv_get_device_list",
	"ibv_modify_qp",
	"ibv_open_device",
	"ibv_poll_cq",
	"ibv_post_recv",
	"ibv_post_send",
	"ibv_query_device",
	"ibv_query_port",
	"ibv_query_qp",
	"ibv_reg_mr",
	"ibv_reg_mr_iova2",
	"ibv_req_notify_cq",
	"rdma_accept",
	"rdma_ack_cm_event",
	"rdma_bind_addr",
	"rdma_connect",
	"rdma_create_event_channel",
	"rdma_create_id",
	"rdma_create_qp",
	"rdma_destroy_id",
	"rdma_disconnect",
	"rdma_get_cm_event",
	"rdma_listen",
	"rdma_migrate_id",
	"rdma_notify",
	"rdma_reject",
	"rdma_resolve_addr",
	"rdma_resolve_route",
	"rdma_set_option",
	"relaxed",
	NULL,
};
static const char *const messages[] = {"REQ", "REP", "RTU", "REJ", "DREQ", "DREP", NULL};
/* By number. The rest of them never happen. */
static const char *const events[] = {
	[RDMA_CM_EVENT_ADDR_RESOLVED] = "ADDR_RESOLVED",
	[RDMA_CM_EVENT_ADDR_ERROR] = "ADDR_ERROR",
	[RDMA_CM_EVENT_ROUTE_RESOLVED] = "ROUTE_RESOLVED",
	[RDMA_CM_EVENT_ROUTE_ERROR] = "",
	[RDMA_CM_EVENT_CONNECT_REQUEST] = "CONNECT_REQUEST",
	[RDMA_CM_EVENT_CONNECT_RESPONSE] = "",
	[RDMA_CM_EVENT_CONNECT_ERROR] = "",
	[RDMA_CM_EVENT_UNREACHABLE] = "UNREACHABLE",
	[RDMA_CM_EVENT_REJECTED] = "REJECTED",
	[RDMA_CM_EVENT_ESTABLISHED] = "ESTABLISHED",
	[RDMA_CM_EVENT_DISCONNECTED] = "DISCONNECTED",
	[RDMA_CM_EVENT_DEVICE_REMOVAL] = "DEVICE_REMOVAL",
	[RDMA_CM_EVENT_MULTICAST_JOIN] = "",
	[RDMA_CM_EVENT_MULTICAST_ERROR] = "",
	[RDMA_CM_EVENT_ADDR_CHANGE] = "",
	[RDMA_CM_EVENT_TIMEWAIT_EXIT] = "TIMEWAIT_EXIT",
	NULL,
};
static const char *const async_events[] = {
	[IBV_EVENT_CQ_ERR] = "CQ_ERR",
	[IBV_EVENT_QP_FATAL] = "QP_FATAL",
	[IBV_EVENT_QP_REQ_ERR] = "QP_REQ_ERR",
	[IBV_EVENT_QP_ACCESS_ERR] = "QP_ACCESS_ERR",
	[IBV_EVENT_COMM_EST] = "",
	[IBV_EVENT_SQ_DRAINED] = "",
	[IBV_EVENT_PATH_MIG] = "",
	[IBV_EVENT_PATH_MIG_ERR] = "",
	[IBV_EVENT_DEVICE_FATAL] = "DEVICE_FATAL",
	[IBV_EVENT_PORT_ACTIVE] = "PORT_ACTIVE",
	[IBV_EVENT_PORT_ERR] = "PORT_ERR",
	[IBV_EVENT_LID_CHANGE] = "LID_CHANGE",
	[IBV_EVENT_PKEY_CHANGE] = "PKEY_CHANGE",
	[IBV_EVENT_SM_CHANGE] = "SM_CHANGE",
	[IBV_EVENT_SRQ_ERR] = "",
	[IBV_EVENT_SRQ_LIMIT_REACHED] = "",
	[IBV_EVENT_QP_LAST_WQE_REACHED] = "",
	[IBV_EVENT_CLIENT_REREGISTER] = "CLIENT_REREGISTER",
	[IBV_EVENT_GID_CHANGE] = "GID_CHANGE",
	NULL,
};

static const struct kind {
	const char *name;
	const char *const *of; /* the names that it can have; NULL: it has none */
} kinds[] = {
	{"fail", calls},   {"delay", calls},        {"status", NULL}, {"receive", NULL},
	{"event", events}, {"lose", messages},      {"silent", NULL}, {"stale", NULL},
	{"reuse", NULL},   {"async", async_events}, {"relax", NULL},  {"regions", NULL},
	{"writes", NULL},
};

static struct rule rules[RULES];
static unsigned count;
static _Atomic bool silent;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int *find_number(struct rule *r, const char *name, size_t len)
{
	const struct {
		const char *name;
		int *at;
	} numbers[] = {{"n", &r->n},       {"errno", &r->errnum},  {"is", &r->is},
		       {"as", &r->as},     {"status", &r->status}, {"first", &r->first},
		       {"late", &r->late}, {"twice", &r->twice},   {"for", &r->for_ms}};

	for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++)
		if (strlen(numbers[i].name) == len && strncmp(name, numbers[i].name, len) == 0)
			return numbers[i].at;
	misuse("SIMVERBS_FAULT: what is %s?", name);
}

/* "n=2", or the rule's name */
static void set_word(struct rule *r, const char *word)
{
	const char *equals = strchr(word, '=');
	char *end;

	if (!equals) {
		snprintf(r->name, sizeof r->name, "%s", word);
		return;
	}
	*find_number(r, word, (size_t)(equals - word)) = (int)strtol(equals + 1, &end, 10);
	if (*end || end == equals + 1)
		misuse("SIMVERBS_FAULT: what is %s?", word);
}

/* Its index; -1: it is none of them. */
static int find_name(const char *const *names, const char *name)
{
	for (int i = 0; name[0] && names[i]; i++)
		if (strcmp(names[i], name) == 0)
			return i;
	return -1;
}

static void read_rule(char *text)
{
	const struct kind *kind = NULL;
	struct rule *r = &rules[count];
	char *words = strchr(text, ':'), *at;

	if (!words || count == RULES)
		misuse("SIMVERBS_FAULT: can't follow %s", text);
	*words++ = '\0';
	for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (strcmp(text, kinds[i].name) == 0)
			kind = &kinds[i];
	if (!kind)
		misuse("SIMVERBS_FAULT: what is %s?", text);
	snprintf(r->kind, sizeof r->kind, "%s", text);
	r->as = r->status = r->first = UNSET;
	for (char *word = strtok_r(words, ",", &at); word; word = strtok_r(NULL, ",", &at))
		set_word(r, word);
	if (kind->of ? find_name(kind->of, r->name) < 0 : r->name[0] != '\0')
		misuse("SIMVERBS_FAULT: %s: what is \"%s\"?", text, r->name);
	if (kind->of == calls && strcmp(text, "fail") == 0 && r->errnum <= 0)
		misuse("SIMVERBS_FAULT: fail:%s has no errno", r->name);
	count++;
}

static void read_rules(void)
{
	const char *text = getenv("SIMVERBS_FAULT");
	char *copy = text ? strdup(text) : NULL, *at;

	for (char *rule = copy ? strtok_r(copy, ";", &at) : NULL; rule;
	     rule = strtok_r(NULL, ";", &at))
		read_rule(rule);
	free(copy);
}

/* A child may have another environment. */
static void forget_parent(void)
{
	static const pthread_once_t fresh = PTHREAD_ONCE_INIT;

	memcpy(&once, &fresh, sizeof once);
	memset(rules, 0, sizeof rules);
	count = 0;
	atomic_store(&silent, false);
}

__attribute__((constructor)) static void prepare_forks(void)
{
	pthread_atfork(NULL, NULL, forget_parent);
}

static void mark(void)
{
	const char *path = getenv("SIMVERBS_MARK");
	int fd = path ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666) : -1;

	if (fd >= 0)
		close(fd);
}

/* The rule that this occurrence is the N-th of. */
static struct rule *find_rule(const char *kind, const char *name)
{
	struct rule *found = NULL;

	pthread_once(&once, read_rules);
	for (unsigned i = 0; i < count; i++) {
		struct rule *r = &rules[i];
		int n;

		if (strcmp(r->kind, kind) || (name && strcmp(r->name, name)))
			continue;
		n = atomic_fetch_add(&r->count, 1) + 1;
		if (!found && (r->n == 0 || r->n == n))
			found = r;
	}
	if (found)
		mark();
	return found;
}

int order_failure(const char *function)
{
	const struct rule *r = find_rule("delay", function);

	if (r)
		usleep((useconds_t)r->late * 1000);
	r = find_rule("fail", function);
	return r ? r->errnum : 0;
}

bool order_relaxed(void)
{
	return find_rule("relax", NULL) != NULL;
}

bool order_told(void)
{
	return find_rule("regions", NULL) != NULL;
}

bool order_writes(void)
{
	return find_rule("writes", NULL) != NULL;
}

int order_status(void)
{
	const struct rule *r = find_rule("status", NULL);

	return r ? r->is : 0;
}

int order_receive_status(void)
{
	const struct rule *r = find_rule("receive", NULL);

	return r ? r->is : 0;
}

struct order_event order_event(int what, int status)
{
	struct order_event e = {.as = what, .status = status, .first = -1};
	const struct rule *r = NULL;

	if ((unsigned)what < sizeof events / sizeof *events && events[what])
		r = find_rule("event", events[what]);
	if (!r)
		return e;
	if (r->as != UNSET) {
		e.as = r->as;
		e.status = r->status == UNSET ? 0 : r->status;
	}
	if (r->first != UNSET)
		e.first = r->first;
	e.late_ms = (unsigned)r->late;
	e.twice = r->twice;
	return e;
}

bool order_async(struct order_async *o)
{
	const struct rule *r = find_rule("async", NULL);

	*o = (struct order_async){.what = -1};
	if (r)
		*o = (struct order_async){.what = find_name(async_events, r->name),
					  .for_ms = (unsigned)r->for_ms};
	return r != NULL;
}

bool order_stale(void)
{
	return find_rule("stale", NULL) != NULL;
}

bool order_reuse(void)
{
	return find_rule("reuse", NULL) != NULL;
}

bool order_loss(const char *kind)
{
	return find_rule("lose", kind) != NULL;
}

bool order_silence(void)
{
	pthread_once(&once, read_rules);
	for (unsigned i = 0; i < count; i++)
		if (strcmp(rules[i].kind, "silent") == 0 &&
		    atomic_fetch_add(&rules[i].count, 1) + 1 >= rules[i].n &&
		    !atomic_exchange(&silent, true))
			mark();
	return atomic_load(&silent);
}

bool order_is_silent(void)
{
	return atomic_load(&silent);
}
