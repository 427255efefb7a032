/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Preloaded into programs by tests/faults/sweep. Every call of a function of calls.h passes through
 * every_call(). It counts the calls of each process at each site, in a file that all processes of a
 * run share, and makes the planned call fail.
 *
 *	SWEEP_FILE  the file: sizeof (struct shared) bytes, initially zero
 *	SWEEP_PLAN  ROLE CALL LIBRARY KIND N LASTING SITE...
 *	SWEEP_ORDER ROLE RULES: this process has RULES as SIMVERBS_FAULT (tests/simverbs/order.h)
 *	SWEEP_STACKS  if it is set, notes the first of a library's allocations on each stack
 *
 * ROLE: the process. A program has the name of its file, followed by the option that makes it an
 * end (as "rdcp--end"); its k-th fork has the name of its parent and ".k".
 *
 * CALL: the number of the function in calls.h.
 *
 * LIBRARY: 1 if a library makes the call while the program is in a call at SITE.
 *
 * KIND: the error number, or 0 for a short call.
 *
 * N: the number of the call among those at these sites, from 1.
 *
 * LASTING: 1 if all later calls fail too.
 *
 * SITE: the return address, relative to the load address of the program, in hexadecimal.
 *
 * Only calls by the program itself count; of allocations, those by libraries count too, but not
 * those of tests/simverbs. All code here must work in any thread, after any fork and inside malloc,
 * so it calls almost nothing.
 */
#undef _FILE_OFFSET_BITS
#undef _TIME_BITS

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include <unwind.h>

enum result { MINUS, NIL, CODE, NUMBER };
enum way {
	PLAIN,
	DONE,
	HELD,
	LEN1,
	LEN2,
	IOV,
	MSG,
	FILE0,
	FILE1,
	FILE2,
	FILE3,
	STDOUT,
	NONE4,
	BAD2,
	MEM
};
enum { PROCESSES = 32, ENTRIES = 4096, SITES = 32, VECTOR = 64, ERROR_SEEN = 0x20 };
enum { STACKS = 8192, FRAMES = 64 };

/* read_record() in sites.py reads these. */
struct entry {
	_Atomic uint64_t key; /* site << 16 | call << 1 | library */
	_Atomic uint32_t count;
	_Atomic uint32_t by; /* for a library's call: 1 + the number of the program's call */
};
struct stack {
	_Atomic uint64_t hash; /* of the return addresses and the key */
	uint64_t key; /* as of an entry */
	uint32_t n; /* the number of the first allocation on it, among those of the key */
	uint32_t by; /* as of an entry */
};
struct process {
	char role[48];
	_Atomic uint32_t full;
	uint32_t spare[3];
	struct entry entries[ENTRIES];
	struct stack stacks[STACKS];
};
struct shared {
	_Atomic uint32_t processes;
	_Atomic uint32_t hits; /* calls at the planned sites */
	_Atomic uint32_t injected;
	uint32_t spare;
	struct process process[PROCESSES];
};

struct plan {
	char role[48];
	unsigned call, library, kind, lasting, n, sites;
	uintptr_t site[SITES];
};

/* As in <infiniband/verbs.h>, which not every build has. */
struct comp_channel {
	void *context;
	int fd, refcnt;
};

typedef uintptr_t function(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);
/* Returned in two registers, see every_call_stubs.S. */
struct verdict {
	uintptr_t result;
	uintptr_t done;
};

static const struct {
	const char *name;
	enum result result;
	enum way way;
} calls[] = {
#define CALL(name, result, errnos, way) {#name, result, way},
#include "calls.h"
#undef CALL
};
enum { CALLS = sizeof calls / sizeof *calls };

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
/* AddressSanitizer's, in a build with it. */
extern void *__interceptor_malloc(size_t) __attribute__((weak));
extern void *__interceptor_calloc(size_t, size_t) __attribute__((weak));
extern void *__interceptor_realloc(void *, size_t) __attribute__((weak));

static _Atomic uintptr_t real[CALLS];
static struct shared *shared;
static struct process *own_process;
static struct plan plan;
static bool planned, notes_stacks;
static char role[48];
static unsigned forks;
static uintptr_t program, program_size;
static uintptr_t simverbs[2][2]; /* where these libraries begin and end */
static char order[512] = "SIMVERBS_FAULT=";
static _Thread_local uintptr_t last_site __attribute__((tls_model("initial-exec")));
static _Thread_local unsigned last_call __attribute__((tls_model("initial-exec")));
static _Thread_local struct iovec half[VECTOR] __attribute__((tls_model("initial-exec")));
static _Thread_local struct msghdr half_message __attribute__((tls_model("initial-exec")));

struct verdict every_call(unsigned call, uintptr_t *args, uintptr_t from);

/* dlsym() may allocate, so these must be found without it. */
static uintptr_t allocator(const char *name)
{
	bool watched = __interceptor_malloc != NULL;

	if (strcmp(name, "malloc") == 0)
		return (uintptr_t)(watched ? __interceptor_malloc : __libc_malloc);
	if (strcmp(name, "calloc") == 0)
		return (uintptr_t)(watched ? __interceptor_calloc : __libc_calloc);
	return (uintptr_t)(watched ? __interceptor_realloc : __libc_realloc);
}

static uintptr_t real_of(unsigned call)
{
	uintptr_t at = atomic_load_explicit(&real[call], memory_order_relaxed);
	const char *name = calls[call].name;

	if (at)
		return at;
	/* Only simulated verbs have all of them. */
	at = calls[call].way == MEM ? allocator(name) : (uintptr_t)dlsym(RTLD_NEXT, name);
	atomic_store_explicit(&real[call], at, memory_order_relaxed);
	return at;
}

/* ---- which process this is ---------------------------------------------------------------- */

static void claim(void)
{
	uint32_t n = atomic_fetch_add(&shared->processes, 1);

	own_process = n < PROCESSES ? &shared->process[n] : NULL;
	if (own_process)
		memcpy(own_process->role, role, sizeof role);
	planned = plan.n > 0 && strcmp(role, plan.role) == 0;
}

/* Works after a fork, too: putenv() was given this memory. */
static void choose_order(void)
{
	const char *text = getenv("SWEEP_ORDER"), *rules = text ? strchr(text, ' ') : NULL;
	size_t used = strlen("SIMVERBS_FAULT="), named = strlen(role);

	order[used] = '\0';
	if (rules && (size_t)(rules - text) == named && strncmp(text, role, named) == 0)
		strncat(order, rules + 1, sizeof order - used - 1);
}

static void before_fork(void)
{
	forks++;
}

static void after_fork_in_child(void)
{
	size_t used = strlen(role);

	if (used + 4 < sizeof role) {
		role[used++] = '.';
		if (forks > 9)
			role[used++] = (char)('0' + forks / 10 % 10);
		role[used++] = (char)('0' + forks % 10);
		role[used] = '\0';
	}
	forks = 0;
	choose_order();
	claim();
}

static bool name_role(int argc, char **argv)
{
	static const char *const programs[] = {"rdcp",    "rdsend",  "rdrecv",
					       "rdbench", "rdcheck", "rdcpd"};
	static const char *const ends[] = {"--end", "--ends", "--lane", "--lane-listen",
					   "--survey"};
	const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
	bool ours = false;

	for (unsigned i = 0; i < sizeof programs / sizeof *programs; i++)
		ours = ours || strcmp(name, programs[i]) == 0;
	strncat(role, name, 16);
	for (unsigned i = 0; argc > 1 && i < sizeof ends / sizeof *ends; i++)
		if (strcmp(argv[1], ends[i]) == 0)
			strcat(role, ends[i]);
	return ours;
}

static void find_program(void)
{
	const ElfW(Phdr) *at = (const ElfW(Phdr) *)getauxval(AT_PHDR);
	unsigned long count = getauxval(AT_PHNUM);

	for (unsigned long i = 0; i < count; i++)
		if (at[i].p_type == PT_PHDR)
			program = (uintptr_t)at - at[i].p_vaddr;
	for (unsigned long i = 0; i < count; i++)
		if (at[i].p_type == PT_LOAD && at[i].p_vaddr + at[i].p_memsz > program_size)
			program_size = at[i].p_vaddr + at[i].p_memsz;
}

static int note_simverbs(struct dl_phdr_info *info, size_t size, void *count)
{
	unsigned *n = count;

	(void)size;
	if (!strstr(info->dlpi_name, "/simverbs/") || *n == 2)
		return 0;
	simverbs[*n][0] = info->dlpi_addr;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type == PT_LOAD)
			simverbs[*n][1] = info->dlpi_addr + p->p_vaddr + p->p_memsz;
	}
	++*n;
	return 0;
}

static bool is_simverbs(uintptr_t from)
{
	return (from >= simverbs[0][0] && from < simverbs[0][1]) ||
	       (from >= simverbs[1][0] && from < simverbs[1][1]);
}

static bool read_plan(const char *text)
{
	int used = 0;

	if (!text || sscanf(text, "%47s %u %u %u %u %u%n", plan.role, &plan.call, &plan.library,
			    &plan.kind, &plan.n, &plan.lasting, &used) != 6)
		return false;
	for (char *end; plan.sites < SITES; plan.sites++, used = (int)(end - text)) {
		plan.site[plan.sites] = strtoul(text + used, &end, 16);
		if (end == text + used)
			break;
	}
	return true;
}

__attribute__((constructor)) static void start_counting(int argc, char **argv)
{
	const char *path = getenv("SWEEP_FILE");
	struct shared *map;
	unsigned libraries = 0;
	int fd;

	if (!path || !name_role(argc, argv))
		return;
	for (unsigned i = 0; i < CALLS; i++)
		real_of(i);
	if (!read_plan(getenv("SWEEP_PLAN")))
		plan.n = 0;
	notes_stacks = getenv("SWEEP_STACKS") != NULL;
	choose_order();
	if (getenv("SWEEP_ORDER"))
		putenv(order);
	find_program();
	dl_iterate_phdr(note_simverbs, &libraries);
	pthread_atfork(before_fork, NULL, after_fork_in_child);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return;
	map = mmap(NULL, sizeof *map, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (map == MAP_FAILED)
		return;
	shared = map;
	claim();
}

/* ---- counting ------------------------------------------------------------------------------ */

struct trace {
	uint64_t hash;
	unsigned frames;
};

/* Ends with the frame of the program. */
static _Unwind_Reason_Code add_frame(struct _Unwind_Context *context, void *arg)
{
	struct trace *t = arg;
	uintptr_t at = _Unwind_GetIP(context);

	t->hash = (t->hash ^ at) * 0x9e3779b97f4a7c15u;
	t->hash ^= t->hash >> 29;
	return at - program < program_size || ++t->frames == FRAMES ? _URC_END_OF_STACK
								    : _URC_NO_REASON;
}

/* A library's allocation, the n-th of this key. */
static void note_stack(uint64_t key, uint32_t n)
{
	struct trace t = {key, 0};
	size_t at;

	_Unwind_Backtrace(add_frame, &t);
	at = t.hash % STACKS;
	for (unsigned tries = 0; tries < STACKS; tries++, at = (at + 1) % STACKS) {
		struct stack *s = &own_process->stacks[at];
		uint64_t old = 0;

		if (atomic_compare_exchange_strong(&s->hash, &old, t.hash)) {
			s->key = key;
			s->n = n;
			s->by = last_call + 1;
			return;
		}
		if (old == t.hash)
			return;
	}
	own_process->full = 1;
}

static void count(uintptr_t site, unsigned call, unsigned library)
{
	uint64_t key = (uint64_t)site << 16 | call << 1 | library;
	size_t at = (size_t)(key * 0x9e3779b97f4a7c15u >> 40);
	uint32_t n;

	if (!own_process)
		return;
	for (unsigned tries = 0; tries < ENTRIES; tries++, at++) {
		struct entry *e = &own_process->entries[at % ENTRIES];
		uint64_t old = 0;

		if (atomic_load_explicit(&e->key, memory_order_relaxed) == key ||
		    atomic_compare_exchange_strong(&e->key, &old, key) || old == key) {
			n = 1 + atomic_fetch_add_explicit(&e->count, 1, memory_order_relaxed);
			if (library)
				e->by = last_call + 1;
			if (library && notes_stacks)
				note_stack(key, n);
			return;
		}
	}
	own_process->full = 1;
}

static bool is_planned(uintptr_t site, unsigned call, unsigned library)
{
	bool at = false;
	uint32_t n;

	if (!planned || plan.call != call || plan.library != library)
		return false;
	for (unsigned i = 0; i < plan.sites && !at; i++)
		at = plan.site[i] == site;
	if (!at)
		return false;
	n = atomic_fetch_add(&shared->hits, 1) + 1;
	return n == plan.n || (n > plan.n && plan.lasting);
}

/* ---- failing ------------------------------------------------------------------------------- */

static void mark_stream(FILE *f)
{
	f->_flags |= ERROR_SEEN;
}

static uintptr_t fail_call(unsigned call, uintptr_t *args)
{
	switch (calls[call].way) {
	case HELD:
		((struct comp_channel *)args[0])->refcnt++;
		/* fall through */
	case DONE:
		((function *)real_of(call))(args[0], args[1], args[2], args[3], args[4], args[5]);
		break;
	case FILE0:
		mark_stream((FILE *)args[0]);
		break;
	case FILE1:
		mark_stream((FILE *)args[1]);
		break;
	case FILE2:
		mark_stream((FILE *)args[2]);
		break;
	case FILE3:
		mark_stream((FILE *)args[3]);
		break;
	case STDOUT:
		mark_stream(stdout);
		break;
	case NONE4:
		*(void **)args[4] = NULL;
		break;
	case BAD2:
		*(uintptr_t *)args[2] = args[1];
		break;
	default:
		break;
	}
	if (calls[call].result == NUMBER)
		return (uintptr_t)(intptr_t)(int)plan.kind;
	if (calls[call].result == CODE)
		return plan.kind;
	errno = (int)plan.kind;
	return calls[call].result == MINUS ? (uintptr_t)-1 : 0;
}

/* Puts the first half of a vector, at least a byte, into half; returns its number of entries. */
static size_t take_half(const struct iovec *from, size_t count)
{
	size_t all = 0, used = 0;

	for (size_t i = 0; i < count; i++)
		all += from[i].iov_len;
	all = (all + 1) / 2;
	for (; used < count && used < VECTOR && all > 0; used++) {
		half[used] = from[used];
		if (half[used].iov_len > all)
			half[used].iov_len = all;
		all -= half[used].iov_len;
	}
	return used;
}

/* Halves the length in args, and returns whether it could. */
static bool shorten(unsigned call, uintptr_t *args)
{
	unsigned at = calls[call].way == LEN1 ? 1 : 2;
	struct msghdr *m;

	switch (calls[call].way) {
	case LEN1:
	case LEN2:
		if (args[at] < 2)
			return false;
		args[at] /= 2;
		return true;
	case IOV:
		args[2] = take_half((struct iovec *)args[1], args[2]);
		args[1] = (uintptr_t)half;
		return true;
	case MSG:
		m = (struct msghdr *)args[1];
		half_message = *m;
		half_message.msg_iovlen = take_half(m->msg_iov, m->msg_iovlen);
		half_message.msg_iov = half;
		/* A receiver reads its own msghdr afterwards, so only sendmsg() can be short. */
		if (strcmp(calls[call].name, "sendmsg") != 0)
			return false;
		args[1] = (uintptr_t)&half_message;
		return true;
	default:
		return false;
	}
}

struct verdict every_call(unsigned call, uintptr_t *args, uintptr_t from)
{
	struct verdict v = {real_of(call), 0};
	unsigned library = 0;

	if (!shared)
		return v;
	if (from - program < program_size) {
		last_site = from - program;
		last_call = call;
	} else if (calls[call].way == MEM && last_site && !is_simverbs(from)) {
		library = 1;
	} else {
		return v;
	}
	count(last_site, call, library);
	if (!is_planned(last_site, call, library))
		return v;
	if (plan.kind == 0) {
		if (shorten(call, args))
			atomic_fetch_add(&shared->injected, 1);
		return v;
	}
	atomic_fetch_add(&shared->injected, 1);
	v.result = fail_call(call, args);
	v.done = 1;
	return v;
}
