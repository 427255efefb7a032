# SPDX-License-Identifier: Apache-2.0
"""Counts instructions, for bench/run: callgrind counts what source and sink do in user mode, by stage. strace counts
system calls (rdma_cost.py)."""

import collections
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from measure import BIN, RESULTS, ROOT, free_port, made_file, not_run, wait_listening
from streams import key_file

SIZES = (64 << 20, 192 << 20)  # the difference is the cost of the bytes, without start and end
STAGES = (("digest", r"XXH|xxh|digest|cell_hash"), ("cipher", r"libcrypto|libssl|aes|EVP"), ("lanes", r"src/lane/"),
          ("files and streams", r"src/copy/"), ("session", r"src/session/"), ("base", r"src/base/"))


def stage_of(line, stages):
    return next((name for name, sign in stages if re.search(sign, line)), "C library and the rest")


def built(folder):
    """Builds the release with debugging information."""
    for argv in (["meson", "setup", "--buildtype=release", "-Ddebug=true", "-Dtests=false", folder, ROOT],
                 ["ninja", "-C", folder]):
        if subprocess.run([str(a) for a in argv], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
            return None
    return pathlib.Path(folder)


def stream(build, path, wrapped, transport="tcp", env=None, words=()):
    """Sends the file at path to /dev/null. wrapped: {end: the command that starts its program}. Returns whether both
    programs succeeded."""

    def run(end, *argv):
        return subprocess.Popen([str(a) for a in (*wrapped[end], *argv)], env={**os.environ, **(env or {})})
    with key_file() as key:
        port = free_port()
        arg = ["-q", "--transport=%s" % transport, "--timeout=120", "--connect-timeout=120", "--key-file", key, *words]
        sink = run("sink", build / "src/rdrecv", *arg, port, "/dev/null")
        wait_listening(port, until=60)
        source = run("source", build / "src/rdsend", *arg, "127.0.0.1", port, path)
        return source.wait() == 0 and sink.wait() == 0


def counted(run, folder, stages=STAGES, options=()):
    """{end: {stage: instructions}} of what run does. run: gets {end: the command that starts its program}, and returns
    whether both programs succeeded."""
    files = {end: pathlib.Path(folder) / ("callgrind." + end) for end in ("source", "sink")}
    if not run({end: ("valgrind", "--tool=callgrind", "--callgrind-out-file=%s" % file,
                      "--log-file=/dev/null", *options) for end, file in files.items()}):
        return None
    found = {}
    for end, file in files.items():
        out = subprocess.run(["callgrind_annotate", "--threshold=100", "--show-percs=no", "--auto=no", file], capture_output=True,
                             text=True).stdout
        sums = found[end] = collections.Counter()
        for line in out.splitlines():
            m = re.match(r"\s*([\d,]+)\s+(\S.*:.*)$", line)
            if m and "PROGRAM TOTALS" not in line:
                sums[stage_of(m.group(2), stages)] += int(m.group(1).replace(",", ""))
    return found


def print_instructions(what, got):
    print("\n%s" % what)
    for end in got[0]:
        a_byte = {stage: (got[1][end][stage] - got[0][end][stage]) / (SIZES[1] - SIZES[0]) for stage in got[1][end]}
        rest = sum(v for stage, v in a_byte.items() if stage not in ("digest", "cipher"))
        print("  %-7s %s; outside digest and cipher %.4f" % (end, ", ".join(
            "%s %.4f" % (s, v) for s, v in sorted(a_byte.items(), key=lambda sv: -sv[1])), rest), flush=True)
        RESULTS.append({"what": what, "end": end, "figures": a_byte, "outside digest and cipher": rest})


def instructions():
    what = "User instructions a byte, a file in /dev/shm to /dev/null over TCP, callgrind"
    if not shutil.which("valgrind"):
        return not_run(what, "no valgrind here")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as d:
        build = built(os.path.join(d, "build"))
        if not build:
            return not_run(what, "the build failed")
        for how, words in ("clear", ["--encrypt=off"]), ("encrypted", ["--encrypt=on"]):
            got = []
            for size in SIZES:
                path = made_file(d, size)
                got.append(counted(lambda wrapped: stream(build, path, wrapped, words=words), d))  # noqa: B023
                os.unlink(path)
            if all(got):
                print_instructions("%s, %s" % (what, how), got)
            else:
                not_run("%s, %s" % (what, how), "it failed under valgrind")
