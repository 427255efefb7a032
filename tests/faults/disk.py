# SPDX-License-Identifier: Apache-2.0
"""A file system on which files can share blocks, for the scenarios that need one."""

import atexit
import ctypes
import os
import subprocess
import tempfile

from sites import scratch

CLONE_NEWNS = 0x20000
SIZE = 1 << 30


def run(*words):
    r = subprocess.run(words, capture_output=True, text=True, check=False)
    if r.returncode:
        raise OSError(r.stderr.strip() or "%s: %d" % (words[0], r.returncode))


def mount_disk():
    """Mounts a new btrfs, and returns its directory. OSError: not possible here. The mount is in a namespace of this
    process, so that it ends with this process and its children."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare: " + os.strerror(ctypes.get_errno()))
    run("mount", "--make-rprivate", "/")
    at = tempfile.mkdtemp(prefix="sluice-sweep-disk-", dir=scratch())
    atexit.register(leave, at)
    with tempfile.NamedTemporaryFile(dir=scratch()) as image:
        image.truncate(SIZE)
        run("mkfs.btrfs", "-q", image.name)
        run("mount", "-o", "loop", image.name, at)
    os.chmod(at, 0o755)
    return at


def leave(at):
    subprocess.run(["umount", "-l", at], check=False, stderr=subprocess.DEVNULL)
    os.rmdir(at)
