#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Turns directories into symlinks and back, as fast as it can: flip.py SECONDS ASIDE PATH=TARGET…

Each PATH is a directory. It changes places with a symlink to TARGET in the directory ASIDE, and back
(renameat2, RENAME_EXCHANGE, so PATH always exists). If a program replaces the symlink by a directory,
the next flip makes it a symlink again. flip.py prints "ready" when it begins. At the end each PATH is
a directory again, and flip.py prints the number of flips."""

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
        """Returns True if PATH is a directory now, False if it is a symlink, None if nothing was exchanged."""
        if not exchange(self.path, self.link):
            # A parent is a symlink at this moment, or the path is missing.
            return None
        if is_link(self.link) is False and is_link(self.path) is False:
            # A program replaced the symlink by a directory.
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
            for _ in range(20):  # several flips of one PATH, while the others rest
                if f.flip() is not None:
                    flips += 1
            # Paths below it can be reached only while it is a directory.
            for _ in range(4):
                if is_link(f.path) is False:
                    break
                f.flip()
    for f in todo:
        f.restore()
    print(flips)


if __name__ == "__main__":
    main()
