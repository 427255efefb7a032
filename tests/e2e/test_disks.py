# SPDX-License-Identifier: Apache-2.0
"""Disks that are too small, in bytes or in inodes: files without room are reported, and old targets stay.
tests/faults/limits.py fills the disks and judges; `tests/faults/limits.py SCENARIO tmpfs BYTES INODES' repeats
one run."""

import random
import sys

import pytest

from hosts import BIN, COUNT, ROOT, share

sys.path.insert(0, str(ROOT / "tests" / "faults"))

from limits import Ext4, MayNotMount, Oracle, Tmpfs  # noqa: E402

pytestmark = [
    pytest.mark.each_combination,
    pytest.mark.needs("tcp", why="over TCP on one host; disks are the same with any adapter"),
    pytest.mark.needs("root", why="it takes root to mount"),
    pytest.mark.may_skip("any", "to mount takes root, and a container that may"),
    pytest.mark.timeout(300 * COUNT),
]
ORACLE = Oracle(BIN)
PAGE = 4096
# This many pages, or inodes, more than are used before: none, a few, and around the sizes of the files.
PAGES = [*range(8), 22, 23, 24, 73, 97, 98, 99, 120, 121, 122, 170, 171, 172, 220, 300, 1000]
INODES = [*range(20)]
OLD = ["file-push", "delete-push", "ways-push", "backup-push", "backup-pull", "remove-push", "remove-pull", "update-local",
       "inplace-pull", "link-push", "resume-push", "resume-pull", "sparse-pull", "again-push", "again-local", "direct-local",
       "mkpath-push", "stream-files"]
TREES = ["tree-push", "tree-pull", "tree-local"]


def try_all(name, grounds, few):
    broken, codes, grounds = [], set(), share(list(grounds), few)
    for ground in grounds:
        try:
            run, found = ORACLE.judge(name, ground=ground)
        except MayNotMount:
            pytest.skip("may not mount")
        codes |= set(run.codes)
        broken += ["%s %s: %s: %s (exit %s: %s)" % (name, ground, class_, what, run.codes, "\n".join(run.texts)[:400])
                   for class_, what in found]
    assert not broken, "\n".join(broken)
    print("%s: %d disks, exit codes %s" % (name, len(grounds), sorted(codes)))
    assert codes and codes <= {0, 11, 23}, codes


@pytest.mark.parametrize("name", share(OLD, 8))
def test_little_free_space(name):
    """Beside old targets, which stay."""
    try_all(name, [Tmpfs(free=(n * PAGE, None)) for n in PAGES], 2)
    try_all(name, [Tmpfs(free=(None, n)) for n in INODES], 2)


@pytest.mark.parametrize("name", share(TREES, 1))
def test_small_empty_disks(name):
    """An empty disk, from 16 KiB and 2 inodes upwards."""
    sizes = [PAGE * n for n in (*range(4, 32), *(32 << n for n in range(9)))]
    try_all(name, [Tmpfs(bytes_=n) for n in sizes], 2)
    try_all(name, [Tmpfs(bytes_=n, inodes=i) for n in sizes for i in (2, 3, 4, 8, 16, 64)], 3)


@pytest.mark.parametrize("name", share(OLD, 2))
def test_full_ext4(name):
    """ext4 detects late that there is no room: when a file is written, or only at write-back."""
    grounds = [Ext4(free=(n * PAGE, None)) for n in PAGES] + [Ext4(free=(None, n)) for n in INODES]
    # One run takes as long as ten on tmpfs.
    try_all(name, grounds[:2] if COUNT == 1 else random.Random(11).sample(grounds, 10), 2)


@pytest.mark.parametrize("name", share(TREES, 1))
def test_small_empty_ext4(name):
    """From the smallest that mkfs makes, of which 4 inodes are free."""
    sizes = [1024 * n for n in (60, 61, 62, 64, 72, 80, 96, 128, 192, 256, 512, 1024)]
    try_all(name, [Ext4(bytes_=n, inodes=i) for n in sizes for i in (16, 64) if n >= 1024 * (60 if i == 16 else 72)], 1)
