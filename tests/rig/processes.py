# SPDX-License-Identifier: Apache-2.0
"""Processes and their children, from /proc."""

import os


def stat(pid):
    """What /proc has of a process behind its name, "" if the process does not exist: its state, parent, group and so on."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rsplit(")", 1)[1].split()
    except OSError:
        return ""


def parent(pid):
    """The parent of a process, None if the process does not exist."""
    found = stat(pid)
    return int(found[1]) if found else None


def group_lives(pgid):
    """Has any process of the group not ended yet?"""
    found = [stat(int(name)) for name in os.listdir("/proc") if name.isdigit()]
    return any(s and int(s[2]) == pgid and s[0] not in "ZX" for s in found)


def by_parent():
    """{parent: [child, ...]} of all processes."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            found.setdefault(parent(int(name)), []).append(int(name))
    return found


def children(pid):
    return by_parent().get(pid, [])


def descendants(pid):
    """The children of a process, their children, and so on; the nearest first."""
    below, found = by_parent(), [pid]
    for p in found:
        found += below.get(p, [])
    return found[1:]


def words(pid):
    """The command line of a process, empty if the process does not exist."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as f:
            return f.read().split(b"\0")[:-1]
    except OSError:
        return []


def runs(pid, program):
    """Does the process run this program?"""
    try:
        return os.path.samefile("/proc/%d/exe" % pid, program)
    except OSError:
        return False
