# SPDX-License-Identifier: Apache-2.0
"""rdbench: its output is complete, rdcp accepts its advice, and it leaves nothing behind."""

import contextlib
import itertools
import json
import os
import signal
import time
import xml.etree.ElementTree as ET

import pytest

from hosts import COUNT, DEMAND, NEAR, PATIENCE, RDMA, RSH, SLOW, pattern, program, wait_until
from processes import descendants, words

pytestmark = pytest.mark.moves_blocks
BLOCKS = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20]
LADDER = [(1, 1), (1, 2), (1, 16), (4, 16)]
SVG = "{http://www.w3.org/2000/svg}"
ONE = ["--lanes=2", "--depth=4", "--block-size=64k"]


@pytest.fixture
def disks(tmp_path):
    for name in ("from", "to"):
        (tmp_path / name).mkdir()
    return tmp_path


def argv(*args, demand=DEMAND):
    return [program("rdbench"), *([demand] if demand else []), *PATIENCE, "--rsh", RSH, "--rdcp-path",
            program("rdcp"), "--seconds=0.02", *args]


def bench_on(bench, *args, demand=DEMAND, timeout=60, **how):
    return bench.run(argv(*args, demand=demand), host=NEAR, timeout=timeout, **how)


def objects(r):
    return [json.loads(line) for line in r.out.decode().splitlines()]


def of(all, kind):
    return [o for o in all if o["type"] == kind]


def setting(p):
    return p["lanes"], p["depth"], p["block_size"]


def is_empty(*directories):
    return not any(list(d.iterdir()) for d in directories)


def test_complete_sweep(bench, disks):
    """Every point of the ladder, every stage, and the plot; rdcp accepts the advice."""
    r = bench_on(bench, "--json", "--plot=p.svg", "--source=from", "--target=%s" % (disks / "to"), "far",
                 cwd=disks, timeout=120)
    assert r.code == 0, r.errors()
    all = objects(r)
    assert all[0] == {"v": 1, "type": "start", "program": "rdbench", "host": "far", "seconds": 0.02}
    points = of(all, "point")
    ladder = points[:24]
    assert [setting(p) for p in ladder] == [(l, d, b) for l, d in LADDER for b in BLOCKS]
    assert all_same(ladder, "transport") and ladder[0]["transport"] == ("rdma" if RDMA else "tcp")
    for p in points:
        assert p["bytes"] > 0 and p["seconds"] > 0
        assert p["bytes_per_second"] == pytest.approx(p["bytes"] / p["seconds"], rel=0.01)
    assert [s["stage"] for s in of(all, "stage")] == [
        "source disk alone", "network alone", "memory to memory", "target disk alone", "end to end"]
    again = {setting_and_way(p): p for p in of(all, "again")}
    fastest = sorted((p for p in points if not p["shrunk"]), key=lambda p: -p["bytes_per_second"])[:4]
    assert set(again) == {setting_and_way(p) for p in fastest}
    for p in fastest:
        assert again[setting_and_way(p)]["bytes"] > p["bytes"]
        assert again[setting_and_way(p)]["seconds"] > p["seconds"]
    both = {**{setting_and_way(p): p for p in points}, **again}
    best = max(p["bytes_per_second"] for p in both.values() if not p["shrunk"])
    summary = all[-1]
    assert summary["type"] == "summary" and summary["exit"] == 0
    assert best * 0.95 <= summary["bytes_per_second"] <= best * 1.001
    assert summary["latency_seconds"][ladder[0]["transport"]] > 0
    picture(disks / "p.svg", len({(p["transport"], p["rdma_op"], p["lanes"], p["depth"]) for p in points
                                  if not p["shrunk"]}))
    assert is_empty(disks / "from", disks / "to")
    data = pattern(3 << 20)
    (disks / "in").write_bytes(data)
    if summary["by_itself"] >= 0.97 * summary["bytes_per_second"]:
        assert "--lanes" not in summary["options"], "the defaults are as fast"
    else:
        assert summary["options"].startswith("--lanes ")
    copy = bench.copy(*summary["options"].split(), "in", "far:%s/out" % disks)
    assert copy.code == 0, copy.errors()
    assert (disks / "out").read_bytes() == data


def test_bwlimit_and_progress_of_a_sweep(bench):
    limit = 8 << 20
    r = bench_on(bench, "--json", "--bwlimit=8M", "--progress=1", *ONE)
    assert r.code == 0, r.errors()
    measured = of(objects(r), "point")
    # The lanes may send their first blocks in excess of the limit.
    full = 2 * 4 * 64 << 10
    assert measured and all(p["bytes"] < 1.1 * limit * p["seconds"] + full for p in measured), measured
    assert r.errors().startswith("rdbench: memory to memory, "), r.errors()


def setting_and_way(p):
    return p["transport"], p["rdma_op"], *setting(p)


def all_long(rows):
    return len({len(row) for row in rows}) == 1


def all_same(points, key):
    return len({p[key] for p in points}) == 1


def picture(path, lines):
    """Well-formed, with labelled axes and a curve for each setting."""
    top = ET.parse(path).getroot()
    assert top.tag == SVG + "svg" and top.get("viewBox")
    drawn = top.findall(SVG + "polyline")
    assert len(drawn) == lines
    for axis in ("axis-x", "axis-y"):
        group = top.find("%sg[@class='%s']" % (SVG, axis))
        assert len(group.findall(SVG + "text")) >= 3
    words = [t.text for t in top.iter(SVG + "text")]
    assert "block size" in words and any("rate in" in w for w in words)
    assert "4 KiB" in words and "4 MiB" in words
    x = [float(p.split(",")[0]) for p in drawn[0].get("points").split()]
    steps = [b - a for a, b in zip(x, x[1:])]
    assert max(steps) - min(steps) < 0.3, "a log2 axis"
    assert len(top.find("%sg[@class='legend']" % SVG).findall(SVG + "text")) >= lines


def test_results_table(bench, disks):
    """Within this host; a file of the user is read and stays."""
    (disks / "from" / "file").write_bytes(pattern(1 << 20))
    r = bench_on(bench, *ONE, "--source=from/file", "--target=to", cwd=disks)
    assert r.code == 0 and not r.errors(), r.errors()
    lines = r.out.decode().splitlines()
    assert lines[0] == "within this host, 0.02 s a point"
    assert lines[-1].startswith("best: --lanes 2 --depth 4 --block-size 64k")
    text = r.out.decode()
    at = next(i for i, line in enumerate(lines) if line.startswith("memory to memory"))
    rows = lines[at:lines.index("", at)]
    assert len(rows) > 1 and all_long(rows), "columns stand below each other"
    for stage in ("source disk alone", "network alone", "memory to memory", "target disk alone", "end to end"):
        assert "  %s, GB/s" % stage in text
    assert " us\n" in text and "1.00 MiB read" in text
    assert [p.name for p in (disks / "from").iterdir()] == ["file"]
    assert is_empty(disks / "to")


def test_missing_disk_measurements_are_mentioned(bench, tmp_path):
    r = bench_on(bench, *ONE, "far", cwd=tmp_path)
    assert r.code == 0, r.errors()
    assert r.out.decode().splitlines()[:2] == [
        "from this host to far, 0.02 s a point", "disks are not measured; use --source and --target"]
    assert "disk alone" not in r.out.decode()


def test_sweep_needs_one_login(bench, tmp_path):
    """However many points there are, the user types a password once."""
    rsh = tmp_path / "rsh"
    rsh.write_text("#!/bin/sh\necho \"$@\" >>%s/said\nexec %s \"$@\"\n" % (tmp_path, RSH))
    rsh.chmod(0o755)
    r = bench_on(bench, "--lanes=1", "--depth=2", "--json", "--rsh", rsh, "far", cwd=tmp_path)
    assert r.code == 0, r.errors()
    assert len(of(objects(r), "point")) >= len(BLOCKS)
    said = (tmp_path / "said").read_text().splitlines()
    assert len(said) == 1 and said[0].endswith(" --ends")


# ---- failures ------------------------------------------------------------------------------

@pytest.mark.parametrize("args, code, text", [
    (["--target=missing", "far"], 11, "create a file in missing"),
    (["--target=missing"], 11, "create a file in missing"),
    (["--target=file"], 11, "create a file in file"),
    (["--source=missing"], 3, "open missing"),
    (["--source=/dev/zero"], 11, "/dev/zero"),
    (["--plot=missing/p.svg"], 11, "write missing/p.svg"),
    (["--plot=."], 11, "write ."),
    (["--plot=" + "p" * 256], 11, "File name too long"),
    (["--plot=/proc/p.svg"], 11, "write /proc/p.svg"),
    (["nowhere"], 5, "unknown host nowhere"),
    (["--seconds=0"], 1, "--seconds"),
    (["-x"], 1, "-x"),
    (["a", "b"], 1, "unexpected operand b"),
    (["--", "-x"], 1, "not a host name"),
], ids=lambda v: " ".join(v) if isinstance(v, list) else "")
@pytest.mark.any_lane
def test_impossible_arguments_are_refused(bench, disks, args, code, text):
    (disks / "file").write_bytes(b"x")
    home = {"home": disks}
    r = bench_on(bench, *ONE, *args, cwd=disks, **home)
    assert r.code == code, r.errors()
    assert text in r.errors()
    assert r.errors().splitlines()[0].startswith(("rdbench: ", "rsh: "))
    assert "GB/s" not in r.out.decode(), "known before anything is measured"


def test_failure_is_a_json_object(bench, disks):
    r = bench_on(bench, *ONE, "--json", "--plot=p.svg", "--target=missing", cwd=disks)
    assert r.code == 11, r.errors()
    assert [o["type"] for o in objects(r)] == ["start", "summary"]
    end = objects(r)[-1]
    assert end["exit"] == 11 and end["error"].startswith("create a file in missing") and end["host"] == ""
    assert sorted(p.name for p in disks.iterdir()) == ["from", "to"], "no picture of nothing"


def test_plot_that_cannot_be_written_is_reported(bench, disks):
    """The measurements are printed nevertheless."""
    r = bench_on(bench, *ONE, "--json", "--plot=/dev/full", cwd=disks)
    assert r.code == 11 and "write /dev/full" in r.errors()
    end = objects(r)[-1]
    assert end["exit"] == 11 and end["error"].startswith("write /dev/full")
    assert end["options"].startswith("--lanes 2 --depth 4 --block-size 64k")


def test_too_little_memory_for_any_setting_is_reported(bench, disks):
    """The plot explains why it is empty, and the advice contains no refused option."""
    r = bench_on(bench, "--lanes=2", "--depth=16", "--block-size=256k", "--memory=1M", "--plot=p.svg", cwd=disks)
    assert r.code == 0, r.errors()
    best = r.out.decode().splitlines()[-1]
    assert best.startswith("best: --lanes 2 --depth 16 --block-size 256k") and best.endswith(" --memory 1048576")
    words = " ".join(t.text for t in ET.parse(disks / "p.svg").getroot().iter(SVG + "text"))
    assert "lacked memory" in words and "0.000" not in words


def test_missing_far_end_is_reported(bench, tmp_path):
    r = bench_on(bench, "--rdcp-path=/nowhere/rdcp", "far", cwd=tmp_path)
    assert r.code == 5
    assert "/nowhere/rdcp is not on far" in r.errors()


def test_full_stdout_is_reported(bench, tmp_path):
    with open("/dev/full", "w") as full:
        r = bench_on(bench, "--seconds=100", stdout=full, cwd=tmp_path)
    assert r.code == 11
    assert r.errors() == "rdbench: write to stdout: No space left on device\n", "and at once"


# ---- interruptions ---------------------------------------------------------------------------

# In each stage, which is made long enough to be interrupted.
STAGES = {"memory": "memory to memory", "source": "source disk alone", "target": "target disk alone"}


def begin(bench, disks, stage, *host):
    args = [*ONE, "--json", "--seconds=3"]
    if stage != "memory":
        args.append("--%s=%s" % (stage, disks / ("from" if stage == "source" else "to")))
    run = bench.start(argv(*args, *host), host=NEAR, cwd=disks)
    if stage == "memory":
        wait_until(lambda: b'"start"' in run.out)
        time.sleep(0.5 * SLOW)
    else:
        before = "point" if stage == "source" else "memory to memory\", \"transport"
        wait_until(lambda: before.encode() in run.out)
        time.sleep(0.2 * SLOW)
    assert run.proc.poll() is None, run.errors()
    return run, wait_until(lambda: descendants(run.proc.pid))


# Each takes five seconds of a processor. A short run has every fifth: one in each stage, with each signal and host.
INTERRUPTS = list(itertools.product(STAGES, [signal.SIGINT, signal.SIGKILL], ["here", "far"]))


@pytest.mark.parametrize("stage, signo, host", INTERRUPTS if COUNT > 1 else INTERRUPTS[::5])
@pytest.mark.any_lane
def test_interrupted_sweep_ends_cleanly(bench, disks, stage, host, signo):
    run, below = begin(bench, disks, stage, *([] if host == "here" else [host]))
    start = time.monotonic()
    run.signal(signo)
    assert run.wait(10) == (20 if signo == signal.SIGINT else -signo), run.errors()
    assert time.monotonic() - start < 2 * SLOW + 0.5
    wait_until(lambda: not any(os.path.exists("/proc/%d" % p) for p in below), 3)
    assert is_empty(disks / "from", disks / "to")
    if signo == signal.SIGINT:
        assert run.errors() == "rdbench: interrupted by SIGINT\n"


def test_killed_far_end_is_reported(bench, disks):
    run, below = begin(bench, disks, "memory", "far")
    for pid in below:
        # Of those that wait for the killed ones, some are gone by now.
        with contextlib.suppress(ProcessLookupError):
            if b"--ends" in b" ".join(words(pid)):
                os.kill(pid, signal.SIGKILL)
    assert run.wait(10) in (5, 44), run.errors()


@pytest.mark.needs("tcp", why="it makes wires of its own, for TCP")
@pytest.mark.may_skip("any", "a network namespace takes root, and a container that may")
def test_short_outage_is_survived(bench, tmp_path, networks):
    """Longer than one attempt: earlier measurements are kept."""
    wire = networks()
    wire.join("10.77.8")
    run = bench.start([*wire.on(0), *argv(*ONE, "--timeout=1", "--connect-timeout=1", "-4", "--seconds=0.1", "far",
                                          demand="--transport=tcp")],
                      cwd=tmp_path, env={"SLUICE_TEST_HOSTS": "far " + " ".join(wire.on(1))})
    wait_until(lambda: b" us\n" in run.out)
    assert wire.ip(0, "link", "set", "v0", "down")
    since = time.monotonic()
    # On a busy machine a second may be too short without an outage.
    early = "measuring again" in run.errors()
    wait_until(lambda: run.errors().count("measuring again") >= 3 or run.proc.poll() is not None)
    # A pause of one second and one of two: children that exit in between cut neither short.
    assert early or time.monotonic() - since >= 3
    assert wire.ip(0, "link", "set", "v0", "up")
    assert run.wait(30) == 0, run.errors()
    assert run.out.decode().splitlines()[-1].startswith("best: --lanes 2 --depth 4 --block-size 64k")
    assert b"the link, " not in run.out, "what a veth says of its speed is made up"


@pytest.mark.needs("tcp", why="it makes hosts of its own, for TCP")
@pytest.mark.may_skip("any", "a network namespace takes root, and a container that may")
def test_sweep_over_ssh(bench, tmp_path, networks):
    """It is measured, and reported once."""
    hosts = networks()
    r = bench.run([*hosts.on(0), *argv(*ONE, "--json", "far", demand=None)], cwd=tmp_path,
                  env={"SLUICE_TEST_HOSTS": "far " + " ".join(hosts.on(1))})
    assert r.code == 0, r.errors()
    assert {p["transport"] for p in of(objects(r), "point")} == {"ssh"}
    assert r.errors().count("data goes over ssh") == 1, r.errors()


# ---- RDMA and TCP -------------------------------------------------------------------------------

@pytest.mark.needs("verbs", why="it is about verbs; the lab runs it")
@pytest.mark.lab("siw", long=True)
def test_rdma_and_tcp_are_both_measured(bench, disks):
    r = bench_on(bench, "--json", "--block-size=64k", "--plot=p.svg", "far", demand=None, cwd=disks, timeout=120)
    assert r.code == 0, r.errors()
    all = objects(r)
    points = of(all, "point")
    assert {p["transport"] for p in points} == {"rdma", "tcp"}
    assert {p["rdma_op"] for p in points if p["transport"] == "rdma"} > {"send"}
    assert set(all[-1]["latency_seconds"]) == {"rdma", "tcp"}
    for p in points:
        assert p["wire"].startswith(p["transport"])


def test_required_transport_is_the_only_one_measured(bench, tmp_path):
    r = bench_on(bench, *ONE, "--json", "far", demand="--transport=tcp", cwd=tmp_path)
    assert r.code == 0, r.errors()
    assert {p["transport"] for p in of(objects(r), "point")} == {"tcp"}
    assert "--transport tcp" in objects(r)[-1]["options"]
