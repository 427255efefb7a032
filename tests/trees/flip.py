#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Turns directories into symlinks and back, as fast as it can: flip.py SECONDS ASIDE PATH=TARGET…

Each PATH is a directory that changes places (renameat2, RENAME_EXCHANGE: there is no moment
without either) with a symlink to TARGET kept in the directory ASIDE, then back.  Whoever
replaces the symlink by a directory finds it a symlink again.  "ready" is printed when it
begins; in the end each PATH is a directory again, and the number of flips is printed."""

import ctypes
import os
import stat
import sys
import time

EXCHANGE = 2
AT_FDCWD = -100
LIBC = ctypes.CDLL(None, use_errno=True)


def exchange(a, b):
    return LIBC.renameat2(AT_FDCWD, a, AT_FDCWD, b, EXCHANGE) == 0


def is_link(path):
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except OSError:
        return None


class Flipped:
    def __init__(self, n, aside, path, target):
        self.path, self.target, self.trash = os.fsencode(path), target, 0
        self.link = os.fsencode("%s/%d" % (aside, n))
        os.symlink(target, self.link)

    def flip(self):
        """True if it is a directory again afterwards."""
        if not exchange(self.path, self.link):
            # A parent is elsewhere at this moment, or the path is missing.
            return None
        if is_link(self.link) is False and is_link(self.path) is False:
            # A directory was put in place of the symlink.
            self.trash += 1
            os.rename(self.link, b"%s.%d" % (self.link, self.trash))
            os.symlink(self.target, self.link)
        return is_link(self.link)

    def restore(self):
        for _ in range(100):
            if is_link(self.path) is False and is_link(self.link):
                os.unlink(self.link)
                return
            self.flip()


def main():
    end = time.monotonic() + float(sys.argv[1])
    todo = [Flipped(n, sys.argv[2], *arg.split("=", 1)) for n, arg in enumerate(sys.argv[3:])]
    print("ready", flush=True)
    flips = 0
    while time.monotonic() < end:
        for f in todo:
            for _ in range(20):  # several flips of each in turn, during which the others rest
                if f.flip() is not None:
                    flips += 1
            # Those below can be reached only through a directory.
            for _ in range(4):
                if is_link(f.path) is False:
                    break
                f.flip()
    for f in todo:
        f.restore()
    print(flips)


if __name__ == "__main__":
    main()
