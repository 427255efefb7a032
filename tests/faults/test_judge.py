# SPDX-License-Identifier: Apache-2.0
"""The judge of the sweep finds each broken promise. Scripts replace rdcp here."""

import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))

import trial  # noqa: E402
from codes import fitting_codes  # noqa: E402
from processes import descendants  # noqa: E402
from scenarios import NEW, OLD, Scenario, put  # noqa: E402
from sites import Point  # noqa: E402

FULL = "echo 'rdcp: write t/f: No space left on device' >&2; exit 11"
COPY = "cp -a s/. t; rm -f t/extra"
MOVE = COPY + "; rm s/f s/g"


class Script(Scenario):
    name = "script"

    def __init__(self, script, **facts):
        self.script = script
        for k, v in facts.items():
            setattr(self, k, v)

    def make(self, top):
        put(top + "/s/f", b"new" * 1000, NEW)
        put(top + "/s/g", b"other", NEW)
        put(top + "/t/f", b"old", OLD)
        put(top + "/t/extra", b"extra", OLD)

    def commands(self, bin_):
        return [["sh", "-c", self.script]]


def run(scenario):
    made = trial.Run(scenario, trial.ROOT, "")
    made.close()
    return made


class Expected:
    """Replaces Reference: the result of a run without a fault. cp may change the times of t itself."""

    loose = {(p, "mtime") for p in ("", ".", "s", "t")}

    def __init__(self, want):
        self.want = want


@pytest.fixture(scope="module")
def expected():
    return Expected(run(Script(COPY)).after)


@pytest.fixture(autouse=True)
def orphans(monkeypatch):
    trial.adopt_orphans()
    monkeypatch.setattr(trial, "LIMIT", 30)
    yield
    # Orphans of later tests are not for this process.
    trial.adopt_orphans(False)
    assert not descendants(os.getpid())


def found(expected, script, kind="ENOSPC", call="pwrite64", site="base/io.c:pwrite_full:%s#1", **facts):
    scenario = Script(script, **facts)
    point = Point("script", "rdcp", site % call if "%" in site else site, 1, kind)
    return {k for k, _ in trial.Judge(scenario, expected, run(scenario), point).found}


# Output of rdcheck, which fills its lines, and of a transfer with progress.
FILLED = "printf '  FAILURE disk: write t/f: No space left on\\n          device\\n' >&2; exit 11"
PROGRESS = "printf 'rdcp: %s\\n' '879 KiB  1.18 MiB/s' '879 KiB  142 KiB/s' '879 KiB  stalled' >&2; " + FULL


@pytest.mark.parametrize("script", [COPY, FULL, "cp -p s/f t/f; " + FULL, COPY + "; " + FULL, FILLED, PROGRESS])
def test_allowed_results_pass(expected, script):
    assert found(expected, script) == set()


@pytest.mark.parametrize("script", [FULL, "cp -p s/f t/f; rm s/f; " + FULL, MOVE])
def test_allowed_source_removals_pass(script):
    assert found(Expected(run(Script(MOVE)).after), script, removes=True) == set()


@pytest.mark.parametrize("kind, script", [
    ("torn", "head -c 100 s/f >t/f; exit 0"),
    ("torn", "head -c 100 s/f >t/f; " + FULL),
    ("content", COPY + "; printf old >t/f"),
    ("content", "cp s/g t/f; " + FULL),
    ("missing", COPY + "; rm t/g"),
    ("mode", COPY + "; chmod 600 t/f"),
    ("mtime", COPY + "; touch t/f"),
    ("leftover", COPY + "; echo >t/.sluice.x"),
    ("leftover", "echo >t/.sluice.x; " + FULL),
    ("extra", COPY + "; echo >t/extra"),
    ("extra", "cp s/g t/more; " + FULL),
    ("gone", "rm t/f; " + FULL),
    ("kind", "rm t/f; mkdir t/f; " + FULL),
    ("deleted-early", "rm t/extra; " + FULL),
    ("source-gone", COPY + "; rm s/g"),
    ("lost", "rm s/f; " + FULL),
    ("code", FULL.replace("11", "40")),
    ("code", FULL.replace("11", "99")),
    ("silent", "exit 11"),
    ("unnamed", "echo 'rdcp: it failed' >&2; exit 11"),
    ("repeated", FULL.replace("exit", "echo 'rdcp: write t/f: No space left on device' >&2; exit")),
    *[("code", FULL.replace("exit 11", "exit %d" % code)) for code in (1, 3, 5, 10, 12, 22, 24, 30, 35, 41, 42, 43, 44, 45)],
    ("wordy", FULL.replace("exit", "echo 'rdcp: one thing is wrong' >&2; echo 'rdcp: and another' >&2; exit")),
    ("nameless", FULL.replace("t/f", "(null)")), ("nameless", FULL.replace("t/f", "")), ("nameless", FULL.replace(" No space left on device", " ")),
    ("signal", "kill -SEGV $$"),
    ("memory", COPY + "; echo '==1==ERROR: AddressSanitizer: SEGV on unknown address 0x18' >&2; exit 86"),
    ("leak", COPY + "; echo '==1==ERROR: LeakSanitizer: detected memory leaks' >&2; exit 86"),
    ("leak", COPY + "; echo 'SUMMARY: AddressSanitizer: 40 byte(s) leaked in 1 allocation(s).' >&2"),
    ("signal", "echo 'rdcp: the far end was killed by signal 11 (Segmentation fault): No space left on device' >&2; exit 35")])
def test_broken_promise_is_found(expected, kind, script):
    assert kind in found(expected, script, deletes=True)


COLOUR = "%s -c 'import os, sys; os.setxattr(sys.argv[1], \"user.colour\", b\"red\")'" % sys.executable


@pytest.mark.parametrize("kind, change", [("mode", "chmod 600"), ("mtime", "touch"), ("xattrs", COLOUR),
                                          *([("owner", "chown 7")] if os.geteuid() == 0 else [])])
@pytest.mark.parametrize("path, script", [
    ("t/f", ""), ("t/f", "cp -p s/f t/f; "), ("t/extra", ""), ("t/g", "cp -p s/g t/g; "), ("s/f", ""), ("s", ""), ("t", "")])
def test_metadata_that_is_neither_old_nor_new_is_found(expected, kind, change, path, script):
    changes = kind != "mtime" or path not in ("s", "t")
    assert found(expected, "%s%s %s; %s" % (script, change, path, FULL)) == ({kind} if changes else set())


def test_metadata_of_a_complete_file_may_be_old_or_new():
    """The run was to change the mode and the time."""
    want = Expected(run(Script("cp s/f t/h; chmod 600 t/f; touch -d @%d t/f" % NEW)).after)
    assert found(want, "chmod 600 t/f; " + FULL) == set()
    assert found(want, "chmod 640 t/f; " + FULL) == {"mode"}


@pytest.mark.parametrize("path, script, classes", [
    ("f", "cp -p s/f t/f; chmod 600 t/f", set()), ("f", "cp -p s/f t/f; chmod 666 t/f", {"mode"}), ("f", "cp -p s/f t/f; touch t/f", set()),
    ("g", "cp -p s/f t/f; chmod 600 t/f", {"mode"}), ("f", "chmod 600 t/f", {"mode"}),
    ("g", "cp -p s/f t/f; ln t/f t/g; chmod 600 t/f", {"content"})])
def test_metadata_that_could_not_be_kept_is_named(expected, path, script, classes):
    full = "echo 'rdcp: set mode of %s: No space left on device' >&2; exit 23" % path
    assert found(expected, "%s; %s" % (script, full)) == classes


@pytest.mark.parametrize("counted, classes", [("4 more failures or warnings: ", set()), ("", {"mode"})])
def test_metadata_that_could_not_be_kept_is_counted(expected, counted, classes):
    many = "echo 'rdcp: open s/g: No space left on device\nrdcp: %sNo space left on device' >&2; exit 23" % counted
    assert found(expected, "cp -p s/f t/f; chmod 600 t/f; " + many) == classes


@pytest.mark.parametrize("kind, script", [
    ("content", "cp -a s/. t; rm t/extra; cp s/g t/f"), ("content", COPY + "; printf torn >t/f"), ("missing", COPY + "; rm t/f"),
    ("mode", COPY + "; chmod 600 t/f")])
def test_what_a_failed_run_may_leave_anyhow_is_right_at_exit_0(expected, kind, script):
    assert found(expected, script, loose=("t/f",)) >= {kind}
    assert not found(expected, "printf torn >t/f; " + FULL, loose=("t/f",))


@pytest.mark.parametrize("script, classes", [
    ("echo more >t/f", set()), ("chmod 600 t/f", {"mode"}), ("rm t/f", {"missing"}), ("rm t/f; ln -s ../s/f t/f", {"kind"})])
def test_only_the_content_of_a_log_varies_at_exit_0(expected, script, classes):
    classes_found = found(expected, COPY + "; " + script, varies=("t/f",))
    assert classes <= classes_found and bool(classes) == bool(classes_found)


@pytest.mark.parametrize("end", [COPY, FULL])
def test_what_is_left_elsewhere_is_found(expected, monkeypatch, tmp_path, end):
    monkeypatch.setattr(trial.Run, "shared", (str(tmp_path),))
    assert found(expected, end) == set()
    assert found(expected, 'echo >"$TMPDIR/odd"; ' + end) == {"leftover"}
    assert found(expected, "echo >%s/odd; %s" % (tmp_path, end)) == {"leftover"}
    # What was there before is not this run's.
    assert found(expected, end) == set()


@pytest.mark.parametrize("says, classes", [
    ("create a file", {"pathless"}), ("create f", set()), ("fsync directory t", set()), ("open /dev/null", set()), ("write command sh", set())])
def test_failure_with_a_file_names_it(expected, says, classes):
    assert found(expected, FULL.replace("write t/f", says), site="copy/place/place_file.c:create:openat64#1") == classes


@pytest.mark.parametrize("site, kind, fits", [
    ("copy/walk/walk_dir.c:open_dir:openat64#1", "ENOENT", {3, 11, 23, 24}), ("copy/walk/walk_dir.c:open_dir:openat64#1", "EIO", {11, 23}),
    ("copy/place/place.c:place_new:calloc#1", "ENOMEM", {11, 22, 23}), ("cmd/process/child.c:child_fork:fork#1", "EAGAIN", {5, 10, 11, 22, 35, 44}),
    ("lane/cipher.c:has_algorithm:EVP_CIPHER_fetch#1", "ENOMEM", {22, 43}), ("lane/tcp/tcp.c:tcp_send:send#1", "ECONNRESET", {10, 35, 43, 44})])
def test_exit_codes_that_fit(site, kind, fits):
    assert fitting_codes(Point("script", "rdcp", site, 1, kind), Script("true")) == fits


ADAPTER = {"adapter": "connectx-roce", "transport": "auto"}


@pytest.mark.parametrize("call, facts, classes", [
    ("ibv_reg_mr", ADAPTER, {"stopped"}), ("pwrite64", ADAPTER, set()), ("rdma_connect", {**ADAPTER, "transport": "rdma"}, set())])
def test_copy_that_could_go_on_over_tcp_must_not_end(expected, call, facts, classes):
    assert found(expected, FULL, call=call, **facts) == classes


def test_wrong_use_of_a_simulated_adapter_is_found(expected):
    assert "misuse" in found(expected, "echo 'simverbs: ibv_dealloc_pd: 1 region is still in it' >&2; kill -ABRT $$", **ADAPTER)


@pytest.mark.parametrize("words, rule", [
    ("simverbs:status 3 RETRY_EXC", "status:n=3,is=12"), ("simverbs:status 1 RETRY_EXC+", "status:n=0,is=12"),
    ("simverbs:event:ESTABLISHED 2 REJECTED/8", "event:ESTABLISHED,n=2,as=8,status=8"),
    ("simverbs:event:ADDR_RESOLVED 1 ADDR_ERROR/-19", "event:ADDR_RESOLVED,n=1,as=1,status=-19"),
    ("simverbs:lose:REP 1 1", "lose:REP,n=1"), ("simverbs:async:QP_FATAL 4 1", "async:QP_FATAL,n=4"),
    ("simverbs:silent 5 1", "silent:n=5")])
def test_order_of_a_point(words, rule):
    assert Point.parse("roce-push rdcp.1 " + words).environment(None) == {"SWEEP_ORDER": "rdcp.1 " + rule}


def test_failure_after_an_interrupted_call_is_found(expected):
    assert "interrupted" in found(expected, FULL, kind="EINTR")


def test_removed_source_must_be_at_the_target(expected):
    assert "lost" in found(expected, "rm s/f; mv s/g t/h; " + FULL, removes=True)


@pytest.mark.parametrize("script", ["sleep 60", "(sleep 60 >/dev/null 2>&1 &); " + COPY])
def test_run_that_does_not_end_is_found(expected, monkeypatch, script):
    monkeypatch.setattr(trial, "LIMIT", 2)
    monkeypatch.setattr(trial, "LINGER", 1)
    assert "hang" in found(expected, script)


REPEAT = "echo 'rdcp: write t/f: No space left on device' >&2; "
OTHER = "echo 'rdcp: another' >&2; echo 'rdcp: more' >&2; "


@pytest.mark.parametrize("facts, script, classes", [
    ({"reporters": 2}, REPEAT + FULL, set()), ({"reporters": 2}, 2 * REPEAT + FULL, {"repeated"}),
    ({"reporters": 2}, OTHER + FULL, set()), ({}, OTHER + FULL, {"wordy"}),
    ({"reporters": 2}, OTHER + "echo 'rdcp: most' >&2; " + FULL, {"wordy"}),
    ({"sessions": True}, 2 * REPEAT + FULL, set()), ({"sessions": True}, 2 * REPEAT.replace("rdcp", "rdbench") + FULL, {"repeated"})])
def test_each_process_that_reports_a_failure_does_so_once(expected, facts, script, classes):
    assert found(expected, script, **facts) == classes


class Served(Script):
    """The script is a client of a daemon that it waits for."""

    serves = True

    def commands(self, bin_):
        daemon = "trap 'rm up' INT; touch up; echo rdcpd: listening on 127.0.0.1:1 >&2; while [ -e up ]; do sleep .01; done"
        return [["sh", "-c", daemon], ["sh", "-c", self.script]]


@pytest.mark.parametrize("wait, classes", [("", set()), ("while [ -e up ]; do sleep .01; done; ", {"hang"})])
def test_client_that_ends_with_its_daemon_only_is_found(expected, monkeypatch, wait, classes):
    monkeypatch.setattr(trial, "LIMIT", 2 if wait else 30)
    made = run(Served(wait + COPY))
    point = Point("script", "rdcp", "base/io.c:pwrite_full:pwrite64#1", 1, "EIO")
    assert {k for k, _ in trial.Judge(Served(COPY), expected, made, point).found} == classes


def test_different_exit_codes_of_two_ends_are_found(expected):
    made = run(Script(COPY))
    made.codes, made.texts = [0, 30], ["", "rdsend: lost"]
    point = Point("script", "rdcp", "base/io.c:pwrite_full:pwrite64#1", 1, "EIO")
    assert "one-sided" in {k for k, _ in trial.Judge(Script(COPY), expected, made, point).found}


@pytest.mark.parametrize("script,codes,classes", [(COPY, [0, 44], set()), (COPY, [44, 0], {"one-sided"}), ("true", [0, 44], {"content", "missing"})])
def test_lost_last_message_is_allowed_for_the_sender_only(expected, script, codes, classes):
    made = run(Script(script))
    made.codes, made.texts = codes, ["", "rdsend: not confirmed: lost vm: Connection reset by peer"]
    point = Point("script", "rdrecv", "session/channel/tls.c:tls_write:SSL_write_ex#1", 1, "ECONNRESET")
    assert {k for k, _ in trial.Judge(Script(COPY), expected, made, point).found} & {"one-sided", "content", "missing"} == classes
