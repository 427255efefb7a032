# SPDX-License-Identifier: Apache-2.0
"""Processes found by a mark in their environment, and their resources."""

import os
import resource
import signal
import threading
import time

PAGE = os.sysconf("SC_PAGESIZE")
TICK = os.sysconf("SC_CLK_TCK")


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def marked(mark):
    """The processes that were started with this mark, and their forks: {pid: command line}."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and ("SOAK_MARK=" + mark).encode() in read("/proc/%s/environ" % name):
            found[int(name)] = read("/proc/%s/cmdline" % name).replace(b"\0", b" ").decode(errors="replace").strip()
    return found


def left_of(mark, seconds):
    """The marked processes that still exist after this many seconds: [(pid, command line)]."""
    end = time.monotonic() + seconds
    while True:
        found = marked(mark)
        if not found or time.monotonic() > end:
            return sorted(found.items())
        time.sleep(0.1)


def end_all(mark):
    for pid in marked(mark):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def descriptors(pid):
    try:
        return len(os.listdir("/proc/%d/fd" % pid))
    except OSError:
        return 0


def threads(pid):
    try:
        return len(os.listdir("/proc/%d/task" % pid))
    except OSError:
        return 0


def memory(pid):
    """Private memory. Mapped files do not count, because they come and go with the page cache."""
    fields = read("/proc/%d/statm" % pid).split()
    return (int(fields[1]) - int(fields[2])) * PAGE if fields else 0


def processor(pid):
    """Processor seconds of the process and of the children that it has waited for."""
    fields = read("/proc/%d/stat" % pid).rpartition(b")")[2].split()
    return sum(map(int, fields[11:15])) / TICK if fields else 0


def holdings(mark):
    """The resources of all Sluice programs with this mark, summed."""
    pids = [pid for pid, words in marked(mark).items()
            if os.path.basename(words.split(" ")[0]) in ("rdcp", "rdsend", "rdrecv")]
    return {"processes": len(pids), "descriptors": sum(map(descriptors, pids)), "threads": sum(map(threads, pids)),
            "memory": sum(map(memory, pids))}


def unix_sockets():
    return {line.split()[-1].decode(errors="replace") for line in read("/proc/net/unix").splitlines()[1:]
            if len(line.split()) > 7}


def shared_memory():
    """The names of all POSIX and System V shared memory."""
    return set(os.listdir("/dev/shm")) | {"System V segment " + line.split()[1].decode() for line in read("/proc/sysvipc/shm").splitlines()[1:]}


class Cpu:
    """Keeps the processor time of all jobs together below a share of one core."""

    def __init__(self, share):
        self.share, self.began, self.before = share, time.monotonic(), self.total()
        self.lock = threading.Lock()

    @staticmethod
    def total():
        kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, kinds))

    def used(self):
        return (self.total() - self.before) / max(time.monotonic() - self.began, 0.001)

    def pace(self, end):
        while self.used() > self.share and time.monotonic() < end:
            time.sleep(0.1)
