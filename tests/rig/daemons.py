# SPDX-License-Identifier: Apache-2.0
"""A rdcpd and its clients on loopback."""

import os
import subprocess

from hosts import program

HERE = "127.0.0.1"


class Daemon:
    """A rdcpd that serves three modules: rw, ro and wo."""

    def __init__(self, bench, tmp_path, *options, become=()):
        self.bench, self.tmp, self.key = bench, tmp_path, tmp_path / "key"
        for name in ("rw", "ro", "wo"):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name).chmod(0o777)
        if not self.key.exists():
            assert bench.run([program("rdcpd"), "--make-key", self.key]).code == 0
        modules = ["--module=%s=%s:%s" % (name, tmp_path / name, name) for name in ("rw", "wo")]
        self.run = bench.start([program("rdcpd"), "--key-file", self.key, "--port=0", "--address", HERE, "-vv", *modules,
                                "--module=ro=%s" % (tmp_path / "ro"), *options], become=become)
        self.port = int(self.run.expect("listening on").rsplit(":", 1)[1])

    def url(self, path):
        return "rdma://%s:%d/%s" % (HERE, self.port, path)

    def argv(self, *args, key=None):
        return [program("rdcp"), "--key-file", key or self.key, *args]

    def copy(self, *args, key=None, cwd=None, timeout=60):
        return self.bench.run(self.argv(*args, key=key), cwd=cwd or self.tmp, timeout=timeout)

    def children(self):
        found = subprocess.run(["pgrep", "-g", str(self.run.proc.pid)], capture_output=True, text=True).stdout.split()
        return [int(p) for p in found if int(p) != self.run.proc.pid]

    def descriptors(self):
        return len(os.listdir("/proc/%d/fd" % self.run.proc.pid))
