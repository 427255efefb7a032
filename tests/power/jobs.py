# SPDX-License-Identifier: Apache-2.0
"""The copies that run while the power fails. A slot is a kind of copy with a directory on the disk. It has
generations with different contents, so that a mixture of two is detected. After a cut the interrupted generation is
run again, which must complete it."""

import os
import random
import shutil

from ledger import ABSENT, ANY, content_of, thing_of
from scan import KIND, scan

SIZES = [0, 1, 100, 4095, 4096, 5000, 65536, 70001, 262144, 300001]
LARGE = 5 << 20
HUGE = 20 << 20
CYCLE = 5  # generations until the first directory is used again, where each has its own
EMPTY = ("file", 0, 0)
KEY = "sluice-key-1:" + "5a" * 32


def write(path, rng, size, mtime):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(rng.randbytes(size))
    os.chmod(path, rng.choice([0o600, 0o640, 0o644, 0o755]))
    os.utime(path, ns=(mtime, mtime))


class Sources:
    """Trees and files on the host, by kind and generation."""

    def __init__(self, top, seed):
        self.top, self.seed, self.made = top, seed, {}

    def get(self, kind, generation):
        """(path, content) of a generation; makes it if necessary."""
        name = "%s-%d" % (kind, generation)
        if name not in self.made:
            path = os.path.join(self.top, name)
            rng = random.Random("%d %s" % (self.seed, name))
            getattr(self, "make_" + kind)(path, rng, 1_700_000_000_123456789 + generation * 1_000_000_007, generation)
            self.made[name] = (path, scan(path))
        return self.made[name]

    def forget(self, kind, before):
        for generation in range(before):
            made = self.made.pop("%s-%d" % (kind, generation), None)
            if made:
                shutil.rmtree(made[0])

    @staticmethod
    def make_tree(path, rng, mtime, generation):
        for n, size in enumerate(SIZES):
            write("%s/%s/f%d" % (path, ["", "a", "a/b", "c"][n % 4], n), rng, size + generation % 3, mtime)
        # Names that only every other generation has.
        for n in range(4):
            write("%s/d%d/only%d" % (path, generation % 2, n), rng, 3000 * n + 17, mtime)
        write(path + "/large", rng, rng.randint(LARGE // 8, LARGE // 4), mtime)
        os.symlink("f0-%d" % generation, path + "/symlink")
        os.link(path + "/a/f1", path + "/linked")
        for where, _, _ in os.walk(path, topdown=False):
            os.utime(where, ns=(mtime + 1, mtime + 1))

    @staticmethod
    def make_level(path, rng, mtime, generation):
        """The same names and sizes each time."""
        for n, size in enumerate(SIZES + [LARGE // 4]):
            write("%s/%s/f%d" % (path, ["", "a", "a/b", "c"][n % 4], n), rng, size, mtime)

    @staticmethod
    def make_huge(path, rng, mtime, generation):
        write(path + "/huge", rng, rng.randint(HUGE // 4, HUGE), mtime)

    @staticmethod
    def make_small(path, rng, mtime, generation):
        write(path + "/small", rng, rng.randint(1, 100000), mtime)


class Slot:
    """One kind of copy on one disk."""

    tree = "tree"
    options = []
    times = True
    cycle = False

    def __init__(self, name, disk, ledger, sources, programs):
        self.name, self.disk, self.ledger, self.sources = name, disk, ledger, sources
        self.programs = programs
        self.generation = -1
        self.interrupted = False
        self.prepared = False
        self.effects = {}

    # ---- the orders for the guest --------------------------------------------------------

    def job(self):
        if not self.interrupted:
            self.generation += 1
            self.prepared = False
        self.path, self.holds = self.sources.get(self.tree, self.generation)
        self.top = "%s-%d" % (self.name, self.generation % CYCLE) if self.cycle else self.name
        self.effects = {os.path.join(self.top, p): thing_of(e) for p, e in self.holds.items()}
        return {"id": "%s/%s" % (self.disk["fs"], self.name), "prepare": self.prepare(), "run": self.run()}

    def at(self, *names):
        return os.path.join(self.disk["at"], *names)

    def prepare(self):
        """The commands that run before the copy; when they end, their changes are on the disk."""
        if not self.cycle or self.prepared:
            return []
        return [["rm", "-rf", self.at(self.top)], ["sync", "-f", self.disk["at"]]]

    def run(self):
        return [[self.programs + "/rdcp"] + (["-a", "-H"] if self.times else ["-r"]) + ["--fsync", "--json"] +
                self.options + [self.path + "/", self.at(self.top)]]

    # ---- the reports of the guest --------------------------------------------------------

    def begin(self):
        self.interrupted = True
        if self.prepare():
            self.ledger.loosen(self.top)

    def is_prepared(self):
        if self.prepare():
            self.ledger.settle(self.top, {})
        self.prepared = True
        self.expect()

    def expect(self):
        for path, thing in self.effects.items():
            self.ledger.allow(path, thing.content)
        self.ledger.allow(self.top, ("dir", 0, None))
        self.ledger.clean.discard(self.top)
        self.ledger.linked = [n for n in self.ledger.linked if not n[0].startswith(self.top + "/")]

    def says(self, event):
        if event.get("type") != "file" or event["exit"] != 0 or event["deleted"] or not event["path"]:
            return
        path = os.path.join(self.top, event["path"])
        self.done(path, self.effects[path].content, "reported done")

    def done(self, path, content, why):
        self.ledger.promise(path, content, why)

    def exit(self, codes):
        """Takes the exit codes of a run, and returns the violations."""
        if any(codes):
            return ["%s %s generation %d ended with %s" % (self.disk["fs"], self.name, self.generation, codes)]
        self.complete()
        self.interrupted = False
        return []

    def complete(self):
        for path, thing in self.effects.items():
            self.done(path, thing.content, "exit 0")
            if self.times and self.keep_exact(thing):
                self.ledger.exact[path] = thing
        self.ledger.clean.add(self.top)
        if self.times and self.tree == "tree":
            self.ledger.linked.append([self.top + "/a/f1", self.top + "/linked"])

    def keep_exact(self, thing):
        return thing.content[KIND] != "link"


class New(Slot):
    cycle = True


class Over(Slot):
    """Over older contents, with times preserved."""


class Plain(Slot):
    """Without preserved metadata: a rerun sends everything again."""

    times = False


class InPlace(Slot):
    """All generations have the same sizes, so only the time of a torn file shows the next run that it is incomplete."""

    tree = "level"
    options = ["--inplace"]

    def expect(self):
        super().expect()
        for path, thing in self.effects.items():
            if thing.content[KIND] == "file":
                self.ledger.allow(path, ANY)


class Backup(Slot):
    options = ["--backup"]

    def expect(self):
        held = {path: self.ledger.holds(path) for path in self.effects}
        super().expect()
        self.old = {path: old for path, old in held.items()
                    if old is not ABSENT and old[KIND] != "dir" and old != self.effects[path].content}
        for path, old in self.old.items():
            self.ledger.allow(path + "~", old)
            self.ledger.backups.append((path, path + "~", old))
        # Only empty contents are ever equal. A newer empty file replaces the old one, which gets a backup too.
        for path, old in held.items():
            if old == self.effects[path].content == EMPTY:
                self.ledger.allow(path + "~", old)

    def done(self, path, content, why):
        super().done(path, content, why)
        if path in self.old:
            self.ledger.promise(path + "~", self.old[path], why)


class Delete(Slot):
    options = ["--delete"]

    def expect(self):
        super().expect()
        self.extra = [p for p in self.ledger.below(self.ledger.may, self.top)
                      if p not in self.effects and p != self.top]
        for path in self.extra:
            self.ledger.allow(path, ABSENT)

    def complete(self):
        for path in self.extra:
            self.ledger.promise(path, ABSENT, "exit 0 of --delete")
        super().complete()


class Remove(Slot):
    """Moves files from one directory of the disk to another."""

    options = ["--remove-source-files"]

    def origin(self):
        return self.name + "-from"

    def prepare(self):
        if self.prepared:
            return []
        return [["rm", "-rf", self.at(self.origin())], ["cp", "-a", self.path, self.at(self.origin())],
                ["sync", "-f", self.disk["at"]]]

    def run(self):
        words = super().run()
        words[0][-2] = self.at(self.origin()) + "/"
        return words

    def begin(self):
        self.interrupted = True
        if self.prepare():
            self.ledger.loosen(self.origin())

    def is_prepared(self):
        if self.prepare():
            self.ledger.settle(self.origin(), {os.path.join(self.origin(), p): content_of(e)
                                               for p, e in self.holds.items()})
            self.ledger.may[self.origin()] = {("dir", 0, None)}
        self.prepared = True
        self.expect()

    def files(self):
        for path, entry in self.holds.items():
            if entry[KIND] != "dir":
                yield os.path.join(self.origin(), path), os.path.join(self.top, path), content_of(entry)

    def expect(self):
        super().expect()
        for source, target, content in self.files():
            self.ledger.allow(source, ABSENT)
            self.ledger.removals.append((source, target, content))

    def keep_exact(self, thing):
        # Each removal changes the time of a source directory, so that of the target's is not compared.
        return thing.content[KIND] == "file"


class Huge(Slot):
    tree = "huge"

    def run(self):
        return [[self.programs + "/rdcp", "-p", "--fsync", "--mkpath", "--json", self.path + "/huge", self.at(self.top) + "/"]]


class Deep(Slot):
    tree = "small"
    cycle = True
    times = False

    def job(self):
        job = super().job()
        self.effects = {self.top + "/x/y/z/small": thing_of(self.holds["small"])}
        return job

    def run(self):
        return [[self.programs + "/rdcp", "--fsync", "--mkpath", "--json", self.path + "/small", self.at(self.top, "x/y/z/small")]]

    def expect(self):
        super().expect()
        for n in ("/x", "/x/y", "/x/y/z"):
            self.ledger.allow(self.top + n, ("dir", 0, None))

    def says(self, event):
        if event.get("type") == "file" and event["exit"] == 0:
            self.done(self.top + "/x/y/z/small", self.effects[self.top + "/x/y/z/small"].content, "reported done")


class Stream(Slot):
    """rdsend and rdrecv."""

    tree = "huge"
    times = False

    def run(self):
        port = str(7000 + self.disk["number"])
        return [[self.programs + "/rdrecv", "--fsync", "--mkpath", "-w", "60", "--transport=tcp", port, "-", self.at(self.top, "huge")],
                [self.programs + "/rdsend", "--transport=tcp", "--connect-timeout=60", "127.0.0.1", port, "-", self.path + "/huge"]]


KINDS = {"new": New, "over": Over, "plain": Plain, "inplace": InPlace, "backup": Backup, "delete": Delete,
         "remove": Remove, "huge": Huge, "deep": Deep, "stream": Stream}
