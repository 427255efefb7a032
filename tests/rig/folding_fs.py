# SPDX-License-Identifier: Apache-2.0
"""A case-insensitive file system by FUSE: shows DIR at MOUNTPOINT.

    folding_fs.py DIR MOUNTPOINT

As on ext4 with casefold, a name leads to an entry whose name differs only in case. A new entry keeps
the case of its name."""

import os
import sys

import fusepy

from slow_fs import SlowFs


class FoldingFs(SlowFs):
    def __init__(self, top):
        super().__init__(top, 0, 0)

    def path(self, name):
        path = self.top
        for part in name.strip("/").split("/"):
            try:
                names = os.listdir(path)
            except OSError:
                names = []
            if part not in names:
                part = next((n for n in names if n.casefold() == part.casefold()), part)
            path = os.path.join(path, part)
        return path

    def getattr(self, path, fh=None):
        st = super().getattr(path, fh)
        st["st_ino"] = (os.lstat(self.path(path)) if fh is None else os.fstat(fh)).st_ino
        return st

    def symlink(self, target, source):
        os.symlink(source, self.path(target))

    def readlink(self, path):
        return os.readlink(self.path(path))

    def mknod(self, path, mode, dev):
        os.mknod(self.path(path), mode, dev)


if __name__ == "__main__":
    fusepy.FUSE(FoldingFs(sys.argv[1]), sys.argv[2], foreground=True, nothreads=True, use_ino=True,
                attr_timeout=0, entry_timeout=0, fsname="folding")
