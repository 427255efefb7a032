#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs scenarios of the sweep under a limit or into a small file system, and judges them as the sweep does.

usage: limits.py SCENARIO WHO WORDS...             WORDS before the command of WHO, as in
                                                   limits.py file-push far prlimit --nofile=20:20
       limits.py SCENARIO conductor|near LIMIT N   limit one process: limits.py file-pull near nofile 19
       limits.py SCENARIO tmpfs|ext4 BYTES INODES  so much is free in t ("-": no limit)

WHO is all, far, rdrecv, rdsend, rdcpd or rdcp. SLUICE_TEST_BIN is the build (default: build/faults)."""

import contextlib
import errno
import functools
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import threading
import types

import scenarios
from sites import ROOT
from trial import LINGER, Judge, Reference, Run, adopt_orphans

from networks import free_port  # of tests/rig, which trial puts on the path

SCENARIOS = scenarios.SCENARIOS
# The loader or a shell failed, so our program did not start and could not report the reason.
NOT_BEGUN = re.compile(r"error while loading shared libraries|^(sh|\S*rsh): .*(cannot|can't)", re.I | re.M)
KILLED = re.compile(r"was killed by signal \d+ \([^)]*\) before its greeting")
# With less stack, the kernel cannot start a program, or the program's first frame kills it.
STACK_LEAST = 128 << 10
# The texts of these errnos in messages of libraries.
ALIKE = {"ENOMEM": ("ENOMEM", "EAGAIN")}
# Failures that messages do not report by their reason.
UNNAMED = re.compile("|".join((
    "out of memory, or OpenSSL lacks",  # OpenSSL reports only that it failed
    "command sh exited with 153",       # the command itself fails under the limit
    "Bad file descriptor",      # without /proc the permissions of a closed directory cannot be read
)))


@contextlib.contextmanager
def adopting():
    """Within the with statement, orphans of a run become children of this process, so that it finds them."""
    adopt_orphans()
    try:
        yield
    finally:
        adopt_orphans(False)


@functools.lru_cache(maxsize=None)
def dies_in_exec(words, rdcp):
    """Whether the kernel kills the program before it runs: with little address space it finds out only when nothing
    is left to return to. What started the program can't name the reason."""
    return subprocess.run([*words, rdcp, "--version"], capture_output=True, check=False).returncode == -signal.SIGSEGV


class Limit:
    """A limit for processes of a run.

    who: all, conductor, near, far, or one of two commands: rdrecv, rdsend, rdcpd, rdcp. words: a command that is
    put before theirs. No command starts conductor and near alone; they take limit and value, the name of an
    RLIMIT_ and a number.
    kind: the errno that the limit causes. user: run all commands as this user. mute: the command can't print.
    may_die: the limit may kill the program. ignores_interrupts: the words make it ignore SIGINT."""

    ignores_interrupts = False

    def __init__(self, who, words=(), limit=None, value=None, kind="EIO", user=None, mute=False, may_die=False):
        self.who, self.words, self.kind = who, list(words), kind
        self.limit, self.value, self.user, self.mute, self.may_die = limit, value, user, mute, may_die
        if limit and not words:
            self.words = ["prlimit", "--%s=%d:%d" % (limit, value, value)]
        self.become = ["setpriv", "--reuid=%d" % user, "--regid=%d" % user, "--clear-groups"] if user else []

    def __str__(self):
        if self.who in ("conductor", "near"):
            return "%s %s %s" % (self.who, self.limit, self.value)
        return "%s %s" % (self.who, " ".join(repr(w) if re.search(r"[^\w=:./-]", w) else w for w in self.become + self.words))

    def command(self, run, argv, n):
        pair = ("rdrecv", "rdsend") if run.scenario.streams else ("rdcpd", "rdcp") if run.scenario.serves else ()
        if self.who == "all" or self.who in pair[n:n + 1]:
            return self.become + self.words + argv
        if self.who == "far" and "--rdcp-path" in argv:
            at = argv.index("--rdcp-path") + 1
            return argv[:at] + [self.wrapper(run, argv[at])] + argv[at + 1:]
        return self.become + argv

    def wrapper(self, run, program):
        path = run.base + "/rdcp"
        with open(path, "w") as f:
            f.write("#!/bin/sh\nexec %s \"$@\"\n" % " ".join("'%s'" % w for w in self.words + [program]))
        os.chmod(path, 0o755)
        return path

    def environment(self, bin_):
        if self.who not in ("conductor", "near"):
            return {}
        return {"LD_PRELOAD": str(bin_.parent / "tests" / "limited_fork.so"), "LIMIT_FOR": self.who,
                "LIMIT_WHAT": str(getattr(resource, "RLIMIT_" + self.limit.upper())), "LIMIT_VALUE": str(self.value)}


# ---- small file systems ----------------------------------------------------------------------


class MayNotMount(Exception):
    pass


class TooSmall(Exception):
    """The file system is full apart from the files that exist before the run."""


def mount(*words, wrong=MayNotMount):
    r = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if r.returncode:
        raise wrong(r.stderr.strip())


def umount(at):
    subprocess.run(["umount", "-l", at], check=False, stderr=subprocess.DEVNULL)


class Tmpfs:
    """t is a tmpfs. bytes_, inodes: its size. free: how many bytes and inodes are free when the run begins."""

    name = "tmpfs"

    def __init__(self, bytes_=None, inodes=None, free=(None, None)):
        self.bytes, self.inodes, self.free = bytes_, inodes, free

    def __str__(self):
        return "%s of %s bytes and %s inodes, free %s" % (self.name, self.bytes, self.inodes, self.free)

    def make(self, base, at):
        os.mkdir(at)
        mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", at)

    def fill(self, base, at):
        st = os.statvfs(at)
        bytes_, inodes = self.bytes, self.inodes
        if self.free[0] is not None:
            bytes_ = (st.f_blocks - st.f_bfree) * st.f_frsize + self.free[0]
        if self.free[1] is not None:
            inodes = st.f_files - st.f_ffree + self.free[1]
        options = ["%s=%d" % kv for kv in (("size", bytes_), ("nr_inodes", inodes)) if kv[1] is not None]
        if options:
            mount("-o", "remount," + ",".join(options), at, wrong=TooSmall)

    def clear(self, base, at):
        umount(at)


class Ext4(Tmpfs):
    """The same with ext4 in an image. Files beside t fill it. Sizes: from 60 KiB, or 72 KiB with 64 inodes; of these ext4 needs 11."""

    name = "ext4"

    def make(self, base, at):
        image, disk = base + "/image", base + "/disk"
        with open(image, "wb") as f:
            f.truncate(self.bytes or 32 << 20)
        small = ["-O^has_journal"] if self.bytes else []
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m0", "-N%d" % (self.inodes or 256), "-b1024", *small, image], check=True)
        os.mkdir(disk)
        mount("-o", "loop", image, disk)
        os.mkdir(disk + "/t")
        os.mkdir(at)
        mount("--bind", disk + "/t", at)

    def fill(self, base, at):
        disk = base + "/disk"
        os.sync()
        st = os.statvfs(disk)
        if self.free[1] is not None:
            for n in range(st.f_ffree - self.free[1] - (self.free[0] is not None)):
                open("%s/ballast-%d" % (disk, n), "wb").close()
        if self.free[0] is not None:
            # The extent tree uses blocks too, so fill it in steps.
            with open(disk + "/ballast", "wb") as f, contextlib.suppress(OSError):
                while (left := os.statvfs(disk).f_bavail * st.f_frsize - self.free[0]) > 0:
                    os.posix_fallocate(f.fileno(), os.fstat(f.fileno()).st_size, max(st.f_frsize, left // 2))

    def clear(self, base, at):
        umount(at)
        umount(base + "/disk")


# ---- runs ------------------------------------------------------------------------------------


def gather(pipe, into):
    with pipe:
        while got := pipe.read1(65536):
            into.extend(got)


class LimitedRun(Run):
    """A run under a limit. ground: a file system for t, or None."""

    def __init__(self, scenario, bin_, limit=None, ground=None):
        self.limit, self.ground = limit, ground
        self.ignores_interrupts = bool(limit and limit.ignores_interrupts)
        self.printed, self.readers, self.port = [], [], None
        super().__init__(scenario, bin_)

    def _make(self):
        try:
            if self.ground:
                self.ground.make(self.base, self.top + "/t")
            super()._make()
            if self.ground:
                self.ground.fill(self.base, self.top + "/t")
        except Exception:
            self.close()
            raise
        if self.limit and self.limit.user:
            os.chmod(self.base, 0o755)
            subprocess.run(["chown", "-R", "%d:%d" % (self.limit.user, self.limit.user), self.top], check=True)

    def _start(self, argv, n):
        """Output goes to pipes, because a file would be subject to the limit, too."""
        if self.limit:
            if self.limit.mute and n == 0 and (self.scenario.streams or self.scenario.serves):
                self.port = free_port()
                argv = [re.sub(r"^(--port=|)0$", r"\g<1>%d" % self.port, w) for w in argv]
            argv = self.limit.command(self, argv, n)
            self.env.update(self.limit.environment(self.bin))
        proc = subprocess.Popen(argv, cwd=self.top, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, start_new_session=True, umask=0o022)
        self.printed.append({"stdout": bytearray(), "stderr": bytearray()})
        for pipe, into in ((proc.stdout, self.printed[-1]["stdout"]), (proc.stderr, self.printed[-1]["stderr"])):
            self.readers.append(threading.Thread(target=gather, args=(pipe, into), daemon=True))
            self.readers[-1].start()
        return proc

    def _port(self, proc, until):
        return str(self.port) if self.port else super()._port(proc, until)

    def _text(self, n, stream="stderr"):
        if self.codes:
            for reader in self.readers:
                reader.join(LINGER)
        return self.printed[n][stream].decode("utf-8", "replace")

    def close(self):
        if self.ground:
            self.ground.clear(self.base, self.top + "/t")
        super().close()


class Oracle:
    """Judges limited runs. references: the results of scenarios without a limit."""

    def __init__(self, bin_):
        self.bin, self.references = bin_, {}

    def reference(self, scenario, user, ground):
        key = scenario.name, user, ground and ground.name
        if key not in self.references:
            if scenario.name.startswith("resume"):
                scenarios.leave_partial(self.bin)
            free = Limit("all", ["env"], user=user)
            plenty = type(ground)() if ground else None
            for tries in range(3):      # on a busy machine the short timeouts may expire
                try:
                    self.references[key] = Reference(scenario, self.bin, start=lambda s, b, _: LimitedRun(s, b, free, plenty))
                    break
                except RuntimeError:
                    if tries == 2:
                        raise
        return self.references[key]

    def judge(self, name, limit=None, ground=None, codes=None):
        """(run, [(class, text)]). codes: the allowed exit codes; by default, the judge decides."""
        run, found = self._judge(name, limit, ground)
        if not found and (codes is None or codes.issuperset(run.codes)):
            return run, found
        # On a busy machine the violation may have another cause.
        run, again = self._judge(name, limit, ground)
        found = [f for f in again if f[0] in {class_ for class_, _ in found}]
        if codes is not None and not codes.issuperset(run.codes):
            found.append(("code", "exit status %s" % run.codes))
        return run, found

    def _judge(self, name, limit, ground):
        scenario = SCENARIOS[name]
        with adopting():
            reference = self.reference(scenario, limit.user if limit else None, ground)
            run = LimitedRun(scenario, self.bin, limit, ground)
        kind = limit.kind if limit else "ENOSPC"
        try:
            point = types.SimpleNamespace(site="", call="setrlimit", kind=kind, ordered=False, about_verbs=False)
            found = Judge(scenario, reference, run, point).found
        finally:
            run.close()
        return run, [f for f in found if not self.is_excused(f[0], run, limit, kind)]

    @staticmethod
    def is_excused(class_, run, limit, kind):
        text = "\n".join(run.texts)
        if NOT_BEGUN.search(text) or limit and limit.may_die:
            return class_ in ("code", "signal", "silent", "unnamed", "one-sided")
        if limit and limit.limit == "as" and KILLED.search(text) and dies_in_exec(tuple(limit.words), str(run.bin / "rdcp")):
            return class_ in ("signal", "unnamed")
        if any(c is not None and c < 0 for c in run.codes) and not text:
            return class_ in ("signal", "silent")    # killed in exec(3)
        if limit and limit.mute:
            return class_ in ("silent", "unnamed")
        return class_ == "unnamed" and (UNNAMED.search(text) or any(os.strerror(getattr(errno, k)) in text for k in ALIKE.get(kind, (kind,))))


def main(words):
    name, who, *rest = words
    limit = ground = None
    if who in ("tmpfs", "ext4"):
        free = tuple(None if w == "-" else int(w) for w in rest)
        ground = {"tmpfs": Tmpfs, "ext4": Ext4}[who](free=free)
    elif who in ("conductor", "near"):
        limit = Limit(who, limit=rest[0], value=int(rest[1]))
    else:
        limit = Limit(who, rest)
    build = pathlib.Path(os.environ.get("SLUICE_TEST_BIN", ROOT / "build" / "faults")).resolve()
    run, found = Oracle(build / "src").judge(name, limit, ground)
    print("exit %s after %.1f s\n%s" % (run.codes, run.seconds, "\n".join(run.texts)))
    for class_, text in found:
        print("%s: %s" % (class_, text))
    return bool(found)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
