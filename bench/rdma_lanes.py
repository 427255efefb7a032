# SPDX-License-Identifier: Apache-2.0
"""Lanes over a simulated adapter beside the least that moves messages over it (send_loop), for bench/run. Each end is
a process; only ratios within one run are meaningful."""

import contextlib
import os
import re
import subprocess
import sys
import tempfile

from measure import BIN, ROOT, free_port, in_rounds, not_run, report

ADAPTER = "connectx-roce"
WHERE = "simulated %s" % ADAPTER
LOOP = "loop of SENDs"


@contextlib.contextmanager
def simulated_host(*link):
    """Yields the environment for programs that shall use a simulated adapter at 127.0.0.1. link: words of make_host.py"""
    with tempfile.TemporaryDirectory() as host:
        subprocess.run([ROOT / "tests/simverbs/make_host.py", ADAPTER, host, "--address=127.0.0.1", *link], check=True)
        yield {"SIMVERBS": host, "LD_LIBRARY_PATH": str(BIN / "tests/simverbs")}


def start(env, *argv):
    return subprocess.Popen([str(a) for a in argv], env={**os.environ, **env}, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def pair(env, program, *args, build=BIN, wrapped=None):
    """Runs a source and a sink. Returns (GB/s, processor seconds of both); None if one failed. wrapped: {end: the command
    that starts its program}"""
    wrapped = wrapped or {"source": (), "sink": ()}
    where = ("--rdma", "127.0.0.1", "--port", free_port(), *args)
    sink = start(env, *wrapped["sink"], build / "bench" / program, "--sink", *where)
    sink.stdout.readline()
    source = start(env, *wrapped["source"], build / "bench" / program, "--source", *where)
    said, cpu = source.stdout.read() + source.stderr.read(), 0
    for p in (source, sink):
        _, status, used = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
        cpu += used.ru_utime + used.ru_stime
    found = re.search(r"([0-9.]+) GB/s", said)
    if source.returncode or sink.returncode or not found:
        print("  %s %s: %s" % (program, args, said + sink.stderr.read()), file=sys.stderr)
        return None
    return float(found.group(1)), cpu


def measured(env, blocks, depth, pairs, argv):
    """(GB/s, processor seconds per block). The seconds do not count those of a pair that only goes twice through its
    memory, most of which is the start and page faults."""
    few, many = (pair(env, *argv, "--blocks", n) for n in (2 * depth, blocks + 2 * depth))
    return (many[0], (many[1] - few[1]) / blocks / pairs) if few and many else None


def compare(env, runs, what, who, kib=256, depth=12, blocks=8000, pairs=1):
    """Reports the rates, of small blocks by number, and the processor time, which says more on a busy machine. blocks: of
    each queue pair. who: {name: words}, Sluice first."""
    got = in_rounds(runs, {name: lambda argv=argv: measured(env, blocks, depth, pairs, (
        *argv, "--block-kib", kib, "--depth", depth)) for name, argv in who.items()})
    what = "%s, blocks of %d KiB, %s" % (what, kib, WHERE)
    if kib < 64:
        report(what, {who: [r[0] * 1e9 / (kib << 10) for r in values] for who, values in got.items()}, unit="blocks/s",
               digits=0, rounds=True)
    else:
        report(what, {who: [r[0] for r in values] for who, values in got.items()}, rounds=True)
    report("Processor time of both ends, a block, of these", {
        who: [r[1] * 1e6 for r in values] for who, values in got.items()}, unit="us", digits=2, rounds=True)


SMALL = {"kib": 4, "depth": 128, "blocks": 160000}


def beside_loop(env, runs):
    who = {"lanes": ("lane_bench", "--lanes", 1, "--no-check"),
           "%s, from one buffer" % LOOP: ("send_loop",),
           "%s, from a ring" % LOOP: ("send_loop", "--ring")}
    for shape in {}, {"kib": 1024, "depth": 14, "blocks": 2000}, SMALL:
        compare(env, runs, "One lane and a loop", who, **shape)


def by_number(env, runs):
    for n in 1, 2, 4, 8:
        compare(env, runs, "Lanes and loops of SENDs: %d" % n, {
            "lanes: %d" % n: ("lane_bench", "--lanes", n, "--no-check"),
            "loops: %d" % n: ("send_loop", "--pairs", n)}, blocks=8000 // n, pairs=n)


def by_operation(env, runs):
    """A lane by each operation, a loop of the same, and of WRITEs alone, as ib_write_bw has them."""
    peers = {"send": LOOP, "write-imm": "loop of WRITEs WITH IMMEDIATE", "write-send": "loop of WRITEs and SENDs"}
    who = {}
    for op, loop in peers.items():
        who["lanes: %s" % op] = ("lane_bench", "--lanes", 1, "--no-check", "--rdma-op", op)
        who[loop] = ("send_loop", "--op", op)
    who["loop of WRITEs alone"] = ("send_loop", "--op", "write")
    for shape in {}, SMALL:
        compare(env, runs, "One lane by --rdma-op, and loops", who, **shape)


def rdma_lanes(runs):
    if not (BIN / "bench/send_loop").exists():
        return not_run("Lanes over a simulated adapter", "a build without rdma-core")
    with simulated_host() as env:
        beside_loop(env, runs)
        by_number(env, runs)
        by_operation(env, runs)
