# SPDX-License-Identifier: Apache-2.0
"""Runs one case: makes its trees, runs its command with the fault, and judges the result. After a fault it
runs the command again."""

import ctypes
import fcntl
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import globs
import judge
import names
import world
from change import Change
from generate import NOBODY, Case
from model import Model
from watch import Watch

ROOT = pathlib.Path(__file__).resolve().parents[2]
RIG = ROOT / "tests" / "rig"
sys.path.append(str(RIG))

from processes import children  # noqa: E402

RSH = RIG / "rsh"
LIMIT = 60      # seconds that a run may take on a busy machine
LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, MS_REMOUNT, MS_PRIVATE, MS_REC, MNT_DETACH = 0x20000, 32, 1 << 18, 16384, 2
AS_NOBODY = ["setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % NOBODY, "--clear-groups", "--inh-caps=-all",
             "--bounding-set=-all"]
IS_ROOT = os.geteuid() == 0
BESIDE = ["../aside"]   # --backup-dir makes it where DST is a file in the root
OWN = r"stderr|key|daemon|daemon-key|conf|incoming|failed|log|tmp|rule-\d+"    # in Trial.aside
_can_mount = []


def programs():
    return pathlib.Path(os.environ.get("SLUICE_TEST_BIN", ROOT / "build" / "faults")) / "src"


def mount(what, at, kind, flags, data):
    return LIBC.mount(what.encode(), str(at).encode(), kind.encode() if kind else None, flags,
                      data.encode() if data else None) == 0


def can_mount():
    """Whether this process can mount; if so, it is in a mount namespace of its own afterwards."""
    if not _can_mount:
        _can_mount.append(IS_ROOT and LIBC.unshare(CLONE_NEWNS) == 0 and
                           mount("none", "/", None, MS_REC | MS_PRIVATE, None))
    return _can_mount[0]


class Trial:
    def __init__(self, case):
        self.case = case = names.apply(case)
        self.fault = dict(case.fault or {})
        self.found, self.errors, self.log = [], "", []
        self.codes = []
        base = os.environ.get("SLUICE_PROPERTIES_DIR") or ("/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        self.home = tempfile.mkdtemp(prefix="sluice-properties-", dir=base)
        self.root = self.home + "/root"
        self.aside = tempfile.mkdtemp(prefix="sluice-properties-", dir=base)    # stderr, rules, --failed and --log-file
        self.temporary = self.aside + "/tmp"    # TMPDIR and HOME
        os.mkdir(self.temporary)
        self.mounted = False
        self.need, self.change = [], None

    def close(self):
        if self.mounted:
            LIBC.umount2(self.home.encode(), MNT_DETACH)
        for top in (self.home, self.aside):
            shutil.rmtree(top, ignore_errors=True)

    # ---- the run ---------------------------------------------------------------------------

    def argv(self):
        program = str(programs() / "rdcp")
        argv = [program, "-S" + str(RSH) if "rsh" in self.case.spelled else "--rsh=" + str(RSH), "--rdcp-path=" + program]
        if self.case.daemons:
            argv.append("--key-file=" + self.key())
        if not any(w.startswith("--transport") for w in self.case.words()):
            argv.append("--transport=tcp")
        if self.fault.get("kind") == "change":
            argv.append("--lanes=1")
        for n, word in enumerate(self.case.words(self.expanded())):
            if self.fault.get("kind") == "change" and word.startswith("--lanes="):
                continue
            argv.append(self.from_file(n, word).replace("ASIDE", self.aside))
        return (AS_NOBODY if self.case.uid and IS_ROOT else []) + argv

    def key(self, name="key"):
        """The key file of rdcp, or that of the daemon. Each belongs to its user."""
        path, own = self.aside + "/key", self.aside + "/daemon-key"
        if not os.path.exists(path):
            subprocess.run([programs() / "rdcpd", "--make-key", path], check=True, stdout=subprocess.DEVNULL)
            shutil.copy(path, own)
            if self.case.uid and IS_ROOT:
                os.chown(path, self.case.uid, self.case.uid)
        return self.aside + "/" + name

    def modules(self):
        """The options that make a module of each host that is one."""
        case, settings = self.case, dict(self.case.module)
        if case.uid and IS_ROOT:
            settings.update(uid=case.uid, gid=case.uid)
        if not settings:
            return ["--module=%s=%s:rw" % (h, self.root) for h in sorted(case.daemons)]
        with open(self.aside + "/conf", "w") as f:
            for host in sorted(case.daemons):
                f.write("[%s]\npath = %s\nread only = no\n" % (host, self.root))
                f.writelines("%s = %s\n" % s for s in sorted(settings.items()))
        return ["--config=%s/conf" % self.aside]

    def start_daemon(self, fault):
        """A rdcpd with a module for each host that is one, which is the root; its port goes into the case."""
        log = self.aside + "/daemon"
        with open(log, "wb") as stderr:
            self.daemon = subprocess.Popen(
                [programs() / "rdcpd", "--key-file=" + self.key("daemon-key"), "--address=127.0.0.1", "--port=0", *self.modules()],
                env=self.environment(fault), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr,
                start_new_session=True, umask=self.case.umask)
        until = time.monotonic() + LIMIT
        while time.monotonic() < until:
            with open(log, "rb") as f:
                found = re.search(rb"listening on \S+:(\d+)\n", f.read())
            if found:
                port = found[1].decode()
                self.case.url = "rdma://127.0.0.1:%s/" % port
                if self.case.has("daemon-port"):
                    self.case.options["daemon-port"], self.case.url = port, "rdma://127.0.0.1/"
                return
            time.sleep(.002)
        raise RuntimeError("rdcpd does not listen")

    def end_daemon(self):
        """Waits until its sessions have ended."""
        until = time.monotonic() + LIMIT
        while children(self.daemon.pid) and time.monotonic() < until:
            time.sleep(.002)
        if children(self.daemon.pid):
            self.found.append(("hang", "a session of rdcpd does not end within %d s" % LIMIT))
        if self.daemon.poll() is not None:
            self.found.append(("daemon", "rdcpd has ended with exit status %d" % self.daemon.returncode))
        self.daemon.terminate()
        self.daemon.wait()

    def from_file(self, n, word):
        """word, or the option that reads its pattern from a file."""
        name, _, pattern = word.partition("=")
        if name not in ("--exclude", "--include") or not self.case.has(name[2:] + "-from"):
            return word
        if not self.case.has("from0"):
            if not names.is_one_line(pattern):
                return word
            if pattern.startswith(("#", ";")):
                pattern = names.explicit(name[2:], pattern)
        with open("%s/rule-%d" % (self.aside, n), "wb") as f:
            f.write(os.fsencode(pattern + ("\0" if self.case.has("from0") else "\n")))
        return "%s-from=%s/rule-%d" % (name, self.aside, n)

    def expanded(self):
        """The sources, with local patterns expanded as by a shell."""
        out = []
        for host, path in self.case.sources:
            hits = globs.expand(path, self.names_in) if globs.is_glob(path) and not host else []
            out += [(host, h) for h in hits] or [(host, path if host else globs.text_of(path))]
        return out

    def names_in(self, dir):
        at = os.path.join(self.root, dir)
        return os.listdir(at) if os.path.isdir(at) else []

    def environment(self, fault):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("RD_", "SLUICE_FAULT"))}
        env.update(SLUICE_TEST_HOSTS="h1 \nh2 ", SLUICE_TEST_HOME=self.root, HOME=self.temporary, TMPDIR=self.temporary,
                   LC_ALL="C.UTF-8")
        if fault:
            env["SLUICE_FAULT"] = fault
        return env

    def start(self, fault=""):
        if self.case.daemons:
            self.start_daemon(fault)
        stderr = open(self.aside + "/stderr", "ab")
        with stderr:
            return subprocess.Popen(self.argv(), cwd=self.root, env=self.environment(fault), stdin=subprocess.DEVNULL,
                                    stdout=subprocess.DEVNULL, stderr=stderr, start_new_session=True,
                                    umask=self.case.umask)

    def wait_for_end(self, proc):
        """Waits for proc and its process group, and returns the exit status."""
        try:
            code = proc.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.found.append(("hang", "rdcp does not end within %d s" % LIMIT))
            os.killpg(proc.pid, signal.SIGKILL)
            code = proc.wait()
        until = time.monotonic() + LIMIT
        while time.monotonic() < until:
            try:
                os.killpg(proc.pid, 0)
            except ProcessLookupError:
                break
            time.sleep(.002)
        else:
            self.found.append(("hang", "an end does not end within %d s" % LIMIT))
            os.killpg(proc.pid, signal.SIGKILL)
        if self.case.daemons:
            self.end_daemon()
        self.codes.append(code)
        with open(self.aside + "/stderr", "rb") as f:
            self.errors = f.read().decode("utf-8", "replace")
        return code

    # ---- faults ----------------------------------------------------------------------------

    def start_to_kill(self, plan):
        """Starts the run, which plan says when to kill, and kills it."""
        watch, reached, killed = None, threading.Event(), threading.Event()

        def hold():
            reached.set()
            if not plan["after"]:
                killed.wait(LIMIT)
        if plan.get("when"):
            try:
                watch = Watch(os.path.join(self.root, plan["path"]), plan["when"], hold)
            except OSError:
                self.log.append("no process can be stopped here")
        proc = self.start()
        if watch:
            while not reached.wait(.001) and proc.poll() is None:
                pass
        time.sleep(plan["after"])
        plan["in time"] = reached.is_set()
        if reached.is_set() or not watch:
            self.kill(proc, plan)
        killed.set()
        if watch:
            watch.stop()
        return proc

    @staticmethod
    def kill(proc, plan):
        who = [proc.pid]
        if plan["who"] == "end":
            who = children(proc.pid)[:1]
        for pid in who:
            try:
                (os.killpg if plan["who"] == "all" else os.kill)(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def fill_disk(self, more):
        st = os.statvfs(self.root)
        used = (st.f_blocks - st.f_bfree) * st.f_frsize
        mount("none", self.home, "tmpfs", MS_REMOUNT, "size=%d" % (used + more))

    def read_pipe(self):
        """Starts a thread that reads some of the pipe."""
        fd = os.open(os.path.join(self.root, "pipe"), os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(fd, fcntl.F_SETFL, 0)

        def pump():
            left, over = self.fault["takes"], False
            while left > 0:
                try:
                    got = os.read(fd, min(left, 65536))
                except OSError:
                    break
                if not got:
                    # What was written before the end of the run is read after it.
                    if over:
                        break
                    over = self.stop.wait(.002)
                    continue
                left -= len(got)
                self.got += got
            os.close(fd)
        self.stop, self.got = threading.Event(), b""
        thread = threading.Thread(target=pump)
        thread.start()
        return thread

    # ---- the trial ---------------------------------------------------------------------------

    def make_world(self):
        case = self.case
        if self.fault.get("kind") == "full":
            if not can_mount():
                self.fault = {}
                self.log.append("no disk can be filled here")
            else:
                self.mounted = mount("none", self.home, "tmpfs", 0, "mode=755")
        os.mkdir(self.root)
        os.chmod(self.home, 0o755)
        world.make(self.root, case.world, IS_ROOT)
        if case.listed:
            with open(self.root + "/list", "wb") as f:
                f.write(os.fsencode(names.list_text(case)))
        os.chmod(self.root, 0o755)
        if case.uid and IS_ROOT:
            os.chown(self.home, case.uid, case.uid)
            os.chown(self.root, case.uid, case.uid)
            os.chown(self.aside, case.uid, case.uid)
            os.chown(self.temporary, case.uid, case.uid)
        before = world.read(self.root, BESIDE)
        self.need = judge.contents_of(case, before)
        if self.fault.get("kind") == "change":
            self.change = Change(self, before)
            self.need = self.change.needs(self.need)
        return before

    def run(self):
        case, kind = self.case, self.fault.get("kind")
        before = self.make_world()
        kind = self.fault.get("kind")
        uid, case.uid = case.uid, case.uid if IS_ROOT else os.getuid()
        self.model = model = Model(case, before)
        case.uid = uid
        thread = None
        if kind == "full":
            self.fill_disk(self.fault["bytes"])
        if kind == "stream" and case.target[1] == "pipe":
            thread = self.read_pipe()
        stall = self.change and not self.change.prepare()
        fault = "stall:lane=0,block=0,ms=%d" % self.fault["ms"] if stall else ""
        proc = self.start_to_kill(self.fault) if kind == "kill" else self.start(fault)
        if self.change:
            self.change.start()
        code = self.wait_for_end(proc)
        if self.change:
            self.change.finish()
        if thread:
            self.stop.set()
            thread.join()
        after = self.read_world(kind == "kill")
        self.found += judge.lost(self.need, after) + judge.lost_backups(model, before, after, kind == "change")
        if kind == "stream":
            piped = case.target[1] == "pipe"
            self.found += judge.stream(model, before, after, code, self.fault["takes"] if piped else None,
                                       world.name_of(self.got) if piped else None)
            return
        if kind in ("kill", "change", "full"):
            self.found += min((self.judge_fault(m, before, after, code) for m in self.views()), key=len)
            if kind == "full":
                mount("none", self.home, "tmpfs", MS_REMOUNT, "size=1g")
            if not self.found:
                self.run_again(before, after)
        else:
            self.found += judge.exact(model, after, code)

    def read_world(self, killed):
        """The world after a run; nothing may be left beside it."""
        beside = {self.home: r"root|aside", self.temporary: "", self.aside: OWN}
        # "--failed: … if rdcp was killed, a file FILE.XXXXXX … may stay beside it."
        if killed:
            beside[self.aside] += r"|failed\.\w{6}"
        self.found += [("leftover", "%s/%s" % (dir, name)) for dir, own in beside.items() for name in os.listdir(dir)
                       if not re.fullmatch(own, name)]
        return world.read(self.root, BESIDE)

    def views(self):
        return self.change.views() if self.change else [self.model]

    def judge_fault(self, model, before, after, code):
        found = self.within_bounds(model, before, after, code)
        if self.fault["kind"] == "change":
            return found + judge.exact(model, after, code)
        return found + judge.status(model, after, code, self.codes_of_fault(self.fault), self.fault["kind"] == "kill")

    def codes_of_fault(self, plan):
        """The exit statuses that the manual gives a run that was killed, or that found no space."""
        several = {23} if len({h for h, _ in self.case.sources}) > 1 else set()     # "one of several hosts failed"
        if plan.get("who") == "end":
            # "Could not start: … the far end is missing", "The peer was lost, or did not confirm the result." An end that
            # reads a file has started.
            return ({44} if plan.get("in time") else {5, 44}) | several
        if plan.get("who"):
            return {-signal.SIGKILL}
        # "A file could not be read or written.", "Some files failed". DST itself may be what could not be made.
        return {11} if self.model.is_single else {11, 23}

    def within_bounds(self, model, before, after, code):
        change = self.change
        found = judge.bounds(model, before, after, code, *((change.versions, change.paths) if change else ({}, set())))
        return found + judge.deletions_after_failure(model, before, after, code)

    def run_again(self, before, state):
        """Runs the command again. The last run must complete the copy; those before it are killed, too."""
        runs = [(self.model, before)]   # of each run the model and the state before it
        moved = []  # of each run but the last whether the one after it is a new copy
        for plan in self.fault.get("again", []) + [None]:
            # A rerun does not change the directories that --mkpath made.
            unfinished = {p for p in state if p not in before and state[p].kind == "dir"}.difference(
                *(m.mkpath_dirs for m, _ in runs))
            model = Model(self.case, state, unfinished)
            # What another process took from the source, or a whole move, --delete takes from the target.
            moved.append(self.is_new_copy(runs[-1][0], state, self.codes[-1]))
            earlier = [] if self.fault["kind"] == "change" or moved[-1] else self.need
            self.need = earlier + judge.contents_of(self.case, state)
            if len(runs) == 1 and not moved[-1] and self.is_sent_elsewhere():
                state = self.move_elsewhere()
                self.need += judge.contents_of(self.case, state)
                model = Model(self.case, state, unfinished)
            proc = self.start_to_kill(plan) if plan else self.start()
            code = self.wait_for_end(proc)
            after = self.read_world(self.fault["kind"] == "kill")
            runs.append((model, state))
            found = self.judge_rerun(runs, moved, after, code, plan)
            if found:
                label = "rerun: " if len(runs) == 2 else "rerun %d: " % (len(runs) - 1)
                self.found += [("again-" + k if k not in ("lost",) else k, label + text) for k, text in found]
                return
            state = after

    # "While this marker exists …, no such run deletes anything, whatever its DST."
    def is_sent_elsewhere(self):
        """Does a run with another target come before this rerun?"""
        case = self.case
        return case.has("remove-source-files") and (case.has("delete") or case.has("delete-excluded")) and \
            not case.has("dry-run") and not case.has("backup-dir") and not case.daemons and self.fault["kind"] in ("kill", "full")

    def move_elsewhere(self):
        target, other = self.case.target, self.root + "/elsewhere"
        os.mkdir(other)
        if self.case.uid and IS_ROOT:
            os.chown(other, self.case.uid, self.case.uid)
        self.case.target = (target[0], "elsewhere")
        self.wait_for_end(self.start())
        self.case.target = target
        return self.read_world(self.fault["kind"] == "kill")

    @staticmethod
    def is_new_copy(model, after, code):
        """Whether the run after this one no longer completes the same copy, as the sources are others: they were moved."""
        return model.o.get("remove-source-files") and (
            code == 0 or model.contested or not model.inexact and not judge.exact(model, after, min(model.codes)))

    def judge_rerun(self, runs, moved, after, code, killed):
        model, state = runs[-1]
        found = judge.lost(self.need, after) + judge.lost_backups(model, state, after)
        # What an earlier run backed up must survive, too. It does not where the names of two backups of one run
        # are open, or where one run stored a content that the next one replaces.
        if self.fault["kind"] in ("kill", "full"):
            for n, (earlier, old) in enumerate(runs[:-1]):
                if not earlier.shared_backups and not any(moved[n:]):
                    found += judge.lost_backups(earlier, old, after)
        if killed:
            found += self.within_bounds(model, state, after, code)
            found += judge.status(model, after, code, self.codes_of_fault(killed), True)
        else:
            found += judge.exact(model, after, code)
        return found


def attempt(case):
    """Runs a case and returns its Trial."""
    trial = Trial(case)
    try:
        trial.run()
    finally:
        trial.close()
    return trial


__all__ = ["Case", "attempt", "Trial"]
