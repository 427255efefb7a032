/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/io/sizes.h"

#include <linux/magic.h>
#include <sys/vfs.h>
#include "base/io.h"

enum {
	CONFIGFS_SUPER = 0x62656570,
	RESCTRL_SUPER = 0x7655821,
	ZFS_SUPER = 0x2fc12fc1,
};

static enum sizes sizes_by_type(unsigned long type)
{
	switch (type) {
	case PROC_SUPER_MAGIC:
	case SYSFS_MAGIC:
	case CGROUP_SUPER_MAGIC:
	case CGROUP2_SUPER_MAGIC:
	case DEBUGFS_MAGIC:
	case TRACEFS_MAGIC:
	case SECURITYFS_MAGIC:
	case SELINUX_MAGIC:
	case SMACK_MAGIC:
	case BPF_FS_MAGIC:
	case BINFMTFS_MAGIC:
	case CONFIGFS_SUPER:
	case RESCTRL_SUPER:
		return SIZES_MEANINGLESS;
	case EXT4_SUPER_MAGIC:
	case XFS_SUPER_MAGIC:
	case BTRFS_SUPER_MAGIC:
	case TMPFS_MAGIC:
	case F2FS_SUPER_MAGIC:
	case ZFS_SUPER:
	case NFS_SUPER_MAGIC:
	case OVERLAYFS_SUPER_MAGIC:
	case RAMFS_MAGIC:
	case SQUASHFS_MAGIC:
	case MSDOS_SUPER_MAGIC:
		return SIZES_TRUE;
	default:
		return SIZES_TRUE_UNLESS_ZERO;
	}
}

enum sizes sizes_of(struct sizes_cache *last, int fd, const struct stat *st)
{
	struct statfs fs;

	if (sizes_known(last, st))
		return last->sizes;
	last->known = RETRIED(fstatfs(fd, &fs)) == 0;
	last->dev = st->st_dev;
	last->sizes =
		last->known ? sizes_by_type((unsigned long)fs.f_type) : SIZES_TRUE_UNLESS_ZERO;
	return last->sizes;
}
