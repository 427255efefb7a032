# SPDX-License-Identifier: Apache-2.0
"""A disk with a volatile write cache, for a guest that loses its power.

This is an NBD server with one thread for each disk; QEMU is its client. A write goes to the cache and
is acknowledged. A flush stores the cache in the image, and a write with FUA stores that write. cut()
simulates the loss of power. The disk does not answer any more, and the image gets what a real disk
might have kept of the unflushed writes: all, none, the first ones, some of them, or any version of
each block.

A block of 4096 bytes is written whole or not at all, like a physical sector of that size; the guest
sees that size as the logical one, too. To kill QEMU alone would lose nothing, because its writes are
in the host's page cache.
"""

import os
import socket
import struct
import threading

BLOCK = 4096

MAGIC, OPTION_MAGIC, REPLY_MAGIC = 0x4E42444D41474943, 0x49484156454F5054, 0x3E889045565A9
REQUEST_MAGIC, SIMPLE_MAGIC = 0x25609513, 0x67446698
FIXED_NEWSTYLE, NO_ZEROES = 1, 2
OPT_EXPORT_NAME, OPT_ABORT, OPT_INFO, OPT_GO = 1, 2, 6, 7
REP_ACK, REP_INFO, REP_UNSUPPORTED = 1, 3, 0x80000001
INFO_EXPORT, INFO_BLOCK_SIZE = 0, 3
HAS_FLAGS, SEND_FLUSH, SEND_FUA = 1, 4, 8
READ, WRITE, DISCONNECT, FLUSH = 0, 1, 2, 3
FUA = 1
EINVAL = 22
REQUEST_MAX = 32 << 20

KEPT = ("nothing", "nothing", "nothing", "any version", "any version", "some writes", "the first", "all")


class Cache:
    """The writes since the last flush, in order."""

    def __init__(self, image):
        self.image = image
        self.log = []  # (number of the write, block, bytes)
        self.newest = {}  # block: bytes
        self.writes = self.flushes = 0

    def write(self, offset, data):
        self.writes += 1
        for at in range(0, len(data), BLOCK):
            block, part = (offset + at) // BLOCK, bytes(data[at:at + BLOCK])
            self.log.append((self.writes, block, part))
            self.newest[block] = part

    def read(self, offset, length):
        data = bytearray(os.pread(self.image, length, offset))
        if self.newest:
            for at in range(0, length, BLOCK):
                part = self.newest.get((offset + at) // BLOCK)
                if part is not None:
                    data[at:at + BLOCK] = part
        return data

    def flush(self):
        self.flushes += 1
        self.store(self.newest)
        self.forget()

    def write_through(self, offset, data):
        """Stores a write with FUA in the image. No earlier version of its blocks may come back."""
        blocks = range(offset // BLOCK, (offset + len(data)) // BLOCK)
        for block in blocks:
            self.newest.pop(block, None)
        self.log = [entry for entry in self.log if entry[1] not in blocks]
        os.pwrite(self.image, data, offset)

    def store(self, blocks):
        for block, part in blocks.items():
            os.pwrite(self.image, part, block * BLOCK)

    def forget(self):
        self.log, self.newest = [], {}

    def cut(self, rng, how=None):
        """Stores what survives in the image. Returns what survived, and how many blocks lost their last version."""
        how = how or rng.choice(KEPT)
        kept = {}
        if how == "all":
            kept = dict(self.newest)
        elif how == "the first":
            for _, block, part in self.log[:rng.randint(0, len(self.log))]:
                kept[block] = part
        elif how == "some writes":
            lucky = {n for n in {entry[0] for entry in self.log} if rng.random() < 0.5}
            for number, block, part in self.log:
                if number in lucky:
                    kept[block] = part
        elif how == "any version":
            versions = {}
            for _, block, part in self.log:
                versions.setdefault(block, [None]).append(part)
            for block, of in versions.items():
                kept[block] = rng.choice(of)
        kept = {block: part for block, part in kept.items() if part is not None}
        lost = sum(kept.get(block) != part for block, part in self.newest.items())
        self.store(kept)
        self.forget()
        return how, lost


class Gone(Exception):
    """The client has disconnected, or the power is off."""


class VolatileDisk:
    """Serves the file `image` as a disk at the Unix socket `path`, to one client after the other."""

    def __init__(self, image, path):
        self.file = os.open(image, os.O_RDWR | os.O_CLOEXEC)
        self.size = os.fstat(self.file).st_size
        self.cache = Cache(self.file)
        self.lock = threading.Lock()
        self.powered = True
        self.life = 0  # requests of earlier clients are dropped
        self.client = None
        self.trouble = None
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(4)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def power_off(self):
        """From now on the disk executes and answers no request."""
        with self.lock:
            self.powered = False

    def cut(self, rng, how=None):
        self.power_off()
        return self.cache.cut(rng, how)

    def power_on(self):
        with self.lock:
            self.life += 1
            self.powered = True

    def close(self):
        self.power_off()
        # A thread in accept() does not notice close().
        self.listener.shutdown(socket.SHUT_RDWR)
        client = self.client
        if client is not None:
            try:
                client.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.thread.join(10)
        self.listener.close()
        os.close(self.file)

    # ---- the protocol ------------------------------------------------------------------

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.client = client
            life = self.life
            try:
                self.greet(client)
                self.transmit(client, life)
            except (Gone, OSError):
                pass
            except Exception as error:  # `cuts' checks this: a dead server looks like a slow disk
                self.trouble = error
            finally:
                client.close()

    @staticmethod
    def receive(client, length):
        data = bytearray(length)
        view, got = memoryview(data), 0
        while got < length:
            n = client.recv_into(view[got:])
            if n == 0:
                raise Gone
            got += n
        return data

    def greet(self, client):
        client.sendall(struct.pack(">QQH", MAGIC, OPTION_MAGIC, FIXED_NEWSTYLE | NO_ZEROES))
        flags, = struct.unpack(">I", self.receive(client, 4))
        export = struct.pack(">QH", self.size, HAS_FLAGS | SEND_FLUSH | SEND_FUA)
        while True:
            magic, option, length = struct.unpack(">QII", self.receive(client, 16))
            if magic != OPTION_MAGIC or length > 65536:
                raise ValueError("option %d of %d bytes, magic %x" % (option, length, magic))
            self.receive(client, length)
            if option == OPT_EXPORT_NAME:
                client.sendall(export + (b"" if flags & NO_ZEROES else bytes(124)))
                return
            if option in (OPT_INFO, OPT_GO):
                self.reply(client, option, REP_INFO, struct.pack(">H", INFO_EXPORT) + export)
                self.reply(client, option, REP_INFO,
                           struct.pack(">HIII", INFO_BLOCK_SIZE, BLOCK, BLOCK, REQUEST_MAX))
                self.reply(client, option, REP_ACK)
                if option == OPT_GO:
                    return
            elif option == OPT_ABORT:
                self.reply(client, option, REP_ACK)
                raise Gone
            else:
                self.reply(client, option, REP_UNSUPPORTED)

    @staticmethod
    def reply(client, option, kind, data=b""):
        client.sendall(struct.pack(">QIII", REPLY_MAGIC, option, kind, len(data)) + data)

    def transmit(self, client, life):
        while True:
            magic, flags, kind, cookie, offset, length = struct.unpack(">IHHQQI", self.receive(client, 28))
            if magic != REQUEST_MAGIC:
                raise ValueError("request with magic %x" % magic)
            if length > REQUEST_MAX:
                raise ValueError("request for %d bytes" % length)
            data = self.receive(client, length) if kind == WRITE else b""
            if kind == DISCONNECT:
                raise Gone
            with self.lock:
                if not self.powered or self.life != life:
                    raise Gone
                error, answer = self.do(kind, flags, offset, length, data)
            client.sendall(struct.pack(">IIQ", SIMPLE_MAGIC, error, cookie) + answer)

    def do(self, kind, flags, offset, length, data):
        if kind == FLUSH:
            self.cache.flush()
            return 0, b""
        if offset % BLOCK or length % BLOCK or offset + length > self.size:
            return EINVAL, b""
        if kind == READ:
            return 0, bytes(self.cache.read(offset, length))
        if kind == WRITE and flags & FUA:
            self.cache.write_through(offset, data)
            return 0, b""
        if kind == WRITE:
            self.cache.write(offset, data)
            return 0, b""
        return EINVAL, b""
