# SPDX-License-Identifier: Apache-2.0
"""Checks the window law, for bench/run: with delays by netem the rate is R = min(B, N C / (RTT + C / B))."""

import contextlib
import pathlib
import statistics
import subprocess

from measure import HOSTS, RESULTS, not_run

RTTS_MS = (1, 10, 100)
KIB = 1 << 10
# Blocks in flight and their size.
WINDOWS = ((1, 256 * KIB), (4, 256 * KIB), (16, 256 * KIB), (8, 1024 * KIB), (32, 1024 * KIB))
ENDS = (("siwa", "sw0"), ("siwb", "sw1"))
# siw uses TCP. TCP's windows must not limit it, so they are as large as the largest of ours, from the start.
MOST = 32 << 20
HYSTART = pathlib.Path("/sys/module/tcp_cubic/parameters/hystart")


def law(most, blocks, size, rtt):
    return min(most, blocks * size / 1e9 / (rtt + size / 1e9 / most))


def delay(ms):
    """Delays packets by half of the round trip in each direction."""
    for netns, interface in ENDS:
        subprocess.run(["ip", "netns", "exec", netns, "tc", "qdisc", "replace", "dev", interface, "root", "netem",
                        "delay", "%.3fms" % (ms / 2), "limit", "100000"], check=True)


def undelay():
    for netns, interface in ENDS:
        subprocess.run(["ip", "netns", "exec", netns, "tc", "qdisc", "del", "dev", interface, "root"],
                       check=False, stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def wide():
    """Sets large windows for the TCP below siw, and a slow start that does not end before they are full."""
    was = {}
    for netns, _ in ENDS:
        for name, value in (("tcp_rmem", "4096 %d %d" % (2 * MOST, 4 * MOST)),
                            ("tcp_wmem", "4096 %d %d" % (MOST, 4 * MOST)), ("tcp_no_metrics_save", "1")):
            run, key = ["ip", "netns", "exec", netns, "sysctl", "-q"], "net.ipv4." + name
            was[netns, key] = subprocess.run([*run, "-n", key], capture_output=True, text=True, check=True).stdout.strip()
            subprocess.run([*run, "-w", "%s=%s" % (key, value)], check=True)
    hystart = HYSTART.read_text() if HYSTART.exists() else None
    if hystart:
        HYSTART.write_text("0")
    try:
        yield
    finally:
        for (netns, key), value in was.items():
            subprocess.run(["ip", "netns", "exec", netns, "sysctl", "-q", "-w", "%s=%s" % (key, value)], check=True)
        if hystart:
            HYSTART.write_text(hystart)


def rtt_of(adapter):
    """The round-trip time in seconds, the shortest of ten."""
    (_, near), (address, _) = HOSTS[adapter]
    out = subprocess.run([*near, "ping", "-q", "-c", "10", "-i", "0.2", address], capture_output=True, text=True).stdout
    return float(out.rsplit("=", 1)[1].split("/")[0]) / 1e3


def window_law(runs, bench):
    """bench(adapter, *options of lane_bench): GB/s."""
    what = "The window law on siw, one lane, netem"
    if subprocess.run(["modprobe", "sch_netem"], stderr=subprocess.DEVNULL).returncode:
        return not_run(what, "no netem in this kernel")

    def rate(blocks, size, seconds):
        got = [bench("siw", "--lanes", 1, "--depth", blocks, "--block-kib", size // KIB, "--no-check", "--settle", 3,
                     "--seconds", seconds) for _ in range(runs)]
        return statistics.median([g for g in got if g] or [0])
    with wide():
        measured(what, rate)


def measured(what, rate):
    # B is the rate of the path with blocks of this size and without a delay, but with netem.
    delay(0)
    try:
        most = {size: rate(32, size, 8) for size in {s for _, s in WINDOWS}}
    finally:
        undelay()
    print("\n%s  (B %s)" % (what, ", ".join("%.3f GB/s at %d KiB" % (b, s // KIB) for s, b in sorted(most.items()))))
    print("  %-8s %-14s %9s %9s %7s" % ("RTT", "window", "GB/s", "law", "ratio"))
    for ms in RTTS_MS:
        delay(ms)
        try:
            rtt = rtt_of("siw")
            for blocks, size in WINDOWS:
                got, said = rate(blocks, size, 8), law(most[size], blocks, size, rtt)
                print("  %-8s %-14s %9.4f %9.4f %7.2f" % ("%.1f ms" % (rtt * 1e3), "%d x %d KiB" % (blocks, size // KIB),
                                                           got, said, got / said), flush=True)
                RESULTS.append({"what": what, "rtt_ms": rtt * 1e3, "blocks": blocks, "block": size, "rate": got,
                                "law": said})
        finally:
            undelay()
