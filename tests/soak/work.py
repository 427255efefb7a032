# SPDX-License-Identifier: Apache-2.0
"""One job of the soak: a command with random options, faults and signals, and checks of its result."""

import os
import random
import shutil
import signal
import subprocess
import time

from watch import end_all, left_of, marked, read

KEY = "sluice-key-1:" + "5a" * 32
SLOWEST = 90  # seconds: a peer is declared dead after 15, and the machine is busy
CODES = {0, 5, 10, 11, 12, 20, 23, 24, 30, 35, 41, 44}  # the exit codes that faults and signals can cause
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP)
SIZES = (0, 1, 4096, 70001, 262144, 1 << 20, 3000017, 6 << 20)
OPTIONS = ([], ["--inplace"], ["--fsync"], ["--verify"], ["--backup"], ["--delete"], ["--checksum"], ["--sparse"],
           ["--direct=on"], ["--remove-source-files"], ["--block-size=4k"], ["--lanes=5"], ["--bwlimit=8M"],
           ["--transport=ssh"], ["--json"], ["--failed=failed"], ["--print-digest"], ["-x", "-H", "-S0"])


class Place:
    """The directory of the soak, and the commands and the environment of its programs."""

    def __init__(self, top, build, root, mark):
        self.top, self.build, self.root, self.mark = top, os.path.abspath(build), root, mark
        for name in ("tmp", "home", "work"):
            os.mkdir(os.path.join(top, name))

    def program(self, name):
        return os.path.join(self.build, "src", name)

    def rdcp(self):
        return [self.program("rdcp"), "--rsh", self.root + "/tests/faults/rsh", "--rdcp-path", self.program("rdcp")]

    def environment(self, mark, fault=None):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("RD_", "SLUICE_"))}
        env.update(SOAK_MARK=mark, RD_KEY=KEY, TMPDIR=os.path.join(self.top, "tmp"), HOME=os.path.join(self.top, "home"))
        if fault:
            env["SLUICE_FAULT"] = fault
        return env


def random_fault(rng):
    lane, block = rng.randint(0, 2), rng.choice([0, 1, 2, 5, 9])
    kind = rng.choice(["break", "break", "damage", "stall", "take"])
    how = {"break": ",block=%d,every=%d" % (block, rng.randint(5, 40)), "damage": ",block=%d,times=%d" % (block, rng.choice([1, 1, 2])),
           "stall": ",block=%d,ms=%d" % (block, rng.randint(1, 800)), "take": ",times=%d" % rng.randint(1, 2)}[kind]
    return "%s:lane=%d%s" % (kind, lane, how)


def contents(top):
    found = {}
    for where, dirs, files in os.walk(top):
        for name in dirs + files:
            path = os.path.join(where, name)
            short = os.path.relpath(path, top)
            if os.path.islink(path):
                found[short] = os.readlink(path)
            elif os.path.isdir(path):
                found[short] = None
            else:
                found[short] = read(path)
    return found


def is_own(path):
    return os.path.basename(path).startswith(".sluice.")


class Job:
    def __init__(self, place, rng, name, plant=None):
        self.place, self.rng, self.name, self.plant = place, random.Random(rng.random()), name, plant
        self.mark = place.mark + "." + name
        self.top = os.path.join(place.top, "work", name)
        os.mkdir(self.top)
        self.counted = ["jobs"]
        self.kind = self.rng.choice(["push", "push", "pull", "local", "stream", "stream", "bench"])
        self.options = self.rng.choice(OPTIONS)
        self.fault = random_fault(self.rng) if self.rng.random() < 0.6 else None
        self.kill = self.rng.choice(SIGNALS) if self.rng.random() < 0.6 else None
        if self.options[:1] == ["-x"]:
            self.options = self.options[:2]

    def __str__(self):
        return "%s: %s %s, fault %s, signal %s" % (self.name, self.kind, " ".join(self.options), self.fault, self.kill and self.kill.name)

    def at(self, *names):
        return os.path.join(self.top, *names)

    # ---- commands ----------------------------------------------------------------------

    def make(self, top):
        os.makedirs(top + "/d/e")
        for n in range(self.rng.randint(1, 25)):
            where = self.rng.choice(["", "d", "d/e"])
            size = self.rng.choice(SIZES if n < 3 else SIZES[:5])
            with open(os.path.join(top, where, "f%d" % n), "wb") as file:
                file.write(self.rng.randbytes(size))
        os.symlink("d", top + "/link")
        for where, _, names in os.walk(top):
            for name in names:
                os.utime(os.path.join(where, name), ns=(10 ** 18, 10 ** 18 + self.rng.randint(0, 10 ** 9)), follow_symlinks=False)

    def commands(self):
        if self.kind == "bench":
            return [[self.place.program("rdbench"), "--rsh", self.place.root + "/tests/faults/rsh", "--rdcp-path",
                     self.place.program("rdcp"), "--seconds=0.1", "--lanes=2", "--depth=4", "--block-size=64k", "--transport=tcp",
                     "--target=" + self.top, "far"]]
        if self.kind == "stream":
            options = [o for o in self.options if o in ("--fsync", "--inplace")]
            return [[self.place.program("rdrecv"), "-v", "--transport=tcp", *options, "-w", "12", "0", "-", self.at("to", "big")],
                    [self.place.program("rdsend"), "--transport=tcp", *[o for o in self.options if "lanes" in o or "block" in o],
                     "127.0.0.1", "PORT", "-", self.at("from", "big")]]
        source, target = self.at("from") + "/", self.at("to")
        if self.kind == "pull":
            source = "far:" + source
        if self.kind == "push":
            target = "far:" + target
        transport = [] if "--transport=ssh" in self.options else ["--transport=tcp"]
        options = [o for o in self.options if o != "--transport=ssh" or self.kind != "local"]
        return [[*self.place.rdcp(), *transport, "-a", *options, source, target]]

    def prepare(self):
        self.make(self.at("from"))
        os.mkdir(self.at("to"))
        if self.kind == "stream":
            with open(self.at("from", "big"), "wb") as file:
                file.write(self.rng.randbytes(self.rng.choice(SIZES)))
        elif self.rng.random() < 0.5:
            # Files to replace, to delete, and to leave.
            shutil.copytree(self.at("from", "d"), self.at("to", "d"))
            for name in os.listdir(self.at("to", "d")):
                path = self.at("to", "d", name)
                if os.path.isfile(path) and self.rng.random() < 0.7:
                    with open(path, "r+b") as file:
                        file.write(b"old")
        self.want = contents(self.at("from"))
        self.old = contents(self.at("to"))

    def launch(self, disturbed):
        env = self.place.environment(self.mark, self.fault if disturbed else None)
        programs, port = [], None
        for n, words in enumerate(self.commands()):
            log = self.at("log%d" % n)
            if port:
                words = [port if w == "PORT" else w for w in words]
            with open(log, "wb") as err, open(self.at("out%d" % n), "wb") as out:
                programs.append(subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=self.top,
                                                 start_new_session=True))
            if self.kind == "stream" and n == 0:
                end = time.monotonic() + 30
                while b"listening on" not in read(log) and programs[0].poll() is None and time.monotonic() < end:
                    time.sleep(0.02)
                said = read(log).decode(errors="replace").partition("listening on ")[2].split()
                port = said[0].rpartition(":")[2] if said else "1"
        return programs

    # ---- disturbances, and checks ---------------------------------------------------------

    def disturb(self):
        time.sleep(self.rng.choice([0, 0.02, 0.1, 0.3, 0.8]) * self.rng.random())
        pids = sorted(marked(self.mark))
        if not pids:
            return
        pid = self.rng.choice(pids)
        try:
            os.kill(pid, self.kill)
            self.counted.append("signals " + self.kill.name)
            if self.kill == signal.SIGSTOP:
                time.sleep(self.rng.random() * 2)
                os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass

    def messages(self):
        return " | ".join(read(self.at("log%d" % n)).decode(errors="replace")[-400:].replace("\n", " / ") for n in (0, 1))

    def once(self, disturbed):
        """(exit codes, violations)"""
        wrong, codes = [], []
        programs = self.launch(disturbed)
        if disturbed and self.kill:
            self.disturb()
        end = time.monotonic() + SLOWEST
        for p in programs:
            try:
                codes.append(p.wait(max(end - time.monotonic(), 0.1)))
            except subprocess.TimeoutExpired:
                wrong.append("%s does not end in %d s: %s" % (p.args[0], SLOWEST, self.messages()))
                end_all(self.mark)
                codes.append(p.wait())
        if self.plant == "process":
            subprocess.Popen(["sleep", "100"], env=self.place.environment(self.mark), start_new_session=True)
        for pid, words in left_of(self.mark, 20):
            wrong.append("process %d is left: %s" % (pid, words))
        end_all(self.mark)
        return codes, wrong

    def run(self):
        self.prepare()
        if self.plant == "file":
            with open(os.path.join(self.place.top, "tmp", "left"), "wb"):
                pass
        codes, wrong = self.once(True)
        self.counted += ["%s exit %d" % (self.kind, c) for c in codes]
        allowed = CODES | ({-int(self.kill)} if self.kill else set())
        wrong += ["exit %d: %s" % (c, self.messages()) for c in codes if c not in allowed]
        if self.kill is None and self.fault is None:
            wrong += ["exit %d without a fault or a signal: %s" % (c, self.messages()) for c in codes if c]
        if self.plant == "content" and self.kind not in ("bench",):
            for name in os.listdir(self.at("to")):
                if os.path.isfile(self.at("to", name)):
                    with open(self.at("to", name), "ab") as file:
                        file.write(b"!")
        if self.kind == "bench":
            return wrong + self.check_bench()
        wrong += self.check_files(any(codes))
        if any(codes):
            # The same command, run again, must complete the copy.
            codes, more = self.once(False)
            self.counted.append("runs again")
            wrong += more
            wrong += ["exit %d in the second run: %s" % (c, self.messages()) for c in codes if c]
            wrong += self.check_files(False) if not any(codes) else []
        return wrong

    def check_bench(self):
        return ["rdbench left %s" % n for n in os.listdir(self.top) if n not in ("from", "to") and n[:3] not in ("log", "out")]

    def check_files(self, failed):
        """Yields a violation for each wrong file. After a failure a file may be old or new, else it must be new."""
        there = contents(self.at("to"))
        want = {"big": self.want["big"]} if self.kind == "stream" else self.want
        for path, content in there.items():
            if is_own(path):
                if not failed:
                    yield "%s is left" % path
            elif path in want:
                torn = failed and "--inplace" in self.options
                if content not in (want[path], self.old.get(path, want[path])) and not torn or (not failed and content != want[path]):
                    yield "%s is neither the old file nor the new one" % path
            elif path.endswith("~") and "--backup" in self.options:
                if content != self.old.get(path[:-1]):
                    yield "%s is no backup" % path
            elif path not in self.old:
                yield "%s is no file of the source" % path
        left = contents(self.at("from"))
        for path, content in want.items():
            if not failed and path not in there:
                yield "%s is missing" % path
            if path not in left and there.get(path) != content:
                yield "%s is removed, and not at the target" % path
