/* SPDX-License-Identifier: Apache-2.0 */
/* rdcpd's configuration file. What it accepts must lie within the bounds that rdcpd relies on. */
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cmd/serve/config.h"
#include "expect.h"
#include "session/channel/key_ring.h"

enum { INPUT_MAX = 64 << 10 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct config config;

static void expect_rules(const struct host_rules *r)
{
	static const union address loopback = {
		.in6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT}};
	static const union address any = {.in4 = {.sin_family = AF_INET}};

	expect(r->count <= HOST_RULES_MAX);
	for (unsigned i = 0; i < r->count; i++)
		expect(r->of[i].prefix <= 8 * r->of[i].bytes && r->of[i].bytes <= 16);
	(void)host_rules_match(r, &loopback);
	(void)host_rules_match(r, &any);
}

static void expect_module(unsigned i)
{
	const struct module *m = &config.modules[i];
	union address from = {.in4 = {.sin_family = AF_INET}};
	const char *users[] = {"-", "alice", ANONYMOUS_USER};
	struct module_rights may;

	expect(module_name_is_valid(m->name, strlen(m->name)));
	expect(m->path[0] == '/' && strlen(m->path) < PATH_MAX);
	expect(m->may_read || m->may_write);
	expect(module_find(config.modules, config.module_count, m->name) == m);
	expect_rules(&m->allow);
	expect_rules(&m->deny);
	for (unsigned u = 0; u < 3; u++)
		if (module_admit(m, users[u], &from))
			expect(failed()->code == OUT_AUTH);
	may = module_rights(m, ANONYMOUS_USER);
	expect(!m->anonymous || may.read || may.write);
	expect(!may.delete &&!may.remove && (!may.write || m->anonymous_writes));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = memfd_create("rdcpd.conf", MFD_CLOEXEC);
	char path[64];

	if (size > INPUT_MAX) {
		close(fd);
		return -1;
	}
	expect(fd >= 0 && fchmod(fd, S_IRUSR | S_IWUSR) == 0);
	expect(write(fd, data, size) == (ssize_t)size);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	memset(&config, 0, sizeof config);
	config_init(&config);
	if (config_read(path, &config))
		expect(failed()->code == OUT_USAGE);
	else
		for (unsigned i = 0; i < config.module_count; i++)
			expect_module(i);
	expect(config.module_count <= MODULES_MAX && config.port <= UINT16_MAX);
	expect(config.drain_s <= DRAIN_S_MAX);
	close(fd);
	return 0;
}
