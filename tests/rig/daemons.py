# SPDX-License-Identifier: Apache-2.0
"""A rdcpd and its clients on loopback."""

import os
import re
import signal
import socket
import subprocess
import sys

from hosts import ROOT, program
from processes import children, descendants

sys.path.insert(0, str(ROOT / "tests" / "hostile"))
import tls  # noqa: E402

HERE = "127.0.0.1"


def private_memory(pid):
    """Without clean pages of files, which become private when the last other process that has them ends."""
    try:
        with open("/proc/%d/smaps_rollup" % pid) as f:
            return sum(int(line.split()[1]) << 10 for line in f if line.startswith("Private_Dirty"))
    except OSError:
        return 0


def first_record(data):
    """The first TLS record of these."""
    return data[:5 + int.from_bytes(data[3:5], "big")]


class Daemon:
    """A rdcpd that serves three modules: rw, ro and wo."""

    at = HERE

    def __init__(self, bench, tmp_path, *options, **how):
        tmp_path.mkdir(exist_ok=True)
        self.bench, self.tmp, self.key = bench, tmp_path, tmp_path / "key"
        for name in ("rw", "ro", "wo"):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name).chmod(0o777)
        if not self.key.exists():
            assert bench.run([program("rdcpd"), "--make-key", self.key]).code == 0
        modules = ["--module=%s=%s:%s" % (name, tmp_path / name, name) for name in ("rw", "wo")]
        self.run = bench.start([program("rdcpd"), "--key-file", self.key, "--port=0", "--address", HERE, "-vv", *modules,
                                "--module=ro=%s" % (tmp_path / "ro"), *options], **how)
        self.port = int(self.run.expect("listening on").rsplit(":", 1)[1])

    def url(self, path):
        return "rdma://%s:%d/%s" % (self.at, self.port, path)

    def argv(self, *args, key=None):
        return [program("rdcp"), "--key-file", key or self.key, *args]

    def copy(self, *args, key=None, cwd=None, timeout=60):
        return self.bench.run(self.argv(*args, key=key), cwd=cwd or self.tmp, timeout=timeout)

    def copy_at_once(self, *args, **how):
        """A client that does not wait for room. A busy machine may need more time than that to answer a handshake."""
        for seconds in (.2, 2, 20):
            r = self.copy("--connect-timeout=%g" % seconds, *args, **how)
            if r.code != 30:
                break
        return r

    def children(self):
        found = subprocess.run(["pgrep", "-g", str(self.run.proc.pid)], capture_output=True, text=True).stdout.split()
        return [int(p) for p in found if int(p) != self.run.proc.pid]

    def ends(self):
        """The processes of sessions that are confined to a module: the children of those that have the connections."""
        connections = children(self.run.proc.pid)
        return [p for p in descendants(self.run.proc.pid) if p not in connections]

    def descriptors(self):
        return len(os.listdir("/proc/%d/fd" % self.run.proc.pid))

    def fresh_hello(self):
        """A ClientHello that a client with the key would send next."""
        near, far = socket.socketpair()
        with near, far:
            far.shutdown(socket.SHUT_WR)
            try:
                tls.Client(near, self.secret(), identity=b"sluice:conductor:-")
            except tls.Refused:
                pass
            # An alert follows, about the end of this connection.
            return first_record(far.recv(4096))

    def secret(self):
        return bytes.fromhex(self.key.read_text().strip().split(":")[1])

    def memory(self):
        """Bytes of the parent and its children that they share with no other process."""
        return sum(private_memory(pid) for pid in [self.run.proc.pid, *self.children()])

    def recorded_hello(self):
        """The ClientHello of a client with the right key, as an eavesdropper records it."""
        with socket.create_server((HERE, 0)) as server:
            client = self.bench.start(self.argv(os.devnull, "rdma://%s:%d/rw/f" % (HERE, server.getsockname()[1])), cwd=self.tmp)
            sock, _ = server.accept()
            with sock:
                sock.settimeout(20)
                hello = sock.recv(4096)
            client.kill()
        assert hello[0] == 0x16 and hello == first_record(hello)
        return hello


class Configured(Daemon):
    """A rdcpd with a file. text: its modules; keys: further keys of the daemon; {tmp} stands for the test's directory.
    at: its address."""

    def __init__(self, bench, tmp_path, text, *options, keys="", at=HERE, **how):
        self.at = at
        self.bench, self.tmp, self.key, self.file = bench, tmp_path, tmp_path / "key", tmp_path / "rdcpd.conf"
        if not self.key.exists():
            assert bench.run([program("rdcpd"), "--make-key", self.key]).code == 0
        self.write(keys + text)
        self.run = bench.start([program("rdcpd"), "--config", self.file, "-v", *options], **how)
        self.port = int(self.run.expect("listening on").rsplit(":", 1)[1])

    def write(self, text, head="address = {at}\nport = 0\nkey file = {tmp}/key\n"):
        for name in re.findall(r"^ *path *= *\{tmp\}/(\w+)", text, re.M):
            (self.tmp / name).mkdir(exist_ok=True)
        self.file.write_text((head + text).replace("{tmp}", str(self.tmp)).replace("{at}", self.at))

    def reload(self, text, **how):
        self.write(text, **how)
        self.run.signal(signal.SIGHUP)

    def user(self, name):
        """The key file of a new user."""
        r = self.bench.run([program("rdcpd"), "--secrets", self.tmp / "secrets", "--make-key", name])
        assert r.code == 0, r.errors()
        key = self.tmp / (name + ".key")
        key.write_bytes(r.out)
        key.chmod(0o600)
        return key
