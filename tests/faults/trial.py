# SPDX-License-Identifier: Apache-2.0
"""Runs a scenario, and judges which promises the run broke."""

import collections
import ctypes
import errno
import functools
import operator
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

import scenarios
from codes import CONNECT, LOST, SOME, TIMEOUT, TRANSPORT, VANISHED, fitting_codes
from sites import ROOT, SHARED, Record, number_of, scratch

sys.path[:0] = [str(ROOT / "tests" / "trees"), str(ROOT / "tests" / "rig"), str(ROOT / "tests" / "simverbs")]

from compare import walk  # noqa: E402
from make_host import make_host  # noqa: E402
from processes import descendants, words  # noqa: E402

# Seconds that a run may take on a busy machine: three timeouts of 4 s, and the other promised times.
LIMIT = int(os.environ.get("SLUICE_SWEEP_LIMIT", "40"))
LINGER = 10         # seconds that children may outlive their command (the manual promises 2 s)
LARGE = 4 << 20     # bytes of a file whose temporary is kept when its run fails
PR_SET_CHILD_SUBREAPER = 36
KNOWN_CODES = {1, 2, 3, 5, 10, 11, 12, 20, 22, 23, 24, 25, 30, 35, 40, 41, 42, 43, 44, 45}
SANITIZER = 86      # exit status of a program that leaks, or accesses invalid memory
# Exit codes that a failed local call can never cause.
WRONG_CODES = {1, 2, 20, 25, 40}
ABORTS = "base/io.c:raise_event:write#1"     # src/base/io.c documents that
# The calls that remove temporaries: if one fails, they stay.
REMOVING = {"unlink", "unlinkat"}
# An interrupted or short call is no failure; for these calls, neither is EAGAIN.
MILD = {"EINTR", "EAGAIN", "short"}
WAITING = {"read", "write", "send", "recv", "sendmsg", "recvmsg", "accept4", "preadv64v2", "getrandom",
           "rdma_get_cm_event", "ibv_get_cq_event", "ibv_get_async_event"}
# The fields that a failure may change at exit 0. Without SEEK_DATA a hole is copied as zeros. With a warning,
# fields that no option requested: a file system may support no modes, or no attributes of a replaced file.
MAY_DIFFER = {"holes": {"lseek64", "fallocate64"}, "mode": {"fchmod", "fchmodat"},
              "xattrs": {"flistxattr", "fgetxattr", "fsetxattr", "malloc"}}
WARNINGS = {"mode": "mode could not be set", "xattrs": "extended attributes could not be kept"}
# The words of lane/verbs/verbs_event.c for these errnos.
CONNECT_WORDS = {"ECONNREFUSED": "no RDMA listener", "ECONNRESET": "refused by the peer", "ENODEV": "no RDMA device", "ETIMEDOUT": "no answer",
                 "EINTR": "no answer", "ENETUNREACH": "no route to that address", "EHOSTUNREACH": "no route to that address"}
# One of the process that failed, and one of a process that lost it.
SENTENCES = 2
# What is no failure, or lists something.
NOTICE = re.compile(r"listening on|data goes over|was reconnected over|the sender is|skipped |% | files?$|measuring again after|lanes move|rejected an |"
                    r" [KMG]iB  |could not be kept|nothing is deleted|are gone|is kept as|settings|^rdcpd: conf\b|"
                    r"^rdcpd: [\d.:]+(, user \w+)?, (module|list of modules)")
# Printed for each host, each connection or each attempt.
REPEATED = re.compile(r"data goes over|was reconnected over|measuring again after|rejected a client")
# Not about a file.
NO_FILE = {"malloc", "calloc", "realloc", "reallocarray", "aligned_alloc", "posix_memalign", "strdup", "strndup", "asprintf", "__asprintf_chk",
           "open_memstream", "mmap64", "pthread_create", "poll", "eventfd", "memfd_create", "XXH3_createState", "sysconf",
           "getpwnam_r", "getpwuid_r", "getgrnam_r", "getgrgid_r"}
METADATA = ("mode", "owner", "acls", "xattrs")
FIELDS = ("kind", "content", "mode", "mtime", "owner", "target", "rdev", "acls", "xattrs", "set", "holes")


def adopt_orphans(adopt=True):
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)


def whereabouts():
    """All threads of the run, with the kernel function in which each waits."""
    lines = []
    for pid in descendants(os.getpid()):
        try:
            argv = words(pid)
            for task in os.listdir("/proc/%d/task" % pid):
                with open("/proc/%d/task/%s/comm" % (pid, task)) as f, open("/proc/%d/task/%s/wchan" % (pid, task)) as g:
                    lines.append("%s %s %s: %s" % (os.path.basename(argv[0]).decode(), argv[1][:6].decode(),
                                                   f.read().strip(), g.read()))
        except (OSError, IndexError):
            pass
    return "; ".join(lines)


def view(thing):
    """The fields in which two runs can be compared."""
    st = thing.stat
    return {"kind": thing.kind, "content": thing.digest and (st.st_size, thing.digest), "mode": stat.S_IMODE(st.st_mode),
            "mtime": st.st_mtime_ns, "owner": (st.st_uid, st.st_gid), "target": thing.target,
            "rdev": st.st_rdev if thing.kind in ("char", "block") else 0, "acls": thing.acls, "xattrs": thing.xattrs,
            "set": thing.set, "holes": thing.holes}


def snapshot(top):
    return {os.fsdecode(p): view(t) for p, t in walk(os.fsencode(top)).items()}


class Run:
    """Runs the commands of a scenario. codes and texts: the exit code and the stderr of each. fault: Point.environment().
    disk: a directory on a file system on which files can share blocks; None: there is none.
    shared: directories outside of its own in which only this run makes anything. left: what it left there, and in TMPDIR."""

    disk, shared, is_daemon_gone, ignores_interrupts = None, (), False, False

    def __init__(self, scenario, bin_, library=None, fault=None):
        self.scenario, self.bin = scenario, bin_
        self.base = tempfile.mkdtemp(prefix="sluice-sweep-", dir=self.disk if scenario.shares else scratch())
        self.top = self.base + "/w"
        self.codes, self.texts, self.late = [], [], []
        os.mkdir(self.top)
        # A scenario may run as another user.
        os.mkdir(self.base + "/tmp")
        os.chmod(self.base + "/tmp", 0o1777)
        self._make()
        self.before = snapshot(self.top)
        env = {k: v for k, v in os.environ.items() if not k.startswith(("RD_", "SLUICE_", "SWEEP_", "SIMVERBS"))}
        env.update(HOME=self.top, TMPDIR=self.base + "/tmp", LC_ALL="C.UTF-8", LLVM_PROFILE_FILE="/dev/null",
                   # The default exit status of AddressSanitizer is one of our codes.
                   ASAN_OPTIONS="verify_asan_link_order=0:allocator_may_return_null=1:exitcode=%d" % SANITIZER)
        if library:
            env.update(LD_PRELOAD=str(library), SWEEP_FILE=self.base + "/shared")
            if not fault:
                env["SWEEP_STACKS"] = "1"
        if scenario.streams:
            env["RD_KEY"] = scenario.key
        if scenario.faults:
            env["SLUICE_FAULT"] = scenario.faults
        if scenario.adapter:
            make_host(scenario.adapter, self.base + "/host")
            env.update(SIMVERBS=self.base + "/host", SIMVERBS_LEAKS="1", SIMVERBS_TOUCH="1", SIMVERBS_MARK=self.base + "/mark",
                       LD_LIBRARY_PATH=str(bin_.parent / "tests" / "simverbs"))
        env.update(fault or {})
        with open(self.base + "/shared", "wb") as f:
            f.truncate(SHARED)
        os.chmod(self.base + "/shared", 0o666)
        self.env = env
        there = self._names_elsewhere()
        began = time.monotonic()
        try:
            self._go(scenario.commands(bin_), began + LIMIT)
        finally:
            self._end_all()
        self.seconds = time.monotonic() - began
        self.after = snapshot(self.top)
        self.left = sorted(self._names_elsewhere() - there)

    def _names_elsewhere(self):
        return {os.path.join(at, name) for at in (self.base + "/tmp", *self.shared) for name in os.listdir(at)}

    def _make(self):
        self.scenario.make(self.top)

    def close(self):
        shutil.rmtree(self.base, ignore_errors=True)

    def record(self, book):
        """(whether the planned failure happened, Record)"""
        record = Record(self.base + "/shared", book)
        return bool(record.injected) or os.path.exists(self.base + "/mark"), record

    def _start(self, argv, n):
        with open("%s/stderr-%d" % (self.base, n), "wb") as err, open("%s/stdout-%d" % (self.base, n), "wb") as out:
            return subprocess.Popen(argv, cwd=self.top, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                    start_new_session=True, umask=0o022)

    def _text(self, n, stream="stderr"):
        """The stderr or stdout of the n-th command."""
        with open("%s/%s-%d" % (self.base, stream, n), "rb") as f:
            return f.read().decode("utf-8", "replace")

    def _go(self, commands, until):
        started = [self._start(commands[0], 0)]
        if len(commands) > 1:
            port = self._port(started[0], until)
            if port:
                started.append(self._start([w.replace("PORT", port) for w in commands[1]], 1))
            if self.scenario.serves and port:
                self._end_daemon(started, until)
        for n, proc in enumerate(started):
            try:
                self.codes.append(proc.wait(max(.1, until - time.monotonic())))
            except subprocess.TimeoutExpired:
                self.late.append("%s: %s" % (os.path.basename(commands[n][0]), whereabouts()))
                self.codes.append(None)
        self.texts = [self._text(n) for n in range(len(started))]
        if self.scenario.prints:
            self.texts[0] += self._text(0, "stdout")
        if not self.late:
            self._linger()

    def _end_daemon(self, started, until):
        """Ends a daemon when its client has ended. It must still be there."""
        daemon, client = started
        try:
            client.wait(max(.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            # The end of the daemon may end it, too.
            self.late.append("the client: " + whereabouts())
        self.is_daemon_gone = daemon.poll() is not None
        # SIGTERM waits for what is left of the session.
        daemon.send_signal(signal.SIGTERM if self.ignores_interrupts else signal.SIGINT)

    def _port(self, proc, until):
        while time.monotonic() < until and proc.poll() is None:
            m = re.search(r"listening on \S+:(\d+)", self._text(0))
            if m:
                return m[1]
            time.sleep(.005)
        return None

    def _linger(self):
        until = time.monotonic() + LINGER
        while time.monotonic() < until:
            try:
                if os.waitpid(-1, os.WNOHANG) == (0, 0):
                    time.sleep(.002)
            except ChildProcessError:
                return
        self.late.append("processes that it started still run: " + whereabouts())

    def _end_all(self):
        """Kills all descendants of this process: only this run has started any."""
        while not self._is_childless():
            for pid in descendants(os.getpid()):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(.002)

    @staticmethod
    def _is_childless():
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            return True
        return False


class Reference:
    """The result of a scenario without a fault. Fields in which two runs differ are not compared."""

    def __init__(self, scenario, bin_, library=None, book=None, start=Run):
        runs = [start(scenario, bin_, library) for _ in range(2)]
        for r in runs:
            if any(c not in scenario.codes for c in r.codes) or r.late:
                raise RuntimeError("%s fails without a fault: %s %s %s" % (scenario.name, r.codes, r.late, r.texts))
        self.want = runs[1].after
        if runs[0].after.keys() != runs[1].after.keys():
            raise RuntimeError("%s: two runs differ" % scenario.name)
        self.loose = {(p, f) for p in self.want for f in FIELDS if runs[0].after[p][f] != runs[1].after[p][f]}
        self.sites = {}     # {(role, name): number of calls}
        self.firsts = {}    # {(role, name): the numbers of the first allocations on each stack}
        for r in runs:
            if book:
                record = r.record(book)[1]
                for key, count in record.counts.items():
                    self.sites[key] = min(count, self.sites.get(key, count))
                self.firsts = record.firsts
            r.close()
        if scenario.adapter and book and not any(":ibv_post_send" in site for _, site in self.sites):
            raise RuntimeError("%s: no data went over RDMA" % scenario.name)
        self.seconds = runs[1].seconds


def is_mixed(now, allowed):
    """Whether a field is one of those allowed; of several attributes, whether each is."""
    if not isinstance(now, dict):
        return now in allowed
    return all(now.get(name) in [x.get(name) for x in allowed] for name in now.keys() | set().union(*allowed))


def temporary(path):
    return os.path.basename(path).startswith(".sluice.")


class Judge:
    """Judges a run. found: [(class, text)], the promises that it broke."""

    def __init__(self, scenario, reference, run, point):
        self.s, self.ref, self.run, self.point = scenario, reference, run, point
        self.found = []
        self.code = next((c for c in run.codes if c), 0 if len(run.codes) == len(scenario.commands(ROOT)) else None)
        for late in run.late:
            self.add("hang", late)
        if not self.check_memory() and not run.late:
            self.check_codes()
            self.check_messages()
        self.check_contents()
        if not run.late and (self.code == 0 or self.unconfirmed()):
            self.check_result()
        else:
            self.check_bounds()
        self.check_sources()
        for path in run.left:
            self.add("leftover", path)

    def add(self, kind, text):
        self.found.append((kind, text))

    # ---- exit codes and messages

    def check_memory(self):
        found = re.search(r"(ERROR|SUMMARY): (\w+Sanitizer: [^\n]*)", "\n".join(self.run.texts))
        if found:
            self.add("leak" if "leak" in found[2] else "memory", found[2])
        misused = re.search(r"^simverbs: [^\n]*", "\n".join(self.run.texts), re.M)
        if misused:
            self.add("misuse", misused[0])
        return bool(found or misused)

    def aborted(self):
        return self.point.site == ABORTS

    def unconfirmed(self):
        """Whether the receiver stored everything, but its last message, which confirms that, was lost."""
        return len(self.run.codes) == 2 and not self.s.serves and self.run.codes[0] == 0 and bool(self.run.codes[1]) and \
            self.point.site.startswith("session/channel/")

    def continues(self):
        """Whether the copy must succeed without the adapter."""
        return self.s.adapter and self.s.transport == "auto" and self.point.about_verbs

    def check_codes(self):
        if self.continues() and self.code not in (None, 0, *self.s.codes):
            self.add("stopped", "exit status %s" % self.code)
        for code in self.run.codes:
            if code is not None and (code < 0 or code not in KNOWN_CODES | {0}):
                if not self.aborted():
                    self.add("signal" if code < 0 else "code", "exit status %s" % code)
            elif code in WRONG_CODES and code not in self.s.codes:
                self.add("code", "exit status %s" % code)
        self.check_fitting()
        crashed = re.search(r"was killed by signal \d+ \([^)]*\)", "\n".join(self.run.texts))
        if crashed and not self.aborted():
            self.add("signal", crashed[0])
        if self.run.is_daemon_gone or self.s.serves and len(self.run.codes) == 2 and self.run.codes[0]:
            self.add("daemon", "the daemon ended with exit status %s" % self.run.codes[0])
        if len(self.run.codes) == 2 and not self.s.serves and bool(self.run.codes[0]) != bool(self.run.codes[1]) and \
                not self.aborted() and not self.unconfirmed():
            self.add("one-sided", "exit statuses %s" % self.run.codes)
        if self.code not in (None, 0, *self.s.codes) and self.point.kind in MILD and self.point.call not in ("close", "fsync", "fdatasync"):
            if self.point.kind != "EAGAIN" or self.point.call in WAITING:
                self.add("interrupted", "%s ends it: exit status %s" % (self.point.kind, self.code))

    def check_fitting(self):
        """Checks that the exit codes fit the call that failed."""
        if not self.point.site or self.aborted():
            return
        fitting = fitting_codes(self.point, self.s) | {0, *self.s.codes}
        for n, code in enumerate(self.run.codes):
            also = {TIMEOUT, CONNECT, TRANSPORT, LOST} if self.s.streams and not self.point.role.startswith(("rdrecv", "rdsend")[n]) else set()
            if code is not None and 0 < code < SANITIZER and code not in fitting | also | WRONG_CODES:
                self.add("code", "exit status %s, expected one of %s" % (code, sorted(fitting | also)))

    def check_messages(self):
        """Checks that a failure is reported with its reason."""
        if self.code in (0, *self.s.codes) or self.aborted():
            return
        text = "\n".join(self.run.texts)
        lines = [line for line in text.splitlines() if not line.startswith(("rdrecv: listening on", "rdcpd: listening on", "Bandwidth"))]
        if not lines:
            if not (self.point.call in ("fputs", "fputc", "putc", "fwrite", "__fprintf_chk", "fprintf", "fflush", "write")):
                self.add("silent", "exit status %s without a message" % self.code)
            return
        self.check_repeats(lines)
        if self.point.site:
            self.check_sentences()
            self.check_path(lines)
        if self.point.ordered:
            return
        number = number_of(self.point.kind)
        if number <= 0 or self.point.kind.isdigit() or self.point.kind.startswith("-"):
            return
        wanted = [os.strerror(number)] + (["memory", "Memory", "allocate"] if number == errno.ENOMEM else [])
        if self.point.about_verbs and self.point.kind in CONNECT_WORDS:
            wanted.append(CONNECT_WORDS[self.point.kind])
        # Findings are filled into lines.
        words = " ".join(text.split())
        if not any(w in words for w in wanted):
            self.add("unnamed", "no %r in: %s" % (wanted[0], " | ".join(lines[:3])))

    def check_repeats(self, lines):
        """Checks that each process reports a failure once. (Messages about different files differ.)"""
        for line, times in collections.Counter(line for line in lines if re.match(r"rd\w+: ", line)).items():
            if self.s.sessions and line.startswith("rdcp: "):
                continue
            if times > self.s.reporters and not REPEATED.search(line):
                self.add("repeated", "%d times: %s" % (times, line))

    def check_sentences(self):
        """Checks that a failure is one sentence, and that no name in it is missing."""
        for text in self.run.texts:
            said = collections.defaultdict(set)
            for line in text.splitlines():
                program = re.match(r"rd\w+: ", line)
                if program and re.search(r"\(null\)|\w : |: $", line):
                    self.add("nameless", line)
                if program and not NOTICE.search(line):
                    said[program[0]].add(re.sub(r"\d+", "#", line))
            for program, lines in said.items():
                if len(lines) >= SENTENCES + self.s.reporters and self.code not in (SOME, VANISHED) and self.s.codes == (0,):
                    self.add("wordy", "%d sentences: %s" % (len(lines), " | ".join(sorted(lines))[:300]))

    def check_path(self, lines):
        """Checks that a failure with a file names it, or what it is in."""
        if not self.point.site.startswith("copy/") or self.point.library or self.point.call in NO_FILE or self.s.prints:
            return
        names = {os.path.basename(p) for p in (*self.run.before, *self.ref.want)} - {"", "."}
        short, longer = ("|".join(map(re.escape, ns)) or "$^" for ns in ({n for n in names if len(n) < 3}, {n for n in names if len(n) > 2}))
        words = r"[\s/'](%s)([:/]|$| )|[\s/'](%s)\b|/\w|stdin|stdout|command |\.sluice|DST| \.:" % (short, longer)
        if not any(re.search(words, re.sub(r"^rd\w+: ", " ", line)) for line in lines):
            self.add("pathless", " | ".join(lines[:3]))

    # ---- files

    def check_contents(self):
        known = {v["content"] for side in (self.run.before, self.ref.want) for v in side.values()}
        for path, v in self.run.after.items():
            if v["kind"] != "file" or path in (*self.s.loose, *self.s.varies) or temporary(path):
                continue
            if v["content"] not in known:
                self.add("torn", "%s is neither old nor new" % path)

    def check_result(self):
        want, got = self.ref.want, self.run.after
        for path in sorted(want.keys() | got.keys()):
            if path not in got:
                self.add("missing", "%s, at exit 0" % path)
            elif path not in want and self.s.backs_up and path.endswith("~") and path[:-1] in want:
                continue    # a file was sent because it could not be compared
            elif path not in want:
                self.add("leftover" if temporary(path) else "extra", "%s, at exit 0" % path)
            else:
                for f in FIELDS:
                    if not self.varies(path, f) and want[path][f] != got[path][f]:
                        if self.point.call in MAY_DIFFER.get(f, ()) and self.warns(f):
                            continue
                        self.add(f, "%s: %s is %s, expected %s, at exit 0" % (
                            path, f, str(got[path][f])[:80], str(want[path][f])[:80]))

    def varies(self, path, field):
        """Whether the field is another one in each run."""
        return (path, field) in self.ref.loose or path in self.s.varies and field in ("content", "mtime")

    def warns(self, field):
        return field not in WARNINGS or any(WARNINGS[field] in text for text in self.run.texts)

    def check_bounds(self):
        before, want, got = self.run.before, self.ref.want, self.run.after
        killed = any(c is None or c < 0 for c in self.run.codes) or bool(self.run.late) or self.aborted()
        for path in sorted(before.keys() | want.keys() | got.keys()):
            old, new, now = before.get(path), want.get(path), got.get(path)
            if path in (*self.s.loose, *self.s.varies):
                if old and now:
                    self.check_in_place(path, old, new, now)
            elif now is None:
                if old and new:
                    self.add("gone", path)
            elif temporary(path):
                if old or killed or self.point.call in REMOVING or ".marker." in path or self.may_resume(path):
                    continue
                self.add("leftover", "%s of %s bytes" % (path, now["content"] and now["content"][0]))
            elif not old and not new:
                self.add("extra", path)
            elif now["kind"] not in {x["kind"] for x in (old, new) if x}:
                self.add("kind", "%s is a %s" % (path, now["kind"]))
            else:
                self.check_old_or_new(path, old, new, now)
        if self.s.deletes and self.incomplete():
            gone = [p for p in before if p.startswith("t/") and p not in want and p not in got and not temporary(p) and
                    not self.replaced(p)]
            if gone and not self.point.call.startswith("SSL"):
                self.add("deleted-early", "%s: deleted, although not everything is stored" % gone[0])

    def check_in_place(self, path, old, new, now):
        """Checks what does not change when a file is written in place."""
        for field in ("kind", *METADATA):
            if now[field] not in (old[field], (new or old)[field]):
                self.add(field, "%s: %s is %s, was %s" % (path, field, now[field], old[field]))

    def check_old_or_new(self, path, old, new, now):
        """Checks that an entry is as it was, or done. Where both have the same content, each field may be old or new: a
        failure can come between two of them."""
        sides = [x for x in (old, new) if x and x["kind"] == now["kind"]]
        same = [x for x in sides if (x["content"], x["target"]) == (now["content"], now["target"])]
        if not same:
            if now["kind"] == "symlink" or not self.s.backs_up:
                self.add("content", "%s has the content of another file" % path)
            return
        # A new directory gets its metadata at the end.
        for field in METADATA if now["kind"] == "directory" and old else () if now["kind"] == "directory" else (*METADATA, "mtime", "rdev"):
            allowed = [x[field] for x in same]
            if field == "mode" and now["kind"] == "directory" and self.aborted():
                # A process that is killed cannot take back what it needs to write in a directory.
                allowed += [mode | 0o700 for mode in allowed]
            if is_mixed(now[field], allowed) or new in same and (self.varies(path, field) or self.may_lack(path, field, allowed)):
                continue
            self.add(field, "%s: %s is %s, expected %s" % (path, field, str(now[field])[:80], str(allowed)[:160]))

    def may_lack(self, path, field, allowed):
        """Whether the field of an entry that is done, otherwise, could not be kept or set, and the program said so. The mode then
        gives nobody more rights, and what was not to change has not."""
        if field == "mode" and self.run.after[path][field] & ~functools.reduce(operator.or_, allowed):
            return False
        # Of what no option asks for, the first file is named only.
        warns = field in WARNINGS and self.warns(field)
        return (len(allowed) == 1 or allowed[0] != allowed[1]) and (warns or any(map(self.is_named, self.links(path))))

    def links(self, path):
        """The names of the same file."""
        first = self.run.after[path]["set"]
        return [p for p, v in self.run.after.items() if p == path or first and v["set"] == first]

    def is_named(self, path):
        """Whether a message about anything but its content names the path, or its last parts; or may, because more with the
        reason of such a message are only counted."""
        parts = path.split("/")
        names = "|".join(re.escape("/".join(parts[n:])) for n in range(len(parts)))
        lines = [line for text in self.run.texts for line in text.splitlines() if not re.search(r" (write|create) ", line)]
        counted = [m[1] for line in lines if (m := re.search(r": \d+ more failures or warnings(: .*)", line))]
        return any(re.search(r"[\s/](%s)([\s:/]|$)" % names, line) for line in lines) or any(
            line.endswith(tuple(counted)) for line in lines if "more failures or warnings" not in line)

    def may_resume(self, path):
        """Whether a large file is missing in the directory of a temporary, which the next run can take over."""
        got = self.run.after
        return any(v["kind"] == "file" and v["content"][0] >= LARGE and os.path.dirname(p) == os.path.dirname(path) and
                   (p not in got or got[p]["content"] != v["content"]) for p, v in self.ref.want.items())

    def replaced(self, path):
        """Whether path was in a directory that was in the way of another entry, which exists now."""
        got = self.run.after
        above = [path[:n] for n, c in enumerate(path) if c == "/"]
        return any(p in self.ref.want and self.ref.want[p]["kind"] != "directory" and p in got and got[p]["kind"] != "directory"
                   for p in above)

    def incomplete(self):
        """The files that are not stored yet. Backups don't count, because deletions make them too."""
        want, got = self.ref.want, self.run.after
        return [p for p, v in want.items() if p.startswith("t/") and v["kind"] == "file" and
                not temporary(p) and not (self.s.backs_up and (p.endswith("~") or p.startswith("t/aside/"))) and
                (p not in got or got[p]["content"] != v["content"])]

    def check_sources(self):
        """Checks that the content of each source file is still in a source, or complete at the target."""
        now = {v["content"] for v in self.run.after.values() if v["kind"] == "file"}
        for path, v in self.run.before.items():
            if v["kind"] != "file" or not path.startswith("s/"):
                continue
            if v["content"] not in now:
                self.add("lost", "the content of %s is in no file" % path)
            elif path not in self.run.after and not self.s.removes:
                self.add("source-gone", path)
            elif path not in self.run.after:
                to = "t/" + path[2:]
                if self.run.after.get(to, {}).get("content") != v["content"]:
                    self.add("lost", "%s is removed, but %s does not have its content" % (path, to))
