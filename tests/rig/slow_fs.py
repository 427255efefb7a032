# SPDX-License-Identifier: Apache-2.0
"""A slow file system by FUSE: shows DIR at MOUNTPOINT.

    slow_fs.py DIR MOUNTPOINT READ-RATE WRITE-RATE       bytes per second; 0: no limit

It simulates one device, which serves one request after the other."""

import errno
import os
import sys
import threading
import time

import fusepy

PIECE = 128 << 10


class SlowFs(fusepy.Operations):
    def __init__(self, top, read_rate, write_rate):
        self.top, self.rates = top, {"read": read_rate, "write": write_rate}
        self.device = threading.Lock()
        self.free_at = time.monotonic()

    def work(self, what, size):
        """Sleeps until the device has served all earlier requests and this one."""
        if not self.rates[what]:
            return
        with self.device:
            self.free_at = max(self.free_at, time.monotonic()) + size / self.rates[what]
            until = self.free_at
        time.sleep(max(0, until - time.monotonic()))

    def path(self, name):
        return self.top + name

    def getattr(self, path, fh=None):
        try:
            st = os.lstat(self.path(path)) if fh is None else os.fstat(fh)
        except OSError as e:
            raise fusepy.FuseOSError(e.errno) from None
        return {k: getattr(st, k) for k in ("st_atime", "st_ctime", "st_gid", "st_mode", "st_mtime",
                                            "st_nlink", "st_size", "st_uid", "st_blocks")}

    def readdir(self, path, fh):
        return [".", "..", *os.listdir(self.path(path))]

    def open(self, path, flags):
        return os.open(self.path(path), flags & ~(os.O_DIRECT | os.O_APPEND))

    def create(self, path, mode, fi=None):
        return os.open(self.path(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode)

    def read(self, path, size, offset, fh):
        data = os.pread(fh, size, offset)
        self.work("read", len(data))
        return data

    def write(self, path, data, offset, fh):
        self.work("write", len(data))
        return os.pwrite(fh, data, offset)

    def truncate(self, path, length, fh=None):
        os.truncate(self.path(path) if fh is None else fh, length)

    def release(self, path, fh):
        os.close(fh)

    def fsync(self, path, datasync, fh):
        os.fsync(fh)

    def rename(self, old, new):
        os.rename(self.path(old), self.path(new))

    def link(self, target, source):
        os.link(self.path(source), self.path(target))

    def unlink(self, path):
        os.unlink(self.path(path))

    def mkdir(self, path, mode):
        os.mkdir(self.path(path), mode)

    def rmdir(self, path):
        os.rmdir(self.path(path))

    def chmod(self, path, mode):
        os.chmod(self.path(path), mode)

    def chown(self, path, uid, gid):
        os.lchown(self.path(path), uid, gid)

    def utimens(self, path, times=None):
        os.utime(self.path(path), times)

    def statfs(self, path):
        st = os.statvfs(self.path(path))
        return {k: getattr(st, k) for k in ("f_bavail", "f_bfree", "f_blocks", "f_bsize", "f_favail",
                                            "f_ffree", "f_files", "f_flag", "f_frsize", "f_namemax")}

    def getxattr(self, path, name, position=0):
        raise fusepy.FuseOSError(errno.ENODATA)

    def listxattr(self, path):
        return []


if __name__ == "__main__":
    fusepy.FUSE(SlowFs(sys.argv[1], float(sys.argv[3]), float(sys.argv[4])), sys.argv[2],
                foreground=True, nothreads=False, direct_io=True, big_writes=True, max_read=PIECE,
                max_write=PIECE, fsname="slow")
