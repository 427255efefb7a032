# SPDX-License-Identifier: Apache-2.0
"""Counts instructions and system calls, for bench/run: callgrind counts what source and sink do in user mode, by
stage; strace counts their calls."""

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
STAGES = (("digest", r"XXH|xxh|digest|seal|cells"), ("cipher", r"libcrypto|libssl|aes|EVP"), ("lanes", r"src/lane/"),
          ("files and streams", r"src/copy/"), ("session", r"src/session/"), ("base", r"src/base/"))
BLOCK = 256 << 10
ADAPTER = "connectx-roce"
RDMA_STAGES = (("simulated adapter", r"libibverbs|librdmacm|tests/simverbs"), *STAGES)


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


def counted(build, path, folder, stages=STAGES, options=(), **how):
    """{end: {stage: instructions}} for a stream of the file at path to /dev/null."""
    files = {end: pathlib.Path(folder) / ("callgrind." + end) for end in ("source", "sink")}
    if not stream(build, path, {end: ("valgrind", "--tool=callgrind", "--callgrind-out-file=%s" % file,
                                      "--log-file=/dev/null", *options) for end, file in files.items()}, **how):
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


def traced(build, path, folder, **how):
    """{end: {system call: count}} for a stream of the file at path to /dev/null."""
    files = {end: pathlib.Path(folder) / ("strace." + end) for end in ("source", "sink")}
    if not stream(build, path, {end: ("strace", "-f", "-qq", "-c", "-U", "calls,name", "-o", file)
                                for end, file in files.items()}, **how):
        return None
    found = {}
    for end, file in files.items():
        rows = (line.split() for line in file.read_text().splitlines())
        found[end] = collections.Counter({r[1]: int(r[0]) for r in rows if len(r) == 2 and r[0].isdigit() and r[1] != "total"})
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
                got.append(counted(build, path, d, words=words))
                os.unlink(path)
            if all(got):
                print_instructions("%s, %s" % (what, how), got)
            else:
                not_run("%s, %s" % (what, how), "it failed under valgrind")


# Instructions in these functions count for their callers. The simulated adapter calls them most.
OF_CALLERS = ("pthread_*", "__pthread_*", "__mem*", "clock_*", "epoll_*", "__GI_*", "__lll_*", "write", "read", "poll",
              "getenv", "str*", "__str*")


@contextlib.contextmanager
def simulated_host(*link):
    """Yields the environment for programs that shall use a simulated adapter at 127.0.0.1. link: words of make_host.py"""
    with tempfile.TemporaryDirectory() as host:
        subprocess.run([ROOT / "tests/simverbs/make_host.py", ADAPTER, host, "--address=127.0.0.1", *link], check=True)
        yield {"SIMVERBS": host, "LD_LIBRARY_PATH": str(BIN / "tests/simverbs")}


def difference_per_block(count, folder):
    """{end: {what: count per block}}, from the difference of two files. None: a run failed."""
    got = []
    for size in SIZES:
        path = made_file(folder, size)
        got.append(count(path))
        os.unlink(path)
    if not all(got):
        return None
    blocks = (SIZES[1] - SIZES[0]) / BLOCK
    return {end: {what: (got[1][end][what] - got[0][end][what]) / blocks for what in got[1][end]} for end in got[0]}


def block_costs():
    """Counts instructions and system calls per block of a stream over RDMA on a simulated adapter."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as d, simulated_host() as env:
        how = {"transport": "rdma", "env": env}
        build = built(os.path.join(d, "build"))
        for tool, what, count in (
                ("valgrind", "User instructions a block of 256 KiB, a file in /dev/shm to /dev/null over a simulated adapter",
                 lambda path: counted(build, path, d, RDMA_STAGES, ["--fn-skip=%s" % name for name in OF_CALLERS], **how)),
                ("strace", "System calls a block of 256 KiB, the same", lambda path: traced(build, path, d, **how))):
            a_block = difference_per_block(count, d) if build and shutil.which(tool) else None
            if not a_block:
                not_run(what, "no %s here, or it failed" % tool)
                continue
            print("\n%s" % what)
            for end, figures in a_block.items():
                figures = {k: round(v, 2) for k, v in sorted(figures.items(), key=lambda kv: -kv[1]) if v >= 0.005}
                rest = sum(v for k, v in figures.items() if k not in ("digest", "cipher", "simulated adapter"))
                print("  %-7s %s; %s %.2f" % (end, figures, "together outside digest and adapter", rest), flush=True)
                RESULTS.append({"what": what, "end": end, "figures": figures, "outside digest and adapter": round(rest, 2)})
