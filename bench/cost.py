# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions per byte, for bench/run: callgrind counts those of source and sink in user mode, by stage."""

import collections
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from measure import RESULTS, ROOT, free_port, made_file, not_run, wait_listening
from streams import key_file

SIZES = (64 << 20, 192 << 20)  # the difference is the cost of the bytes, without start and end
STAGES = (("digest", r"XXH|xxh|digest|seal|cells"), ("cipher", r"libcrypto|libssl|aes|EVP"), ("lanes", r"src/lane/"),
          ("files and streams", r"src/copy/"), ("session", r"src/session/"), ("base", r"src/base/"))


def stage_of(line):
    return next((name for name, sign in STAGES if re.search(sign, line)), "C library and the rest")


def built(folder):
    """Builds the release with debugging information."""
    for argv in (["meson", "setup", "--buildtype=release", "-Ddebug=true", "-Dtests=false", folder, ROOT],
                 ["ninja", "-C", folder]):
        if subprocess.run([str(a) for a in argv], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
            return None
    return pathlib.Path(folder)


def counted(build, path, folder):
    """{end: {stage: instructions}} for a stream of the file at path to /dev/null."""
    files = {end: pathlib.Path(folder) / ("callgrind." + end) for end in ("source", "sink")}

    def run(end, *argv):
        return subprocess.Popen([str(a) for a in (
            "valgrind", "--tool=callgrind", "--callgrind-out-file=%s" % files[end], "--log-file=/dev/null", *argv)])
    with key_file() as key:
        port = free_port()
        arg = ["-q", "--transport=tcp", "--timeout=120", "--key-file", key]
        sink = run("sink", build / "src/rdrecv", *arg, port, "/dev/null")
        wait_listening(port, until=60)
        source = run("source", build / "src/rdsend", *arg, "127.0.0.1", port, path)
        if source.wait() or sink.wait():
            return None
    found = {}
    for end, file in files.items():
        out = subprocess.run(["callgrind_annotate", "--threshold=100", "--show-percs=no", "--auto=no", file], capture_output=True,
                             text=True).stdout
        sums = found[end] = collections.Counter()
        for line in out.splitlines():
            m = re.match(r"\s*([\d,]+)\s+(\S.*:.*)$", line)
            if m and "PROGRAM TOTALS" not in line:
                sums[stage_of(m.group(2))] += int(m.group(1).replace(",", ""))
    return found


def instructions():
    what = "User instructions a byte, a file in /dev/shm to /dev/null over TCP, callgrind"
    if not shutil.which("valgrind"):
        return not_run(what, "no valgrind here")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as d:
        build = built(os.path.join(d, "build"))
        if not build:
            return not_run(what, "the build failed")
        got = []
        for size in SIZES:
            path = made_file(d, size)
            got.append(counted(build, path, d))
            os.unlink(path)
    if not all(got):
        return not_run(what, "it failed under valgrind")
    print("\n%s" % what)
    for end in got[0]:
        a_byte = {stage: (got[1][end][stage] - got[0][end][stage]) / (SIZES[1] - SIZES[0]) for stage in got[1][end]}
        rest = sum(v for stage, v in a_byte.items() if stage not in ("digest", "cipher"))
        print("  %-7s %s; outside digest and cipher %.4f" % (end, ", ".join(
            "%s %.4f" % (s, v) for s, v in sorted(a_byte.items(), key=lambda sv: -sv[1])), rest), flush=True)
        RESULTS.append({"what": what, "end": end, "figures": a_byte, "outside digest and cipher": rest})
