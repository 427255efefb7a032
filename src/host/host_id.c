/* SPDX-License-Identifier: Apache-2.0 */
#include "host/host_id.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/io.h"
#include "base/random.h"

enum { BOOT_ID_LINE = 37 }; /* 36 characters and a newline */

static char boot_line[BOOT_ID_LINE];
static bool boot_known;

static void read_boot_line(void)
{
	int fd = RETRIED(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));

	boot_known = fd >= 0 && read_full(fd, boot_line, sizeof boot_line) == sizeof boot_line;
	close_fd(fd);
}

int boot_id(char *to, size_t size)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_boot_line);
	if (!boot_known || size > sizeof boot_line)
		return -1;
	memcpy(to, boot_line, size);
	return 0;
}

static uint64_t find_host_id(void)
{
	struct {
		char boot[64];
		uint64_t net;
	} identity = {.net = 0};
	uint8_t hash[EVP_MAX_MD_SIZE];
	struct stat st;
	uint64_t id;
	bool known =
		boot_id(identity.boot, BOOT_ID_LINE) == 0 && stat("/proc/self/ns/net", &st) == 0;

	if (known)
		identity.net = st.st_ino;
	if (known && EVP_Digest(&identity, sizeof identity, hash, NULL, EVP_sha256(), NULL) == 1) {
		memcpy(&id, hash, sizeof id);
		return id;
	}
	/* A random id equals no other host's. */
	return random_bytes(&id, sizeof id) == 0 ? id : (uint64_t)getpid();
}

uint64_t host_id(void)
{
	static _Atomic uint64_t known;
	uint64_t id = known;

	if (!id)
		known = id = find_host_id();
	return id;
}
