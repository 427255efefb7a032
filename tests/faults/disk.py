# SPDX-License-Identifier: Apache-2.0
"""Mounts: a file system on which files can share blocks, for the scenarios that need one, and a /dev/shm for one process."""

import atexit
import ctypes
import os
import subprocess
import tempfile

from sites import scratch

CLONE_NEWNS = 0x20000
SIZE = 1 << 30
SHARED_MEMORY = "/dev/shm"


def run(*words):
    r = subprocess.run(words, capture_output=True, text=True, check=False)
    if r.returncode:
        raise OSError(r.stderr.strip() or "%s: %d" % (words[0], r.returncode))


def unshare_mounts():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare: " + os.strerror(ctypes.get_errno()))
    run("mount", "--make-rprivate", "/")


def own_shared_memory():
    """Gives this process and its children a /dev/shm that no other process sees. The directories in which only they make
    anything: none, where that is not possible."""
    try:
        unshare_mounts()
        run("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", SHARED_MEMORY)
    except OSError:
        return ()
    return (SHARED_MEMORY,)


def mount_disk():
    """Mounts a new btrfs, and returns its directory. OSError: not possible here. The mount is in a namespace of this
    process, so that it ends with this process and its children."""
    unshare_mounts()
    # own_shared_memory() hides what is in /dev/shm.
    at = tempfile.mkdtemp(prefix="sluice-sweep-disk-", dir=os.environ.get("SLUICE_SWEEP_DIR"))
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
