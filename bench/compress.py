# SPDX-License-Identifier: Apache-2.0
"""Compression, for bench/run: text and random bytes through rdsend -z, and through pzstd into nc."""

import pathlib
import random
import shutil
import tempfile

from measure import BIN, ROOT, in_turn, not_run, report
from streams import LOOPBACK, key_file, tell_cpu, two_shells


def text_file(path, size):
    """A corpus: the sources and pages of this tree and the headers of this host, over and over, each time in another
    order."""
    found = sorted(p for top in (ROOT / "src", ROOT / "docs", pathlib.Path("/usr/include"))
                   for p in top.rglob("*") if p.is_file() and p.suffix in (".c", ".h", ".md"))
    order = random.Random(1)
    with open(path, "wb") as f:
        while f.tell() < size:
            order.shuffle(found)
            for p in found:
                f.write(p.read_bytes())
        f.truncate(size)


def compare(path, what, options, size, runs):
    with key_file() as key:
        take = "%s -q --transport=tcp --key-file %s PORT /dev/null" % (BIN / "src/rdrecv", key)
        ours = "%s -q %%s --transport=tcp --key-file %s HOST PORT %s" % (BIN / "src/rdsend", key, path)
        lines = {"rdsend " + z: (take, ours % z) for z in options}
        lines["pzstd into nc"] = ("nc -l HOST PORT </dev/null >/dev/null", "pzstd -q -c %s | nc -N HOST PORT" % path)
        cpu = {who: [] for who in lines}
        who = {name: lambda name=name: two_shells(LOOPBACK, *lines[name], size, cpu[name]) for name in lines
               if name.startswith("rdsend") or (shutil.which("nc") and shutil.which("pzstd"))}
        if len(who) < len(lines):
            not_run("pzstd into nc", "needs pzstd and nc")
        report("A file of %d MB of %s in /dev/shm, TCP loopback" % (size // 10**6, what), in_turn(runs, who))
        tell_cpu(cpu)


def host_compress(runs, size=10**9):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as d:
        text, noise = pathlib.Path(d) / "text", pathlib.Path(d) / "noise"
        text_file(text, size)
        compare(text, "text", ("--compress=zstd", "--compress=3", "-z", "--no-compress"), size, runs)
        text.unlink()
        block = random.Random(2).randbytes(size // 4)
        with open(noise, "wb") as f:
            for _ in range(12):
                f.write(block)
        compare(noise, "random bytes", ("-z", "--no-compress", "--compress=zstd"), 3 * size, runs)
