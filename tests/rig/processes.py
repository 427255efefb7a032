# SPDX-License-Identifier: Apache-2.0
"""Who started whom, as /proc has it."""

import os


def parent(pid):
    """Of a process that is there, else None."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            return int(f.read().rsplit(")", 1)[1].split()[1])
    except OSError:
        return None


def by_parent():
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            found.setdefault(parent(int(name)), []).append(int(name))
    return found


def children(pid):
    return by_parent().get(pid, [])


def descendants(pid):
    """All that it started, and they did, the nearest first."""
    below, found = by_parent(), [pid]
    for p in found:
        found += below.get(p, [])
    return found[1:]


def words(pid):
    """Its command line; of one that is gone it is empty."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as f:
            return f.read().split(b"\0")[:-1]
    except OSError:
        return []


def runs(pid, program):
    """Is it this program?"""
    try:
        return os.path.samefile("/proc/%d/exe" % pid, program)
    except OSError:
        return False
