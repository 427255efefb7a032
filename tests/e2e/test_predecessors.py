# SPDX-License-Identifier: Apache-2.0
"""Defects of the programs that Sluice replaces: a named test for each that could recur here. The numbers are those
of the list of these defects; test_rdcpd_predecessors.py has those that concern a daemon."""

import re
import signal
import time

import pytest

from hosts import FAR, KEY, NEAR, ROOT, RSH, SLOW, leftovers, pattern, program, wait_until
from processes import descendants, words

pytestmark = pytest.mark.moves_blocks
BLOCK = 256 << 10


@pytest.mark.parametrize("how", ["no peer", "wrong key", "interrupt"])
def test_sd1_target_is_untouched_before_authentication(bench, tmp_path, how):
    (tmp_path / "out").write_bytes(b"old")
    before = (tmp_path / "out").stat()
    sink = bench.receive(*(["-w2"] if how == "no peer" else []), tmp_path / "out")
    if how == "wrong key":
        (tmp_path / "in").write_bytes(b"new")
        assert bench.send(sink.port, tmp_path / "in", key="wrong").wait() == 40
    if how != "no peer":
        sink.signal(signal.SIGINT)
    assert sink.wait(20) == (35 if how == "no peer" else 20)
    after = (tmp_path / "out").stat()
    assert (before.st_ino, before.st_mtime_ns, before.st_size) == \
        (after.st_ino, after.st_mtime_ns, after.st_size)
    assert not leftovers(tmp_path)


@pytest.mark.lab("rxe", long=True)
@pytest.mark.lanes
def test_sd2_success_means_that_data_was_written(bench, tmp_path):
    """The last write fails: the sender fails too, although everything was received."""
    (tmp_path / "in").write_bytes(pattern(1000))
    sink = bench.receive("/dev/full")
    source = bench.send(sink.port, tmp_path / "in")
    assert (source.wait(), sink.wait()) == (11, 11), source.errors() + sink.errors()
    assert "No space left on device" in source.errors()


@pytest.mark.lab("rxe", long=True)
@pytest.mark.lanes
def test_sd3_failed_write_ends_the_transfer(bench, tmp_path):
    start = time.monotonic()
    with open("/dev/full", "wb") as out:
        sink = bench.receive(stdout=out)
    source = bench.send(sink.port, "--", "cat", "/dev/zero")
    assert (source.wait(), sink.wait()) == (11, 11), source.errors() + sink.errors()
    assert time.monotonic() - start < 10 * SLOW


def test_sd4_read_error_is_not_end_of_file(bench, tmp_path):
    sink = bench.receive(tmp_path / "out")
    source = bench.send(sink.port, "/proc/self/mem")
    assert (source.wait(), sink.wait()) == (11, 11), source.errors() + sink.errors()
    assert not (tmp_path / "out").exists()


def test_sd5_remote_failure_fails_the_local_program(bench, tmp_path):
    (tmp_path / "in").write_bytes(b"x")
    r = bench.copy("in", "far:/dev/full")
    assert r.code == 11 and "far" in r.errors(), r.errors()


def test_sd6_key_is_in_no_argument_and_no_environment(bench, tmp_path):
    key = "not-to-be-seen-7f3a"
    sink = bench.start([program("rdrecv"), "-v", "0", key, "--", "sh", "-c", "cat; env; sleep 0"],
                       host=FAR)
    port = int(sink.expect("listening on").rsplit(":", 1)[1].split()[0])
    source = bench.start([program("rdsend"), FAR.address, str(port), key, "--", "sh", "-c",
                          "env; sleep 2"], host=NEAR)
    wait_until(lambda: descendants(source.proc.pid) and descendants(sink.proc.pid))
    time.sleep(0.5 * SLOW)
    for end in (source, sink):
        for pid in [end.proc.pid, *descendants(end.proc.pid)]:
            assert key.encode() not in b" ".join(words(pid))
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert key.encode() not in bytes(sink.out)


def test_sd6_rd_key_is_not_inherited_by_commands(bench, tmp_path):
    sink = bench.receive("--", "sh", "-c", "cat; env")
    source = bench.send(sink.port, "--", "env")
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert b"RD_KEY" not in bytes(sink.out) and KEY.encode() not in bytes(sink.out)


@pytest.mark.parametrize("key", ["a test ke", "a test key ", "", "A test key"])
@pytest.mark.any_lane
def test_sd7_key_is_compared_as_a_whole(bench, tmp_path, key):
    (tmp_path / "in").write_bytes(b"new")
    sink = bench.receive("-w60", tmp_path / "out", key="a test key")
    code = bench.send(sink.port, tmp_path / "in", key=key).wait()
    assert code == (1 if key == "" else 40)
    assert not (tmp_path / "out").exists()


@pytest.mark.lanes
def test_sd7_bytes_after_the_handshake_are_not_lost(bench, tmp_path):
    for size in (1, 2, 100):
        (tmp_path / "in").write_bytes(b"y" * size)
        sink = bench.receive(tmp_path / "out")
        source = bench.send(sink.port, tmp_path / "in")
        assert (source.wait(), sink.wait()) == (0, 0)
        assert (tmp_path / "out").read_bytes() == b"y" * size


def sources_of(layer):
    return {p: p.read_text() for p in (ROOT / "src" / layer).rglob("*.[ch]")}


def test_sd8_sd20_no_memory_is_remotely_accessible():
    """Except a sink's blocks with --rdma-op=write-imm or write-send."""
    found = [line.strip() for text in sources_of("lane").values() for line in text.splitlines()
             if "IBV_ACCESS_REMOTE" in line]
    assert found == ["int pool = v->side == LANE_SINK && verbs_writes(v) ? IBV_ACCESS_REMOTE_WRITE : RELAXED;"]


@pytest.mark.lab("siw", long=True)
@pytest.mark.lanes
def test_sd9_death_is_detected_while_waiting_for_data(bench, tmp_path):
    sink = bench.receive("-v", tmp_path / "out")
    source = bench.send(sink.port, "--", "sh", "-c", "exec sleep 1000")
    sink.expect("the sender is")
    start = time.monotonic()
    source.signal(signal.SIGKILL)
    assert sink.wait(10) == 44, sink.errors()
    assert time.monotonic() - start < 2 * SLOW + 0.5
    assert not (tmp_path / "out").exists()


@pytest.mark.lab("siw", long=True)
@pytest.mark.lanes
def test_sd10_short_read_leaves_no_hole(bench, tmp_path):
    """A pipe returns what it holds; files are complete whatever the reads returned."""
    data = pattern(3 * BLOCK + 11)
    (tmp_path / "in").write_bytes(data)
    sink = bench.receive(tmp_path / "out")
    source = bench.send(sink.port, "--", "sh", "-c",
                        "f=%s/in; head -c 100 $f; sleep 0.1; tail -c +101 $f | head -c 300000;"
                        "sleep 0.1; tail -c +300101 $f" % tmp_path)
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == data


@pytest.mark.any_lane
def test_sd11_names_reach_no_shell(bench, tmp_path):
    name = "$(touch oops);`touch oops`"
    (tmp_path / name).write_bytes(b"x")
    assert bench.copy("./" + name, "far:%s/%s.out" % (tmp_path, name)).code == 0
    assert not (tmp_path / "oops").exists() and (tmp_path / (name + ".out")).exists()


@pytest.mark.any_lane
def test_sd12_inherited_descriptors_stay_open(bench, tmp_path):
    """rdrecv to stdout, while its caller uses descriptors 3 to 12."""
    (tmp_path / "in").write_bytes(b"data")
    sink = bench.start(["bash", "-c", "for i in 3 4 5 6 7 8 9; do eval \"exec $i>%s/fd$i\"; done; "
                        "%s -v 0 KEY; code=$?; for i in 3 4 5 6 7 8 9; do echo $i >&$i || exit 99; "
                        "done; exit $code" % (tmp_path, program("rdrecv"))], host=FAR)
    port = int(sink.expect("listening on").rsplit(":", 1)[1].split()[0])
    source = bench.send(port, tmp_path / "in", key="KEY")
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert bytes(sink.out) == b"data"
    assert [(tmp_path / ("fd%d" % i)).read_text() for i in range(3, 10)] == \
        ["%d\n" % i for i in range(3, 10)]


@pytest.mark.any_lane
def test_sd12_closed_standard_descriptors_are_not_reused(bench, tmp_path):
    """With 0, 1 or 2 closed, no file that we open may get their numbers."""
    (tmp_path / "in").write_bytes(pattern(BLOCK))
    for closed in ("<&-", ">&-", "<&- >&-"):
        r = bench.run(["bash", "-c", "%s --rsh %s --rdcp-path %s in far:out %s" % (
            program("rdcp"), RSH, program("rdcp"), closed)], host=NEAR, cwd=tmp_path, home=tmp_path)
        assert r.code == 0, (closed, r.errors())
        assert (tmp_path / "out").read_bytes() == pattern(BLOCK)
        (tmp_path / "out").unlink()


@pytest.mark.any_lane
def test_sd16_names_are_never_formats(bench, tmp_path):
    name = "%s%n%d" * 30
    (tmp_path / name).write_bytes(b"x")
    assert bench.copy("./" + name, "far:%s/out" % tmp_path).code == 0
    r = bench.copy("./%s%n%s%n-none", "far:out")
    assert r.code == 3 and "%s%n%s%n-none" in r.errors()


@pytest.mark.any_lane
def test_sd16_names_of_every_length_are_copied(bench, tmp_path):
    (tmp_path / "to").mkdir()
    for n in (1, 200, 248, 254, 255):
        (tmp_path / ("n" * n)).write_bytes(b"x" * n)
        r = bench.copy("n" * n, "far:%s/to/" % tmp_path)
        assert r.code == 0, r.errors()
        assert (tmp_path / "to" / ("n" * n)).read_bytes() == b"x" * n


def test_sd18_sequence_numbers_come_from_librdmacm():
    """librdmacm makes the connection, with random initial sequence numbers; our code never sets them."""
    for path, text in sources_of("lane").items():
        assert not re.search("(?i)[sr]q_psn", text), path
        # The one call of ibv_modify_qp() changes one attribute.
        assert re.findall(r"ibv_modify_qp\([^;]*;", text) in ([], ["ibv_modify_qp(v->id->qp, &attr, IBV_QP_MIN_RNR_TIMER));"]), path


@pytest.mark.lab("siw", long=True)
@pytest.mark.lanes
def test_sd19_digests_are_compared(bench, tmp_path):
    """Damage that no transport detects fails the run."""
    (tmp_path / "in").write_bytes(pattern(4 * BLOCK))
    sink = bench.receive(tmp_path / "out")
    source = bench.send(sink.port, "--lanes=1", tmp_path / "in",
                        env={"SLUICE_FAULT": "damage:lane=0,block=1,times=9"})
    assert (source.wait(), sink.wait()) == (41, 41), source.errors() + sink.errors()
    assert not (tmp_path / "out").exists()
