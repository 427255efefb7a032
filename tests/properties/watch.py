# SPDX-License-Identifier: Apache-2.0
"""Stops a process where it opens or reads a file, by fanotify(7)."""

import contextlib
import ctypes
import os
import select
import struct
import threading

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.fanotify_mark.argtypes = [ctypes.c_int, ctypes.c_uint, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p]
CLASS_CONTENT, CLOEXEC, MARK_ADD, AT_FDCWD, ALLOW = 4, 1, 1, -100, 1
EVENTS = {"open": 0x10000, "read": 0x20000}
METADATA = struct.Struct("IBBHQii")


class Watch:
    """Calls do() when another process first opens or reads the file at path, which waits meanwhile. do() must not
    open or read that file. Raises OSError where that is impossible."""

    def __init__(self, path, event, do):
        self.do, self.fired = do, False
        self.fd = LIBC.fanotify_init(CLASS_CONTENT | CLOEXEC, os.O_RDONLY | os.O_CLOEXEC)
        if self.fd < 0 or LIBC.fanotify_mark(self.fd, MARK_ADD, EVENTS[event], AT_FDCWD, os.fsencode(path)):
            error = ctypes.get_errno()
            if self.fd >= 0:
                os.close(self.fd)
            raise OSError(error, os.strerror(error))
        self.ends = os.pipe()
        self.thread = threading.Thread(target=self.wait)
        self.thread.start()

    def wait(self):
        try:
            select.select([self.fd, self.ends[0]], [], [])
            if select.select([self.fd], [], [], 0)[0]:
                data = os.read(self.fd, METADATA.size)
                opened = METADATA.unpack(data)[5]
                self.fired = True
                self.do()
                os.write(self.fd, struct.pack("iI", opened, ALLOW))
                os.close(opened)
        finally:
            os.close(self.fd)   # the kernel allows all that still waits

    def stop(self):
        with contextlib.suppress(BrokenPipeError):
            os.write(self.ends[1], b"x")
        self.thread.join()
        for fd in self.ends:
            os.close(fd)
