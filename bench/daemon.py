# SPDX-License-Identifier: Apache-2.0
"""Many clients of one rdcpd, and what a session costs, beside an rsync daemon and sftp, for bench/run."""

import contextlib
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from measure import (BIN, GIB, RDCP, RESULTS, ROOT, can_sshd, free_bytes, free_port, in_turn, made_file, not_run, report, seconds,
                     sshd, started, wait_listening)

sys.path += [str(ROOT / "tests/rig"), str(ROOT / "tests/hostile")]

import tls  # noqa: E402
import wire  # noqa: E402
from processes import descendants  # noqa: E402

HERE = "127.0.0.1"
MANY = (1, 4, 16, 64)
LEAST = 96 << 20    # bytes of each client: its start is no part of its rate
SESSIONS = 16       # whose memory is measured


class Served:
    """A directory that a daemon serves, and the commands of its clients."""

    name, daemon = "", None

    def push(self, path, to):
        raise NotImplementedError

    def pull(self, name, to):
        raise NotImplementedError


class Ours(Served):
    name = "rdcp"

    def __init__(self, folder, stack):
        self.key, self.port = folder / "key", free_port()
        subprocess.run([BIN / "src/rdcpd", "--make-key", self.key], check=True, stdout=subprocess.DEVNULL)
        self.daemon = stack.enter_context(started([BIN / "src/rdcpd", "-q", "--key-file", self.key, "--address", HERE, "--port", self.port,
                                                   "--module=m=%s:rw" % (folder / "m")]))
        wait_listening(self.port)

    def url(self, name):
        return "rdma://%s:%d/m/%s" % (HERE, self.port, name)

    def push(self, path, to, *options):
        return [RDCP, "-q", "--key-file", self.key, *options, path, self.url(to)]

    def pull(self, name, to):
        return [RDCP, "-q", "--key-file", self.key, self.url(name), to]

    def greeting(self):
        """The milliseconds from connect(2) to the first byte of the end's greeting."""
        secret = bytes.fromhex(self.key.read_text().strip().split(":")[1])
        start = time.monotonic()
        with socket.create_connection((HERE, self.port)) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client = tls.Client(sock, secret, identity=b"sluice:conductor:-")
            client.write(wire.message("MODULE", version=wire.VERSION, name="m"))
            client.read()
            return (time.monotonic() - start) * 1000


class Rsync(Served):
    name = "rsync -W, rsync daemon"

    def __init__(self, folder, stack):
        self.port = free_port()
        (folder / "rsyncd").write_text("use chroot = yes\nreverse lookup = no\n[m]\npath = %s\nread only = no\nuid = root\ngid = root\n" % (folder / "m"))
        self.daemon = stack.enter_context(started(["rsync", "--daemon", "--no-detach", "--address", HERE, "--port", self.port,
                                                   "--config", folder / "rsyncd"]))
        wait_listening(self.port)

    def url(self, name):
        return "rsync://%s:%d/m/%s" % (HERE, self.port, name)

    def push(self, path, to, *options):
        return ["rsync", "-W", path, self.url(to)]

    def pull(self, name, to):
        return ["rsync", "-W", self.url(name), to]


class Sftp(Served):
    name = "sftp, sshd"

    def __init__(self, folder, stack):
        self.folder = folder
        self.config = stack.enter_context(sshd(folder, HERE))

    def batch(self, command):
        return ["sh", "-c", 'echo "$1" | sftp -q -b - -F "$2" %s' % HERE, "sh", command, self.config]

    def push(self, path, to, *options):
        return self.batch("put %s %s" % (path, self.folder / "m" / to))

    def pull(self, name, to):
        return self.batch("get %s %s" % (self.folder / "m" / name, to))


def empty(folder):
    for path in folder.iterdir():
        path.unlink()


def sum_of_rates(clients, total, folder):
    """GB/s of all these commands together, from the start of the first one to the end of the last one."""
    empty(folder / "m")
    start = time.monotonic()
    runs = [subprocess.Popen([str(a) for a in argv], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for argv in clients]
    texts = [r.communicate()[1] for r in runs]
    took = time.monotonic() - start
    for r, text in zip(runs, texts):
        if r.returncode:
            print("  %s failed: %s" % (r.args[0], text.decode(errors="replace")[-300:]), file=sys.stderr)
            return None
    return total / took / 1e9


def many_to_one(ours, others, folder, runs, least):
    for n in MANY:
        total = max(least, n * LEAST)
        path = made_file(folder, total // n)

        def clients(served, n=n, path=path, total=total):
            return sum_of_rates([served.push(path, "f%d" % i, "--lanes=1") for i in range(n)], total, folder)
        who = {"%d x rdcp, a lane each" % n if n > 1 else "rdcp, a lane": lambda: clients(ours)}
        if n > 1:
            whole = made_file(folder, total, "whole")
            who["rdcp with %d lanes" % n] = lambda n=n, whole=whole, total=total: sum_of_rates([ours.push(whole, "f", "--lanes=%d" % n)], total, folder)
        who.update({"%d x %s" % (n, served.name): lambda served=served: clients(served) for served in others})
        report("%d client%s of a daemon, %.1f GiB in all, tmpfs to tmpfs, TCP loopback, start to end" % (n, "s" * (n > 1), total / GIB),
               in_turn(runs, who))
        empty(folder / "m")
        for name in ("data", "whole"):
            (folder / name).unlink(missing_ok=True)


def first_byte(ours, others, folder, runs):
    (folder / "m" / "one").write_bytes(b"x")
    to = folder / "to"

    def pulled(served):
        took = seconds(served.pull("one", to))
        return took and took * 1000
    greetings = [ours.greeting() for _ in range(10 * runs)][runs:]
    report("A rdcpd: from connect(2) to the first byte of its end, the client in Python",
           {"TLS handshake, two processes, confined": sorted(greetings)[:: max(1, len(greetings) // 5)]}, unit="ms", digits=2)
    report("A file of one byte from a daemon, start to end", in_turn(4 * runs, {
        served.name: lambda served=served: pulled(served) for served in (ours, *others)}), unit="ms", digits=2)


def private(pid):
    with open("/proc/%d/smaps_rollup" % pid) as f:
        return sum(int(m) for m in re.findall(r"^Private_\w+: +(\d+)", f.read(), re.M)) / 1024


def cost_of(pids):
    """MiB that no other process shares, and descriptors."""
    costs = []
    for pid in pids:
        with contextlib.suppress(OSError):
            costs.append((private(pid), len(os.listdir("/proc/%d/fd" % pid))))
    return [sum(c[i] for c in costs) for i in (0, 1)]


def session_costs(ours, folder):
    """Of sessions that move data, each at 2 MB/s."""
    path = made_file(folder, 64 << 20)
    parent = ours.daemon.pid
    before = cost_of([parent, *descendants(parent)])
    runs = [subprocess.Popen([str(a) for a in ours.push(path, "s%d" % i, "--bwlimit=2M")], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL) for i in range(SESSIONS)]
    time.sleep(4)
    during = cost_of([parent, *descendants(parent)])
    alive = sum(r.poll() is None for r in runs)
    for r in runs:
        r.terminate()
        r.wait()
    figures = [(b - a) / max(alive, 1) for a, b in zip(before, during)]
    print("\nA session of a rdcpd, the mean of %d: %.1f MiB, %.1f descriptors (parent and processes of the session)" % (alive, *figures))
    RESULTS.append({"what": "A session of a rdcpd that moves data, the mean of %d: MiB that it shares with none, descriptors" % alive,
                    "figures": {"parent and processes of the session": figures}})


def served_clients(runs, total=2 * GIB):
    what = "Many clients of a daemon"
    if free_bytes("/dev/shm") < max(3 * total, 2.2 * MANY[-1] * LEAST):
        return not_run(what, "no room in /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as d, contextlib.ExitStack() as stack:
        folder = pathlib.Path(d)
        (folder / "m").mkdir()
        ours = Ours(folder, stack)
        others = [Rsync(folder, stack)] if shutil.which("rsync") else []
        others += [Sftp(folder, stack)] if can_sshd() and shutil.which("sftp") else []
        first_byte(ours, others, folder, runs)
        session_costs(ours, folder)
        many_to_one(ours, others, folder, runs, total)
