# SPDX-License-Identifier: Apache-2.0
"""Behaviour that only verbs show: counted packets, existing queue pairs, limits on locked memory."""

import os
import pathlib
import re
import subprocess

import pytest

from hosts import FAR, ROOT, SIM, as_nobody, open_up, pattern, wait_until

pytestmark = [
    pytest.mark.moves_blocks,
    pytest.mark.lab,
    pytest.mark.needs("verbs", why="it is about verbs; the lab runs it"),
]
BLOCK = 256 << 10


def counters():
    out = subprocess.run([ROOT / "tests/lab/counters"], capture_output=True, text=True, check=True)
    return {k: int(v) for k, v in (line.split() for line in out.stdout.splitlines())}


@pytest.mark.needs("rxe", why="only rxe counts packets")
@pytest.mark.lab("rxe")
def test_data_goes_over_the_adapter(bench, tmp_path):
    size = 32 * BLOCK
    (tmp_path / "in").write_bytes(pattern(size))
    before = counters()
    assert bench.copy("in", "far:%s/out" % tmp_path).code == 0
    after = counters()
    # 4096 bytes is the largest path MTU
    assert after["rxe_sent_pkts"] - before["rxe_sent_pkts"] >= size // 4096


@pytest.mark.needs("kernel verbs", why="rdma(8) asks the kernel")
def test_queue_pairs_exist_while_lanes_do(bench, tmp_path):
    sink = bench.receive("--lanes=2", "--", "sh", "-c", "cat >%s/seen" % tmp_path)
    source = bench.send(sink.port, "--lanes=2", "--", "sh", "-c", "cat /dev/zero | head -c 9000000; sleep 100")
    wait_until(lambda: (tmp_path / "seen").exists() and (tmp_path / "seen").stat().st_size == 9000000)
    qps = subprocess.run(["rdma", "resource", "show", "qp"], capture_output=True, text=True).stdout
    # a queue pair belongs to the thread that made it
    pids = {int(t) for p in (source, sink) for t in os.listdir("/proc/%d/task" % p.proc.pid)}
    ours = [line for line in qps.splitlines() if "type RC" in line and
            any("pid %d " % p in line + " " for p in pids)]
    assert len(ours) >= 4, qps


def test_eight_mebibytes_of_locked_memory_suffice(bench, tmp_path):
    open_up(tmp_path)
    data = pattern(40 * BLOCK)
    (tmp_path / "in").write_bytes(data)
    limit = as_nobody(8 << 20)
    sink = bench.receive(tmp_path / "out", become=limit)
    source = bench.send(sink.port, tmp_path / "in", become=limit)
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == data


@pytest.mark.lab(long=True)
@pytest.mark.lanes
def test_less_locked_memory_means_smaller_lanes(bench, tmp_path):
    open_up(tmp_path)
    data = pattern(40 * BLOCK)
    (tmp_path / "in").write_bytes(data)
    limit = as_nobody(1 << 20)
    sink = bench.receive(tmp_path / "out", become=limit)
    source = bench.send(sink.port, tmp_path / "in", become=limit)
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == data
    for end in (source, sink):
        lines = [line for line in end.errors().splitlines() if "RDMA uses 1 lane of " in line]
        assert len(lines) == 1 and "the limit of locked memory is 1.0 MiB" in lines[0], end.errors()
        # How many blocks a lane would have depends on the round trip too.
        assert re.search(r"instead of 2 of \d\d of 256 KiB", lines[0]) and "memlock unlimited" in lines[0], lines[0]


def has_siw():
    # The lab has it beside rxe.
    return SIM == "siw-iwarp" or any(
        d.joinpath("node_type").read_text().startswith("4:") and not d.joinpath("fw_ver").read_text().strip()
        for d in pathlib.Path("/sys/class/infiniband").glob("*"))


@pytest.mark.lab(long=True)
@pytest.mark.lanes
@pytest.mark.needs("root", why="only root has the capability")
def test_limit_of_locked_memory_does_not_bind_ends_with_the_right_to_lock_it(bench, tmp_path):
    """CAP_IPC_LOCK without CAP_SYS_RESOURCE, as in a container; siw applies the limit all the same."""
    (tmp_path / "in").write_bytes(pattern(4 * BLOCK))
    limit = ["prlimit", "--memlock=65536:65536", "setpriv", "--inh-caps=-all", "--bounding-set=-sys_resource"]
    sink = bench.receive(tmp_path / "out", become=limit)
    source = bench.send(sink.port, tmp_path / "in", become=limit)
    rights = int(re.search(r"CapEff:\s*(\w+)", pathlib.Path("/proc/self/status").read_text())[1], 16)
    code = 0 if rights & 1 << 14 and not has_siw() else 45
    assert (source.wait(), sink.wait()) == (code, code), source.errors() + sink.errors()
    assert ("locked memory" in source.errors() + sink.errors()) == bool(code)


@pytest.mark.parametrize("who", ["source", "sink"])
@pytest.mark.lab("rxe", cases="source")
@pytest.mark.lab(long=True)
def test_64_kib_of_locked_memory_fall_back_to_tcp_with_one_message(bench, tmp_path, who):
    open_up(tmp_path)
    data = pattern(4 * BLOCK)
    (tmp_path / "in").write_bytes(data)
    limit = {"become": as_nobody(64 << 10)}
    auto = "--transport=auto"
    sink = bench.receive("-v", tmp_path / "out", transport=auto, **(limit if who == "sink" else {}))
    source = bench.send(sink.port, "-v", tmp_path / "in", transport=auto,
                        **(limit if who == "source" else {}))
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == data
    assert "tcp" in source.errors() and "locked memory" in source.errors() + sink.errors()


@pytest.mark.parametrize("who", ["source", "sink"])
@pytest.mark.lab("rxe", cases="sink")
@pytest.mark.lab(long=True)
def test_64_kib_of_locked_memory_with_required_rdma_exit_45_with_the_remedy(bench, tmp_path, who):
    open_up(tmp_path)
    (tmp_path / "in").write_bytes(pattern(BLOCK))
    limit = {"become": as_nobody(64 << 10)}
    sink = bench.receive(tmp_path / "out", **(limit if who == "sink" else {}))
    source = bench.send(sink.port, tmp_path / "in", **(limit if who == "source" else {}))
    assert (source.wait(), sink.wait()) == (45, 45), source.errors() + sink.errors()
    said = source.errors() + sink.errors()
    assert "memlock unlimited" in said and "LimitMEMLOCK" in said and "log in again" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("asked", ["auto", "rdma"])
@pytest.mark.lab("rxe", cases="auto")
@pytest.mark.lab(long=True)
def test_memory_limit_lowered_during_a_transfer_is_reported(bench, tmp_path, asked):
    """The sink refuses the lane's next connection, and the source learns the reason."""
    open_up(tmp_path)
    data = pattern(40 * BLOCK)
    (tmp_path / "in").write_bytes(data)
    how = {"transport": "--transport=" + asked}
    sink = bench.receive("--lanes=1", "--timeout=8", "--", "sh", "-c", "cat >%s/out" % tmp_path,
                         become=as_nobody(8 << 20), **how)
    source = bench.send(sink.port, "--lanes=1", "--timeout=8", "--", "sh", "-c",
                        "cat in; until [ -e go ]; do sleep 0.1; done; cat in", cwd=tmp_path,
                        env={"SLUICE_FAULT": "break:lane=0,block=60,times=1"}, **how)
    wait_until(lambda: (tmp_path / "out").exists() and (tmp_path / "out").stat().st_size == len(data),
               timeout=60)
    # As itself: another's limits are for CAP_SYS_RESOURCE, which root has not in every container.
    subprocess.run([*as_nobody(), "prlimit", "--pid=%d" % sink.proc.pid, "--memlock=65536:65536"], check=True)
    (tmp_path / "go").touch()
    code = 0 if asked == "auto" else 44
    assert (source.wait(), sink.wait()) == (code, code), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == data * 2 or code
    said = " ".join(line for line in source.errors().splitlines() if "lane 0" in line)
    assert re.search(r"lock memory for RDMA on \S+: the limit is 64 KiB", said), said


@pytest.mark.parametrize("way", ["file", "stream"])
@pytest.mark.lab("rxe", cases="stream")
@pytest.mark.lab(long=True)
@pytest.mark.lanes
def test_lane_moves_from_rdma_to_tcp_during_a_transfer(bench, tmp_path, way):
    """A lane whose RDMA connection breaks and can't be replaced continues over TCP."""
    data = pattern(80 * BLOCK)
    (tmp_path / "in").write_bytes(data)
    sink = bench.receive(*([tmp_path / "out"] if way == "file" else
                           ["--", "sh", "-c", "cat >%s/out" % tmp_path]), transport="--transport=auto")
    source = bench.send(sink.port, *([tmp_path / "in"] if way == "file" else
                                     ["--", "cat", tmp_path / "in"]), transport="--transport=auto",
                        env={"SLUICE_FAULT": "break:lane=0,block=9,times=1;norejoin:lane=0"})
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == data
    assert "lane 0 continues over TCP, not RDMA" in source.errors(), source.errors()


@pytest.mark.lab("siw")
@pytest.mark.lab("rxe", long=True)
@pytest.mark.lanes
def test_repeatedly_breaking_rdma_connection_is_replaced_by_tcp(bench, tmp_path):
    """Three breaks in a short time."""
    data = pattern(80 * BLOCK)
    (tmp_path / "in").write_bytes(data)
    sink = bench.receive("--lanes=1", tmp_path / "out", transport="--transport=auto")
    source = bench.send(sink.port, "--lanes=1", tmp_path / "in", transport="--transport=auto", env={
        "SLUICE_FAULT": ";".join("break:lane=0,block=%d,times=1" % n for n in (9, 19, 29))})
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == data
    assert source.errors().count("lane 0 continues over TCP, not RDMA: the RDMA connection broke 3 times") == 1, \
        source.errors()


@pytest.mark.lab("rxe")
def test_sink_may_rest_longer_than_the_timeout(bench, tmp_path):
    """It answers that it is busy: no wire is replaced, and nothing is lost."""
    data = pattern(80 * BLOCK)
    (tmp_path / "in").write_bytes(data)
    sink = bench.receive("--timeout=4", "--", "sh", "-c", "sleep 15; cat >%s/out" % tmp_path)
    source = bench.send(sink.port, "--timeout=4", "-v", tmp_path / "in")
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert "reconnected" not in source.errors(), source.errors()
    assert (tmp_path / "out").read_bytes() == data


@pytest.mark.needs("root", why="only root sets pages aside")
@pytest.mark.lab(long=True)
def test_reserved_huge_pages_are_not_used(bench, tmp_path):
    """The administrator reserved them, for example for a database that starts later."""
    setting = pathlib.Path("/proc/sys/vm/nr_hugepages")
    before = int(setting.read_text())
    data = pattern(40 * BLOCK)
    (tmp_path / "in").write_bytes(data)
    setting.write_text(str(before + 64))
    try:
        sink = bench.receive("--", "sh", "-c", "cat >%s/out" % tmp_path)
        source = bench.send(sink.port, "--", "sh", "-c",
                            "cat in; until [ -e go ]; do sleep 0.1; done", cwd=tmp_path)
        wait_until(lambda: (tmp_path / "out").exists() and (tmp_path / "out").stat().st_size == len(data),
                   timeout=60)
        for end in (source, sink):
            maps = pathlib.Path("/proc/%d/smaps" % end.proc.pid).read_text()
            assert "KernelPageSize:     2048 kB" not in maps, end.argv
        (tmp_path / "go").touch()
        assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    finally:
        setting.write_text(str(before))
    assert (tmp_path / "out").read_bytes() == data


@pytest.mark.may_skip("any", "SLUICE_TEST_FAR is an IPv4 address", on="device")
def test_ipv6_works(bench, tmp_path):
    if not FAR.address6:
        pytest.skip("no IPv6 address given")
    data = pattern(10 * BLOCK)
    (tmp_path / "in").write_bytes(data)
    sink = bench.receive(tmp_path / "out")
    source = bench.send(sink.port, tmp_path / "in", to=FAR.address6)
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == data
