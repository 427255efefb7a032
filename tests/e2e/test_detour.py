# SPDX-License-Identifier: Apache-2.0
"""Lanes over ssh: who may start ssh, and how often it asks for a password."""

import errno
import fcntl
import os
import pathlib
import random
import select
import signal
import socket
import subprocess
import termios
import time

import pytest

from faulty import FAILING
from hosts import RSH, SLOW, as_nobody, program, wait_until
from processes import children, parent

pytestmark = pytest.mark.needs("tcp", why="it looks for ports on a loopback that both hosts share")
WAYS = {"push": ("{top}/in", "far:{top}/out"), "pull": ("far:{top}/in", "{top}/out"),
        "between": ("near:{top}/in", "far:{top}/out")}
# Connects and waits until the other end leaves.
KNOCK = "exec 3<>/dev/tcp/127.0.0.1/%d && echo hello >&3 && { read -t %d -N 1 <&3; [ $? -eq 1 ]; }"


def rsh(tmp_path, text):
    path = tmp_path / "rsh"
    path.write_text("#!/bin/sh\necho x >>%s/started\n%s\nexec %s \"$@\"\n" % (tmp_path, text, RSH))
    path.chmod(0o755)
    return path


def started(tmp_path):
    """How often ssh was started."""
    return len((tmp_path / "started").read_text().split())


def copied(way, tmp_path):
    return [t.format(top=tmp_path) for t in WAYS[way]]


def lane_ports(session):
    """The loopback ports of the conductor and of the keepers on far hosts."""
    inodes = {}
    for directory in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (directory / "cmdline").read_bytes().split(b"\0")
            if os.getsid(int(directory.name)) != session or \
                    not (int(directory.name) == session or b"--lane-listen" in words):
                continue
            for fd in (directory / "fd").iterdir():
                inodes[os.readlink(fd)] = 1
        except OSError:
            continue
    ports = []
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and "socket:[%s]" % words[9] in inodes:
            ports.append(int(words[1].split(":")[1], 16))
    return ports


@pytest.mark.needs("root", why="only root can become another user")
@pytest.mark.parametrize("way", WAYS)
def test_other_user_cannot_start_ssh(bench, tmp_path, way):
    (tmp_path / "in").write_bytes(bytes(24 << 20))
    # The conductor sleeps in between, and so do the ends; the copy lasts until it is stopped.
    r = bench.copy("--lanes=1", "--bwlimit=1M", *copied(way, tmp_path), transport="--transport=ssh", wait=False, rsh=rsh(tmp_path, ""))
    wait_until(lambda: any(p.stat().st_blocks for p in tmp_path.glob(".sluice.*")))
    port, = lane_ports(r.proc.pid)
    # The ends, the keeper of a far port, two spares, the lane in use and the spare that replaces it.
    before = 7 if way == "between" else 2
    wait_until(lambda: started(tmp_path) == before)
    for _ in range(3):
        # The bytes of its lane are discarded: the connection is closed and does not time out.
        shell = [*as_nobody(), "bash", "-c", KNOCK % (port, 10 * SLOW)]
        assert subprocess.run(shell, stderr=subprocess.DEVNULL, check=False).returncode == 0
    assert started(tmp_path) == before, r.errors()
    # The user of the copy may.
    with subprocess.Popen(["bash", "-c", KNOCK % (port, 20 * SLOW)], stderr=subprocess.DEVNULL) as ours:
        wait_until(lambda: started(tmp_path) > before)
        ours.kill()
    r.signal(2)
    assert r.wait() == 20, r.errors()


def terminal(slave):
    def take():
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    return take


@pytest.mark.parametrize("way", ["push", "between"])
def test_ssh_asks_for_one_password_at_a_time(bench, tmp_path, way):
    """There is a terminal on which ssh may ask; the login of a lane takes as long as typing."""
    (tmp_path / "in").write_bytes(bytes(1 << 20))
    slow = ("case \"$*\" in *--lane*)\n"
            "\tmkdir {0}/asking || echo x >>{0}/overlap\n\tsleep 2\n\trmdir {0}/asking ;;\nesac").format(tmp_path)
    master, slave = os.openpty()
    r = bench.copy("--lanes=2", "--connect-timeout=40", *copied(way, tmp_path), transport="--transport=ssh",
                   rsh=rsh(tmp_path, slow), preexec=terminal(slave))
    os.close(master)
    os.close(slave)
    assert r.code == 0, r.errors()
    assert (tmp_path / "out").stat().st_size == 1 << 20
    assert not (tmp_path / "overlap").exists()
    assert started(tmp_path) >= (3 if way == "push" else 6)




@pytest.mark.skipif(not FAILING.exists(), reason="a build without faults")
@pytest.mark.parametrize("way", ["push", "pull", "between"])
def test_unreachable_port_ends_with_the_reason(bench, tmp_path, way):
    """It ends in time and after few logins, with the reason that the carrying host knows."""
    (tmp_path / "in").write_bytes(bytes(1 << 20))
    lanes = "case \"$*\" in *--lane) export FAIL_CALL=connect FAIL_ERRNO=%d LD_PRELOAD=%s ;; esac" % (
        errno.EADDRNOTAVAIL, FAILING)
    began = time.monotonic()
    r = bench.copy("--lanes=2", "--connect-timeout=3", *copied(way, tmp_path), transport="--transport=ssh",
                   rsh=rsh(tmp_path, lanes), timeout=60 * SLOW)
    took = time.monotonic() - began
    assert r.code == 35, r.errors()
    assert took < 20 * SLOW, r.errors()
    assert r.errors().count(os.strerror(errno.EADDRNOTAVAIL)) == 1, r.errors()
    assert len(r.errors().splitlines()) <= 3, r.errors()
    assert started(tmp_path) < 20
    assert not (tmp_path / "out").exists()


# ---- too few descriptors -----------------------------------------------------------------------


def failing_accept(kind, times=None):
    env = {"LD_PRELOAD": str(FAILING), "FAIL_CALL": "accept", "FAIL_ERRNO": str(kind)}
    return dict(env, FAIL_TIMES=str(times)) if times else env


def with_failing_accept(bench, tmp_path, way, **how):
    """On this host: its end connects, and the others are unaffected."""
    (tmp_path / "in").write_bytes(bytes(1 << 20))
    return bench.copy("--lanes=2", "--connect-timeout=%d" % (3 * SLOW), *copied(way, tmp_path), transport="--transport=ssh",
                      rsh=rsh(tmp_path, "unset FAIL_CALL LD_PRELOAD"), env=failing_accept(**how), timeout=60 * SLOW)


@pytest.mark.skipif(not FAILING.exists(), reason="a build without faults")
@pytest.mark.parametrize("way", ["push", "pull"])
def test_lane_waits_for_a_descriptor(bench, tmp_path, way):
    r = with_failing_accept(bench, tmp_path, way, kind=errno.EMFILE, times=3)
    assert r.code == 0, r.errors()
    assert "Too many open files" not in r.errors()
    assert (tmp_path / "out").stat().st_size == 1 << 20


@pytest.mark.skipif(not FAILING.exists(), reason="a build without faults")
@pytest.mark.parametrize("kind", [errno.EMFILE, errno.ENFILE])
def test_lane_without_a_descriptor_fails(bench, tmp_path, kind):
    began = time.monotonic()
    r = with_failing_accept(bench, tmp_path, "push", kind=kind)
    assert time.monotonic() - began < 20 * SLOW
    assert r.code == 10, r.errors()
    assert r.errors().count("accept a lane's connection on this host's loopback: " + os.strerror(kind)) == 1, r.errors()


def between_without_descriptors(bench, tmp_path, keeper, **how):
    """accept(2) fails in the keeper of the far port, which is started first, or in the other processes."""
    (tmp_path / "in").write_bytes(bytes(1 << 20))
    failing = " ".join("%s='%s'" % kv for kv in failing_accept(errno.EMFILE, **how).items())
    turns = "export %s" % failing, ":"
    listens = """case "$*" in *--lane-listen*)
	if [ -e {0}/keeper ]; then {2}; else touch {0}/keeper; {1}; fi ;;
esac""".format(tmp_path, *(turns if keeper else turns[::-1]))
    return bench.copy("--lanes=2", *copied("between", tmp_path), transport="--transport=ssh", rsh=rsh(tmp_path, listens))


@pytest.mark.parametrize("met", ["nobody", "a listener", "a caller"])
def test_spare_whose_keeper_has_ended_is_silent(bench, met):
    """As at the end of a session. The conductor knows."""
    token = random.randbytes(16)
    keeper = socket.socket(socket.AF_UNIX)
    if met != "nobody":
        keeper.bind(b"\0sluice-" + token.hex().encode())
        keeper.listen()
    spare = subprocess.Popen([program("rdcp"), "--lane-listen"], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    spare.stdin.write(token)
    spare.stdin.flush()
    if met != "nobody":
        assert select.select([keeper], [], [], 60)[0]
        if met == "a caller":
            keeper.accept()[0].close()
    keeper.close()
    assert spare.communicate(timeout=60)[1] == b""
    assert spare.returncode == 44


@pytest.mark.skipif(not FAILING.exists(), reason="a build without faults")
@pytest.mark.parametrize("keeper, what", [(True, "accept a request for the port"), (False, "accept a lane's connection")])
def test_carrier_without_a_descriptor_is_reported(bench, tmp_path, keeper, what):
    """The carrier reports that itself; its ssh cannot."""
    r = between_without_descriptors(bench, tmp_path, keeper)
    assert r.code == 5, r.errors()
    assert "a lane over ssh: %s: Too many open files" % what in r.errors()
    assert "exited with 10 before it could carry a lane" in r.errors()
    assert started(tmp_path) <= 8


@pytest.mark.skipif(not FAILING.exists(), reason="a build without faults")
def test_keeper_waits_for_a_descriptor(bench, tmp_path):
    r = between_without_descriptors(bench, tmp_path, True, times=3)
    assert r.code == 0, r.errors()
    assert (tmp_path / "out").stat().st_size == 1 << 20


# ---- spares: carriers at a far connecting end that wait for a lane ------------------------


def few_listeners(tmp_path):
    """The process of each carrier is listed in "places" in the order of the logins, the keeper's first; while
    "shut" exists, no carrier after the third (the keeper and two spares) starts."""
    return rsh(tmp_path, """case "$*" in *--lane-listen*)
	# Several start at once.
	exec 9>>{0}/turn
	flock 9
	if [ -e {0}/shut ] && [ "$(wc -l <{0}/places)" -ge 3 ]; then
		echo x >>{0}/refused
		exit 7
	fi
	echo $$ >>{0}/places
	exec 9>&- ;;
esac""".format(tmp_path))


def numbers(path):
    return [int(word) for word in path.read_text().split()]


def with_children(pid):
    """A shell may stay around the command that it runs."""
    return [pid, *children(pid)]


def break_lanes(tmp_path):
    for taken in numbers(tmp_path / "places")[1:]:
        for pid in with_children(taken):
            os.kill(pid, signal.SIGKILL)


def without_spares(bench, tmp_path, *options):
    """A copy with two lanes that each took a spare which was not replaced."""
    (tmp_path / "in").write_bytes(bytes(24 << 20))
    (tmp_path / "places").touch()
    (tmp_path / "shut").touch()
    r = bench.copy("--lanes=2", *options, *copied("between", tmp_path), transport="--transport=ssh", wait=False,
                   rsh=few_listeners(tmp_path))
    wait_until(lambda: any(p.stat().st_blocks for p in tmp_path.glob(".sluice.*")))
    wait_until(lambda: (tmp_path / "refused").exists() and len((tmp_path / "refused").read_text().split()) >= 2)
    return r


def test_failed_spares_are_replaced(bench, tmp_path):
    """Lanes that break later find new ones."""
    r = without_spares(bench, tmp_path, "--bwlimit=4M")
    (tmp_path / "shut").unlink()
    break_lanes(tmp_path)
    assert r.wait() == 0, r.errors()
    assert (tmp_path / "out").read_bytes() == bytes(24 << 20)
    assert len(numbers(tmp_path / "places")) > 3


def test_missing_spares_are_reported(bench, tmp_path):
    """The lanes that need another spare wait, and get the reason."""
    r = without_spares(bench, tmp_path, "--bwlimit=1M", "--timeout=%d" % (6 * SLOW))
    break_lanes(tmp_path)
    began = time.monotonic()
    assert r.wait() in (5, 35, 44), r.errors()
    assert time.monotonic() - began < 30 * SLOW
    assert r.errors().count("exited with 7 before it could carry a lane") == 1, r.errors()


def test_lane_without_a_carrier_does_not_wait_for_a_password(bench, tmp_path):
    """No spare is left for the third lane, and none starts."""
    (tmp_path / "in").write_bytes(bytes(24 << 20))
    (tmp_path / "places").touch()
    (tmp_path / "shut").touch()
    began = time.monotonic()
    r = bench.copy("--lanes=3", "--bwlimit=1M", "--connect-timeout=%d" % (3 * SLOW), *copied("between", tmp_path), transport="--transport=ssh",
                   rsh=few_listeners(tmp_path), timeout=100)
    assert r.code == 35 and time.monotonic() - began < 30 * SLOW, (r.code, r.errors())
    assert r.errors().count("exited with 7 before it could carry a lane") == 1, r.errors()


def test_killed_spare_is_replaced(bench, tmp_path):
    """It cannot announce its end."""
    (tmp_path / "in").write_bytes(bytes(24 << 20))
    (tmp_path / "places").touch()
    r = bench.copy("--lanes=1", "--bwlimit=1M", *copied("between", tmp_path), transport="--transport=ssh", wait=False,
                   rsh=few_listeners(tmp_path))
    wait_until(lambda: any(p.stat().st_blocks for p in tmp_path.glob(".sluice.*")))
    # The keeper, two spares, and one in place of the spare that was taken.
    wait_until(lambda: len(numbers(tmp_path / "places")) == 4)
    places = numbers(tmp_path / "places")
    for carrier in set(with_children(r.proc.pid)) & {parent(place) for place in places[1:]}:
        os.kill(carrier, signal.SIGKILL)
    wait_until(lambda: len(numbers(tmp_path / "places")) >= 7)
    r.signal(2)
    assert r.wait() == 20, r.errors()
