# SPDX-License-Identifier: Apache-2.0
"""Programs that lack something: descriptors, memory, processes, standard streams, signals, /proc. In each case a
run ends in time: with 0 only if the copy is right, else with a message that names the failure. Targets are old
or new, and nothing is left behind (tests/faults/limits.py judges it)."""

import os
import signal
import socket
import stat
import subprocess
import sys
import time

import pytest

from daemons import Daemon
from hosts import BIN, COUNT, ROOT, SLOW, USER, leftovers, pattern, program, share, wait_until

sys.path.insert(0, str(ROOT / "tests" / "faults"))

from limits import STACK_LEAST, Limit, Oracle  # noqa: E402

pytestmark = pytest.mark.needs("tcp", why="over TCP on one host; limits are the same with any adapter")
ORACLE = Oracle(BIN)
BLOCK = 256 << 10


def try_all(name, limits, few):
    """Violations are printed as the words with which tests/faults/limits.py repeats them."""
    broken = []
    for limit in share(list(limits), few):
        run, found = ORACLE.judge(name, limit)
        broken += ["%s %s: %s: %s (exit %s: %s)" % (name, limit, class_, what, run.codes, "\n".join(run.texts)[:400])
                   for class_, what in found]
    assert not broken, "\n".join(broken)


def limits(who, what, values, kind, **how):
    return [Limit(who, limit=what, value=v, kind=kind, **how) for v in values]


PARTS = [(name, who) for name in ("file-push", "file-pull") for who in ("all", "conductor", "near", "far")] + \
    [("tree-pull", "all"), ("file-local", "all"), ("backup-push", "far")] + \
    [(name, who) for name in ("stream-files", "stream-commands") for who in ("all", "rdrecv", "rdsend")]
MEASURING = [("bench", "all"), ("bench", "far"), ("bench-alone", "all"), ("check", "all"), ("check", "far")]
SERVED = [("daemon-push", "rdcpd"), ("daemon-pull", "rdcpd"), ("daemon-to-daemon", "rdcpd"), ("daemon-list", "rdcpd")]


@pytest.mark.timeout(300 * COUNT)
@pytest.mark.parametrize("name, who", share(PARTS, 10) + share(MEASURING, 2) + share(SERVED, 2))
def test_few_descriptors(name, who):
    try_all(name, limits(who, "nofile", [*range(3, 41), 48, 64, 100, 1000], "EMFILE"), 2)


@pytest.mark.timeout(300 * COUNT)
@pytest.mark.parametrize("name, who", share(PARTS, 6) + share(MEASURING, 2) + share(SERVED, 2))
def test_little_address_space(name, who):
    """From too little for the loader to enough."""
    try_all(name, limits(who, "as", [m << 20 for m in (*range(4, 120, 4), *range(120, 320, 10), 1000)], "ENOMEM"), 1)


@pytest.mark.timeout(300 * COUNT)
@pytest.mark.parametrize("name", share(["file-push", "tree-local", "backup-pull", "inplace-pull", "delete-push", "resume-pull",
                                        "stream-files", "stream-commands"], 4) + share(["bench", "bench-made", "check", "daemon-push", "daemon-pull"], 2))
def test_file_size_limit(name):
    """Below, at and above the sizes of the files; SIGXFSZ may already be ignored."""
    sizes = [0, 1, 999, 1000, 4096, 89_999, 90_000, 399_999, 400_000, 699_999, 700_000, 900_000, 6_000_000, 1 << 40]
    ignoring = [Limit("all", ["env", "--ignore-signal=XFSZ", "prlimit", "--fsize=%d:%d" % (n, n)], kind="EFBIG") for n in sizes]
    try_all(name, limits("all", "fsize", sizes, "EFBIG") + ignoring, 2)


@pytest.mark.timeout(300 * COUNT)
@pytest.mark.parametrize("name", ["file-push", "tree-pull", "stream-files", "bench", "check", "daemon-push"])
def test_small_stack(name):
    """The size of a thread's stack does not depend on the limit of the main thread's."""
    small = [n << 10 for n in (0, 4, 16, 32, 64, 96)]
    large = [STACK_LEAST, 256 << 10, 1 << 30, 64 << 30] if COUNT > 1 else [STACK_LEAST, 64 << 30]
    cases = limits("all", "stack", small, "ENOMEM", may_die=True)
    for limit in limits("all", "stack", large, "ENOMEM"):
        run, found = ORACLE.judge(name, limit, codes={0})
        assert not found, (str(limit), run.texts, found)
    try_all(name, cases, 1)


@pytest.mark.parametrize("name", ["file-push", "stream-files", "bench", "check", "daemon-push"])
def test_little_locked_memory(name):
    for limit in limits("all", "memlock", [0, 4096, 1 << 20], "ENOMEM"):
        run, found = ORACLE.judge(name, limit, codes={0})
        assert not found, (str(limit), run.texts, found)


@pytest.mark.parametrize("name", ["roce-push", "roce-local"])
def test_little_locked_memory_for_an_adapter(name):
    """Even root has the limit. Over RDMA with less memory, or over TCP."""
    for value in (0, 4096, 1 << 20):
        words = ["prlimit", "--memlock=%d:%d" % (value, value)]
        words += ["setpriv", "--inh-caps=-all", "--bounding-set=-sys_resource,-ipc_lock"] if not USER else []
        run, found = ORACLE.judge(name, Limit("all", words, kind="ENOMEM"), codes={0})
        assert not found and "locked memory" in run.texts[0], (value, run.texts, found)


@pytest.mark.needs("root", why="root becomes somebody who has no other processes")
@pytest.mark.timeout(300 * COUNT)
@pytest.mark.parametrize("name, who", [(name, "all") for name in ("file-push", "file-local", "stream-files", "stream-commands", "bench", "check")] +
                         [("daemon-push", "rdcpd"), ("daemon-pull", "rdcpd")])
def test_few_processes(name, who):
    user = 1_000_000 + os.getpid()
    cases = [Limit(who, limit="nproc", value=n, kind="EAGAIN", user=user) for n in (*range(1, 20), 25, 40)]
    try_all(name, cases, 3)


# ---- the messages ---------------------------------------------------------------------------


def one(name, limit):
    run, found = ORACLE.judge(name, limit)
    assert not found, (run.codes, run.texts, found)
    return run


def soon(name, limit):
    """A conductor waits five seconds for the last frame of an end that nothing told to leave. On a busy machine one
    run may be slow."""
    runs = []
    while not runs or runs[-1].seconds >= 4:
        assert len(runs) < 5, [(r.codes, r.seconds, r.texts) for r in runs]
        runs.append(one(name, limit))
    return runs[-1]


def test_end_without_a_control_thread_informs_its_peer():
    """It has no thread for the control channel yet."""
    run = one("stream-files", Limit("rdrecv", limit="nofile", value=7, kind="EMFILE"))
    assert run.codes == [22, 22] and "rdsend: %s: start the control channel: Too many open files" % socket.gethostname() in run.texts[1], (
        run.codes, run.texts)
    run = soon("file-pull", Limit("near", limit="nofile", value=7, kind="EMFILE"))
    assert run.codes == [22], (run.codes, run.texts)


@pytest.mark.needs("root", why="root becomes somebody who has no other processes")
def test_end_without_a_thread_fails_at_once():
    user = 1_100_000 + os.getpid()
    seen = [soon("file-local", Limit("all", limit="nproc", value=n, kind="EAGAIN", user=user)) for n in (3, 4)]
    assert any("start thread end" in r.texts[0] for r in seen), [r.texts for r in seen]
    assert all(r.codes == [22] for r in seen), [(r.codes, r.texts) for r in seen]


NO_ROOM = "create an eventfd for a connection: Too many open files"


def no_room(name, who, values):
    """The messages of runs with these numbers of descriptors, up to the run that lacks one for a connection. Which
    number that is depends on the process's other descriptors at that moment."""
    said = []
    for n in [*values] * 3:
        said.append(one(name, Limit(who, limit="nofile", value=n, kind="EMFILE")).texts[0])
        if NO_ROOM in said[-1]:
            break
    return said


def test_connection_without_a_descriptor_is_reported():
    """Otherwise the other end would only see that its connections break."""
    said = no_room("file-pull", "near", range(19, 23))
    assert not [text for text in said if "in a row" in text], said
    assert NO_ROOM in said[-1], said


def test_rdrecv_reports_a_connection_without_a_descriptor():
    """rdsend, which only sees that its connections break, gives up first."""
    said = no_room("stream-files", "rdrecv", range(17, 23))
    assert NO_ROOM in said[-1], said


def test_end_of_a_daemon_reports_a_lane_without_a_descriptor():
    """It gets its connections from another process. Which number of descriptors is too small for one depends on its others."""
    said = []
    for n in range(17, 25):
        said.append(one("daemon-push", Limit("rdcpd", limit="nofile", value=n, kind="EMFILE")).texts)
    assert any("accept a connection: Too many open files" in text for texts in said for text in texts), said


def test_rdcheck_names_a_lack_of_descriptors():
    """Not a firewall, and not an adapter."""
    for n in (17, 19, 20, 21, 22):
        run = one("check", Limit("all", limit="nofile", value=n, kind="EMFILE"))
        assert run.codes[0] in (0, 22), (n, run.codes, run.texts)
        assert run.codes == [0] or "Too many open files" in run.texts[0] and "firewall" not in run.texts[0], (n, run.texts)


def test_lack_of_descriptors_is_the_cause_of_a_failed_connection():
    """The other end only sees that its connections break, or get no answer, and fails first."""
    for name in ("bench", "bench-alone"):
        for n in (20, 21, 22):
            run = one(name, Limit("all", limit="nofile", value=n, kind="EMFILE"))
            assert run.codes[0] in (0, 22), (name, n, run.codes, run.texts)


def test_target_that_cannot_be_opened_stays():
    """The new file would have other attributes. It is opened last, so few numbers of descriptors show it."""
    for n in range(20, 26):
        one("stream-files", Limit("rdrecv", limit="nofile", value=n, kind="EMFILE"))


def test_command_without_descriptors_is_reported():
    for n in (10, 15, 20):
        run = one("stream-commands", Limit("rdrecv", limit="nofile", value=n, kind="EMFILE"))
        assert run.codes[0] and "Invalid argument" not in run.texts[0], run.texts


# ---- standard streams ------------------------------------------------------------------------


def closing(mask, who="all"):
    words = " ".join("%d>&-" % fd for fd in range(3) if mask & 1 << fd)
    return Limit(who, ["sh", "-c", "exec %s; exec \"$@\"" % words if words else 'exec "$@"', "sh"],
                 kind="EBADF", mute=bool(mask & 4) and who != "rdsend")


@pytest.mark.parametrize("name", ["checksum-push", "delete-pull", "file-local", "stream-files", "stream-commands", "bench", "check", "daemon-push", "daemon-pull"])
def test_closed_standard_streams(name):
    """All combinations; nothing is written to a file that was opened in their place."""
    broken = []
    for mask in share(range(8), 3):
        for who in ("all", "rdsend") if name.startswith("stream") else ("all", "rdcpd") if name.startswith("daemon") else ("all",):
            # What --itemize-changes, --json and rdbench print.
            lost = mask & 2 and name in ("checksum-push", "delete-pull", "bench", "check")
            run, found = ORACLE.judge(name, closing(mask, who), codes={11 if lost else 0})
            broken += [(mask, who, found, run.texts)] if found else []
    assert not broken, broken


@pytest.mark.parametrize("name", ["rdcp", "rdsend", "rdrecv", "rdbench", "rdcheck", "rdcpd"])
def test_failed_output_is_reported(name):
    for mask in range(8):
        limit = closing(mask)
        code = subprocess.run([*limit.words, program(name), "--version"], stdin=subprocess.DEVNULL, capture_output=True,
                              check=False, timeout=60).returncode
        assert code == (11 if mask & 2 else 0), (mask, code)


# ---- signals ---------------------------------------------------------------------------------

# Through system calls: glibc reserves two signals, which a parent may still leave blocked or ignored.
BESPOKE = """
import ctypes, os, platform, sys
action, mask = {"x86_64": (13, 14), "aarch64": (134, 135)}[platform.machine()]
libc = ctypes.CDLL(None)
for n in map(int, sys.argv[2].split(",")):
    if sys.argv[1] == "ignored":
        done = libc.syscall(action, n, (ctypes.c_ulong * 4)(1, 0, 0, 0), None, 8)
    else:
        done = libc.syscall(mask, 0, ctypes.byref(ctypes.c_ulong(1 << n - 1)), None, 8)
    assert done == 0, n
os.execvp(sys.argv[3], sys.argv[3:])
"""
SIGNALS = [n for n in range(1, 65) if n not in (signal.SIGKILL, signal.SIGSTOP)]


def given(how, *signals):
    return [sys.executable, "-I", "-S", "-c", BESPOKE, how, ",".join(str(int(n)) for n in signals)]


@pytest.mark.timeout(300 * COUNT)
@pytest.mark.parametrize("name", ["file-push", "file-local", "stream-commands", "bench", "check", "daemon-push"])
@pytest.mark.parametrize("how", ["ignored", "blocked"])
def test_any_signal_may_be_blocked_or_ignored_at_the_start(how, name):
    cases = [Limit("all", given(how, *SIGNALS))] + [Limit("all", given(how, n)) for n in SIGNALS]
    for limit in cases[:1] + share(cases[1:], 1):
        limit.ignores_interrupts = how == "ignored"
        run, found = ORACLE.judge(name, limit, codes={0})
        assert not found, (str(limit), run.texts, found)


class Streaming:
    """rdsend and rdrecv of an endless stream."""

    def __init__(self, bench, tmp_path, words):
        self.sink = bench.start([*words, program("rdrecv"), "--transport=tcp", "0", "-", tmp_path / "out"], env={"RD_KEY": "k"})
        port = self.sink.expect("listening on").rsplit(":", 1)[1].split()[0]
        self.source = bench.start([*words, program("rdsend"), "--transport=tcp", "127.0.0.1", port, "-", "--", "sh", "-c",
                                   "echo some; exec sleep 1000"], env={"RD_KEY": "k"})
        self.runs = self.sink, self.source
        wait_until(lambda: leftovers(tmp_path))


class Copying:
    """An rdcp that runs for a long time."""

    def __init__(self, bench, tmp_path, words):
        (tmp_path / "in").write_bytes(pattern(20 * BLOCK))
        self.runs = bench.copy("--bwlimit=1M", "in", "far:%s/out" % tmp_path, transport="--transport=tcp", wait=False, become=words),
        wait_until(lambda: leftovers(tmp_path))


@pytest.mark.parametrize("at_work", [Streaming, Copying])
@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_blocked_by_the_parent_is_handled(bench, tmp_path, at_work, signo):
    """A signal that the parent blocked for itself."""
    runs = at_work(bench, tmp_path, given("blocked", *SIGNALS)).runs
    start = time.monotonic()
    runs[-1].signal(signo)
    assert [r.wait(10) for r in runs] == [20] * len(runs), [r.errors() for r in runs]
    assert time.monotonic() - start < 2 * SLOW + 2


@pytest.mark.parametrize("at_work", [Streaming, Copying])
@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGHUP])
def test_signal_ignored_by_the_parent_stays_ignored(bench, tmp_path, at_work, signo):
    """Ctrl-C does not end a script's background job, and a hangup does not end a program under nohup(1); SIGTERM
    does."""
    runs = at_work(bench, tmp_path, given("ignored", *SIGNALS)).runs
    for r in runs:
        r.group(signo)
    time.sleep(0.5)
    assert all(r.proc.poll() is None for r in runs), [r.errors() for r in runs]
    runs[-1].signal(signal.SIGTERM)
    assert [r.wait(10) for r in runs] == [20] * len(runs), [r.errors() for r in runs]


@pytest.mark.parametrize("how, signo", [("ignored", signal.SIGTERM), ("blocked", signal.SIGTERM), ("blocked", signal.SIGINT)])
def test_signals_end_a_daemon_whatever_its_parent_did(bench, tmp_path, how, signo):
    """Also one that reaps its children and has served somebody."""
    daemon = Daemon(bench, tmp_path, become=given(how, *SIGNALS))
    (tmp_path / "in").write_bytes(b"in")
    assert daemon.copy("in", daemon.url("rw/")).code == 0
    wait_until(lambda: daemon.children() == [])
    daemon.run.signal(signal.SIGHUP)
    daemon.run.expect("loaded the settings again")
    assert daemon.copy("in", daemon.url("rw/again")).code == 0
    daemon.run.signal(signo)
    assert daemon.run.wait(20) == 0, daemon.run.errors()


def test_ctrl_c_does_not_end_a_daemon_in_the_background_of_a_script(bench, tmp_path):
    """The shell lets it ignore SIGINT. Neither does it end a session."""
    daemon = Daemon(bench, tmp_path, become=given("ignored", signal.SIGINT))
    (tmp_path / "in").write_bytes(pattern(20 * BLOCK))
    run = bench.start(daemon.argv("--bwlimit=1M", tmp_path / "in", daemon.url("rw/")))
    wait_until(lambda: leftovers(tmp_path / "rw"))
    daemon.run.group(signal.SIGINT)
    assert run.wait(60) == 0, (run.errors(), daemon.run.errors())
    assert daemon.copy("in", daemon.url("rw/again")).code == 0
    daemon.run.signal(signal.SIGTERM)
    assert daemon.run.wait(20) == 0, daemon.run.errors()


# ---- the environment --------------------------------------------------------------------------


@pytest.mark.parametrize("mask", ["0", "0777"])
@pytest.mark.parametrize("name", ["tree-push", "file-local", "stream-files", "daemon-push"])
def test_any_umask(name, mask):
    """Modes that come from the source or from an old target do not depend on the umask."""
    run, found = ORACLE.judge(name, Limit("all", ["sh", "-c", "umask %s; exec \"$@\"" % mask, "sh"]), codes={0})
    assert not found, (run.texts, found)


@pytest.mark.parametrize("mask", [0, 0o777])
def test_umask_applies_to_new_files(bench, tmp_path, mask):
    (tmp_path / "s" / "d").mkdir(parents=True)
    (tmp_path / "s" / "d" / "f").write_bytes(b"f")
    (tmp_path / "s" / "d" / "f").chmod(0o754)
    r = bench.copy("-r", "s", "far:%s/t" % tmp_path, transport="--transport=tcp", preexec=lambda: os.umask(mask))
    if USER and mask:
        # Only root can enter such a directory.
        assert r.code == 23 and "Permission denied" in r.errors(), (r.code, r.errors())
        return
    new = tmp_path / "t" / "d" / "f"
    assert r.code == 0 and new.read_bytes() == b"f", r.errors()
    assert stat.S_IMODE(new.stat().st_mode) == 0o754 & ~mask
    assert stat.S_IMODE(new.parent.stat().st_mode) == stat.S_IMODE((tmp_path / "s" / "d").stat().st_mode) & ~mask


@pytest.mark.parametrize("mask", [0, 0o777])
def test_umask_of_a_daemon_applies_to_new_files(bench, tmp_path, mask):
    """Modes from -p do not depend on it, and an old target keeps its mode."""
    daemon = Daemon(bench, tmp_path, preexec=lambda: os.umask(mask))
    (tmp_path / "in").write_bytes(b"in")
    (tmp_path / "in").chmod(0o754)
    (tmp_path / "rw" / "old").write_bytes(b"old")
    (tmp_path / "rw" / "old").chmod(0o640)
    for options, name, mode in (([], "new", 0o754 & ~mask), (["-p"], "same", 0o754), ([], "old", 0o640)):
        r = daemon.copy(*options, "in", daemon.url("rw/" + name))
        assert r.code == 0, r.errors()
        assert stat.S_IMODE((tmp_path / "rw" / name).stat().st_mode) == mode, name


SURROUNDINGS = {
    "no /proc": "umount -l /proc",
    "no /sys": "umount -l /sys || mount -t tmpfs none /sys",
    "no /dev/urandom": "mount --bind /dev/null /dev/urandom && mount --bind /dev/null /dev/random",
    "a full /tmp": "mount -t tmpfs -o size=4k,nr_inodes=1 none /tmp",
}


@pytest.mark.needs("root", why="it takes root to hide them from one process")
@pytest.mark.may_skip("any", "to hide them from one process takes a container that may")
@pytest.mark.parametrize("what", SURROUNDINGS)
@pytest.mark.parametrize("name", ["file-push", "delete-pull", "tree-local", "stream-files", "bench", "check", "daemon-push", "daemon-pull"])
def test_missing_system_files(name, what):
    if subprocess.run(["unshare", "-m", "true"], check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("may not unshare")
    if what == "a full /tmp" and not os.access("/dev/shm", os.W_OK):
        pytest.skip("the test's own files are in /tmp")
    # Attributes of symlinks and devices are read through /proc, and their modes are set through it.
    codes = {0, 23} if what == "no /proc" and name in ("delete-pull", "tree-local") else {0}
    limit = Limit("all", ["unshare", "-m", "sh", "-c", SURROUNDINGS[what] + ' && exec "$@"', "sh"])
    run, found = ORACLE.judge(name, limit, codes=codes)
    if run.codes == [23]:
        assert "/proc is not mounted" in run.texts[0], run.texts
        found = [f for f in found if f[0] != "unnamed"]
    assert not found, (run.texts, found)


@pytest.mark.parametrize("name", ["file-push", "stream-commands", "bench", "check", "daemon-push"])
@pytest.mark.parametrize("home", [["-u", "HOME"], ["HOME="], ["HOME=/nowhere"], ["HOME=/proc/1"]], ids=" ".join)
def test_any_home(name, home):
    run, found = ORACLE.judge(name, Limit("all", ["env", *home]), codes={0})
    assert not found, (run.texts, found)
