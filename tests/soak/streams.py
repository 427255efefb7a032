# SPDX-License-Identifier: Apache-2.0
"""Streams that last as long as the soak. Their lanes break repeatedly."""

import json
import os
import random
import subprocess
import sys
import time
import zlib

from watch import holdings, read

# With blocks of 4 KiB each lane breaks every few seconds.
BREAK = "break:lane=0,block=9,every=101;break:lane=1,block=14,every=151;damage:lane=0,block=30,every=397"
HERE = os.path.dirname(os.path.abspath(__file__))


def flow(words):
    """produce STOP RESULT: writes random bytes, in pieces of any length, until the file STOP exists. consume FILE
    RESULT: reads FILE to its end. Both write length and checksum to RESULT."""
    length = crc = 0
    if words[0] == "produce":
        rng = random.Random(1)
        # At 200 KB/s blocks are sent often, and the other jobs still get processor time.
        while not os.path.exists(words[1]):
            data = rng.randbytes(rng.choice([1, 100, 4096, 30000, 70000]))
            os.write(1, data) if len(data) < 4096 else write_all(data)
            length, crc = length + len(data), zlib.crc32(data, crc)
            time.sleep(len(data) / 200000)
        os.close(1)
    else:
        source = os.open(words[1], os.O_RDONLY)
        while True:
            data = os.read(source, 1 << 20)
            if not data:
                break
            length, crc = length + len(data), zlib.crc32(data, crc)
    with open(words[-1], "w", encoding="ascii") as file:
        json.dump([length, crc], file)
    return 0


def write_all(data):
    while data:
        data = data[os.write(1, data):]


class Long:
    """What both streams have in common."""

    def __init__(self, place):
        self.place, self.mark = place, place.mark + "." + self.name
        self.top = os.path.join(place.top, self.name)
        os.mkdir(self.top)
        self.programs, self.log = [], open(os.path.join(self.top, "log"), "w+b", buffering=0)

    def __str__(self):
        return self.name

    def at(self, name):
        return os.path.join(self.top, name)

    def flow(self, *words):
        return [sys.executable, HERE + "/soak", "--flow", *words]

    def produce(self):
        return self.flow("produce", self.at("stop"), self.at("sent"))

    def consume(self, source):
        return self.flow("consume", source, self.at("got"))

    def launch(self, words, fault=None, **how):
        env = self.place.environment(self.mark, fault)
        how.setdefault("stdin", subprocess.DEVNULL)
        how.setdefault("stdout", subprocess.DEVNULL)
        self.programs.append(subprocess.Popen(words, env=env, stderr=self.log, cwd=self.top, start_new_session=True, **how))
        return self.programs[-1]

    def errors(self):
        return read(self.at("log")).decode(errors="replace")[-2000:]

    def ended(self):
        return any(p.poll() is not None for p in self.programs)

    def sample(self):
        return holdings(self.mark)

    def epochs(self):
        """The number of replaced wires, as both ends report it with -vv."""
        return self.errors_whole().count("was reconnected") // 2

    def errors_whole(self):
        return read(self.at("log")).decode(errors="replace")

    def stop(self):
        with open(self.at("stop"), "wb"):
            pass
        for p in self.programs:
            try:
                code = p.wait(60)
            except subprocess.TimeoutExpired:
                yield "%s does not end: %s" % (p.args[0], self.errors())
                p.kill()
                p.wait()
                continue
            if code:
                yield "%s exits with %d: %s" % (p.args[0], code, self.errors())
        self.log.close()
        sent, got = read(self.at("sent")), read(self.at("got"))
        if not sent or sent != got:
            yield "sent %s, received %s (length, checksum)" % (sent.decode(), got.decode())


class Stream(Long):
    """rdsend and rdrecv, each with a command."""

    name = "stream"

    def __init__(self, place, leaks=False):
        super().__init__(place)
        self.leaks = leaks

    def start(self):
        words = [self.place.program("rdrecv"), "-vv", "--transport=tcp", "0", "-", "--", *self.consume("/dev/stdin")]
        self.launch(words)
        end = time.monotonic() + 30
        while "listening on" not in self.errors_whole():
            if time.monotonic() > end:
                raise RuntimeError("rdrecv does not listen: " + self.errors())
            time.sleep(0.05)
        port = self.errors_whole().split("listening on ")[1].split()[0].rsplit(":", 1)[1]
        leak = ["env", "LD_PRELOAD=" + self.place.program("../tests/leak.so")] if self.leaks else []
        self.launch([*leak, self.place.program("rdsend"), "-vv", "--transport=tcp", "--lanes=2", "--block-size=4k", "127.0.0.1",
                     port, "-", "--", *self.produce()], BREAK)


class Push(Long):
    """rdcp from stdin to a FIFO at the far end."""

    name = "push"

    def start(self):
        os.mkfifo(self.at("fifo"))
        self.launch(self.consume(self.at("fifo")))
        producer = self.launch(self.produce(), stdout=subprocess.PIPE)
        self.launch([*self.place.rdcp(), "-vv", "--transport=tcp", "--lanes=2", "--block-size=4k", "-", "far:" + self.at("fifo")], BREAK,
                    stdin=producer.stdout)
        producer.stdout.close()
